"""The betting bound: hand values, coverage by simulation, errors."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.errors import InputError
from rheocheck.stats.betting import (
    _cautious_bets,
    _log_wealth,
    mean_excess_p_value,
    mean_lower_bound,
    mean_upper_bound,
    units_needed,
)


def test_459_zeros_certify_one_percent_and_458_do_not() -> None:
    assert mean_upper_bound(np.zeros(459), 0.01) <= 0.01 < mean_upper_bound(np.zeros(458), 0.01)
    assert units_needed(0.01, 0.01) == 459


def test_4603_zeros_certify_one_in_a_thousand() -> None:
    assert units_needed(0.001, 0.01) == 4603
    assert mean_upper_bound(np.zeros(4603), 0.01) <= 0.001


def test_equal_small_values_cost_themselves_and_the_logarithm() -> None:
    tau, units = 1e-3, 500
    bound = mean_upper_bound(np.full(units, tau), 0.01)
    assert bound == pytest.approx(tau + math.log(100) / units, rel=0.02)


def test_no_units_bound_nothing() -> None:
    assert mean_upper_bound([], 0.01) == 1.0


def test_one_certain_loss_does_not_ruin_the_bound() -> None:
    """The bold bet is broke after a value of 1; the cautious purse still bounds the mean."""
    values = np.zeros(500)
    values[100] = 1.0
    assert mean_upper_bound(values, 0.01) < 0.06


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from([0.01, 0.05, 0.3]))
@settings(max_examples=30, deadline=None)
def test_the_bound_lies_between_the_mean_and_one(values: list[float], alpha: float) -> None:
    assert np.mean(values) <= mean_upper_bound(values, alpha) + 1e-12 <= 1.0 + 1e-12


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_coverage_on_coin_flips(share: float) -> None:
    """At alpha 0.1 at most 10 % of bounds fall below the true mean.

    300 replays; a true miss rate of 10 % gives more than 55 misses with probability 1e-6.
    """
    rng = np.random.default_rng(7)
    misses = sum(mean_upper_bound(rng.random(60) < share, 0.1) < share for _ in range(300))
    assert misses <= 55


def test_a_bound_that_forgets_alpha_is_caught() -> None:
    """The coverage test has teeth: the sample mean itself misses about half of the time."""
    rng = np.random.default_rng(7)
    assert sum((rng.random(60) < 0.3).mean() < 0.3 for _ in range(300)) > 55


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_values_outside_the_unit_interval_are_named(bad: float) -> None:
    with pytest.raises(ValueError, match=r"values\[1\] = .*must lie in \[0, 1\]"):
        mean_upper_bound([0.5, bad], 0.01)


def test_alpha_must_be_a_probability() -> None:
    with pytest.raises(ValueError, match=r"alpha = 0\.0"):
        mean_upper_bound([0.5], 0.0)


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_exact_coverage_over_all_outcomes(alpha: float) -> None:
    """Eight coins, every outcome weighed by its probability; order matters to the cautious purse.

    The bound may miss a mean with probability at most alpha, and does so by enumeration.
    """
    outcomes = list(product((0.0, 1.0), repeat=8))
    bounds = np.array([mean_upper_bound(np.array(row), alpha) for row in outcomes])
    heads = np.array([sum(row) for row in outcomes])
    for mean in (0.01, 0.05, 0.2, 0.35, 0.6, 0.9):
        weight = mean**heads * (1 - mean) ** (8 - heads)
        assert weight[bounds < mean - 1e-12].sum() <= alpha


def test_units_with_unlike_means_are_bounded_on_average() -> None:
    """Half of eight coins at 0.5 and half at 0.02, by enumeration: mean 0.26."""
    rates = np.array([0.5, 0.02] * 4)
    missed = 0.0
    for row in product((0.0, 1.0), repeat=8):
        values = np.array(row)
        if mean_upper_bound(values, 0.1) < rates.mean() - 1e-12:
            missed += float(np.prod(np.where(values == 1.0, rates, 1.0 - rates)))
    assert missed <= 0.1


def test_one_unit_by_hand() -> None:
    """One zero at alpha 1/2: the bold purse doubles where 1 / (1 - mean) = 2, at a mean of 1/2.

    The cautious share of 1e-4 stays near 1 and moves the bound by about a ten-thousandth.
    """
    assert mean_upper_bound([0.0], 0.5) == pytest.approx(0.5, abs=1e-4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from([0.01, 0.3]))
@settings(max_examples=40, deadline=None)
def test_wealth_grows_with_the_mean_so_nothing_lies_beyond_the_bound(
    values: list[float], alpha: float
) -> None:
    units = np.array(values)
    bets = _cautious_bets(units, alpha)
    wealth = [_log_wealth(units, bets, mean) for mean in np.linspace(0.0, 0.999, 60)]
    assert all(low <= high + 1e-9 for low, high in pairwise(wealth))


def test_the_lower_bound_mirrors_the_upper_one() -> None:
    values = np.random.default_rng(0).beta(2, 30, size=80)
    assert mean_lower_bound(values, 0.01) == 1.0 - mean_upper_bound(1.0 - values, 0.01)
    assert 0.0 < mean_lower_bound(values, 0.01) < values.mean()
    assert mean_lower_bound([], 0.01) == 0.0


@pytest.mark.parametrize("alpha", [0.3, 0.01, 1e-6])
@pytest.mark.parametrize("mean", [0.0, 0.012, 0.02, 0.03, 0.5, 1.0])
def test_the_p_value_is_small_where_the_lower_bound_is_above(alpha: float, mean: float) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).beta(20, 800, size=120)
        refuted = mean_lower_bound(values, alpha) > mean
        assert (mean_excess_p_value(values, mean, alpha) <= alpha) == refuted


def test_p_values_of_an_excess_at_the_ends() -> None:
    assert mean_excess_p_value([], 0.1, 0.01) == 1.0
    assert mean_excess_p_value(np.zeros(50), 0.0, 0.01) == 1.0
    assert mean_excess_p_value([0.0, 1e-9], 0.0, 0.01) == 0.0
    assert mean_excess_p_value(np.ones(50), 1.0, 0.01) == 1.0
    with pytest.raises(InputError, match="must lie in"):
        mean_excess_p_value([0.5], 1.5, 0.01)


def test_p_values_of_an_excess_are_valid() -> None:
    """At the true mean at most 5 % are below 0.05.

    400 replays; a true rate of 5 % gives more than 46 with probability 1e-6.
    """
    rng = np.random.default_rng(11)
    small = [mean_excess_p_value(rng.random(60) < 0.1, 0.1, 1e-6) <= 0.05 for _ in range(400)]
    assert sum(small) <= 46
