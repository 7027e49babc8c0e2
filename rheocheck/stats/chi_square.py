"""Chi-square tests of draws from known laws, equal ones or one law a context.

Cells that expect too few draws are pooled by their known probability before the draws are looked
at, and never dropped: the pooled cell keeps their mass and their degree of freedom.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

MIN_EXPECTED = 5.0
MONTE_CARLO_DRAWS = 9_999


@dataclass(frozen=True, slots=True)
class GoodnessOfFit:
    """Result of one chi-square test.

    Attributes:
      statistic: Quadratic form of observed minus expected counts.
      df: Degrees of freedom; 0 where nothing can be tested (one cell), and then p_value is 1.
      p_value: Upper tail.
      num_samples: Draws.
      num_cells: Cells after pooling.
      method: "chi-square", "scaled chi-square" (two exact moments matched) or "monte carlo".
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
    """
    counts = np.asarray(expected, dtype=np.float64)
    large = counts >= minimum
    # A shared cell with no mass at all is harmless to merge, and a test with an empty cell is not.
    while not large.all() and large.any() and counts[~large].sum() < minimum:
        smallest = counts[large].min()
        large[np.flatnonzero(large & (counts == smallest))[-1]] = False
    cell = np.full(counts.shape, int(large.sum()), dtype=np.int64)
    cell[large] = np.arange(int(large.sum()))
    return cell


def pearson(
    counts: ArrayLike,
    law: ArrayLike,
    rng: np.random.Generator,
    minimum: float = MIN_EXPECTED,
) -> GoodnessOfFit:
    """Pearson's test of draws from one law.

    Args:
      counts: [outcomes] draws of each outcome.
      law: [outcomes] null probabilities, summing to 1.
      rng: Draws the Monte Carlo null where pooling leaves fewer than two cells.
      minimum: Smallest expected count of a cell.

    Returns:
      The test. The p-value of a Monte Carlo null is (1 + hits) / (1 + draws), never 0. An outcome
      of probability 0 that was drawn makes the statistic infinite and the p-value 0.
    """
    observed = np.asarray(counts, dtype=np.int64)
    null = np.asarray(law, dtype=np.float64)
    num_samples = int(observed.sum())
    if np.any((null <= 0) & (observed > 0)):
        return GoodnessOfFit(math.inf, 0, 0.0, num_samples, len(null), "support")
    cell = pool_cells(num_samples * null, minimum)
    num_cells = int(cell.max()) + 1
    if num_cells > 1:
        statistic = _pearson_statistic(
            np.bincount(cell, observed), np.bincount(cell, num_samples * null)
        )
        p_value = float(stats.chi2.sf(statistic, num_cells - 1))
        return GoodnessOfFit(
            statistic, num_cells - 1, p_value, num_samples, num_cells, "chi-square"
        )
    positive = null > 0
    if num_samples == 0 or positive.sum() < 2:
        return GoodnessOfFit(0.0, 0, 1.0, num_samples, int(positive.sum()), "chi-square")
    expected = num_samples * null[positive]
    statistic = _pearson_statistic(observed[positive], expected)
    simulated = rng.multinomial(num_samples, null[positive] / null.sum(), MONTE_CARLO_DRAWS)
    nulls = ((simulated - expected) ** 2 / expected).sum(axis=1)
    # A tie counts as a hit; equal sums may differ in the last digits.
    hits = int((nulls >= statistic * (1 - 1e-12)).sum())
    return GoodnessOfFit(
        statistic,
        int(positive.sum()) - 1,
        (1 + hits) / (1 + MONTE_CARLO_DRAWS),
        num_samples,
        int(positive.sum()),
        "monte carlo",
    )


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
      The test; df 0 and p-value 1 where every context's cell is certain.
    """
    counts = np.asarray(observed, dtype=np.float64)
    num_samples = len(probabilities)
    if num_samples == 0:
        return GoodnessOfFit(0.0, 0, 1.0, 0, 0, "scaled chi-square")
    cell = pool_cells(probabilities.sum(axis=0), minimum)
    num_cells = int(cell.max()) + 1
    membership = np.zeros((probabilities.shape[1], num_cells))
    membership[np.arange(len(cell)), cell] = 1.0
    pooled = probabilities @ membership
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
    variance = _quadratic_form_variance(pooled, inverse, df)
    # scale * chi2(shape) has mean df and the exact variance.
    scale = variance / (2.0 * df)
    p_value = float(stats.chi2.sf(statistic / scale, df / scale))
    return GoodnessOfFit(statistic, df, p_value, num_samples, num_cells, "scaled chi-square")


def _pearson_statistic(observed: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


def _quadratic_form_variance(
    laws: NDArray[np.float64], form: NDArray[np.float64], rank: int
) -> float:
    """Variance of d' form d for d = sum of independent (unit vector - law), form = S^+.

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
    return float(2.0 * rank + (fourth - trace**2 - 2.0 * trace_of_square).sum())
