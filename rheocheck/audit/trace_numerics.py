"""Verification's laws against plain decoding's in a trace: what is judged, and with what limit."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheocheck.audit.law_distance import (
    NULL_FACTOR,
    SINGLE_LIMIT,
    LawDistances,
    half_least,
    law_distances,
)
from rheocheck.errors import TraceError
from rheocheck.traces.laws import Laws

HALF_PRECISION = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
}
PLAIN_NOISE = "plain_noise"


def trace_distances(laws: Laws) -> LawDistances | None:
    """Distances of the recorded laws, or None without plain ones.

    Where laws are sparse all tokens that are not listed are one, so distances are lower bounds. How
    far rounding moves a log-weight is in no trace: no flip is called one beyond rounding.
    """
    if laws.plain is None:
        return None
    return law_distances(laws.target, laws.plain, np.full(len(laws.target), np.inf))


def trace_limit(settings: dict[str, Any], itemsize: int) -> float | None:
    """Total variation above which a token's law is not the plain one.

    Args:
      settings: Of the run: `dtype`, `temperature` and, of half precision, `plain_noise`.
      itemsize: Bytes of the coarsest recorded law.

    Returns:
      The limit of the numerics stage; None in half precision without `plain_noise`, where nothing
      says what rounding does.

    Raises:
      TraceError: A `plain_noise` that is no number in [0, 1].
    """
    noise = settings.get(PLAIN_NOISE)
    is_number = isinstance(noise, (int, float)) and not isinstance(noise, bool)
    if noise is not None and not (is_number and 0.0 <= noise <= 1.0):
        raise TraceError(
            f"settings of the trace: {PLAIN_NOISE} = {noise!r}: must be a total variation in [0, 1]"
        )
    name = str(settings.get("dtype", "")).removeprefix("torch.").lower()
    dtype = HALF_PRECISION.get(name, "float16" if itemsize <= 2 else None)
    if dtype is None:
        return SINGLE_LIMIT
    if noise is None:
        return None
    temperature = settings.get("temperature", 1.0)
    has_temperature = isinstance(temperature, (int, float)) and temperature > 0
    least = half_least(f"torch.{dtype}", float(temperature) if has_temperature else 1.0)
    return max(least, NULL_FACTOR * float(noise))


@dataclass(slots=True)
class DistanceSums:
    """Distances of all batches.

    Attributes:
      tokens: Compared.
      unjudged: Of them, those in half precision of which no plain noise is known.
      limits: Limits that were applied.
      max_tv: Largest total variation.
      max_kl: Largest divergence.
      flips: Tokens whose most probable token differs.
      smallest_margin: Smallest log ratio of the plain law's two largest, or None without tokens.
    """

    tokens: int = 0
    unjudged: int = 0
    limits: frozenset[float] = frozenset()
    max_tv: float = 0.0
    max_kl: float = 0.0
    flips: int = 0
    smallest_margin: float | None = None
    _sum_tv: float = 0.0
    _sum_kl: float = 0.0

    def observe(self, found: LawDistances, limit: float | None) -> None:
        """Take in a batch with its limit."""
        if not len(found):
            return
        self.tokens += len(found)
        if limit is None:
            self.unjudged += len(found)
        else:
            self.limits |= {limit}
        self.max_tv = max(self.max_tv, float(found.total_variation.max()))
        self.max_kl = max(self.max_kl, float(found.divergence.max()))
        self._sum_tv += float(found.total_variation.sum())
        self._sum_kl += float(found.divergence.sum())
        self.flips += int(found.is_flip.sum())
        margin = float(found.margin.min())
        if self.smallest_margin is None or margin < self.smallest_margin:
            self.smallest_margin = margin

    def sentence(self) -> str:
        """What was found."""
        text = (
            f"over {self.tokens:,} tokens the verifier's law is within TV {self.max_tv:.2g} of "
            f"plain decoding's (mean {self.mean_tv:.2g}, KL at most {self.max_kl:.2g}); "
            f"{self.flips} argmax flips"
        )
        if self.unjudged:
            text += (
                f"; {self.unjudged:,} tokens in half precision are not judged: the trace has no "
                f"{PLAIN_NOISE}"
            )
        return text

    @property
    def mean_tv(self) -> float:
        """Mean total variation; 0 without tokens."""
        return self._sum_tv / max(1, self.tokens)

    def details(self) -> dict[str, Any]:
        """For the stage."""
        return {
            "max_tv": self.max_tv,
            "mean_tv": self.mean_tv,
            "max_kl": self.max_kl,
            "mean_kl": self._sum_kl / max(1, self.tokens),
            "flips": self.flips,
            "smallest_margin": self.smallest_margin,
            "limits": sorted(self.limits),
            "tokens_not_judged": self.unjudged,
        }
