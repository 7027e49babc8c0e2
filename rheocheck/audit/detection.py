"""`--detect TV`: tokens that the sampled stage needs, before the run and against what it got.

A total variation alone fixes no sample size: no directed statistic sees a fault that is orthogonal
to its score. So the run is sized for named faults of that size, each by the stage's best statistic
for it, on the contexts of a pilot whose draws are not the run's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rheocheck.audit.findings import LOSSY_LEVEL, StageFindings, num_p_values
from rheocheck.audit.pair import PairSource
from rheocheck.audit.pilot import duration, pilot_task
from rheocheck.audit.settings import AuditSettings
from rheocheck.audit.tasks import run_task
from rheocheck.audit.token_power import BinPower, PilotFault
from rheocheck.audit.token_tests import THREE_TESTS
from rheocheck.certificate import Verdict
from rheocheck.stats.pit import NUM_BINS
from rheocheck.stats.power import DEFAULT_POWER

# Standard errors by which the tokens of a pilot's prompt may be off, and those of the run.
_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class Detection:
    """What the sampled stage needs at one temperature.

    Attributes:
      temperature: Of the requests.
      detect: Mean total variation to be found.
      faults: Named faults of that size; never none.
      needed: By fault, tokens at which it is found with power 0.95; None where no number does.
      tokens_per_prompt: Of the pilot.
      more: Decodings beside those of the run's prompts; none where the cap forbids them.
    """

    temperature: float
    detect: float
    faults: tuple[PilotFault, ...]
    needed: tuple[int | None, ...]
    tokens_per_prompt: float
    more: int

    @property
    def tokens_needed(self) -> int | None:
        """Tokens at which every fault is found with power 0.95; None where no number does."""
        known = [tokens for tokens in self.needed if tokens is not None]
        return max(known) if len(known) == len(self.needed) else None

    def describe(self, token_cap: int, seconds_per_prompt: float) -> str:
        """A sentence for people: what every fault takes, and what is done about it."""
        parts = [
            f"{'no number of' if needed is None else format(needed, ',')} tokens if {fault.name}"
            for fault, needed in zip(self.faults, self.needed, strict=True)
        ]
        text = (
            f"a TV of {self.detect:g} at T = {self.temperature:g} is found with power "
            f"{DEFAULT_POWER:g} on " + "; on ".join(parts)
        )
        if self.is_within(token_cap):
            return f"{text}. Decodings for it beside the run's prompts: {self.more:,}"
        return f"{text}. {self.beyond(token_cap, seconds_per_prompt)}; none are decoded for it"

    def is_within(self, token_cap: int) -> bool:
        """Whether the tokens that are needed are no more than may be decoded."""
        return self.tokens_needed is not None and self.tokens_needed <= token_cap

    def beyond(self, token_cap: int, seconds_per_prompt: float) -> str:
        """What would do where the cap does not."""
        most = self.tokens_needed
        if most is None:
            return "No number of tokens would do"
        seconds = most / self.tokens_per_prompt * seconds_per_prompt
        # Tokens go with the inverse square of the distance; a tenth more for what is rounded.
        larger = self.detect * math.sqrt(1.1 * most / token_cap)
        return (
            f"The cap is {token_cap:,} tokens: --token-cap {most} would do, some "
            f"{duration(seconds)} of one process, or --detect {larger:.2g}"
        )


def plan_detection(
    settings: AuditSettings,
    source: PairSource,
    prompts: Sequence[tuple[int, ...]],
    num_prompts: int,
    num_tests: int,
) -> list[Detection]:
    """Size the sampled stage at every temperature.

    Args:
      settings: Of the audit, with `detect`.
      source: Where the models come from.
      prompts: Tokens of each prompt, at least one; the first 32 are the pilot.
      num_prompts: Prompts that the run decodes anyway.
      num_tests: p-values of the whole run; the level is that of their correction's first step.

    Returns:
      One entry a temperature.
    """
    assert settings.detect is not None
    level = LOSSY_LEVEL / num_tests
    plans = []
    for number, temperature in enumerate(settings.temperatures, start=1):
        task = pilot_task(settings, source, prompts, temperature, number)
        task = replace(task, tokens_alone=True, pilot_tv=settings.detect)
        found = run_task(task)
        assert found.emissions is not None
        faults = (*found.emissions.pilot, _evenly(settings.detect))
        lengths = [prompt.num_rounds + prompt.num_accepted for prompt in found.rounds]
        plan = Detection(
            temperature=temperature,
            detect=settings.detect,
            faults=faults,
            needed=tuple(fault.tokens_needed(level) for fault in faults),
            tokens_per_prompt=float(np.mean(lengths)),
            more=0,
        )
        if plan.tokens_needed is not None and plan.is_within(settings.token_cap):
            decodings = decodings_for(plan.tokens_needed, lengths)
            plan = replace(plan, more=max(0, decodings - num_prompts))
        plans.append(plan)
    return plans


def decodings_for(tokens: int, lengths: Sequence[int]) -> int:
    """Decodings that hardly ever have fewer tokens in all.

    Args:
      tokens: That are needed.
      lengths: Tokens of some decodings, at least two.
    """
    mean, spread = float(np.mean(lengths)), float(np.std(lengths, ddof=1))
    # Every decoding has a token.
    low = max(1.0, mean - _ERRORS * spread / math.sqrt(len(lengths)))
    # The smallest n with n * low - errors * spread * sqrt(n) >= tokens.
    root = (_ERRORS * spread + math.sqrt((_ERRORS * spread) ** 2 + 4.0 * low * tokens)) / (2 * low)
    return min(tokens, math.ceil(root**2))


def with_detection(
    sampled: StageFindings,
    plans: Sequence[Detection],
    other_tests: int,
    settings: AuditSettings,
    seconds_per_prompt: float,
) -> StageFindings:
    """The sampled stage with its sizing, INCONCLUSIVE where it fell short.

    Args:
      sampled: As concluded without it.
      plans: One a temperature.
      other_tests: p-values of the run beside those of `sampled`.
      settings: Of the audit.
      seconds_per_prompt: That one process takes for the emitted tokens of a prompt.

    Returns:
      The findings with `details.sizing`. Power is that of the tokens and the level that the run
      came to, so a plan that was wrong is found out here.
    """
    result = sampled.result
    num_tests = num_p_values([sampled]) + other_tests
    level = LOSSY_LEVEL / num_tests
    tokens = {row["temperature"]: row["tokens"] for row in result.details["per_temperature"]}
    rows = [
        _row(plan, fault, needed, tokens[plan.temperature], level)
        for plan in plans
        for fault, needed in zip(plan.faults, plan.needed, strict=True)
    ]
    short = min(rows, key=lambda row: row["power"])
    enough = short["power"] >= DEFAULT_POWER
    verdict = result.verdict
    if not enough and verdict is not Verdict.LOSSY:
        verdict = Verdict.INCONCLUSIVE
    detect = f"TV {plans[0].detect:g}"
    summary = (
        f"{result.details['summary']}; sized for {detect}: power {short['power']:.2g} against its "
        f"named faults{'' if enough else ', 0.95 asked for: '}"
    )
    if not enough:
        plan = next(plan for plan in plans if plan.temperature == short["temperature"])
        summary += _what_would_do(plan, short, settings.token_cap, seconds_per_prompt)
    details = {
        **result.details,
        "summary": summary,
        "sizing": rows,
        "power_is": (
            f"smallest over the named faults of {detect}, each by its best statistic at level "
            f"{level:.2g} (1e-6 over {num_tests} p-values)"
        ),
    }
    update = {"verdict": verdict, "power": short["power"], "details": details}
    return replace(sampled, result=result.model_copy(update=update))


def _row(
    plan: Detection, fault: PilotFault, needed: int | None, tokens: int, level: float
) -> dict[str, Any]:
    powers = fault.powers(tokens, level)
    best = max(powers, key=lambda name: powers[name])
    return {
        "temperature": plan.temperature,
        "fault": fault.name,
        "total_variation": fault.total_variation,
        "tokens_needed": needed,
        "tokens": tokens,
        "power": powers[best],
        "best_statistic": best,
    }


def _what_would_do(
    plan: Detection, short: Mapping[str, Any], token_cap: int, seconds_per_prompt: float
) -> str:
    """What to change where a run has too few tokens at one temperature."""
    if not plan.is_within(token_cap):
        return plan.beyond(token_cap, seconds_per_prompt)
    return (
        f"{short['tokens']:,} tokens came where {plan.tokens_needed:,} were planned at T = "
        f"{plan.temperature:g}; longer --max-new-tokens or other prompts would do"
    )


def _evenly(detect: float) -> PilotFault:
    """The worst case of a histogram of PIT values: the distance spread evenly over its bins."""
    power = BinPower(4.0 * detect**2, NUM_BINS - 1, THREE_TESTS)
    name = "it is spread evenly over the PIT's bins"
    return PilotFault(name, detect, {"PIT by draft/target": power})
