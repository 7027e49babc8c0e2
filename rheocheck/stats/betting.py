"""Upper confidence bound on a mean of values in [0, 1], by betting with uncapped bets.

A gambler who bets against "the mean is at least m" multiplies her wealth by 1 + bet * (m - value)
at each unit. If the mean is at least m the expected wealth never exceeds 1, so wealth >= 1/alpha
refutes m at level alpha, whatever the law of the values (Waudby-Smith and Ramdas 2024,
arXiv:2010.09686, Theorem 3; units may be independent with different means, the bound is then on
their average). The largest legal bet, 1 / (1 - m), turns wealth into prod((1 - value) / (1 - m)),
which needs no tuning and certifies a mean of 1 % at 99 % from 459 values of zero. A small share of
the purse follows a cautious adaptive strategy, so that one large value does not ruin the bound.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rheocheck.stats.inputs import checked_level, checked_unit_values

# Purse given to the cautious gambler: small enough that 4,603 zeros still certify 0.1 % at alpha
# 0.01 (0.999**-4603 = 100.02), and 9 nats is little where hundreds of units pay in.
CAUTIOUS_SHARE = 1e-4
CAUTIOUS_CAP = 0.5
GRID_SIZE = 200
BISECTIONS = 50


def mean_upper_bound(values: ArrayLike, alpha: float) -> float:
    """Upper bound on the mean of independent values in [0, 1], wrong with probability <= alpha.

    Args:
      values: [units] one value in [0, 1] for each independent unit, in the order of observation.
      alpha: Error probability, in (0, 1).

    Returns:
      The bound; 1.0 for no units. With all values <= tau about tau + ln(1/alpha)/units.

    Raises:
      InputError: A value outside [0, 1] or not a number, alpha outside (0, 1).
    """
    units = checked_unit_values(values)
    checked_level(alpha)
    if units.size == 0:
        return 1.0
    bar = math.log(1.0 / alpha)
    # The set of means not refuted need not be an interval: take the last one on a grid, then bisect
    # between it and the next, which is refuted.
    lowest = float(units.mean())
    grid = lowest + (1.0 - lowest) * np.linspace(0.0, 1.0, GRID_SIZE + 1)[:-1] ** 2
    kept = [mean for mean in grid if _log_wealth(units, float(mean)) < bar]
    low = float(kept[-1]) if kept else lowest
    above = grid[grid > low]
    high = float(above[0]) if above.size else 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _log_wealth(units, middle) < bar:
            low = middle
        else:
            high = middle
    return high


def units_needed(bound: float, alpha: float) -> int:
    """Units, all of value zero, after which `mean_upper_bound` is at most `bound`.

    Raises:
      InputError: bound or alpha outside (0, 1).
    """
    checked_level(alpha)
    checked_level(bound, "bound")
    return math.ceil(math.log(alpha) / math.log1p(-bound))


def _log_wealth(units: NDArray[np.float64], mean: float) -> float:
    """Log of the purse after all units when betting against "the mean is at least `mean`"."""
    if mean >= 1.0:
        return math.inf
    with np.errstate(divide="ignore"):
        bold = float(np.log1p(-units).sum()) - units.size * math.log1p(-mean)
    bets = np.minimum(_cautious_bets(units, mean), CAUTIOUS_CAP / (1.0 - mean))
    cautious = float(np.log1p(bets * (mean - units)).sum())
    return float(
        np.logaddexp(math.log1p(-CAUTIOUS_SHARE) + bold, math.log(CAUTIOUS_SHARE) + cautious)
    )


def _cautious_bets(units: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """[units] Kelly's bet approximated from the units seen before, starting from a mean of 1/2."""
    seen = np.arange(1, units.size + 1)
    past_sum = np.concatenate(([0.0], np.cumsum(units)[:-1]))
    past_square = np.concatenate(([0.0], np.cumsum(units**2)[:-1]))
    past_mean = (0.5 + past_sum) / seen
    past_variance = np.maximum((0.25 + past_square) / seen - past_mean**2, 0.0)
    gap = mean - past_mean
    scale = past_variance + gap**2
    bets = np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0)
    return np.maximum(bets, 0.0)
