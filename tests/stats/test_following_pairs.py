"""Pairs whose left member is not uniform: level kept, dependence found, edges."""

import numpy as np
import pytest
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.serial_pairs import following_pairs, serial_pairs


def test_a_skewed_left_member_is_no_evidence_and_the_level_is_kept() -> None:
    """4,000 null runs of 700 pairs: rejections at 1e-2 within 5 standard errors of nominal."""
    rng = np.random.default_rng(0)
    runs, level = 4000, 1e-2
    p_values = np.array(
        [following_pairs(rng.beta(1, 3, 700), rng.random(700)).p_value for _ in range(runs)]
    )
    share = float((p_values < level).mean())
    assert abs(share - level) < 5 * np.sqrt(level / runs)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-9
    # The test of disjoint pairs takes both members for uniform, and would accuse these.
    assert serial_pairs(rng.beta(1, 3, 4000)).p_value < 1e-9


def test_overlapping_pairs_of_one_sequence_keep_the_level() -> None:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2000):
        values = rng.random(800)
        found.append(following_pairs(values[:-1], values[1:]).p_value)
    share = float((np.array(found) < 1e-2).mean())
    assert abs(share - 1e-2) < 5 * np.sqrt(1e-2 / 2000)


def test_a_value_that_follows_the_one_before_is_found() -> None:
    rng = np.random.default_rng(2)
    left = rng.beta(1, 3, 2000)
    right = np.where(rng.random(2000) < 0.2, left, rng.random(2000))
    found = following_pairs(left, right)
    assert found.p_value < 1e-9
    assert found.df % 9 == 0 and 0 < found.df <= 90


def test_few_pairs_and_bad_ones() -> None:
    none = following_pairs([], [])
    assert (none.num_pairs, none.statistic, none.df, none.p_value) == (0, None, 0, 1.0)
    assert following_pairs([0.5] * 49, [0.1] * 49).p_value == 1.0
    assert following_pairs([0.5] * 50, [0.1] * 50).df == 9
    assert following_pairs([0.5] * 50, [0.1] * 50).statistic == pytest.approx(450.0)
    with pytest.raises(InputError, match=r"left has shape \(1,\) and right \(2,\)"):
        following_pairs([0.5], [0.5, 0.5])
    with pytest.raises(InputError, match="right"):
        following_pairs([0.5], [1.5])
