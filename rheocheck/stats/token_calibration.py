"""Per-token calibration: is each token drawn as often as its contexts say?

For token v the count of draws minus sum_c p_c(v) has variance sum_c p_c(v) (1 - p_c(v)). One broken
id, a block of a vocabulary that a kernel skips, a mask one entry off: all show here and hide in any
pooled statistic. Contexts differ, so a count is Poisson-binomial, not binomial.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rheocheck.errors import InputError
from rheocheck.stats.chi_square import MIN_EXPECTED
from rheocheck.stats.inputs import checked_level


@dataclass(frozen=True, slots=True)
class TokenCalibration:
    """Result over all tokens that could be tested.

    Attributes:
      num_tested: Tokens expected at least `MIN_EXPECTED` times.
      p_value: Holm-adjusted p-value of the worst one: num_tested times its own p, at most 1; 1 if
        nothing could be tested. For the smallest p Holm and Bonferroni agree.
      worst: That token (the smallest id on ties); None if nothing was tested.
      z: Its deviation in standard deviations.
      rejected: Tokens below the level after Holm's correction, in ascending p-value.
    """

    num_tested: int
    p_value: float
    worst: int | None
    z: float
    rejected: tuple[int, ...]


def token_calibration(
    counts: ArrayLike, expected: ArrayLike, squares: ArrayLike, alpha: float
) -> TokenCalibration:
    """Test every token with enough expected draws, corrected by Holm.

    The p-value of a token with count x and mean m is Chernoff's 2 exp(-(x ln(x/m) - x + m)). It is
    valid for every Poisson-binomial count, whose cumulant is below the Poisson's; a normal p-value
    of 1e-9 at a mean of 5 would not be.

    Args:
      counts: [vocab] draws of each token.
      expected: [vocab] sum over contexts of the token's probability.
      squares: [vocab] sum over contexts of its squared probability; enters z only.
      alpha: Level of the list of rejected tokens.

    Returns:
      The test.

    Raises:
      InputError: Unequal shapes, or a value that is negative or not finite.
    """
    observed, mean, square = (np.asarray(part, np.float64) for part in (counts, expected, squares))
    for name, part in (("counts", observed), ("expected", mean), ("squares", square)):
        if part.ndim != 1 or part.shape != observed.shape:
            raise InputError(f"{name} has shape {part.shape}: {observed.shape} required")
        wrong = np.flatnonzero(~((part >= 0) & np.isfinite(part)))
        if wrong.size:
            raise InputError(f"{name}[{wrong[0]}] = {part[wrong[0]]}: finite, at least 0 required")
    level = checked_level(alpha)
    tested = np.flatnonzero(mean >= MIN_EXPECTED)
    if not tested.size:
        return TokenCalibration(0, 1.0, None, 0.0, ())
    log_p = poisson_log_p(observed[tested], mean[tested])
    order = np.argsort(log_p, kind="stable")
    factors = np.log(tested.size - np.arange(tested.size))
    adjusted = np.maximum.accumulate(log_p[order] + factors)
    below = int(np.count_nonzero(adjusted <= math.log(level)))
    worst = int(tested[order[0]])
    # A certain token has no variance, and then no deviation either unless rounding made one.
    variance = max(float(mean[worst] - square[worst]), 1e-12)
    deviation = float(observed[worst] - mean[worst])
    return TokenCalibration(
        num_tested=int(tested.size),
        p_value=min(1.0, math.exp(min(0.0, float(adjusted[0])))),
        worst=worst,
        z=deviation / math.sqrt(variance),
        rejected=tuple(int(token) for token in tested[order[:below]]),
    )


def poisson_log_p(observed: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ln of the two-sided Chernoff p-value of a count whose cumulant is below Poisson's.

    Args:
      observed: [tokens] counts.
      mean: [tokens] expected counts, positive.

    Returns:
      [tokens] min(0, ln 2 - (x ln(x/m) - x + m)).
    """
    ratio = observed / mean
    rate = np.where(observed > 0, observed * np.log(np.where(ratio > 0, ratio, 1.0)), 0.0)
    logs: NDArray[np.float64] = np.minimum(0.0, math.log(2.0) - (rate - observed + mean))
    return logs
