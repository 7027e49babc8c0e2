"""Plug-in total variation: exact null means against enumeration and simulation."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.total_variation import (
    binomial_mean_deviation,
    mcdiarmid_p,
    plug_in,
    plug_in_over_contexts,
    poisson_binomial_mean_deviation,
    total_variation,
)


@given(st.integers(1, 60), st.floats(0, 1))
@example(1, 0.0)
@example(1, 1.0)
@example(3, 1.0 - 2**-53)
@example(4, 0.25)
@settings(max_examples=60, deadline=None)
def test_de_moivre_equals_the_sum_over_outcomes(num_samples: int, probability: float) -> None:
    counts = np.arange(num_samples + 1)
    law = stats.binom.pmf(counts, num_samples, probability)
    direct = float((np.abs(counts - num_samples * probability) * law).sum())
    found = float(binomial_mean_deviation(num_samples, [probability])[0])
    assert found == pytest.approx(direct, rel=1e-9, abs=1e-12)


@given(st.lists(st.floats(0, 1), max_size=12))
@example([0.5])
@example([1.0, 0.0])
@example([0.5] * 12)
@settings(max_examples=60, deadline=None)
def test_poisson_binomial_equals_the_convolution(probabilities: list[float]) -> None:
    law = np.ones(1)
    for probability in probabilities:
        law = np.convolve(law, [1.0 - probability, probability])
    direct = (np.abs(np.arange(len(law)) - sum(probabilities)) * law).sum()
    assert poisson_binomial_mean_deviation(probabilities) == pytest.approx(direct, abs=1e-9)


def test_equal_probabilities_bring_back_de_moivre() -> None:
    for probability in (0.001, 0.04, 0.3, 0.97):
        pooled = poisson_binomial_mean_deviation(np.full(3000, probability))
        assert pooled == pytest.approx(binomial_mean_deviation(3000, [probability])[0], rel=1e-8)


def test_plug_in_null_mean_equals_enumeration() -> None:
    law = np.array([0.5, 0.3, 0.2, 0.0])
    mean = 0.0
    for draws in product(range(4), repeat=3):
        counts = np.bincount(draws, minlength=4)
        mean += float(np.prod(law[list(draws)])) * plug_in(counts, law).value
    assert plug_in([1, 1, 1, 0], law).null_mean == pytest.approx(mean, rel=1e-12)


def test_the_usual_formula_is_wrong_for_a_long_tail() -> None:
    """Zipf's law on 128k tokens, 1,000 draws: 0.14 by De Moivre, 0.56 by the normal formula."""
    weights = 1.0 / np.arange(1, 128_001) ** 1.5
    law = weights / weights.sum()
    exact = plug_in(np.bincount([0], minlength=128_000) * 1000, law).null_mean
    usual = np.sqrt(law * (1 - law)).sum() / np.sqrt(2 * np.pi * 1000)
    assert exact < 0.2 < 0.5 * usual


def test_null_mean_and_spread_over_contexts_agree_with_simulation() -> None:
    """300 replays of 400 contexts on 30 cells: the mean within 6 standard errors."""
    rng = np.random.default_rng(1)
    laws = rng.dirichlet(np.full(30, 0.1), size=400)
    values = []
    for _ in range(300):
        tokens = (rng.random(400)[:, None] > laws.cumsum(axis=1)).sum(axis=1).clip(max=29)
        values.append(np.abs(np.bincount(tokens, minlength=30) - laws.sum(axis=0)).sum() / 800)
    found = plug_in_over_contexts(np.bincount([0] * 400, minlength=30), laws)
    assert abs(np.mean(values) - found.null_mean) < 6 * np.std(values) / np.sqrt(300)
    assert found.null_spread == pytest.approx(np.std(values), rel=0.3)


def test_treating_contexts_as_one_law_is_caught() -> None:
    """The simulation has teeth: the pooled multinomial formula overstates the mean by a seventh."""
    rng = np.random.default_rng(1)
    laws = rng.dirichlet(np.full(30, 0.1), size=400)
    right = plug_in_over_contexts(np.bincount([0] * 400, minlength=30), laws).null_mean
    wrong = plug_in(np.bincount([0] * 400, minlength=30), laws.mean(axis=0)).null_mean
    assert wrong > 1.1 * right


def test_no_draws_give_zero() -> None:
    assert plug_in([0, 0], [0.5, 0.5]).value == 0.0
    assert plug_in_over_contexts([0, 0], np.zeros((0, 2))).z == 0.0


def test_total_variation_by_hand() -> None:
    assert total_variation(np.array([1.0, 0.0]), np.array([0.25, 0.75])) == pytest.approx(0.75)


def test_bad_input_is_named() -> None:
    with pytest.raises(LawError, match=r"sums to 0\.9"):
        plug_in([1, 1], [0.5, 0.4])
    with pytest.raises(InputError, match=r"counts\[1\] = -1"):
        plug_in([1, -1], [0.5, 0.5])
    with pytest.raises(LawError, match="laws, row 1"):
        plug_in_over_contexts([1, 1], np.array([[0.5, 0.5], [np.nan, 1.0]]))
    with pytest.raises(InputError, match="counts sum to 3: one draw a context, 2"):
        plug_in_over_contexts([1, 2], np.array([[0.5, 0.5]] * 2))
    with pytest.raises(InputError, match=r"probabilities\[0\] = 1.5"):
        poisson_binomial_mean_deviation([1.5])
    with pytest.raises(InputError, match="num_samples = -1"):
        binomial_mean_deviation(-1, [0.5])
    with pytest.raises(InputError, match=r"law\[0\] = nan"):
        binomial_mean_deviation(3, [np.nan])
    with pytest.raises(InputError, match="excess = nan"):
        mcdiarmid_p(float("nan"), 3)
    assert mcdiarmid_p(-0.1, 3) == mcdiarmid_p(0.5, 0) == 1.0
    with pytest.raises(InputError, match="one vocabulary needed"):
        total_variation(np.array([1.0, 0.0]), np.array([1.0]))
