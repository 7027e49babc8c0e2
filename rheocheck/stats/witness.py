"""Lower confidence bounds on total variation, with the set of tokens that shows it.

TV(r, p) is the largest r(A) - p(A) over sets A, so any set fixed before the draws are seen gives a
lower bound: count the draws in it. The set is found on one half of the draws and measured on the
other, where its count is binomial; a large vocabulary costs nothing. Rejection comes with a witness
that people can read and others can check.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from rheocheck.errors import InputError
from rheocheck.stats.inputs import (
    checked_counts,
    checked_law,
    checked_laws,
    checked_level,
    checked_tokens,
)


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """A set of outcomes that is drawn more often than its law allows.

    Attributes:
      lower_bound: TV is at least this, wrong with probability at most alpha; 0 where nothing is
        shown.
      members: [outcomes] bool the set; for contexts [contexts, outcomes], the measured ones only.
      hits: Draws in the set.
      num_samples: Draws measured.
      null_mass: Probability of the set under the law; for contexts the mean over those measured.
      frequency_bound: Lower bound on its true probability.
      alpha: Error probability.
    """

    lower_bound: float
    members: NDArray[np.bool_]
    hits: int
    num_samples: int
    null_mass: float
    frequency_bound: float
    alpha: float


# Thresholds tried, in standard deviations of a count and in quantiles of the scores.
_EXCESSES: NDArray[np.float64] = np.linspace(0.0, 6.0, 25)
_NUM_THRESHOLDS = 33
_TILTS: NDArray[np.float64] = np.geomspace(1e-3, 10.0, 60)


def clopper_pearson_lower(hits: int, num_samples: int, alpha: float) -> float:
    """Exact lower confidence bound on a binomial probability; 0 for no hits or no draws.

    The p with P(Binomial(n, p) >= hits) = alpha.

    Raises:
      InputError: hits outside 0..num_samples, alpha outside (0, 1).
    """
    checked_level(alpha)
    if not 0 <= hits <= num_samples:
        raise InputError(f"hits = {hits}: must lie in 0..{num_samples}")
    return float(special.betaincinv(hits, num_samples - hits + 1, alpha)) if hits else 0.0


def clopper_pearson_upper(hits: int, num_samples: int, alpha: float) -> float:
    """Exact upper confidence bound on a binomial probability; 1 for no misses or no draws."""
    return 1.0 - clopper_pearson_lower(num_samples - hits, num_samples, alpha)


def mean_rate_lower(hits: int, num_samples: int, alpha: float) -> float:
    """Lower confidence bound on the mean of independent events' unlike probabilities.

    Args:
      hits: Events that happened.
      num_samples: Independent events, each with a probability of its own.
      alpha: Error probability.

    Returns:
      min(Clopper-Pearson's bound, (hits - 1) / n). Hoeffding: P(hits >= k) is at most that of the
      binomial with the same mean wherever k >= n * mean + 1; the second term keeps to that range.

    Source: Hoeffding (1956), On the distribution of the number of successes in independent trials.
    """
    if hits == 0:
        return clopper_pearson_lower(hits, num_samples, alpha)
    return min(clopper_pearson_lower(hits, num_samples, alpha), (hits - 1) / num_samples)


def sequential_rate_lower(hits: float, num_samples: int, tilt: float, alpha: float) -> float:
    """Lower confidence bound on the mean of events' probabilities where later depend on earlier.

    Event c has, given the past, the probability r_c, itself a function of the past. With t = `tilt`
    and k = exp(t) - 1,

        exp(t * hits - sum_c ln(1 + k r_c))

    has expectation 1, and by concavity of the logarithm the sum is at most n ln(1 + k * mean r_c).
    So P(mean r_c < (exp((t * hits - ln(1/alpha)) / n) - 1) / k) <= alpha, for any stopping time n.

    Args:
      hits: Events that happened.
      num_samples: All events.
      tilt: t, fixed before the events; `best_tilt` chooses it on others.
      alpha: Error probability.

    Returns:
      The bound; 0 for no events.

    Raises:
      InputError: hits outside 0..num_samples, a tilt that is not positive, alpha outside (0, 1).
    """
    checked_level(alpha)
    if not 0 <= hits <= num_samples:
        raise InputError(f"hits = {hits}: must lie in 0..{num_samples}")
    if not (tilt > 0.0 and math.isfinite(tilt)):
        raise InputError(f"tilt = {tilt}: must be positive and finite")
    if num_samples == 0:
        return 0.0
    exponent = (tilt * hits + math.log(alpha)) / num_samples
    return max(0.0, math.expm1(exponent) / math.expm1(tilt))


def best_tilt(rate: float, num_samples: int, alpha: float) -> float:
    """The tilt that gives the largest `sequential_rate_lower` if events come at `rate`.

    Args:
      rate: Expected share of events that happen, in [0, 1], from draws that are not measured.
      num_samples: Events that will be measured.
      alpha: Error probability.

    Returns:
      One of a grid; whichever it is, the bound holds.
    """
    hits = rate * num_samples
    bounds = [sequential_rate_lower(hits, num_samples, tilt, alpha) for tilt in _TILTS]
    return float(_TILTS[int(np.argmax(bounds))])


def witness_set(counts: ArrayLike, law: ArrayLike, alpha: float) -> NDArray[np.bool_]:
    """[outcomes] the set that draws of one law suggest, to be measured on others.

    Outcomes whose (count - expected) / sqrt(expected + 1) exceeds a threshold, the one that
    promises the largest lower bound at level alpha. What noise alone puts over the threshold is
    subtracted from the promise: for Poisson counts E[(X - m) 1{X >= k}] = m P(X = k - 1). Nothing
    but the choice depends on that approximation.

    Raises:
      LawError: `law` is no law.
      InputError: `counts` are none, alpha outside (0, 1).
    """
    null = checked_law(law)
    observed = checked_counts(counts, len(null))
    checked_level(alpha)
    num_samples = int(observed.sum())
    expected = num_samples * null
    excess = observed - expected
    scale = np.sqrt(expected + 1.0)
    gain, variance = np.zeros(len(_EXCESSES)), np.zeros(len(_EXCESSES))
    for index, threshold in enumerate(_EXCESSES):
        members = excess > threshold * scale
        mass = min(1.0, float(null[members].sum()))
        noise = expected * stats.poisson.pmf(np.floor(expected + threshold * scale), expected)
        gain[index] = float(excess[members].sum() - noise.sum())
        variance[index] = num_samples * mass * (1.0 - mass)
    best = _EXCESSES[_most_promising(gain, variance, alpha)]
    found: NDArray[np.bool_] = excess > best * scale
    return found


def lower_bound(
    found_on: ArrayLike, measured_on: ArrayLike, law: ArrayLike, alpha: float
) -> Witness:
    """Lower bound on TV(law of the draws, `law`) from two halves of the draws.

    Args:
      found_on: [outcomes] counts of the half that chooses the set.
      measured_on: [outcomes] counts of the other half, independent draws of one law.
      law: [outcomes] the law compared with.
      alpha: Error probability; exact binomial, so at most this for every law and sample size.

    Returns:
      The bound and its witness.

    Raises:
      LawError: `law` is no law.
      InputError: Counts that are none, alpha outside (0, 1).
    """
    null = checked_law(law)
    members = witness_set(found_on, null, alpha)
    observed = checked_counts(measured_on, len(null), "measured_on")
    num_samples, hits = int(observed.sum()), int(observed[members].sum())
    rate = clopper_pearson_lower(hits, num_samples, alpha)
    mass = float(null[members].sum())
    return Witness(max(0.0, rate - mass), members, hits, num_samples, mass, rate, alpha)


def lower_bound_over_contexts(
    laws: NDArray[np.float64],
    scores: NDArray[np.float64],
    token: NDArray[np.int64],
    alpha: float,
) -> Witness:
    """Lower bound on the mean TV over contexts, from one independent draw of each.

    Each context's set is {score > threshold}; the threshold, one for all, is found on the contexts
    of even index and measured on those of odd index. With score = ln(draft / target) it is where
    wrong verification leaks.

    Args:
      laws: [contexts, vocab] known laws.
      scores: [contexts, vocab] fixed before the token is drawn; NaN is refused.
      token: [contexts] tokens drawn, independent given the contexts.
      alpha: Error probability.

    Returns:
      The bound on the mean of TV_c over the measured contexts. All zeros for fewer than two.

    Raises:
      LawError: A row of `laws` that is no law.
      InputError: Scores of another shape or with NaN, a token outside the vocabulary.
    """
    laws = checked_laws(laws)
    token = checked_tokens(token, len(laws), laws.shape[1])
    checked_level(alpha)
    if scores.shape != laws.shape or np.isnan(scores).any():
        raise InputError(f"scores has shape {scores.shape} or NaN: {laws.shape} numbers required")
    threshold = _threshold(laws[::2], scores[::2], token[::2], alpha)
    measured = laws[1::2]
    members = scores[1::2] > threshold
    num_samples = len(measured)
    if num_samples == 0:
        return Witness(0.0, members, 0, 0, 0.0, 0.0, alpha)
    hits = int(members[np.arange(num_samples), token[1::2]].sum())
    mass = float(np.where(members, measured, 0.0).sum() / num_samples)
    rate = mean_rate_lower(hits, num_samples, alpha)
    return Witness(max(0.0, rate - mass), members, hits, num_samples, mass, rate, alpha)


def _threshold(
    laws: NDArray[np.float64], scores: NDArray[np.float64], token: NDArray[np.int64], alpha: float
) -> float:
    """The most promising among quantiles of the drawn tokens' scores, and 0."""
    drawn = scores[np.arange(len(laws)), token]
    finite = drawn[np.isfinite(drawn)]
    candidates = [0.0]
    if finite.size:
        candidates += np.quantile(finite, np.linspace(0.0, 1.0, _NUM_THRESHOLDS)[1:-1]).tolist()
    excess, variance = np.zeros(len(candidates)), np.zeros(len(candidates))
    for index, candidate in enumerate(candidates):
        mass = np.where(scores > candidate, laws, 0.0).sum(axis=1)
        excess[index] = float((drawn > candidate).sum() - mass.sum())
        variance[index] = float((mass * (1.0 - mass)).sum())
    return float(candidates[_most_promising(excess, variance, alpha)])


def _most_promising(
    excess: NDArray[np.float64], variance: NDArray[np.float64], alpha: float
) -> int:
    """Index of the largest excess less its noise at level alpha; of the largest z if none is over.

    One draw is added to each variance: tiny sets are noisier than their null mass says.
    """
    deviation = np.sqrt(variance + 1.0)
    promise = excess - float(stats.norm.isf(alpha)) * deviation
    return int(np.argmax(promise if promise.max() > 0 else excess / deviation))
