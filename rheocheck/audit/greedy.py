"""Greedy stage: at temperature 0 the loop must write the target's own greedy continuation."""

from collections.abc import Sequence
from typing import Any

from rheocheck.audit.pair import PairSource, load_pair
from rheocheck.audit.tasks import PROMPTS_PER_TASK
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu import decoding
from rheocheck.gpu.decoding_numerics import GreedyReport, check_greedy

GREEDY_PROMPTS = 64


def greedy_stage(
    source: PairSource,
    prompts: Sequence[tuple[int, ...]],
    config: SpeculationConfig,
    max_new_tokens: int,
    replay: str,
) -> StageResult:
    """Decode the first prompts at temperature 0 and compare every token with plain decoding.

    Args:
      source: Where the models come from.
      prompts: Token ids; the first 64 are used.
      config: Scheme.
      max_new_tokens: Length of each continuation.
      replay: Shell line.

    Returns:
      LOSSY where a token is not the target's argmax although the margin is above float noise; else
      NO_EVIDENCE. Margins below the noise, and differences there, are counted.
    """
    pair = load_pair(source)
    chosen = list(prompts[:GREEDY_PROMPTS])
    generations = decoding.generate(
        pair.target,
        pair.new_drafter,
        chosen,
        config,
        SamplingConfig(temperature=0.0, max_new_tokens=max_new_tokens),
        eos=pair.eos,
        batch_size=PROMPTS_PER_TASK,
    )
    report = check_greedy(pair.target, chosen, generations, PROMPTS_PER_TASK)
    return _conclude(report, len(chosen), replay)


def _conclude(report: GreedyReport, num_prompts: int, replay: str) -> StageResult:
    """The stage's result from what was counted."""
    wrong = report.unexplained
    details: dict[str, Any] = {
        "summary": (
            f"{num_prompts} prompts at T = 0, {report.num_tokens:,} tokens: {len(wrong)} differ "
            f"from plain greedy decoding; {report.num_close} margins below float noise, "
            f"{len(report.explained)} differences there"
        ),
        "statistic_is": "tokens that are not the target's argmax by more than float noise",
        "prompts": num_prompts,
        "margins_below_noise": report.num_close,
        "explained_differences": len(report.explained),
    }
    if wrong:
        first = max(wrong, key=lambda difference: difference.margin / difference.noise)
        details["witness"] = {
            "prompt": first.request,
            "index": first.index,
            "emitted_token": first.emitted,
            "token": first.best,
            "margin": first.margin,
            "noise": first.noise,
        }
    return StageResult(
        name="greedy",
        verdict=Verdict.LOSSY if wrong else Verdict.NO_EVIDENCE,
        statistic=float(len(wrong)),
        threshold=1.0,
        sample_size=report.num_tokens,
        replay=replay,
        details=details,
    )
