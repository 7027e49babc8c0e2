"""Anderson-Darling test of uniformity: sharper than Kolmogorov-Smirnov near both ends.

The statistic is n * integral of (F_n(u) - u)^2 / (u (1 - u)) du. Its limiting null law is that of
sum_k X_k / (k (k + 1)) with X_k independent chi-square variables of one degree of freedom, whose
upper tail Smirnov's formula gives as an alternating series of integrals between the poles:

    P(A2 > x) = (1/pi) sum_k (-1)^(k+1) I_k,
    I_k = integral from l(2k-1) to l(2k) of exp(-x u / 2) / (u sqrt|D(u)|) du,
    l(k) = k (k + 1),  D(u) = prod_k (1 - u / l(k)) = -cos(pi/2 sqrt(1 + 4 u)) / (pi u).

It holds relative accuracy far into the tail. The law at finite n is close to the limit from n = 10
on; calibration measures by how much.

Source: Anderson and Darling (1952), Asymptotic theory of certain goodness of fit criteria, section
4; the tail formula is Smirnov's (1937) for weighted sums of chi-squares.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from rheocheck.stats.inputs import checked_unit_values

# Values are kept this far from 0 and 1, where the statistic is infinite: half of the spacing of
# float64 just below 1.
_EDGE = 2.0**-54
_NODES = 64
# Below this the series converges slowly, and the tail differs from 1 by less than 1e-10.
_SMALLEST = 0.045


def anderson_darling(values: ArrayLike) -> tuple[float, float]:
    """Statistic and upper-tail p-value.

    Args:
      values: [draws] independent values in [0, 1], uniform under the null.

    Returns:
      (A2, p). (0, 1) for no values.

    Raises:
      InputError: A value outside [0, 1] or not a number.
    """
    ordered = np.sort(checked_unit_values(values))
    n = len(ordered)
    if n == 0:
        return 0.0, 1.0
    below = np.clip(ordered, _EDGE, None)
    above = np.clip(1.0 - ordered[::-1], _EDGE, None)
    weights = 2.0 * np.arange(1, n + 1) - 1.0
    statistic = -n - float((weights * (np.log(below) + np.log(above))).sum()) / n
    return statistic, anderson_darling_tail(statistic)


def anderson_darling_tail(statistic: float) -> float:
    """P(A2 > statistic) in the limit of many draws, with relative error below 1e-9.

    Not a number for a statistic that is none; 1 below 0.045, where it is 1 within 1e-10.
    """
    if math.isnan(statistic):
        return math.nan
    if statistic < _SMALLEST:
        return 1.0
    # With s = sqrt(1 + 4 u) the poles lie at odd s; s = 4 k + v, v in (-1, 1), and the square root
    # singularities at both ends are those of Gauss and Chebyshev's rule.
    v = np.cos((2.0 * np.arange(_NODES) + 1.0) * math.pi / (2.0 * _NODES))
    smooth = np.sqrt((1.0 - v**2) / np.cos(math.pi * v / 2.0))
    total, sign, k = 0.0, 1.0, 1
    while True:
        s = 4.0 * k + v
        u = (s**2 - 1.0) / 4.0
        # du = s/2 ds, and 1 / (u sqrt|D|) = sqrt(pi / u) / sqrt(cos(pi v / 2)).
        terms = np.exp(-statistic * u / 2.0) * np.sqrt(math.pi / u) * (s / 2.0) * smooth
        term = float(terms.sum()) * math.pi / _NODES
        total += sign * term
        if term <= 1e-13 * abs(total):
            return min(1.0, max(0.0, total / math.pi))
        sign, k = -sign, k + 1
