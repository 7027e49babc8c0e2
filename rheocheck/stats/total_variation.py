"""Plug-in total variation beside its exact null mean.

The distance between observed frequencies and a law is large even when the draws follow the law:
with few draws for each cell it measures nothing but noise. So it is never shown without the mean it
has under the null, which is (1 / 2n) * sum over cells of E|count - expected|, computed exactly
here: by De Moivre's formula for draws from one law, and from the Poisson-binomial law of each
cell's count when every draw has its own context.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_counts, checked_law, checked_laws, checked_unit_values

# Probabilities below this enter a count's characteristic function by their power sums.
_SMALL = 0.05
_POWERS = 12
# The count's law is computed on a window of this many standard deviations either way; beyond it
# Bernstein's inequality leaves less than 1e-12.
_WINDOW_DEVIATIONS = 10.0
_WINDOW_SLACK = 40.0


@dataclass(frozen=True, slots=True)
class PlugInDistance:
    """Plug-in total variation and its law under the null.

    Attributes:
      value: (1/2n) sum |count - expected|.
      null_mean: Its exact mean if the draws follow the laws.
      null_spread: Standard deviation if the cells' counts were uncorrelated in absolute deviation;
        an approximation that simulation confirms to about 10 %.
      num_samples: Draws n.
    """

    value: float
    null_mean: float
    null_spread: float
    num_samples: int

    @property
    def excess(self) -> float:
        """Value minus null mean: what the draws say beyond their own noise."""
        return self.value - self.null_mean

    @property
    def z(self) -> float:
        """Excess in null spreads; 0 where there is no spread."""
        return self.excess / self.null_spread if self.null_spread > 0 else 0.0


def total_variation(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the L1 distance along the last axis: [..., vocab], [..., vocab] -> [...].

    NaN where a law has NaN: this is the inner loop of the exact stages, and laws are checked there.

    Raises:
      InputError: Vocabularies of unlike size.
    """
    if np.shape(first)[-1:] != np.shape(second)[-1:]:
        raise InputError(f"shapes {np.shape(first)} and {np.shape(second)}: one vocabulary needed")
    distance: NDArray[np.float64] = 0.5 * np.abs(first - second).sum(axis=-1)
    return distance


def plug_in(counts: ArrayLike, law: ArrayLike) -> PlugInDistance:
    """Plug-in distance of draws from one law.

    Args:
      counts: [cells] draws of each cell.
      law: [cells] null probabilities, summing to 1.

    Returns:
      The distance with its null mean by De Moivre; all zeros for no draws.

    Raises:
      LawError: `law` is no law.
      InputError: `counts` are none.
    """
    null = checked_law(law)
    observed = checked_counts(counts, len(null)).astype(np.float64)
    num_samples = int(observed.sum())
    if num_samples == 0:
        return PlugInDistance(0.0, 0.0, 0.0, 0)
    deviations = binomial_mean_deviation(num_samples, null)
    variances = num_samples * null * (1.0 - null)
    return _distance(observed, num_samples * null, deviations, variances, num_samples)


def plug_in_over_contexts(counts: ArrayLike, laws: NDArray[np.float64]) -> PlugInDistance:
    """Plug-in distance of one draw from each context's law, pooled over contexts.

    Args:
      counts: [cells] draws of each cell, summing to the number of contexts.
      laws: [contexts, cells] the null law of each context.

    Returns:
      The distance between the pooled counts and the summed laws, with its exact null mean.

    Raises:
      LawError: A row of `laws` that is no law.
      InputError: `counts` are none, or not one draw a context.
    """
    laws = checked_laws(laws)
    num_samples = len(laws)
    observed = checked_counts(counts, laws.shape[1]).astype(np.float64)
    if observed.sum() != num_samples:
        raise InputError(f"counts sum to {observed.sum():g}: one draw a context, {num_samples}")
    if num_samples == 0:
        return PlugInDistance(0.0, 0.0, 0.0, 0)
    columns = range(laws.shape[1])
    deviations = np.array([poisson_binomial_mean_deviation(laws[:, cell]) for cell in columns])
    variances = (laws * (1.0 - laws)).sum(axis=0)
    return _distance(observed, laws.sum(axis=0), deviations, variances, num_samples)


def binomial_mean_deviation(num_samples: int, law: ArrayLike) -> NDArray[np.float64]:
    """E|X - np| of X ~ Binomial(n, p): [cells] of the same shape as `law`.

    De Moivre: 2 v C(n, v) p^v (1-p)^(n-v+1) with v = floor(np) + 1. Zero where p is 0 or 1.

    Raises:
      InputError: num_samples below 0, or a value outside [0, 1] or not a number.

    Source: Diaconis and Zabell (1991), Closed form summation for classical distributions.
    """
    if num_samples < 0:
        raise InputError(f"num_samples = {num_samples}: at least 0 required")
    probability = checked_unit_values(law, "law")
    upper = np.floor(num_samples * probability) + 1.0
    inside = (probability > 0.0) & (probability < 1.0) & (upper <= num_samples)
    p, v = probability[inside], upper[inside]
    log_value = (
        np.log(2.0 * v)
        + special.gammaln(num_samples + 1)
        - special.gammaln(v + 1)
        - special.gammaln(num_samples - v + 1)
        + v * np.log(p)
        + (num_samples - v + 1) * np.log1p(-p)
    )
    deviation = np.zeros_like(probability)
    deviation[inside] = np.exp(log_value)
    # np within one rounding of n: floor(np) + 1 = n + 1 although p < 1; then X = n nearly always.
    edge = (probability < 1.0) & (upper > num_samples)
    deviation[edge] = 2.0 * num_samples * (1.0 - probability[edge])
    return deviation


def poisson_binomial_mean_deviation(probabilities: ArrayLike) -> float:
    """E|X - EX| of a sum X of independent Bernoulli draws with these probabilities.

    The law of X is recovered from its characteristic function on a window around the mean, by one
    inverse Fourier transform; small probabilities enter it through their power sums, so the cost is
    one logarithm for each large one and frequency. Exact to about 1e-9 of a count.

    Args:
      probabilities: [draws] success probabilities in [0, 1].

    Returns:
      The mean absolute deviation; 0 for no draws or certain ones.

    Raises:
      InputError: A value outside [0, 1] or not a number.
    """
    p = checked_unit_values(probabilities, "probabilities")
    mean, variance = float(p.sum()), float((p * (1.0 - p)).sum())
    if variance == 0.0:
        return 0.0
    half_width = _WINDOW_DEVIATIONS * np.sqrt(variance) + _WINDOW_SLACK
    size = 1 << int(np.ceil(np.log2(2.0 * half_width)))
    frequencies = 2.0 * np.pi * np.arange(size // 2 + 1) / size
    step = np.exp(1j * frequencies) - 1.0
    large, small = p[p > _SMALL], p[p <= _SMALL]
    log_characteristic = np.zeros(len(frequencies), dtype=np.complex128)
    for power in range(1, _POWERS + 1):
        log_characteristic += (-1.0) ** (power + 1) * (small**power).sum() / power * step**power
    # A fair coin's characteristic function is 0 at pi; its logarithm must not be taken there.
    product = np.exp(log_characteristic)
    for chunk in np.array_split(large, max(1, len(large) // 256)):
        product *= np.prod(1.0 + chunk[:, None] * step[None, :], axis=0)
    # Shift the window so that it is centred on the mean: index k stands for offset + k.
    offset = int(np.floor(mean)) - size // 2
    shifted = product * np.exp(-1j * frequencies * offset)
    pmf = np.fft.irfft(np.conj(shifted), size)
    return float((np.abs(np.arange(size) + offset - mean) * pmf).sum())


def mcdiarmid_p(excess: float, num_samples: int) -> float:
    """P(distance - its mean >= excess) for independent draws is at most exp(-2 n excess^2).

    Valid at every n, conservative; 1 where the excess is not above 0, and for no draws.

    Raises:
      InputError: An excess that is no number, num_samples below 0.
    """
    if not math.isfinite(excess) or num_samples < 0:
        raise InputError(
            f"excess = {excess} of {num_samples} draws: a finite excess, 0 draws or more"
        )
    return float(np.exp(-2.0 * num_samples * max(excess, 0.0) ** 2))


def normal_p(distance: PlugInDistance) -> float:
    """One-sided normal p-value of the excess, an approximation for many cells."""
    return float(stats.norm.sf(distance.z))


def _distance(
    observed: NDArray[np.float64],
    expected: NDArray[np.float64],
    deviations: NDArray[np.float64],
    variances: NDArray[np.float64],
    num_samples: int,
) -> PlugInDistance:
    value = float(np.abs(observed - expected).sum() / (2.0 * num_samples))
    mean = float(deviations.sum() / (2.0 * num_samples))
    spread = float(np.sqrt(np.maximum(variances - deviations**2, 0.0).sum()) / (2.0 * num_samples))
    return PlugInDistance(value, mean, spread, num_samples)
