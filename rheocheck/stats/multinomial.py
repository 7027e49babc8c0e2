"""Tests of draws from one known law: Pearson's statistic and the likelihood ratio G.

The p-value is exact wherever the outcomes can be enumerated, the limiting chi-square where every
pooled cell expects five draws, and a Monte Carlo one elsewhere. Cells are pooled by their known
probability and never dropped.
"""

import math
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from rheocheck.errors import InputError
from rheocheck.stats.chi_square import MIN_EXPECTED, GoodnessOfFit, pool_cells
from rheocheck.stats.inputs import checked_counts, checked_law

MONTE_CARLO_DRAWS = 9_999
# Count vectors that are enumerated at most.
EXACT_OUTCOMES = 20_000
# Equal statistics may differ in the last digits, and a tie counts as a hit.
_TIE = 1.0 - 1e-12

Method = Literal["auto", "exact", "chi-square", "monte carlo"]


def pearson(
    counts: ArrayLike,
    law: ArrayLike,
    rng: np.random.Generator,
    minimum: float = MIN_EXPECTED,
    method: Method = "auto",
    draws: int = MONTE_CARLO_DRAWS,
) -> GoodnessOfFit:
    """Pearson's test: sum (observed - expected)^2 / expected.

    Args:
      counts: [outcomes] draws of each outcome.
      law: [outcomes] null probabilities, summing to 1.
      rng: Draws the Monte Carlo null.
      minimum: Smallest expected count of a cell under the limiting law.
      method: "auto" enumerates where at most 20,000 count vectors exist, takes the limiting law
        where pooling leaves two cells or more, and draws otherwise.
      draws: Monte Carlo draws.

    Returns:
      The test. "exact": the probability of a statistic at least as large, over all outcomes.
      "chi-square": approximate. "monte carlo": (1 + hits) / (1 + draws), valid at every number of
      draws and never 0. "exact" and "monte carlo" reject at most as often as their level says. An
      outcome of probability 0 that was drawn makes the statistic infinite and the p-value 0. No
      draws, or one outcome with all the mass: p-value 1.

    Raises:
      LawError: `law` is no law.
      InputError: `counts` are none, no Monte Carlo draws, or an exact null was asked for that is
        too large.
    """
    return _goodness_of_fit("pearson", counts, law, rng, minimum, method, draws)


def g_test(
    counts: ArrayLike,
    law: ArrayLike,
    rng: np.random.Generator,
    minimum: float = MIN_EXPECTED,
    method: Method = "auto",
    draws: int = MONTE_CARLO_DRAWS,
) -> GoodnessOfFit:
    """Likelihood-ratio test G = 2 sum observed ln(observed / expected); see `pearson`.

    Better than Pearson's where a few cells carry the deviation, worse calibrated in small ones.
    """
    return _goodness_of_fit("g", counts, law, rng, minimum, method, draws)


def _goodness_of_fit(
    kind: str,
    counts: ArrayLike,
    law: ArrayLike,
    rng: np.random.Generator,
    minimum: float,
    method: Method,
    draws: int,
) -> GoodnessOfFit:
    if draws < 1:
        raise InputError(f"draws = {draws}: at least 1 required")
    null = checked_law(law)
    observed = checked_counts(counts, len(null))
    num_samples = int(observed.sum())
    positive = null > 0
    if observed[~positive].any():
        return GoodnessOfFit(math.inf, 0, 0.0, num_samples, len(null), "support")
    observed, null = observed[positive], null[positive] / null.sum()
    if num_samples == 0 or len(null) == 1:
        return GoodnessOfFit(0.0, 0, 1.0, num_samples, len(null), "exact")
    if method == "auto":
        method = _choose(num_samples, null, minimum)
    expected = num_samples * null
    if method == "chi-square":
        cell = pool_cells(expected, minimum)
        pooled = np.bincount(cell, expected)
        statistic = _statistic(kind, np.bincount(cell, observed), pooled)
        df = len(pooled) - 1
        p_value = float(stats.chi2.sf(statistic, df)) if df else 1.0
        return GoodnessOfFit(statistic, df, p_value, num_samples, len(pooled), method)
    statistic = _statistic(kind, observed.astype(np.float64), expected)
    if method == "exact":
        outcomes = _count_vectors(num_samples, len(null))
        log_weight = stats.multinomial.logpmf(outcomes, num_samples, null)
        hits = _statistics(kind, outcomes, expected) >= statistic * _TIE
        p_value = min(1.0, float(np.exp(log_weight[hits]).sum()))
    elif method == "monte carlo":
        simulated = rng.multinomial(num_samples, null, draws)
        hits = _statistics(kind, simulated, expected) >= statistic * _TIE
        p_value = (1 + int(hits.sum())) / (1 + draws)
    else:
        raise InputError(f"method = {method!r}: one of auto, exact, chi-square, monte carlo")
    return GoodnessOfFit(statistic, len(null) - 1, p_value, num_samples, len(null), method)


def _choose(num_samples: int, null: NDArray[np.float64], minimum: float) -> Method:
    if _num_count_vectors(num_samples, len(null)) <= EXACT_OUTCOMES:
        return "exact"
    two_cells = pool_cells(num_samples * null, minimum).max() > 0
    return "chi-square" if two_cells else "monte carlo"


def _statistic(kind: str, observed: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(_statistics(kind, observed[None, :], expected)[0])


def _statistics(kind: str, observed: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """[rows] statistic of each row of counts."""
    if kind == "g":
        ratio: NDArray[np.float64] = 2.0 * special.rel_entr(observed, expected).sum(axis=1)
        return np.maximum(ratio, 0.0)
    squares: NDArray[np.float64] = ((observed - expected) ** 2 / expected).sum(axis=1)
    return squares


def _num_count_vectors(num_samples: int, cells: int) -> int:
    return math.comb(num_samples + cells - 1, cells - 1)


@lru_cache(maxsize=16)
def _count_vectors(num_samples: int, cells: int) -> NDArray[np.int64]:
    """[vectors, cells] all counts of `num_samples` draws, read only."""
    if _num_count_vectors(num_samples, cells) > 100 * EXACT_OUTCOMES:
        raise InputError(
            f"{num_samples} draws in {cells} cells: too many outcomes for an exact null "
            f"(more than {100 * EXACT_OUTCOMES:,})"
        )
    vectors = np.arange(num_samples + 1, dtype=np.int64)[:, None]
    for _ in range(cells - 2):
        # Append every count that the draws left allow.
        left = num_samples - vectors.sum(axis=1)
        rows = np.repeat(np.arange(len(vectors)), left + 1)
        starts = np.cumsum(left + 1) - (left + 1)
        last = np.arange(len(rows)) - starts[rows]
        vectors = np.column_stack((vectors[rows], last))
    vectors = np.column_stack((vectors, num_samples - vectors.sum(axis=1)))
    vectors.setflags(write=False)
    return vectors
