"""What a test could have seen: power, and the smallest deviation found with a given power."""

import math

from scipy import optimize, stats

# A deviation is called detectable if it is found with this probability.
DEFAULT_POWER = 0.95


def chi_square_power(num_samples: int, df: int, total_variation: float, alpha: float) -> float:
    """Power of a chi-square test against a total variation spread evenly over its cells.

    The deviation is +-2 * total_variation relative to each cell's null probability, half of the
    mass up and half down. That is the hardest alternative of its total variation: its noncentrality
    is 4 * num_samples * total_variation**2, and by Cauchy-Schwarz no other one has less.

    Args:
      num_samples: Independent draws.
      df: Degrees of freedom of the test, at least 1.
      total_variation: Distance over the cells, in [0, 1].
      alpha: Level of the test.

    Returns:
      Probability that the test rejects (asymptotic: noncentral chi-square).
    """
    threshold = stats.chi2.isf(alpha, df)
    return _noncentral_power(threshold, df, 4.0 * num_samples * total_variation**2)


def chi_square_detectable(
    num_samples: int, df: int, alpha: float, power: float = DEFAULT_POWER
) -> float:
    """Smallest total variation over the cells that a chi-square test finds with `power`.

    Args:
      num_samples: Independent draws, at least 1.
      df: Degrees of freedom, at least 1.
      alpha: Level of the test.
      power: Probability of rejection asked for.

    Returns:
      The total variation; 1.0 where even that is not found.
    """
    threshold = stats.chi2.isf(alpha, df)
    upper = 4.0 * num_samples
    if _noncentral_power(threshold, df, upper) < power:
        return 1.0
    found = optimize.brentq(
        lambda value: _noncentral_power(threshold, df, value) - power, 1e-9, upper
    )
    return math.sqrt(float(found) / (4.0 * num_samples))


def mean_shift_detectable(
    num_samples: int, standard_deviation: float, alpha: float, power: float = DEFAULT_POWER
) -> float:
    """Smallest shift of a mean that a two-sided z test finds with `power`.

    Args:
      num_samples: Independent draws, at least 1.
      standard_deviation: Root mean variance of one draw under the null.
      alpha: Two-sided level.
      power: Probability of rejection asked for.

    Returns:
      The shift, in the units of the draws.
    """
    quantiles = stats.norm.isf(alpha / 2) + stats.norm.isf(1.0 - power)
    return float(quantiles * standard_deviation / math.sqrt(num_samples))


def event_detectable_probability(num_units: int, power: float = DEFAULT_POWER) -> float:
    """Share of units with a visible fault that `num_units` exact checks meet with `power`.

    A check that is exact on each unit (a regrown tree, an enumerated node) misses a fault only if
    no unit shows it: the chance of that is (1 - share)**num_units.
    """
    if num_units < 1:
        return 1.0
    return -math.expm1(math.log1p(-power) / num_units)


def _noncentral_power(threshold: float, df: int, noncentrality: float) -> float:
    return float(stats.ncx2.sf(threshold, df, noncentrality))
