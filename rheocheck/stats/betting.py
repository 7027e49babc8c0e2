"""Confidence bounds on a mean of values in [0, 1], by betting with uncapped bets.

A gambler who bets against "the mean is at least m" multiplies her wealth by 1 + bet * (m - value)
at each unit. If the mean is at least m the expected wealth never exceeds 1, so wealth >= 1/alpha
refutes m at level alpha, whatever the law of the values (Waudby-Smith and Ramdas 2024,
arXiv:2010.09686, Theorem 3; units may be independent with different means, the bound is then on
their average). The largest legal bet, 1 / (1 - m), turns wealth into prod((1 - value) / (1 - m)),
which needs no tuning and certifies a mean of 1 % at 99 % from 459 values of zero. A small share of
the purse follows a cautious adaptive strategy, so that one large value does not ruin the bound.

Each bet is fixed by the units before it and, but for its cap, is the same for every m. Then wealth
grows with m unit by unit, so the means that are not refuted form an interval from 0 on, and its end
is found by bisection with nothing missed in between.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rheocheck.stats.inputs import checked_level, checked_unit_values

# Purse given to the cautious gambler: small enough that 4,603 zeros still certify 0.1 % at alpha
# 0.01 (0.999**-4603 = 100.02), and 9 nats is little where hundreds of units pay in.
CAUTIOUS_SHARE = 1e-4
CAUTIOUS_CAP = 0.5
BISECTIONS = 50


def mean_upper_bound(values: ArrayLike, alpha: float) -> float:
    """Upper bound on the mean of independent values in [0, 1], wrong with probability <= alpha.

    Args:
      values: [units] one value in [0, 1] for each independent unit, in the order of observation;
        their number is fixed beforehand.
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
    bets = _cautious_bets(units, alpha)
    # Starting at the sample mean can only raise the bound.
    low, high = float(units.mean()), 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _log_wealth(units, bets, middle) < bar:
            low = middle
        else:
            high = middle
    return high


def mean_lower_bound(values: ArrayLike, alpha: float) -> float:
    """Lower bound on the mean of independent values in [0, 1], wrong with probability <= alpha.

    Args:
      values: [units] as in `mean_upper_bound`, of which this is the mirror image.
      alpha: Error probability, in (0, 1).

    Returns:
      The bound; 0.0 for no units.

    Raises:
      InputError: A value outside [0, 1] or not a number, alpha outside (0, 1).
    """
    return 1.0 - mean_upper_bound(1.0 - checked_unit_values(values), alpha)


def mean_excess_p_value(values: ArrayLike, mean: float, alpha: float) -> float:
    """p-value of "the mean is at most `mean`" for independent values in [0, 1].

    Args:
      values: [units] as in `mean_upper_bound`.
      mean: The largest mean that is no excess, in [0, 1].
      alpha: Level that the bets are made for, in (0, 1); the p-value is valid at every level, and
        at most alpha exactly where `mean_lower_bound` at alpha is above `mean`.

    Returns:
      The inverse of the final wealth, at most 1; 1.0 for no units and where the sample mean is no
      excess.

    Raises:
      InputError: A value or `mean` outside [0, 1] or not a number, alpha outside (0, 1).
    """
    units = 1.0 - checked_unit_values(values)
    checked_level(alpha)
    bound = 1.0 - float(checked_unit_values([mean])[0])
    if units.size == 0 or float(units.mean()) >= bound:
        return 1.0
    log_wealth = _log_wealth(units, _cautious_bets(units, alpha), bound)
    return math.exp(min(0.0, -log_wealth))


def units_needed(bound: float, alpha: float) -> int:
    """Units, all of value zero, after which `mean_upper_bound` is at most `bound`.

    Raises:
      InputError: bound or alpha outside (0, 1).
    """
    checked_level(alpha)
    checked_level(bound, "bound")
    return math.ceil(math.log(alpha) / math.log1p(-bound))


def _log_wealth(units: NDArray[np.float64], bets: NDArray[np.float64], mean: float) -> float:
    """Log of the purse after all units when betting against "the mean is at least `mean`"."""
    if mean >= 1.0:
        return math.inf
    with np.errstate(divide="ignore"):
        bold = float(np.log1p(-units).sum()) - units.size * math.log1p(-mean)
    # The cap keeps every factor above 1 - CAUTIOUS_CAP; capped or not, the factor grows with mean.
    capped = np.minimum(bets, CAUTIOUS_CAP / (1.0 - mean))
    cautious = float(np.log1p(capped * (mean - units)).sum())
    return float(
        np.logaddexp(math.log1p(-CAUTIOUS_SHARE) + bold, math.log(CAUTIOUS_SHARE) + cautious)
    )


def _cautious_bets(units: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """[units] bets that would be best for values of the variance seen before each unit.

    sqrt(2 ln(1/level) / (units * variance)) maximises the wealth promised to a mean as far off as
    the bound will be (Waudby-Smith and Ramdas 2024, for a fixed number of units); the level is
    this purse's. The variance starts as that of one value half a unit off its mean.
    """
    seen = np.arange(1, units.size + 1)
    running_mean = (0.5 + np.cumsum(units)) / (seen + 1)
    squares = np.cumsum((units - running_mean) ** 2)
    variance = (0.25 + np.concatenate(([0.0], squares[:-1]))) / seen
    needed = -math.log(alpha) - math.log(CAUTIOUS_SHARE)
    bets: NDArray[np.float64] = np.sqrt(2.0 * needed / (units.size * variance))
    return bets
