"""Moments of the clipped surprisal from a histogram, with upper bounds of its cumulants.

Surprisals fall into bins 1/16 nat wide, and each bin's mass is split over its two edges so that its
mean is kept. By convexity of exp this can only raise E exp(t g): an e-process stays a
supermartingale. The excess is at most t^2/2048 a sample, under 0.1 % of the cumulant where
surprisal varies by a nat. Tokens rarer than exp(-12) have the same clipped surprisal, so they enter
by their common mass.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.scores import SURPRISAL_CLIP, TILTS

Values = NDArray[np.float64]
Terms = tuple[float, float, Values]
"""Score of the drawn token minus its mean, variance, [tilts] cumulants."""

_BINS_A_NAT = 16
_NUM_BINS = int(SURPRISAL_CLIP) * _BINS_A_NAT
# exp(tilt * surprisal) at the bins' edges: fixed, so cumulants cost one small product a context.
_EDGE_POWERS: Values = np.exp((np.arange(_NUM_BINS + 1) / _BINS_A_NAT)[:, None] * TILTS[None, :])
_CHUNK = 4096


def binned_terms(mass: Values, surprisal: Values, own: float) -> Terms:
    """Terms of one context.

    Args:
      mass: [head] probabilities of the tokens whose surprisal is below the clip.
      surprisal: [head] -ln of them.
      own: Surprisal of the drawn token, not clipped.
    """
    edges, moment, second = np.zeros(_NUM_BINS + 1), np.zeros(_NUM_BINS + 1), 0.0
    # Chunks stay in cache; a flat law has every token in its head.
    for start in range(0, len(mass), _CHUNK):
        weight = mass[start : start + _CHUNK]
        nats = np.clip(surprisal[start : start + _CHUNK], 0.0, SURPRISAL_CLIP)
        low = np.minimum((nats * _BINS_A_NAT).astype(np.int64), _NUM_BINS - 1)
        part = weight * nats
        edges += np.bincount(low, weight, _NUM_BINS + 1)
        moment += np.bincount(low, part, _NUM_BINS + 1)
        second += float(part @ nats)
    rest = max(0.0, 1.0 - float(edges.sum()))
    mean = float(moment.sum()) + rest * SURPRISAL_CLIP
    variance = max(0.0, second + rest * SURPRISAL_CLIP**2 - mean**2)
    upper = np.clip(moment * _BINS_A_NAT - edges * np.arange(_NUM_BINS + 1), 0.0, edges)
    edges -= upper
    edges[1:] += upper[:-1]
    edges[-1] += rest
    cumulant = np.log(edges @ _EDGE_POWERS) - TILTS * mean
    return min(max(own, 0.0), SURPRISAL_CLIP) - mean, variance, np.maximum(cumulant, 0.0)
