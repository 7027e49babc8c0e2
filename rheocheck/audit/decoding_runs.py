"""The decoding runs of an audit: which scheme, temperature and prompts, in which tasks."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from rheocheck.audit.acceptance import compared_schemes
from rheocheck.audit.choices import run_seed
from rheocheck.audit.pair import PairSource
from rheocheck.audit.settings import FEWEST_PROMPTS, AuditSettings
from rheocheck.audit.tasks import PROMPTS_PER_TASK, Task, TaskFindings, run_tasks
from rheocheck.audit.token_power import NAMED_TV
from rheocheck.config import SpeculationConfig
from rheocheck.text import exactly

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
# Nothing rests on the acceptance table but a reader's interest; a deep run need not deepen it.
COMPARED_PROMPTS = FEWEST_PROMPTS
# Tasks of 32 prompts whose plain passes are run again at other shapes, a temperature.
NULL_TASKS = 2


@dataclass(frozen=True, slots=True)
class DecodingRun:
    """Prompts under one scheme at one temperature.

    Attributes:
      name: Unique within the audit.
      scheme: Name of the scheme.
      config: The scheme.
      temperature: Of the requests.
      watch: Its rounds feed the stages.
      num_prompts: The first so many prompts are decoded.
      more: Decodings for the emitted tokens alone, of the prompts that come next and then of all
        again from the first one, each under a request number of its own.
      parts: Findings of its tasks, in order.
    """

    name: str
    scheme: str
    config: SpeculationConfig
    temperature: float
    watch: bool
    num_prompts: int
    more: int = 0
    parts: list[TaskFindings] = field(default_factory=list)


def decoding_runs(
    settings: AuditSettings, num_prompts: int, more: Sequence[int] = ()
) -> list[DecodingRun]:
    """The audited scheme at every temperature, and the compared ones at the first.

    Args:
      settings: Of the audit.
      num_prompts: Prompts of the audit; the compared schemes take no more than the first 500.
      more: By temperature, further decodings for the sampled stage; none if empty.
    """
    schemes = compared_schemes(settings.config)
    names = {config: name for name, config in schemes.items()}
    audited = names.get(settings.config, f"as audited ({settings.config.rule})")
    runs = [
        DecodingRun(
            f"audit T={exactly(value)}", audited, settings.config, value, True, num_prompts, extra
        )
        for value, extra in zip(
            settings.temperatures, more or [0] * len(settings.temperatures), strict=True
        )
    ]
    first = settings.temperatures[0]
    compared = min(num_prompts, COMPARED_PROMPTS)
    runs += [
        DecodingRun(f"{name} T={exactly(first)}", name, config, first, False, compared)
        for name, config in schemes.items()
        if settings.compare_schemes and config != settings.config
    ]
    return runs


def decode_runs(
    settings: AuditSettings,
    source: PairSource,
    prompts: Sequence[tuple[int, ...]],
    runs: Sequence[DecodingRun],
    jobs: int,
    progress: ProgressCallback | None,
) -> float:
    """Decode all runs.

    Args:
      settings: Of the audit.
      source: Where the models come from.
      prompts: Tokens of each prompt.
      runs: Their parts are filled.
      jobs: Processes.
      progress: Called with (what, tasks done, tasks in all).

    Returns:
      Seconds taken.
    """
    started = time.perf_counter()
    tasks = list(_tasks(settings, source, prompts, runs))
    by_name = {run.name: run for run in runs}
    for done, found in enumerate(run_tasks(tasks, jobs), start=1):
        by_name[found.run].parts.append(found)
        if progress is not None:
            progress("decoding", done, len(tasks))
    return time.perf_counter() - started


def _tasks(
    settings: AuditSettings,
    source: PairSource,
    prompts: Sequence[tuple[int, ...]],
    runs: Sequence[DecodingRun],
) -> Iterator[Task]:
    chosen = np.random.default_rng(settings.seed).permutation(runs[0].num_prompts)
    regrown = {int(index) for index in chosen[: settings.regrow_prompts]}
    for number, run in enumerate(runs):
        units = range(0, run.num_prompts, PROMPTS_PER_TASK)
        # Whole tasks, since their batch is one of the shapes; spread over the prompts.
        null_begins = units[:: max(1, len(units) // NULL_TASKS)][:NULL_TASKS]
        last = run.num_prompts + run.more
        # Batches do not reach over the boundary: a task has one kind of prompts.
        begins = [*units, *range(run.num_prompts, last, PROMPTS_PER_TASK)]
        for begin, end in zip(begins, [*begins[1:], last], strict=True):
            requests = range(begin, end)
            yield Task(
                pair=source,
                run=run.name,
                config=run.config,
                temperature=run.temperature,
                max_new_tokens=settings.max_new_tokens,
                seed=run_seed(settings.seed, number),
                requests=tuple(requests),
                prompts=tuple(prompts[request % len(prompts)] for request in requests),
                regrow=frozenset(regrown.intersection(requests)),
                watch=run.watch,
                tokens_alone=begin >= run.num_prompts,
                save=settings.save_trace,
                null_arm=run.watch and begin in null_begins,
                pilot_tv=NAMED_TV if run.watch and begin == 0 else None,
            )
