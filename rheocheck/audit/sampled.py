"""Sampled stage: emitted tokens against the target's own law by plain decoding.

What verification used as the target's law plays no part here: how far that is from plain passes is
numerics, measured without sampling by a stage of its own and reported apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rheocheck.audit.emissions import EmissionFindings
from rheocheck.audit.findings import StageFindings
from rheocheck.audit.token_stage import TokenRun, token_stage
from rheocheck.certificate import Verdict
from rheocheck.text import exactly


@dataclass(frozen=True, slots=True)
class SampledRun:
    """What the sampled stage saw at one temperature.

    Attributes:
      temperature: Of the requests.
      emissions: All prompts together.
    """

    temperature: float
    emissions: EmissionFindings


def sampled_stage(runs: Sequence[SampledRun], other_tests: int, replay: str) -> StageFindings:
    """Conclude the sampled stage.

    Args:
      runs: One entry a temperature.
      other_tests: p-values that enter the run's correction beside those of this stage's statistics.
      replay: Shell line.

    Returns:
      LOSSY with a witness where a token of probability 0 was emitted; else the verdict of
      `token_stage`. p-values are for the run's correction.
    """
    tokens = token_stage([_token_run(run) for run in runs], other_tests, replay)
    details = tokens.result.details
    for row, run in zip(details["per_temperature"], runs, strict=True):
        row["tokens_off_support"] = len(run.emissions.off_support)
    witness = next((found for run in runs if (found := _witness(run)) is not None), None)
    if witness is None:
        return tokens
    update = {"verdict": Verdict.LOSSY, "details": {**details, "witness": witness}}
    return replace(tokens, result=tokens.result.model_copy(update=update))


def _token_run(run: SampledRun) -> TokenRun:
    found = run.emissions
    return TokenRun(
        label=f" T={exactly(run.temperature)}",
        temperature=run.temperature,
        num_tokens=found.num_tokens,
        statistics=found.statistics,
        sets=found.sets,
        accept=found.accept,
        pilot=found.pilot,
    )


def _witness(run: SampledRun) -> dict[str, Any] | None:
    if not run.emissions.off_support:
        return None
    request, round_index, step, token = run.emissions.off_support[0]
    return {
        "what": "emitted a token of probability 0",
        "temperature": run.temperature,
        "prompt": request,
        "round": round_index,
        "position": step,
        "token": token,
    }
