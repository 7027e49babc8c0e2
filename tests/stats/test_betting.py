"""The betting bound: hand values, coverage by simulation, errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.stats.betting import mean_upper_bound, units_needed


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
