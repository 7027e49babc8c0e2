"""A pilot: a few prompts decoded before the run, by which one can say how long the run takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rheocheck.audit.choices import run_seed
from rheocheck.audit.decoding_runs import DecodingRun
from rheocheck.audit.pair import PairSource
from rheocheck.audit.settings import AuditSettings
from rheocheck.audit.tasks import PROMPTS_PER_TASK, Task, run_task
from rheocheck.parallel import num_processes

Notice: TypeAlias = Callable[[str], None]
"""Receives a sentence for the user while the run goes on."""

# Number of the pilot among the runs of an audit, which has far fewer: its draws are its own.
PILOT_RUN = 2**20


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that one process takes for a prompt.

    Attributes:
      watched: Decoded and examined by all stages.
      plain: Decoded only.
    """

    watched: float
    plain: float

    def expected_seconds(self, runs: Sequence[DecodingRun], jobs: int) -> float:
        """Seconds that the runs take in so many processes, each with a core of its own."""
        total = sum(run.num_prompts * (self.watched if run.watch else self.plain) for run in runs)
        return total / num_processes(jobs)


def measure_pace(
    settings: AuditSettings, source: PairSource, prompts: Sequence[tuple[int, ...]]
) -> Pace:
    """Decode the first 32 prompts twice at the first temperature, with draws of no run.

    Args:
      settings: Of the audit.
      source: Where the models come from.
      prompts: Tokens of each prompt, at least one.
    """
    first = tuple(prompts[:PROMPTS_PER_TASK])
    seconds = []
    for number, watch in enumerate((True, False)):
        task = Task(
            pair=source,
            run="pilot",
            config=settings.config,
            temperature=settings.temperatures[0],
            max_new_tokens=settings.max_new_tokens,
            seed=run_seed(settings.seed, PILOT_RUN + number),
            requests=tuple(range(len(first))),
            prompts=first,
            regrow=frozenset(),
            watch=watch,
        )
        started = time.perf_counter()
        run_task(task)
        seconds.append((time.perf_counter() - started) / len(first))
    return Pace(*seconds)


def duration(seconds: float) -> str:
    """A length of time as people say it: "40 s", "14 min", "3.2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
