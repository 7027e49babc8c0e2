"""What decides the numerics stage: one temperature's distances against their limit and floor."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.findings import LOSSY_LEVEL
from rheocheck.audit.law_distance import (
    NULL_FACTOR,
    SINGLE_LIMIT,
    SINGLE_PRECISION,
    half_least,
)
from rheocheck.audit.numerics_findings import NumericsFindings
from rheocheck.audit.settings import WHITEBOX_ALPHA
from rheocheck.certificate import Verdict
from rheocheck.stats.betting import mean_excess_p_value, mean_upper_bound

# Fewer plain tokens say little of the largest distance; the bound on rounding then stands for it.
LEAST_NULL_TOKENS = 100
# The mean over prompts may be above the floor by so much.
TOLERANCE = 0.002


@dataclass(frozen=True, slots=True)
class NumericsRun:
    """What the stage saw at one temperature.

    Attributes:
      temperature: Of the requests.
      found: All prompts together.
    """

    temperature: float
    found: NumericsFindings


@dataclass(frozen=True, slots=True)
class Judged:
    """One temperature, judged.

    Attributes:
      verdict: By single tokens alone.
      reason: Why it is LOSSY or INCONCLUSIVE, or "".
      witness: A token that shows it, or None.
      limit: Total variation of one token above which it is LOSSY.
      floor: The null arm's 95 % quantile of total variation, in its noisiest shape.
      null_max: The null arm's largest.
      largest: The verifier's largest.
      prompt_means: [prompts] mean total variation of each prompt's tokens.
      mean_bound: 99 % upper bound on the mean over prompts.
      p_value: Of a mean over prompts at most the tolerance above the floor, or None where single
        tokens have the last word.
    """

    verdict: Verdict
    reason: str
    witness: dict[str, Any] | None
    limit: float
    floor: float
    null_max: float
    largest: float
    prompt_means: NDArray[np.float64]
    mean_bound: float
    p_value: float | None


def judge(run: NumericsRun, dtype: str, certified_tv: float) -> Judged:
    """Judge one temperature.

    Args:
      run: What was seen.
      dtype: Of the target's forward passes, e.g. "torch.float32".
      certified_tv: Mean distance to be certified.

    Returns:
      The judgement; the mean over prompts is left to the run's correction.
    """
    found, single = run.found, dtype in SINGLE_PRECISION
    distances, null = found.distances, list(found.null.values())
    values = distances.total_variation
    floor = max((_quantile(arm.total_variation, 0.95) for arm in null), default=0.0)
    null_max = found.null_max
    null_tokens = min((len(arm) for arm in null), default=0)
    largest = float(values.max(initial=0.0))
    means = prompt_means(found)
    if single:
        is_astray = null_max > SINGLE_LIMIT
        limit = max(SINGLE_LIMIT, NULL_FACTOR * null_max if is_astray else 0.0)
    else:
        is_astray = any((arm.total_variation > arm.rounding_variation).any() for arm in null)
        least = half_least(dtype, run.temperature)
        if null_tokens < LEAST_NULL_TOKENS:
            least = max(least, float(distances.rounding_variation.max(initial=0.0)))
        limit = max(least, NULL_FACTOR * null_max)
    null_flips = any(arm.is_unexplained_flip.any() for arm in null)
    bound = mean_upper_bound(means, WHITEBOX_ALPHA)
    verdict, reason, witness = Verdict.NO_EVIDENCE, "", None
    if not len(values):
        verdict, reason = Verdict.INCONCLUSIVE, "no tokens were emitted"
    elif largest > limit:
        verdict, witness = Verdict.LOSSY, found.worst
        reason = "the verifier's law is not the target's: too far apart for rounding"
    elif found.flip is not None and not null_flips:
        verdict, witness = Verdict.LOSSY, found.flip
        reason = "the verifier's most probable token is not the target's, by more than rounding"
    elif is_astray:
        verdict = Verdict.INCONCLUSIVE
        reason = f"plain passes differ from plain passes by TV {null_max:.3g}, which no rounding is"
    elif not single and null_tokens < LEAST_NULL_TOKENS:
        verdict = Verdict.INCONCLUSIVE
        reason = (
            f"a noise floor needs {LEAST_NULL_TOKENS} tokens of plain passes and had {null_tokens}"
        )
    elif bound <= certified_tv:
        verdict = Verdict.CERTIFIED
    has_floor = not single and not is_astray and null_tokens >= LEAST_NULL_TOKENS
    level = min(1.0, floor + TOLERANCE)
    return Judged(
        verdict=verdict,
        reason=reason,
        witness=witness,
        limit=limit,
        floor=floor,
        null_max=null_max,
        largest=largest,
        prompt_means=means,
        mean_bound=bound,
        p_value=mean_excess_p_value(means, level, LOSSY_LEVEL) if has_floor else None,
    )


def prompt_means(found: NumericsFindings) -> NDArray[np.float64]:
    """[prompts] mean total variation of each prompt's tokens: the independent units."""
    _, unit = np.unique(found.prompt, return_inverse=True)
    total = np.bincount(unit, found.distances.total_variation)
    means: NDArray[np.float64] = (total / np.maximum(np.bincount(unit), 1)).clip(0.0, 1.0)
    return means


def _quantile(values: NDArray[np.float64], level: float) -> float:
    return float(np.quantile(values, level)) if len(values) else 0.0
