"""Chi-square test of one draw from each of many known laws, and the pooling of small cells.

Cells that expect too few draws are pooled by their known probability before the draws are looked
at, and never dropped: the pooled cell keeps their mass and their degree of freedom.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_counts, checked_laws

MIN_EXPECTED = 5.0


@dataclass(frozen=True, slots=True)
class GoodnessOfFit:
    """Result of one test of fit.

    Attributes:
      statistic: Large where the draws do not fit; infinite for an impossible outcome.
      df: Degrees of freedom; 0 where nothing can be tested (one cell), and then p_value is 1.
      p_value: Upper tail.
      num_samples: Draws.
      num_cells: Cells after pooling.
      method: How the p-value was got: "chi-square" (limiting law), "scaled chi-square" (two exact
        moments matched), "exact" (all outcomes enumerated), "monte carlo" or "support".
    """

    statistic: float
    df: int
    p_value: float
    num_samples: int
    num_cells: int
    method: str


def pool_cells(expected: ArrayLike, minimum: float = MIN_EXPECTED) -> NDArray[np.int64]:
    """Cell of each outcome: outcomes that expect fewer than `minimum` draws share the last cell.

    Args:
      expected: [outcomes] expected counts under the null, at least 0.
      minimum: Smallest expected count of a cell.

    Returns:
      [outcomes] cell index, 0 .. cells-1. Large cells keep the order of the outcomes. If the shared
      cell would itself expect less than `minimum`, the smallest large cell (the last one on ties)
      joins it, so every cell expects at least `minimum` unless the total does not.

    Raises:
      InputError: No outcomes, or an expected count that is negative or no finite number.
    """
    counts = np.asarray(expected, dtype=np.float64)
    if counts.ndim != 1 or counts.size == 0:
        raise InputError(f"expected has shape {counts.shape}: one axis of at least one required")
    bad = np.flatnonzero(~((counts >= 0) & np.isfinite(counts)))
    if bad.size:
        first = int(bad[0])
        raise InputError(f"expected[{first}] = {counts[first]}: a finite count >= 0 required")
    large = counts >= minimum
    # A shared cell with no mass at all is harmless to merge, and a test with an empty cell is not.
    while not large.all() and large.any() and counts[~large].sum() < minimum:
        smallest = counts[large].min()
        large[np.flatnonzero(large & (counts == smallest))[-1]] = False
    cell = np.full(counts.shape, int(large.sum()), dtype=np.int64)
    cell[large] = np.arange(int(large.sum()))
    return cell


def bucket_chi_square(
    observed: ArrayLike, probabilities: NDArray[np.float64], minimum: float = MIN_EXPECTED
) -> GoodnessOfFit:
    """Chi-square test of one draw from each of many known laws, by cells common to all.

    The counts' covariance is S = sum_c (diag P_c - P_c P_c'), not diag(expected): with unlike
    contexts Pearson's own statistic would be far too small. The statistic is d' S^+ d for d =
    observed - expected. Its null mean is the rank of S; its null variance is computed exactly from
    the contexts' fourth moments, and a scaled chi-square with both moments gives the p-value, which
    corrects most of what rare cells do to the tail.

    Args:
      observed: [cells] counts, summing to the number of contexts.
      probabilities: [contexts, cells] each row the null law of that context's cell, summing to 1.
      minimum: Cells that expect less are pooled first.

    Returns:
      The test; df 0 and p-value 1 where every context's cell is certain, and for no contexts. A
      cell that no context gives any mass, drawn all the same, has p-value 0.

    Raises:
      LawError: A row of `probabilities` that is no law.
      InputError: Counts of another length or with another sum than the number of contexts.
    """
    laws = checked_laws(probabilities, "probabilities")
    num_samples = len(laws)
    counts = checked_counts(observed, laws.shape[1], "observed")
    if counts.sum() != num_samples:
        raise InputError(f"observed sums to {counts.sum()}: one draw a context, {num_samples}")
    if num_samples == 0:
        return GoodnessOfFit(0.0, 0, 1.0, 0, 0, "scaled chi-square")
    if counts[laws.max(axis=0) == 0.0].any():
        return GoodnessOfFit(math.inf, 0, 0.0, num_samples, laws.shape[1], "support")
    cell = pool_cells(laws.sum(axis=0), minimum)
    num_cells = int(cell.max()) + 1
    membership = np.zeros((laws.shape[1], num_cells))
    membership[np.arange(len(cell)), cell] = 1.0
    pooled = laws @ membership
    deviation = counts @ membership - pooled.sum(axis=0)
    covariance = np.diag(pooled.sum(axis=0)) - pooled.T @ pooled
    values, vectors = np.linalg.eigh(covariance)
    # A direction with less variance than a thousandth of a draw cannot be tested by counting.
    kept = values > max(1e-3, 1e-9 * float(values[-1]))
    df = int(kept.sum())
    if df == 0:
        return GoodnessOfFit(0.0, 0, 1.0, num_samples, num_cells, "scaled chi-square")
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    statistic = float(deviation @ inverse @ deviation)
    variance = quadratic_form_variance(pooled, inverse, df)
    # scale * chi2(shape) has mean df and the exact variance.
    scale = variance / (2.0 * df)
    p_value = float(stats.chi2.sf(statistic / scale, df / scale))
    return GoodnessOfFit(statistic, df, p_value, num_samples, num_cells, "scaled chi-square")


def quadratic_form_variance(
    laws: NDArray[np.float64],
    form: NDArray[np.float64],
    rank: int,
    visits: NDArray[np.float64] | float = 1.0,
) -> float:
    """Variance of d' form d for d = sum of independent (unit vector - law), form = S^+.

    `visits` says how many draws each law has, one if it is not given.

    With w_c = unit(x_c) - P_c it is 2 tr((form S)^2) + sum_c [E (w_c' form w_c)^2 - (tr form S_c)^2
    - 2 tr((form S_c)^2)], and the first term is 2 * rank because form S is a projection.
    """
    image = laws @ form
    inner = (image * laws).sum(axis=1)
    diagonal = np.diag(form)
    squares = diagonal[None, :] - 2.0 * image + inner[:, None]
    fourth = (laws * squares**2).sum(axis=1)
    trace = laws @ diagonal - inner
    trace_of_square = (
        ((laws @ form**2) * laws).sum(axis=1) - 2.0 * (laws * image**2).sum(axis=1) + inner**2
    )
    return float(2.0 * rank + (visits * (fourth - trace**2 - 2.0 * trace_of_square)).sum())
