"""Equivalence of one event's probability with a known one: two one-sided exact tests.

An ordinary test that does not reject shows nothing; this one rejects "the shift is at least delta"
and so shows that it is smaller. For a set of tokens A it bounds |r(A) - p(A)|, never all of the
total variation: that takes `tv_bounds.equivalence_p`.

Source: Schuirmann (1987), two one-sided tests; each side is an exact binomial test.
"""

import math

from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_level


def event_equivalence_p(hits: int, num_samples: int, probability: float, delta: float) -> float:
    """p-value of "|true probability - probability| >= delta".

    Args:
      hits: Draws on which the event happened.
      num_samples: Independent draws of one law.
      probability: Of the event under the known law, in [0, 1].
      delta: Shift to exclude, in (0, 1).

    Returns:
      The larger of the two one-sided exact p-values; a side that leaves [0, 1] cannot be true and
      counts 0. 1 for no draws.

    Raises:
      InputError: hits outside 0..num_samples, probability outside [0, 1], delta outside (0, 1).
    """
    if not 0 <= hits <= num_samples:
        raise InputError(f"hits = {hits}: must lie in 0..{num_samples}")
    if not 0.0 <= probability <= 1.0:
        raise InputError(f"probability = {probability}: must lie in [0, 1]")
    checked_level(delta, "delta")
    if num_samples == 0:
        return 1.0
    above, below = probability + delta, probability - delta
    p_above = float(stats.binom.cdf(hits, num_samples, above)) if above <= 1.0 else 0.0
    p_below = float(stats.binom.sf(hits - 1, num_samples, below)) if below >= 0.0 else 0.0
    return max(p_above, p_below)


def mean_equivalence_p(deviation: float, num_samples: int, width: float, delta: float) -> float:
    """p-value of "the mean shift of a bounded score is at least delta either way".

    Args:
      deviation: Sum over draws of the score minus its known mean.
      num_samples: Draws, independent or each given those before.
      width: Largest minus smallest value of the score in any context.
      delta: Mean shift to exclude, in the score's units, above 0.

    Returns:
      Hoeffding's exp(-2 n (delta - |mean deviation|)^2 / width^2), valid at every n (conservative);
      1 for no draws and where the mean deviation is at least delta.

    Raises:
      InputError: A deviation that is no number, width or delta not above 0.
    """
    if num_samples < 0 or not math.isfinite(deviation):
        raise InputError(f"deviation = {deviation} of {num_samples} draws: finite numbers required")
    if not (0.0 < width < math.inf and 0.0 < delta < math.inf):
        raise InputError(f"width = {width}, delta = {delta}: above 0 and finite required")
    if num_samples == 0:
        return 1.0
    gap = max(0.0, delta - abs(deviation) / num_samples)
    return math.exp(-2.0 * num_samples * (gap / width) ** 2)
