"""Numerics stage: the law that verification used against plain decoding's, token by token.

TV(output, plain) <= TV(output, verifier's law) + TV(verifier's law, plain). The first term is the
algorithm; this stage measures the second. It compares laws, so it has no power to state and misses
nothing on the tokens it looks at. What rounding does by itself is measured too: plain passes over
the same texts at other shapes are the null arm, whose noisiest shape sets the floor.

In single precision a distance above 1e-3 is no rounding. In half precision a token is out of line
where its distance is far above anything in the null arm, and a run where the mean over prompts is
above the floor.
"""

from collections.abc import Sequence
from typing import Any

from rheocheck.audit.findings import LOSSY_LEVEL, StageFindings, worst_verdict
from rheocheck.audit.law_distance import (
    LEAST_LOGIT,
    NULL_FACTOR,
    SINGLE_LIMIT,
    SINGLE_PRECISION,
)
from rheocheck.audit.numerics_judgement import TOLERANCE, Judged, NumericsRun, judge
from rheocheck.audit.numerics_report import null_rows, numerics_plot, sentence, temperature_row
from rheocheck.audit.settings import DEFAULT_CERTIFIED_TV
from rheocheck.certificate import StageResult, Verdict
from rheocheck.text import exactly


def numerics_stage(
    runs: Sequence[NumericsRun],
    dtype: str,
    replay: str,
    certified_tv: float = DEFAULT_CERTIFIED_TV,
) -> StageFindings:
    """Conclude the numerics stage.

    Args:
      runs: One entry a temperature.
      dtype: Of the target's forward passes, e.g. "torch.float32".
      replay: Shell line.
      certified_tv: Mean distance to be certified, in (0, 1).

    Returns:
      LOSSY with a witness where a token's law is further from the plain one than rounding takes it,
      or another token is its most probable one; INCONCLUSIVE without tokens, where plain decoding
      is out of line with itself, or where a half-precision floor lacks tokens; CERTIFIED where the
      99 % bound on the mean over prompts is at most `certified_tv` at every temperature; else
      NO_EVIDENCE. In half precision p-values of "the mean is at most 0.2 % above the floor" go to
      the run's correction.
    """
    judged = [judge(run, dtype, certified_tv) for run in runs]
    verdict = worst_verdict(item.verdict for item in judged)
    witness = _witness(runs, judged)
    worst = max(judged, key=lambda item: item.largest / item.limit, default=None)
    bound = max((item.mean_bound for item in judged), default=1.0)
    return StageFindings(
        StageResult(
            name="numerics",
            verdict=verdict,
            claim=_claim(runs, bound) if verdict is Verdict.CERTIFIED else None,
            statistic=None if worst is None else worst.largest,
            threshold=None if worst is None else worst.limit,
            sample_size=sum(len(run.found.distances) for run in runs),
            replay=replay,
            details={
                "summary": sentence(runs, judged),
                "statistic_is": (
                    "largest total variation between the law that verification used at an emitted "
                    "token and plain decoding's; temperature closest to its limit"
                ),
                "threshold_is": _limit_is(dtype),
                "cannot_see": (
                    "what verification does with its law (see whitebox), and texts that were not "
                    "decoded; the laws are compared, nothing is sampled, so no power is stated"
                ),
                "dtype": dtype,
                "tolerance_above_floor": TOLERANCE,
                "per_temperature": [
                    temperature_row(run, item) for run, item in zip(runs, judged, strict=True)
                ],
                "null_arm": null_rows(runs),
                **({"witness": witness} if witness else {}),
                "plot": numerics_plot(runs, judged),
            },
        ),
        {
            f"mean above floor T={exactly(run.temperature)}": item.p_value
            for run, item in zip(runs, judged, strict=True)
            if item.p_value is not None
        },
    )


def _witness(runs: Sequence[NumericsRun], judged: Sequence[Judged]) -> dict[str, Any] | None:
    """The first token that shows a LOSSY temperature."""
    for run, item in zip(runs, judged, strict=True):
        if item.witness is not None:
            return {"what": item.reason, "temperature": run.temperature, **item.witness}
    for run, item in zip(runs, judged, strict=True):
        if item.p_value is not None and item.p_value <= LOSSY_LEVEL and run.found.worst is not None:
            return {
                "what": "the mean over prompts is above plain decoding's own noise",
                "temperature": run.temperature,
                "mean_total_variation": float(item.prompt_means.mean()),
                "noise_floor": item.floor,
                **run.found.worst,
            }
    return None


def _limit_is(dtype: str) -> str:
    if dtype in SINGLE_PRECISION:
        return f"{SINGLE_LIMIT:g}, a thousand times what single precision does"
    return (
        f"{NULL_FACTOR:g} times the null arm's largest distance, at the least what neighbouring "
        f"roundings of logits of {LEAST_LOGIT:g} make"
    )


def _claim(runs: Sequence[NumericsRun], bound: float) -> str:
    names = " and ".join(f"T = {run.temperature:g}" for run in runs)
    largest = max(float(run.found.distances.total_variation.max()) for run in runs)
    tokens = sum(len(run.found.distances) for run in runs)
    return (
        "Numerics: for prompts drawn like these, the law that verification used at an emitted "
        "token differs from the one that plain decoding has there by a total variation of at most "
        f"{bound:.2%}, averaged over a prompt's tokens and over prompts, at 99 % for each of "
        f"{names} (each of the {tokens:,} tokens examined: at most {largest:.2g})."
    )
