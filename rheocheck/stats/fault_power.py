"""Power against a named fault, before the run: from a pilot set of contexts and the faulty laws.

A fault is given by the law r_c that the faulty sampler emits at each pilot context, beside the
target law p_c. Samples are spread evenly over contexts like these. Every statistic here is a sum of
independent terms, so its power follows from the terms' moments under both laws:

* a score: mean shift and the variances under p and r, normal approximation;
* a chi-square: noncentrality a sample (over cells with their pooling: see `cell_power`);
* an e-process: growth rate of each tilt, and the sample at which the mean path crosses.

"Samples" are tokens, one a context visit. All approximations are of the power; none enters a
verdict.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from rheocheck.errors import InputError
from rheocheck.stats.power import DEFAULT_POWER
from rheocheck.stats.scores import TILTS, score_moments

Laws = NDArray[np.float64]
LARGEST_SAMPLES = 1e18


@dataclass(frozen=True, slots=True, eq=False)
class ScoreShift:
    """One sample's moments of a score, averaged over the pilot contexts.

    Attributes:
      shift: Mean under the fault minus mean under the target, in the score's units.
      null_variance: Variance under the target.
      fault_variance: Variance under the fault, within contexts.
      cumulant: [tilts] mean of ln E_p exp(t * (score - E_p score)).
      total_variation: Mean distance between the faulty and the target laws.
    """

    shift: float
    null_variance: float
    fault_variance: float
    cumulant: NDArray[np.float64]
    total_variation: float


def score_shift(target: Laws, fault: Laws, score: NDArray[np.float64]) -> ScoreShift:
    """A score's moments under target and fault.

    Args:
      target: [contexts, vocab] target laws.
      fault: [contexts, vocab] laws that the faulty sampler emits. Mass where the target has none is
        left out of the score, as in the test itself: the support check catches that.
      score: [contexts, vocab] the score.

    Raises:
      InputError: No contexts, or unequal shapes.
    """
    _check_shapes(target, fault, score)
    mean, variance, cumulant = score_moments(target, score)
    emitted = np.where(target > 0, fault, 0.0)
    centred = np.where(target > 0, score - mean[:, None], 0.0)
    shift = (emitted * centred).sum(axis=1)
    fault_variance = (emitted * centred**2).sum(axis=1) - shift**2
    return ScoreShift(
        shift=float(shift.mean()),
        null_variance=float(variance.mean()),
        fault_variance=float(np.maximum(fault_variance, 0.0).mean()),
        cumulant=cumulant.mean(axis=0),
        total_variation=float(0.5 * np.abs(target - fault).sum(axis=1).mean()),
    )


def score_power(shift: ScoreShift, num_samples: float, alpha: float) -> float:
    """Power of the two-sided z test with null variance, at a fixed number of samples."""
    if num_samples <= 0:
        return 0.0
    bar = float(stats.norm.isf(alpha / 2)) * math.sqrt(shift.null_variance * num_samples)
    mean = shift.shift * num_samples
    spread = math.sqrt(shift.fault_variance * num_samples)
    if spread == 0.0:
        return float(abs(mean) > bar)
    return float(stats.norm.sf((bar - mean) / spread) + stats.norm.cdf((-bar - mean) / spread))


def score_samples(shift: ScoreShift, alpha: float, power: float = DEFAULT_POWER) -> float:
    """Samples at which the z test has `power`; infinite where the score does not move.

    Args:
      shift: From `score_shift`.
      alpha: Two-sided level.
      power: Probability of rejection asked for, above 1/2.

    Returns:
      ((z_a s_p + z_b s_r) / shift)^2, at least 1.
    """
    if shift.shift == 0.0:
        return math.inf
    spread = float(stats.norm.isf(alpha / 2)) * math.sqrt(shift.null_variance)
    spread += float(stats.norm.isf(1.0 - power)) * math.sqrt(shift.fault_variance)
    return max(1.0, (spread / shift.shift) ** 2)


def chernoff_samples(shift: ScoreShift, alpha: float, power: float = DEFAULT_POWER) -> float:
    """Samples at which the exact Chernoff p-value (`eprocess.chernoff_p`) has `power`.

    The bound is exp(-z^2/2) where cumulants are near Gaussian, so the normal quantile is replaced
    by sqrt(2 ln(2/alpha)); with the grid's own cumulants where they are not.
    """
    if shift.shift == 0.0:
        return math.inf

    def surplus(log_samples: float) -> float:
        n = math.exp(log_samples)
        quantile = float(stats.norm.isf(1.0 - power))
        low = n * abs(shift.shift) - quantile * math.sqrt(n * shift.fault_variance)
        sign = math.copysign(1.0, shift.shift)
        exponents = TILTS * sign * low - n * shift.cumulant
        return float(exponents.max()) - math.log(2.0 / alpha)

    return _smallest(surplus)


def e_value_bar(cumulant: NDArray[np.float64], alpha: float, sign: float = 1.0) -> float:
    """Smallest deviation at which the e-value of `ScoreSums.log_e` reaches 1/alpha.

    Args:
      cumulant: [tilts] summed over all samples, at least 0.
      alpha: Level.
      sign: 1 for deviations above the null mean, -1 for those below.

    Returns:
      Its size, in the score's units; infinite for a score that cannot vary.
    """
    if not cumulant.any():
        return math.inf

    def surplus(log_deviation: float) -> float:
        exponents = TILTS * sign * math.exp(log_deviation) - cumulant
        mixed = float(special.logsumexp(exponents)) - math.log(len(TILTS))
        return mixed + math.log(alpha)

    return _smallest(surplus, math.log(1e-9))


def e_value_power(shift: ScoreShift, num_samples: float, alpha: float) -> float:
    """Chance that the e-value reaches 1/alpha at a fixed number of samples.

    The bar is exact for contexts like the pilot's; the sum under the fault is taken as normal.
    """
    if num_samples <= 0 or shift.shift == 0.0:
        return 0.0
    sign = math.copysign(1.0, shift.shift)
    bar = e_value_bar(num_samples * shift.cumulant, alpha, sign)
    mean, spread = num_samples * abs(shift.shift), math.sqrt(num_samples * shift.fault_variance)
    if spread == 0.0:
        return float(mean >= bar)
    return float(stats.norm.sf((bar - mean) / spread))


def expected_stop(shift: ScoreShift, alpha: float) -> float:
    """Samples at which the e-process crosses 1/alpha on its mean path; infinite if it never does.

    The wealth of tilt t grows by t * shift - K(t) a sample; the mixture crosses where its mean path
    does. Wald: close to the mean stopping time where overshoot is small.
    """
    growth = TILTS * shift.shift - shift.cumulant
    if growth.max() <= 0.0:
        return math.inf

    def surplus(log_samples: float) -> float:
        wealth = special.logsumexp(math.exp(log_samples) * growth) - math.log(len(TILTS))
        return float(wealth) + math.log(alpha)

    return _smallest(surplus)


def detectable_share(
    shift: ScoreShift, num_samples: float, alpha: float, power: float = DEFAULT_POWER
) -> float:
    """Smallest share of the fault that the z test finds: r = p + share * (fault - p).

    Returns:
      The share, at most 1; times `shift.total_variation` it is the detectable mean TV in the
      fault's direction. Infinite where even the whole fault is not found.
    """

    def surplus(share: float) -> float:
        variance = shift.null_variance + share * (shift.fault_variance - shift.null_variance)
        part = ScoreShift(share * shift.shift, shift.null_variance, variance, shift.cumulant, 0.0)
        return score_power(part, num_samples, alpha) - power

    if surplus(1.0) < 0.0:
        return math.inf
    return float(optimize.brentq(surplus, 0.0, 1.0, xtol=1e-15))


def noncentrality_samples(
    noncentrality: float, df: int, alpha: float, power: float = DEFAULT_POWER
) -> float:
    """Samples at which a chi-square test has `power`, from its noncentrality a sample."""
    if noncentrality <= 0.0:
        return math.inf
    threshold = float(stats.chi2.isf(alpha, df))
    upper = threshold
    while stats.ncx2.sf(threshold, df, upper) < power:
        upper *= 2.0
    needed = optimize.brentq(
        lambda value: float(stats.ncx2.sf(threshold, df, value)) - power, 1e-9, upper
    )
    return float(needed) / noncentrality


def pit_noncentrality(
    target: Laws, fault: Laws, order: NDArray[np.float64] | None, num_bins: int = 20
) -> float:
    """Noncentrality a sample of the chi-square over bins of the randomised PIT.

    Args:
      target: [contexts, vocab] target laws.
      fault: [contexts, vocab] emitted laws; mass off the target's support is left out.
      order: [contexts, vocab] sort key, ascending, ties by token id; None is the token id.
      num_bins: Equal bins of [0, 1].
    """
    _check_shapes(target, fault)
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.zeros(num_bins)
    for row in range(len(target)):
        by = slice(None) if order is None else np.argsort(order[row], kind="stable")
        null, emitted = target[row][by], fault[row][by]
        kept = null > 0
        # Within a token the PIT is uniform, so the emitted mass below a level is linear in it.
        levels = np.concatenate(([0.0], np.cumsum(null[kept])))
        levels /= levels[-1]
        below = np.concatenate(([0.0], np.cumsum(emitted[kept])))
        bins += np.diff(np.interp(edges, levels, below))
    shares = bins / len(target)
    return float((((shares - 1.0 / num_bins) ** 2) * num_bins).sum())


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """What no test can beat, and what the best test needs.

    Attributes:
      samples: Sample size of the likelihood-ratio test at the same level and power where each
        sample says little: (z_a + z_b)^2 / mean chi-square divergence of fault from target.
      bound: Samples below which no test whatever has this level and power: kl(power, alpha) / mean
        KL(fault || target), by the data processing inequality.
    """

    samples: float
    bound: float


def likelihood_ratio(
    target: Laws, fault: Laws, alpha: float, power: float = DEFAULT_POWER
) -> LikelihoodRatio:
    """The likelihood-ratio yardsticks of a named fault.

    Args:
      target: [contexts, vocab] target laws.
      fault: [contexts, vocab] emitted laws.
      alpha: Level, two-sided in `samples`, one-sided in `bound`.
      power: Power.

    Returns:
      Both, at least 1. 1 where the fault emits what the target cannot.
    """
    _check_shapes(target, fault)
    if bool(((target <= 0) & (fault > 0)).any()):
        return LikelihoodRatio(1.0, 1.0)
    inside = target > 0
    ratio = np.divide(fault, target, out=np.ones_like(fault), where=inside)
    chi_square = float((np.where(inside, target, 0.0) * (ratio - 1.0) ** 2).sum(axis=1).mean())
    divergence = float(special.rel_entr(fault, np.where(inside, target, 1.0)).sum(axis=1).mean())
    if chi_square <= 0.0:
        return LikelihoodRatio(math.inf, math.inf)
    quantiles = float(stats.norm.isf(alpha / 2) + stats.norm.isf(1.0 - power))
    decision = power * math.log(power / alpha)
    decision += (1.0 - power) * math.log((1.0 - power) / (1.0 - alpha))
    bound = max(1.0, decision / divergence) if divergence > 0 else math.inf
    # Where one sample says much the normal approximation can fall below what is possible.
    return LikelihoodRatio(max(bound, quantiles**2 / chi_square), bound)


def _smallest(surplus: Callable[[float], float], bottom: float = 0.0) -> float:
    """exp(x) where a function of x turns positive, at least exp(bottom); infinite past 1e18."""
    top = math.log(LARGEST_SAMPLES)
    if surplus(bottom) >= 0.0:
        return math.exp(bottom)
    if surplus(top) < 0.0:
        return math.inf
    return math.exp(float(optimize.brentq(surplus, bottom, top, xtol=1e-6)))


def _check_shapes(target: Laws, *others: NDArray[np.float64]) -> None:
    if target.ndim != 2 or not len(target):
        raise InputError(f"target has shape {target.shape}: [contexts, vocab] with contexts needed")
    for other in others:
        if other.shape != target.shape:
            raise InputError(f"a law or score has shape {other.shape}: {target.shape} required")
