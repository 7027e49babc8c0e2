"""Pearson and G on one law: exact p-values by other means, calibration, errors."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.multinomial import g_test, pearson

RNG = np.random.default_rng
TESTS = [(pearson, 1.0), (g_test, 0.0)]


def by_sequences(counts: list[int], law: list[float], power: float) -> float:
    """Exact p-value, summing over sequences of draws and by scipy's statistic."""
    n = sum(counts)

    def statistic(row: Any) -> float:
        return float(stats.power_divergence(row, n * np.array(law), lambda_=power).statistic)

    bar, p_value = statistic(counts), 0.0
    for sequence in product(range(len(law)), repeat=n):
        if statistic(np.bincount(sequence, minlength=len(law))) >= bar - 1e-9:
            p_value += float(np.prod([law[token] for token in sequence]))
    return p_value


@pytest.mark.parametrize(("test", "power"), TESTS)
@given(st.lists(st.integers(0, 2), min_size=3, max_size=3).filter(any))
@settings(max_examples=10, deadline=None)
def test_exact_p_value_equals_the_sum_over_sequences(
    test: Any, power: float, counts: list[int]
) -> None:
    law = [0.5, 0.3, 0.2]
    found = test(counts, law, RNG(0))
    assert found.method == "exact"
    assert found.p_value == pytest.approx(by_sequences(counts, law, power), rel=1e-9)


@pytest.mark.parametrize(("test", "power"), TESTS)
def test_limiting_law_equals_scipy_where_nothing_is_pooled(test: Any, power: float) -> None:
    found = test([30, 50, 20], [0.25, 0.5, 0.25], RNG(0), method="chi-square")
    known = stats.power_divergence([30, 50, 20], [25, 50, 25], lambda_=power)
    assert found.statistic == pytest.approx(known.statistic)
    assert found.p_value == pytest.approx(known.pvalue)


@pytest.mark.parametrize(("test", "power"), TESTS)
def test_monte_carlo_agrees_with_enumeration(test: Any, power: float) -> None:
    """9,999 draws: standard error at most 0.005; seven of them."""
    counts, law = [4, 3, 0, 1], [0.3, 0.3, 0.3, 0.1]
    exact = test(counts, law, RNG(0), method="exact").p_value
    assert test(counts, law, RNG(3), method="monte carlo").p_value == pytest.approx(
        exact, abs=0.035
    )


def test_the_monte_carlo_p_value_is_never_zero() -> None:
    found = pearson([0, 4], [0.99, 0.01], RNG(0), method="monte carlo", draws=999)
    assert found.p_value == pytest.approx(1e-3)


def test_few_draws_on_many_cells_are_simulated_and_many_pooled() -> None:
    law = np.full(1000, 1e-3)
    assert pearson(np.eye(1000)[0] * 4, law, RNG(0)).method == "monte carlo"
    skewed = np.concatenate(([0.5, 0.3], np.full(1000, 2e-4)))
    found = pearson(np.bincount([0] * 60 + [1] * 20 + [9] * 20, minlength=1002), skewed, RNG(0))
    assert (found.method, found.num_cells) == ("chi-square", 3)


def test_exact_p_values_reject_at_most_as_often_as_they_say() -> None:
    """All outcomes of 6 draws on 4 cells: P(p <= a) <= a at every attained a, no simulation."""
    law = np.array([0.4, 0.3, 0.2, 0.1])
    outcomes = [row for row in product(range(7), repeat=4) if sum(row) == 6]
    weight = stats.multinomial.pmf(outcomes, 6, law)
    p_values = np.array([pearson(row, law, RNG(0)).p_value for row in outcomes])
    for level in p_values:
        assert weight[p_values <= level * (1 + 1e-9)].sum() <= level * (1 + 1e-6)


def test_an_impossible_outcome_has_p_value_zero() -> None:
    found = g_test([5, 1], [1.0, 0.0], RNG(0))
    assert (found.p_value, found.method) == (0.0, "support")


def test_one_certain_outcome_and_no_draws_test_nothing() -> None:
    assert pearson([5], [1.0], RNG(0)).p_value == 1.0
    assert g_test([0, 0], [0.5, 0.5], RNG(0)).p_value == 1.0


@pytest.mark.parametrize(
    ("counts", "law", "error", "message"),
    [
        ([1, 1], [0.5, 0.6], LawError, "law, row 0 sums to 1.1"),
        ([1, 1], [1.5, -0.5], LawError, "row 0, outcome 1 = -0.5"),
        ([1, 1], [np.nan, 1.0], LawError, "row 0, outcome 0 = nan"),
        ([1, 1, 1], [0.5, 0.5], InputError, r"counts has shape \(3,\): \(2,\) required"),
        ([1, -1], [0.5, 0.5], InputError, r"counts\[1\] = -1"),
        ([0.5, 1], [0.5, 0.5], InputError, r"counts\[0\] = 0.5: an integer"),
        ([1, np.nan], [0.5, 0.5], InputError, r"counts\[1\] = nan"),
        ([], [], LawError, "at least one outcome"),
    ],
)
def test_bad_input_is_named(counts: Any, law: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pearson(counts, law, RNG(0))


def test_an_exact_null_that_is_too_large_is_refused() -> None:
    with pytest.raises(InputError, match="too many outcomes for an exact null"):
        pearson([100] * 20, np.full(20, 0.05), RNG(0), method="exact")
