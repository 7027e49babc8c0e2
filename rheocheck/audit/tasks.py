"""Work units of an audit: decode some prompts, watch every round, keep what the stages need.

A task holds a fixed run of prompts and is a pure function of its fields, so that it does not matter
which process runs it, how many there are, or in which order they finish.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rheocheck.audit.acceptance import PromptRounds
from rheocheck.audit.draws import DrawFindings, DrawWatcher
from rheocheck.audit.emissions import (
    EmissionFindings,
    EmissionRecorder,
    compare_with,
    plain_laws,
)
from rheocheck.audit.node_law import NodeChooser, NodeFinding, check_nodes
from rheocheck.audit.numerics_findings import (
    NumericsFindings,
    compare_laws,
    null_arm,
    plain_pass,
)
from rheocheck.audit.pair import PairSource, load_pair
from rheocheck.audit.probe import ProbePits
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.audit.regrow import (
    HALF_PRECISION_ROUNDING,
    ROUNDING,
    ProbeChooser,
    RegrowFinding,
    regrow,
)
from rheocheck.audit.trace_recorder import TraceRecorder
from rheocheck.audit.trace_saving import TracePart, trace_part
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu import decoding
from rheocheck.gpu.decoding import Observer, RoundTrace
from rheocheck.gpu.generation import Generation
from rheocheck.models.registry import Pair
from rheocheck.parallel import in_order

# Prompts of one task, which are one batch of the decoding loop. Fixed: the rounding of a forward
# pass may follow the shape of its batch, and results must not depend on the number of workers.
PROMPTS_PER_TASK = 32


@dataclass(frozen=True, slots=True)
class Task:
    """Prompts to decode under one scheme at one temperature.

    Attributes:
      pair: Where the models come from.
      run: Name of the run that the task is a part of.
      config: Scheme.
      temperature: Of the requests.
      max_new_tokens: Length limit.
      seed: Of the run; no other run of the audit has it.
      requests: Numbers of the prompts.
      prompts: Their tokens.
      regrow: Those of `requests` on which a tree is regrown.
      watch: Collect for the stages; False decodes only, for the acceptance.
      tokens_alone: Of what is watched, collect the emitted tokens only: for a prompt that is no
        unit of the other stages.
      pilot_tv: Total variation of the named faults that are tried out on the first contexts, or
        None to try none.
      save: Folder of the trace that is to be kept, or None.
      null_arm: Run the plain passes again at other shapes.
    """

    pair: PairSource
    run: str
    config: SpeculationConfig
    temperature: float
    max_new_tokens: int
    seed: int
    requests: tuple[int, ...]
    prompts: tuple[tuple[int, ...], ...]
    regrow: frozenset[int]
    watch: bool
    save: Path | None = None
    null_arm: bool = False
    tokens_alone: bool = False
    pilot_tv: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaskFindings:
    """What one task found.

    Attributes:
      run: Name of the run.
      rounds: One entry a prompt.
      nodes: One finding a prompt; empty where the task does not watch.
      pits: [probes] PIT values of the surviving probes.
      regrown: One finding for each prompt of `regrow` that had a surviving probe.
      emissions: Emitted tokens against plain decoding, or None where the task does not watch.
      numerics: Verifier's laws against plain decoding, or None where the task does not watch.
      draws: Uniforms of all rounds, or None where the task does not watch.
      trace: Its rounds as a trace shows them, or None where the task does not watch.
    """

    run: str
    rounds: list[PromptRounds]
    nodes: list[NodeFinding]
    pits: NDArray[np.float64]
    regrown: list[RegrowFinding]
    emissions: EmissionFindings | None
    numerics: NumericsFindings | None
    draws: DrawFindings | None
    trace: TracePart | None


def run_task(task: Task) -> TaskFindings:
    """Decode and watch.

    Args:
      task: The work.

    Returns:
      Its findings.
    """
    with one_thread():
        return _run(task, load_pair(task.pair))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: more split sums otherwise, and processes share the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_tasks(
    tasks: Sequence[Task], jobs: int, done: Callable[[Task], None] | None = None
) -> Iterator[TaskFindings]:
    """Run tasks, in this process or in several.

    Args:
      tasks: The work.
      jobs: Processes; 1 runs here.
      done: Called after each task, in order.

    Yields:
      Findings in the order of the tasks.
    """
    found = in_order(run_task, ((task,) for task in tasks), jobs if len(tasks) > 1 else 1)
    for task, findings in zip(tasks, found, strict=True):
        if done is not None:
            done(task)
        yield findings


def _run(task: Task, pair: Pair) -> TaskFindings:
    if not task.watch:
        rounds = _rounds(_decode(task, pair, None))
        return TaskFindings(task.run, rounds, [], np.zeros(0), [], None, None, None, None)
    if task.tokens_alone:
        return _tokens_alone(task, pair)
    nodes, pits = NodeChooser(task.seed), ProbePits(task.seed)
    probes = ProbeChooser(task.seed, set(task.regrow))
    emissions = EmissionRecorder(task.seed, task.config, task.temperature)
    draws = DrawWatcher(task.config, _sampling(task))
    recorder = TraceRecorder(task.config, task.temperature)

    def observe(trace: RoundTrace) -> None:
        for watcher in (nodes, pits, probes, emissions, draws, recorder):
            watcher.observe(trace)

    generations = _decode(task, pair, observe)
    rows = emissions.rows()
    plain = plain_pass(rows, pair.target.plain_logits, task.temperature, pair.target.logit_noise())
    numerics = compare_laws(rows, plain)
    if task.null_arm:
        arms = null_arm(rows, pair.target, plain, task.temperature)
        numerics = replace(numerics, null=arms, null_prompts=len(rows))
    token_ids = pair.new_drafter(1).token_ids
    is_half = pair.target.hf.dtype in (torch.float16, torch.bfloat16)
    rounding = HALF_PRECISION_ROUNDING if is_half else ROUNDING
    return TaskFindings(
        run=task.run,
        rounds=_rounds(generations),
        nodes=check_nodes(nodes.nodes(), task.config, task.temperature, token_ids),
        pits=pits.values(),
        regrown=[
            regrow(probe, task.config, task.temperature, rounding) for probe in probes.probes()
        ],
        emissions=compare_with(rows, plain.laws, task.config, task.pilot_tv),
        numerics=numerics,
        draws=draws.findings(),
        trace=_trace(task, recorder, plain.laws, str(pair.target.hf.dtype)),
    )


def _tokens_alone(task: Task, pair: Pair) -> TaskFindings:
    """What the sampled stage needs, and the trace if it is to be kept."""
    emissions = EmissionRecorder(task.seed, task.config, task.temperature)
    recorder = None if task.save is None else TraceRecorder(task.config, task.temperature)

    def observe(trace: RoundTrace) -> None:
        emissions.observe(trace)
        if recorder is not None:
            recorder.observe(trace)

    generations = _decode(task, pair, observe)
    plain = plain_laws(emissions.rows(), pair.target.plain_logits, task.temperature)
    dtype = str(pair.target.hf.dtype)
    return TaskFindings(
        run=task.run,
        rounds=_rounds(generations),
        nodes=[],
        pits=np.zeros(0),
        regrown=[],
        emissions=compare_with(emissions.rows(), plain, task.config, task.pilot_tv),
        numerics=None,
        draws=None,
        trace=None if recorder is None else _trace(task, recorder, plain, dtype),
    )


def _trace(
    task: Task, recorder: TraceRecorder, plain: dict[int, NDArray[np.float64]], dtype: str
) -> TracePart:
    settings = {
        "temperature": task.temperature,
        **task.config.model_dump(),
        "max_new_tokens": task.max_new_tokens,
        "seed": task.seed,
        "dtype": dtype,
    }
    name = f"part-{task.seed}-{task.requests[0]}"
    return trace_part(recorder, task.run, name, task.save, settings, plain)


def _decode(task: Task, pair: Pair, observer: Observer | None) -> list[Generation]:
    return decoding.generate(
        pair.target,
        lambda batch: RecordingDrafter(pair.new_drafter(batch)),
        task.prompts,
        task.config,
        _sampling(task),
        eos=pair.eos,
        requests=task.requests,
        batch_size=PROMPTS_PER_TASK,
        observer=observer,
    )


def _sampling(task: Task) -> SamplingConfig:
    return SamplingConfig(
        temperature=task.temperature, max_new_tokens=task.max_new_tokens, seed=task.seed
    )


def _rounds(generations: Sequence[Generation]) -> list[PromptRounds]:
    return [
        PromptRounds(
            num_rounds=len(generation.rounds),
            num_accepted=sum(facts.num_accepted for facts in generation.rounds),
        )
        for generation in generations
    ]
