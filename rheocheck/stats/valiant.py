"""Instance-optimal test of many draws from one skewed law.

Pearson's statistic divides by the probability, so the rare cells' noise drowns what the common ones
say; dividing by its power 2/3, after setting aside the largest atom and pooling the faint tail,
needs a number of draws that is optimal for the law at hand. The p-value is a Monte Carlo one.

Source: Valiant and Valiant (2017), An automatic inequality prover and instance optimal identity
testing, SIAM J. Comput. 46(1), Algorithm 2; their thresholds are replaced by the simulated null,
and their separate test of the tail's mass by one more term of the sum.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rheocheck.errors import InputError
from rheocheck.stats.chi_square import GoodnessOfFit
from rheocheck.stats.inputs import checked_counts, checked_law, checked_level

DEFAULT_DRAWS = 999


def valiant_test(
    counts: ArrayLike,
    law: ArrayLike,
    distance: float,
    rng: np.random.Generator,
    draws: int = DEFAULT_DRAWS,
) -> GoodnessOfFit:
    """Test draws of one law with the statistic sum ((X - n p)^2 - X) / p^(2/3).

    Args:
      counts: [outcomes] draws of each outcome.
      law: [outcomes] null probabilities, summing to 1.
      distance: Total variation that the test should see, in (0, 1): the least likely outcomes of
        total mass at most distance / 8 share one cell.
      rng: Draws the null.
      draws: Monte Carlo draws.

    Returns:
      The test; p-value (1 + hits) / (1 + draws), valid for every law and sample size. An outcome of
      probability 0 that was drawn has p-value 0. The largest atom is not in the sum; its count is
      what the others leave.

    Raises:
      LawError: `law` is no law.
      InputError: `counts` are none, `distance` outside (0, 1), no Monte Carlo draws.
    """
    null = checked_law(law)
    observed = checked_counts(counts, len(null))
    checked_level(distance, "distance")
    if draws < 1:
        raise InputError(f"draws = {draws}: at least 1 required")
    num_samples = int(observed.sum())
    positive = null > 0
    if observed[~positive].any():
        return GoodnessOfFit(math.inf, 0, 0.0, num_samples, len(null), "support")
    cell = trimmed_cells(null, distance)
    mass = np.bincount(cell, null)
    num_cells = int((mass > 0).sum())
    if num_samples == 0 or num_cells < 2:
        return GoodnessOfFit(0.0, 0, 1.0, num_samples, num_cells, "monte carlo")
    statistic = float(_statistics(np.bincount(cell, observed)[None, :], mass, num_samples)[0])
    simulated = rng.multinomial(num_samples, mass / mass.sum(), draws)
    nulls = _statistics(simulated, mass, num_samples)
    hits = int((nulls >= statistic - 1e-12 * abs(statistic)).sum())
    p_value = (1 + hits) / (1 + draws)
    return GoodnessOfFit(statistic, num_cells - 1, p_value, num_samples, num_cells, "monte carlo")


def trimmed_cells(law: NDArray[np.float64], distance: float) -> NDArray[np.int64]:
    """Cell of each outcome: the largest atom is cell 0, the faint tail is the last cell.

    Args:
      law: [outcomes] probabilities.
      distance: The tail is the least likely outcomes of total mass at most distance / 8 (by
        probability, ties by index, the later first).

    Returns:
      [outcomes] cell, 0 .. cells-1, in descending order of probability.
    """
    order = np.lexsort((np.arange(len(law)), -law))
    # Mass from each outcome to the end of the order, summed from the smallest up.
    onward = np.cumsum(law[order][::-1])[::-1]
    num_kept = max(1, int((onward > distance / 8.0).sum()))
    rank = np.empty(len(law), dtype=np.int64)
    rank[order] = np.arange(len(law))
    return np.minimum(rank, num_kept)


def _statistics(counts: NDArray[Any], mass: NDArray[Any], num_samples: int) -> NDArray[np.float64]:
    """[rows] statistic of each row of cell counts; cell 0 and cells without mass left out."""
    kept = mass > 0
    kept[0] = False
    weight = mass[kept] ** (-2.0 / 3.0)
    found = counts[:, kept]
    terms = (found - num_samples * mass[kept]) ** 2 - found
    values: NDArray[np.float64] = terms @ weight
    return values
