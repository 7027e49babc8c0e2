"""The tolerant test: evidence that the total variation exceeds d, and so a lower bound of it.

Hypothesis: given the past, the token of context c has a law within total variation d_c of its known
law p_c, and d_c is at most d. Each context names a set A_c before its token is drawn
(`scores.above_target`: the tokens that the draft overweights). Then

    W_n(d) = prod_{c<=n} (1 + l * (1{x_c in A_c} - p_c(A_c) - d)),    0 <= l <= 1 / (1 + d),

is a supermartingale if every d_c <= d, so P(some n: W_n(d) >= 1/alpha) <= alpha; every factor is
positive, and a mean over a grid of constant bets l is an e-value again. If contexts, sets and n are
fixed beforehand, E W_n <= 1 holds already where the mean of the d_c is at most d: by AM-GM the
product of the factors' means is at most the power of their mean. The d's not refuted form an upper
ray. Its lower end bounds the largest TV_c from below at every stopping time, and the mean TV_c at
an n fixed beforehand. A is the witness: the output puts that much too much mass on it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_level

# Kelly's bet is about excess / (p(1-p)); from 1e-3 to 1 the grid serves excesses of 2e-4 and more.
# Bets are given as shares of the largest legal one.
BET_SHARES: NDArray[np.float64] = np.geomspace(1e-3, 0.98, 24)
_BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class TolerantBound:
    """Lower bound on the total variation between output and target.

    Attributes:
      lower: TV is at least this, wrong with probability <= alpha; 0 says nothing.
      alpha: Error probability.
      num_samples: Contexts seen.
      excess: Share of tokens in A minus its expectation: the estimate of what A shows.
    """

    lower: float
    alpha: float
    num_samples: int
    excess: float


def log_wealth(inside: ArrayLike, mass: ArrayLike, tolerance: float) -> NDArray[np.float64]:
    """Ln of W_n(tolerance) after every sample.

    Args:
      inside: [samples] 1 where the token is in A, else 0.
      mass: [samples] p_c(A_c), in [0, 1].
      tolerance: d, in [0, 1].

    Returns:
      [samples] logs; reject "TV <= tolerance" at the first that reaches ln(1/alpha).

    Raises:
      InputError: Unequal lengths, a mass outside [0, 1], a value of `inside` other than 0 and 1, a
        tolerance outside [0, 1].
    """
    hits, masses = _checked(inside, mass)
    if not 0.0 <= tolerance <= 1.0:
        raise InputError(f"tolerance = {tolerance}: must lie in [0, 1]")
    gain = hits - masses - tolerance
    bets = BET_SHARES / (1.0 + tolerance)
    logs = np.zeros(len(gain))
    running = [np.cumsum(np.log1p(bet * gain)) for bet in bets]
    if len(gain):
        logs = special.logsumexp(np.array(running), axis=0) - math.log(len(bets))
    return logs


def tolerant_bound(inside: ArrayLike, mass: ArrayLike, alpha: float) -> TolerantBound:
    """Lower end of the confidence sequence for the total variation.

    Args:
      inside: [samples] 1 where the token is in A, else 0.
      mass: [samples] p_c(A_c), in [0, 1].
      alpha: Error probability, in (0, 1).

    Returns:
      The bound at the last sample; stopping there may depend on the data. 0 for no samples. A
      context whose A is empty or certain counts and shows nothing.

    Raises:
      InputError: As `log_wealth`; alpha outside (0, 1).
    """
    hits, masses = _checked(inside, mass)
    checked_level(alpha)
    if not len(hits):
        return TolerantBound(0.0, alpha, 0, 0.0)
    excess = float((hits - masses).mean())
    counts = _grouped(hits, masses)
    bar = -math.log(alpha)
    # Every factor decreases in d for a fixed share of the largest bet, so wealth does too.
    if _final_wealth(counts, 0.0) < bar:
        return TolerantBound(0.0, alpha, len(hits), excess)
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _final_wealth(counts, middle) >= bar:
            low = middle
        else:
            high = middle
    return TolerantBound(low, alpha, len(hits), excess)


Groups = tuple[NDArray[np.float64], NDArray[np.float64]]


def _grouped(hits: NDArray[np.float64], masses: NDArray[np.float64]) -> Groups:
    """Distinct gains at d = 0 and how often each occurred."""
    gains, counts = np.unique(hits - masses, return_counts=True)
    return gains, counts.astype(np.float64)


def _final_wealth(groups: Groups, tolerance: float) -> float:
    gains, counts = groups
    bets = BET_SHARES / (1.0 + tolerance)
    logs: Iterable[float] = (float(counts @ np.log1p(bet * (gains - tolerance))) for bet in bets)
    return float(special.logsumexp(np.fromiter(logs, np.float64, len(bets)))) - math.log(len(bets))


def _checked(inside: ArrayLike, mass: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    hits = np.asarray(inside, dtype=np.float64)
    masses = np.asarray(mass, dtype=np.float64)
    if hits.ndim != 1 or hits.shape != masses.shape:
        raise InputError(
            f"inside has shape {hits.shape} and mass {masses.shape}: one axis of equal length "
            "required"
        )
    wrong = np.flatnonzero((hits != 0.0) & (hits != 1.0))
    if wrong.size:
        raise InputError(f"inside[{wrong[0]}] = {hits[wrong[0]]}: 0 or 1 required")
    # Summed masses of a certain set may pass 1 by rounding.
    outside = np.flatnonzero(~((masses >= 0.0) & (masses <= 1.0 + 1e-9)))
    if outside.size:
        raise InputError(f"mass[{outside[0]}] = {masses[outside[0]]}: must lie in [0, 1]")
    return hits, np.minimum(masses, 1.0)
