"""Upper confidence bounds on the total variation between the law of the draws and a known law.

n independent draws of an unknown law r give frequencies f. If the draws have unlike laws, r is the
mean of them (and p that of the laws compared with); nothing is then said about single contexts.
Two kinds of bound:

* **Convexity.** TV(., p) is convex and E f = r, so by Jensen TV(r, p) <= E TV(f, p), and changing
  one draw moves TV(f, p) by at most 1/n, so by McDiarmid TV(f, p) falls below its mean by more than
  sqrt(ln(1/alpha) / 2n) with probability at most alpha. No term for the size of the vocabulary: it
  is already in the plug-in distance's own upward bias. With two outcomes or more it never exceeds
  the others.
* **Balls around f.** A radius with TV(f, r) <= radius at level alpha, and the triangle inequality.
  They also bound the distance to any law chosen after the draws were seen.

    Weissman:    P(r(A) - f(A) >= t) <= exp(-2 n t^2) for each of the 2^V - 2 proper subsets A.
    McDiarmid:   mean TV(f, r) <= sum_i sqrt(r_i (1 - r_i) / n) / 2 <= sqrt((V - 1) / n) / 2, plus
                 McDiarmid's sqrt(ln(1/alpha) / 2n).
    half norm:   mean TV(f, r) <= mean of H = (1/n) sum_i E|S(n_i)|, S(k) a sum of k fair signs
                 (symmetrisation: the supremum over sets of the signed sum takes the positive cells,
                 half of each |S|, and the factor 2 restores it). One draw moves H by at most 1/n,
                 since E|S(k)| grows by at most 1 a step, and so TV(f, r) - H by at most 2/n. Hence
                 TV(f, r) <= H + sqrt(2 ln(1/alpha) / n), whatever V is, infinite too.
                 H <= sum_i sqrt(f_i / n), the half norm of f.

Sources: Weissman et al. (2003), HP Labs HPL-2003-97; McDiarmid (1989); the half norm is the subject
of Cohen, Kontorovich and Wolfer (2020), arXiv:2004.12680. The constants here are those of the proof
above, which uses the exact E|S(k)| and one application of McDiarmid's inequality; they are not
quoted from that paper.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_counts, checked_law, checked_level

BoundMethod = Literal["convexity", "weissman", "mcdiarmid", "half-norm"]


@dataclass(frozen=True, slots=True)
class UpperBound:
    """A total variation that the draws exclude being exceeded.

    Attributes:
      value: The bound, in [0, 1]; below the truth with probability at most alpha.
      plug_in: Total variation of the frequencies; biased upwards.
      radius: What was added.
      alpha: Error probability.
      num_samples: Draws.
      method: Which bound.
    """

    value: float
    plug_in: float
    radius: float
    alpha: float
    num_samples: int
    method: BoundMethod


def upper_bound(
    counts: ArrayLike, law: ArrayLike, alpha: float, method: BoundMethod = "convexity"
) -> UpperBound:
    """Upper bound on TV(law of the draws, `law`).

    Args:
      counts: [outcomes] independent draws of one law, counted.
      law: [outcomes] the law compared with, fixed before the draws were seen.
      alpha: Error probability.
      method: Which bound; the default is the smallest wherever there are two outcomes or more.

    Returns:
      The bound; 1 for no draws.

    Raises:
      LawError: `law` is no law.
      InputError: `counts` are none, alpha outside (0, 1), an unknown method.
    """
    null = checked_law(law)
    observed = checked_counts(counts, len(null))
    checked_level(alpha)
    if method not in ("convexity", "weissman", "mcdiarmid", "half-norm"):
        raise InputError(f"method = {method!r}: convexity, weissman, mcdiarmid or half-norm")
    num_samples = int(observed.sum())
    if num_samples == 0:
        return UpperBound(1.0, 0.0, 1.0, alpha, 0, method)
    plug_in = 0.5 * float(np.abs(observed / num_samples - null).sum())
    if method == "convexity":
        radius = _mcdiarmid(num_samples, alpha)
    else:
        radius = ball_radius(observed, alpha, method)
    return UpperBound(min(1.0, plug_in + radius), plug_in, radius, alpha, num_samples, method)


def ball_radius(
    counts: ArrayLike,
    alpha: float,
    method: Literal["weissman", "mcdiarmid", "half-norm"] = "half-norm",
) -> float:
    """Radius r with P(TV(frequencies, true law) > r) <= alpha.

    Args:
      counts: [outcomes] independent draws of one law, counted; the number of outcomes is V for the
        first two methods and does not matter for the half norm.
      alpha: Error probability.
      method: Which bound.

    Returns:
      The radius, at most 1; 1 for no draws.

    Raises:
      InputError: No counts, alpha outside (0, 1).
    """
    observed = checked_counts(counts, np.size(counts))
    checked_level(alpha)
    num_samples, vocab = int(observed.sum()), len(observed)
    if num_samples == 0:
        return 1.0
    if vocab == 1:
        return 0.0
    if method == "weissman":
        # ln(2^V - 2), without the overflow.
        log_sets = vocab * math.log(2.0) + math.log1p(-(2.0 ** (1 - vocab)))
        return min(1.0, math.sqrt((log_sets - math.log(alpha)) / (2.0 * num_samples)))
    if method == "mcdiarmid":
        mean = 0.5 * math.sqrt((vocab - 1) / num_samples)
        return min(1.0, mean + _mcdiarmid(num_samples, alpha))
    if method == "half-norm":
        mean = float(mean_absolute_walk(observed).sum()) / num_samples
        return min(1.0, mean + math.sqrt(-2.0 * math.log(alpha) / num_samples))
    raise InputError(f"method = {method!r}: weissman, mcdiarmid or half-norm")


def equivalence_p(counts: ArrayLike, law: ArrayLike, delta: float) -> float:
    """p-value of "TV >= delta"; at or below alpha it shows TV < delta at level alpha.

    The convexity bound turned round: the smallest alpha whose upper bound is at most delta,
    exp(-2 n (delta - plug-in)^2).

    Args:
      counts: [outcomes] independent draws of one law, counted.
      law: [outcomes] the law compared with, fixed before the draws were seen.
      delta: Total variation to exclude, in (0, 1).

    Returns:
      The p-value, valid at every n (conservative); 1 for no draws and where plug-in >= delta.

    Raises:
      LawError: `law` is no law.
      InputError: `counts` are none, delta outside (0, 1).
    """
    checked_level(delta, "delta")
    found = upper_bound(counts, law, 0.5)
    if found.num_samples == 0:
        return 1.0
    return math.exp(-2.0 * found.num_samples * max(0.0, delta - found.plug_in) ** 2)


def mean_absolute_walk(steps: ArrayLike) -> NDArray[np.float64]:
    """E|sum of k fair signs|: k C(k - 1, floor((k - 1) / 2)) / 2^(k - 1), elementwise; 0 for 0."""
    k = np.asarray(steps, dtype=np.float64)
    positive = np.maximum(k, 1.0)
    half = np.floor((positive - 1.0) / 2.0)
    log_mean = (
        np.log(positive)
        + special.gammaln(positive)
        - special.gammaln(half + 1.0)
        - special.gammaln(positive - half)
        - (positive - 1.0) * math.log(2.0)
    )
    return np.where(k > 0, np.exp(log_mean), 0.0)


def _mcdiarmid(num_samples: int, alpha: float) -> float:
    return math.sqrt(-math.log(alpha) / (2.0 * num_samples))
