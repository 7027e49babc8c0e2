"""Lag-1 pairs of PIT values: do successive draws share randomness?

Hypothesis: PIT values along a sequence are independent and uniform (Rosenblatt), so pairs of
neighbours fall evenly into the cells of a grid. A reused seed, or noise shared between proposal and
residual, leaves every single law intact and shows here alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_unit_values

BINS = 10
MIN_PAIRS = 5 * BINS * BINS


@dataclass(frozen=True, slots=True)
class SerialPairs:
    """Test of independence of neighbours.

    Attributes:
      num_pairs: Disjoint neighbouring pairs (1st with 2nd, 3rd with 4th, ...) of all sequences.
      statistic: Chi-square over the 10 x 10 grid, about its uniform law; None below 500 pairs.
      df: 99, or 0 where there is no statistic.
      p_value: Upper tail; 1 where there is no statistic.
      correlation: Mean product of the pairs' normal scores, whose null mean is 0: a description,
        which may pass 1. 0 for fewer than two pairs.
    """

    num_pairs: int
    statistic: float | None
    df: int
    p_value: float
    correlation: float


def serial_pairs(values: ArrayLike, sequence: ArrayLike | None = None) -> SerialPairs:
    """Test PIT values for dependence between neighbours.

    Pairs are disjoint, so under the hypothesis they are independent and the chi-square is Pearson's
    own; overlapping pairs would need another covariance.

    Args:
      values: [draws] PIT values in [0, 1], in the order of the draws.
      sequence: [draws] integer id of the sequence that each belongs to; pairs never cross from one
        to another. A sequence is a run of equal ids. None is one sequence.

    Returns:
      The test.

    Raises:
      InputError: A value outside [0, 1], or shapes that differ.
    """
    pit = checked_unit_values(values)
    ids = np.zeros(pit.shape, dtype=np.int64) if sequence is None else np.asarray(sequence)
    if ids.shape != pit.shape:
        raise InputError(
            f"values has shape {pit.shape} and sequence {ids.shape}: one axis of equal length "
            "required"
        )
    starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1]))) if pit.size else ids
    offset = np.arange(pit.size) - np.repeat(starts, np.diff(np.append(starts, pit.size)))
    second = np.flatnonzero(offset % 2 == 1)
    left, right = pit[second - 1], pit[second]
    correlation = 0.0
    if second.size > 1:
        scores = stats.norm.ppf(np.clip(np.stack((left, right)), 1e-12, 1 - 1e-12))
        correlation = float((scores[0] * scores[1]).mean())
    if second.size < MIN_PAIRS:
        return SerialPairs(second.size, None, 0, 1.0, correlation)
    column = np.minimum((left * BINS).astype(np.int64), BINS - 1)
    row = np.minimum((right * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(column * BINS + row, minlength=BINS * BINS)
    expected = second.size / BINS**2
    statistic = float(((counts - expected) ** 2 / expected).sum())
    df = BINS * BINS - 1
    p_value = float(stats.chi2.sf(statistic, df))
    return SerialPairs(second.size, statistic, df, p_value, correlation)


def following_pairs(left: ArrayLike, right: ArrayLike) -> SerialPairs:
    """Test whether values depend on the ones before them, where these need not be uniform.

    For pairs that were chosen by something known before `right` was drawn, as those are whose left
    member ended a round: it is then a residual or bonus token and its PIT value has another law.
    Under the hypothesis `right` is uniform whatever came before, so the counts of each row of the
    grid are spread evenly over its columns, and those of all visits of a row are independent draws
    however the visits came about. Pairs may overlap.

    Args:
      left: [pairs] values in [0, 1] that came before.
      right: [pairs] PIT values in [0, 1].

    Returns:
      The test: chi-square over the rows with fifty pairs or more, nine degrees of freedom each.

    Raises:
      InputError: A value outside [0, 1], or shapes that differ.
    """
    before, after = checked_unit_values(left, "left"), checked_unit_values(right, "right")
    if before.shape != after.shape:
        raise InputError(
            f"left has shape {before.shape} and right {after.shape}: equal lengths required"
        )
    correlation = 0.0
    if before.size > 1:
        scores = stats.norm.ppf(np.clip(np.stack((before, after)), 1e-12, 1 - 1e-12))
        correlation = float((scores[0] * scores[1]).mean())
    row = np.minimum((before * BINS).astype(np.int64), BINS - 1)
    column = np.minimum((after * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(row * BINS + column, minlength=BINS * BINS).reshape(BINS, BINS)
    counts = counts[counts.sum(axis=1) >= MIN_PAIRS // BINS]
    if not len(counts):
        return SerialPairs(before.size, None, 0, 1.0, correlation)
    expected = counts.sum(axis=1, keepdims=True) / BINS
    statistic = float(((counts - expected) ** 2 / expected).sum())
    df = len(counts) * (BINS - 1)
    return SerialPairs(before.size, statistic, df, float(stats.chi2.sf(statistic, df)), correlation)
