"""Equivalence tests: exact validity at the boundary, the size that a claim takes, errors."""

import math

import numpy as np
import pytest
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.equivalence import event_equivalence_p, mean_equivalence_p


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("delta", [0.1, 0.7])
def test_truth_at_the_boundary_is_rejected_at_most_as_often_as_the_level(
    probability: float, delta: float
) -> None:
    hits = np.arange(41)
    p_values = np.array([event_equivalence_p(int(k), 40, probability, delta) for k in hits])
    for truth in (probability - delta, probability + delta):
        if 0.0 <= truth <= 1.0:
            weight = stats.binom.pmf(hits, 40, truth)
            for alpha in (0.01, 0.1, 0.4):
                assert weight[p_values <= alpha].sum() <= alpha


def test_one_side_alone_is_caught() -> None:
    """Testing only "not larger" accepts a law that is far too small."""
    assert event_equivalence_p(0, 400, 0.5, 0.1) == pytest.approx(1.0)
    assert stats.binom.cdf(0, 400, 0.6) < 1e-100


def test_shift_of_a_fifth_of_a_percent_takes_about_a_million_draws() -> None:
    assert event_equivalence_p(500_000, 1_000_000, 0.5, 0.002) < 1e-4
    assert event_equivalence_p(50_000, 100_000, 0.5, 0.002) > 0.05


def test_a_mean_shift_by_hand() -> None:
    assert mean_equivalence_p(10.0, 1000, 2.0, 0.06) == pytest.approx(
        math.exp(-2 * 1000 * 0.025**2)
    )
    assert mean_equivalence_p(100.0, 1000, 2.0, 0.05) == 1.0


def test_no_draws_show_nothing_and_bad_input_is_named() -> None:
    assert event_equivalence_p(0, 0, 0.5, 0.1) == 1.0
    assert mean_equivalence_p(0.0, 0, 1.0, 0.1) == 1.0
    with pytest.raises(InputError, match="hits = 5"):
        event_equivalence_p(5, 4, 0.5, 0.1)
    with pytest.raises(InputError, match="probability = nan"):
        event_equivalence_p(1, 4, math.nan, 0.1)
    with pytest.raises(InputError, match="delta = 1"):
        event_equivalence_p(1, 4, 0.5, 1.0)
    with pytest.raises(InputError, match="deviation = nan"):
        mean_equivalence_p(math.nan, 4, 1.0, 0.1)
    with pytest.raises(InputError, match="width = 0"):
        mean_equivalence_p(0.0, 4, 0.0, 0.1)
