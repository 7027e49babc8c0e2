"""A pilot: a few prompts decoded before the run, by which one can say how long the run takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rheocheck.audit.choices import run_seed
from rheocheck.audit.decoding_runs import DecodingRun
from rheocheck.audit.pair import PairSource
from rheocheck.audit.settings import AuditSettings
from rheocheck.audit.tasks import PROMPTS_PER_TASK, Task, run_task

Notice: TypeAlias = Callable[[str], None]
"""Receives a sentence for the user while the run goes on."""

# Number of the first pilot among the runs of an audit, which has far fewer: its draws are its own.
PILOT_RUN = 2**20


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that one process takes for a prompt.

    Attributes:
      watched: Decoded and examined by all stages.
      plain: Decoded only.
      tokens: Decoded for the emitted tokens alone.
    """

    watched: float
    plain: float
    tokens: float

    def expected_seconds(self, runs: Sequence[DecodingRun]) -> float:
        """Seconds that one process takes for the runs."""
        return sum(
            run.num_prompts * (self.watched if run.watch else self.plain) + run.more * self.tokens
            for run in runs
        )


def measure_pace(
    settings: AuditSettings, source: PairSource, prompts: Sequence[tuple[int, ...]]
) -> Pace:
    """Decode the first 32 prompts at the first temperature, in each of the three ways.

    Args:
      settings: Of the audit.
      source: Where the models come from.
      prompts: Tokens of each prompt, at least one.
    """
    whole = pilot_task(settings, source, prompts, settings.temperatures[0], 0)
    # What is loaded and compiled once is no part of the pace.
    run_task(replace(whole, requests=whole.requests[:1], prompts=whole.prompts[:1]))
    return Pace(
        _seconds_each(whole),
        _seconds_each(replace(whole, watch=False)),
        _seconds_each(replace(whole, tokens_alone=True)),
    )


def pilot_task(
    settings: AuditSettings,
    source: PairSource,
    prompts: Sequence[tuple[int, ...]],
    temperature: float,
    number: int,
) -> Task:
    """32 decodings of the first prompts, with draws that no run and no other pilot has."""
    first = tuple(prompts[place % len(prompts)] for place in range(PROMPTS_PER_TASK))
    return Task(
        pair=source,
        run="pilot",
        config=settings.config,
        temperature=temperature,
        max_new_tokens=settings.max_new_tokens,
        seed=run_seed(settings.seed, PILOT_RUN + number),
        requests=tuple(range(len(first))),
        prompts=first,
        regrow=frozenset(),
        watch=True,
    )


def _seconds_each(task: Task) -> float:
    started = time.perf_counter()
    run_task(task)
    return (time.perf_counter() - started) / len(task.prompts)


def duration(seconds: float) -> str:
    """A length of time as people say it: "40 s", "14 min", "3.2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
