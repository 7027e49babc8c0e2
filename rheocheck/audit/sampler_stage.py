"""The sampler stage: any sampler, on a family of small laws, exactly."""

import re
import time
from collections.abc import Callable, Generator, Iterator
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.controls import all_fired, controls_json, controls_text
from rheocheck.audit.counterexample import (
    Counterexample,
    counterexample_json,
    sampler_text,
    smallest_failing,
)
from rheocheck.audit.resume import Journal
from rheocheck.audit.sampler_check import Examined, examine
from rheocheck.audit.sampler_controls import sampler_controls
from rheocheck.audit.sampler_family import (
    VOCABS,
    SamplerInstance,
    family_text,
    sampler_family,
)
from rheocheck.audit.sampler_report import (
    MOST_FINDINGS,
    Sweep,
    claim_of,
    coverage_of,
    replay_of,
    summary_of,
    witness_of,
)
from rheocheck.audit.sampler_run import Limits, takes_pairs
from rheocheck.audit.sampler_source import SamplerSource
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError
from rheocheck.parallel import in_order, num_processes
from rheocheck.protocols import Sampler

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
NAME = "sampler"
LARGEST_TOLERANCE = Fraction(1, 1000)
# Failing instances after which the sweep stops: one is a proof, the rest serve the worst figure.
_ENOUGH_FAILURES = 12
_SHRINK_SECONDS = 20.0
_FAILED = 0
_FRACTION = re.compile(r"\d+(/[1-9]\d*)?")


def sampler_stage(
    source: Sampler | SamplerSource,
    name: str,
    *,
    quick: bool = False,
    seed: int = 0,
    max_vocab: int = VOCABS[-1],
    limits: Limits | None = None,
    tolerance: Fraction | None = None,
    jobs: int = 1,
    journal: Journal | None = None,
    progress: ProgressCallback | None = None,
) -> StageResult:
    """Check a sampler on the family and conclude.

    Args:
      source: The sampler under test, or where to import it from; with several `jobs` it must be
        that, or picklable by cloudpickle.
      name: What to call it: module:function.
      quick: Check about a third of the family.
      seed: Changes the laws that look at the last tokens.
      max_vocab: Largest vocabulary, 2 to 4.
      limits: Bounds in paths and seconds.
      tolerance: Largest total variation that counts as lossless; None takes the sampler's
        attribute `tolerance`, 0 if it has none.
      jobs: Processes. Unless the bound in seconds is met, the result does not depend on it.
      journal: Instances that passed in a stopped run are taken from it, new ones are recorded.
      progress: Called with (what, units done, units in all).

    Returns:
      CERTIFIED if every instance was enumerated in full and none exceeds the tolerance; LOSSY with
      the smallest counterexample found; INCONCLUSIVE if a bound was met first, or if a
      planted fault is not found.

    Raises:
      InputError: An argument is out of range.
      ProgramError: The sampler misbehaved; no verdict.
      KeyboardInterrupt: There is a journal, and no counterexample yet.
    """
    started = time.monotonic()
    num_processes(jobs)
    bounds = limits or Limits()
    sampler = source.load() if isinstance(source, SamplerSource) else source
    allowed = getattr(sampler, "tolerance", Fraction(0)) if tolerance is None else tolerance
    _check_arguments(seed, max_vocab, bounds, allowed)
    pairs = takes_pairs(sampler)
    instances = sampler_family(quick, seed, max_vocab, pairs)
    sweep = _sweep(
        source, instances, bounds, started + bounds.max_seconds, allowed, jobs, journal, progress
    )
    smallest: Counterexample | None = None
    if sweep.failing:
        deadline = time.monotonic() + _SHRINK_SECONDS
        smallest = smallest_failing(sampler, sweep.failing[0].instance, bounds, deadline, allowed)
    controls = sampler_controls()
    verdict = Verdict.CERTIFIED
    if not all_fired(controls):
        verdict = Verdict.INCONCLUSIVE
    elif sweep.failing:
        verdict = Verdict.LOSSY
    elif sweep.stopped:
        verdict = Verdict.INCONCLUSIVE
    details: dict[str, Any] = {
        "sampler": name,
        "parameters": sampler_text(sampler),
        "num_rounds": getattr(sampler, "num_rounds", 1),
        "draft_pairs": pairs,
        "num_instances": len(instances),
        "num_checked": len(sweep.checked),
        "num_paths": sweep.num_paths,
        "covered": coverage_of(sweep.checked, instances),
        "worst_total_variation": str(sweep.worst),
        "tolerance": str(allowed),
        "endpoint_findings": sweep.at_zero,
        "limits": {"max_paths": bounds.max_paths, "max_seconds": bounds.max_seconds},
    }
    if sweep.stopped:
        details["stopped"] = sweep.stopped
    if sweep.failing:
        details["witness"] = witness_of(sweep.failing[0])
    if smallest is not None:
        details["counterexample"] = counterexample_json(smallest)
    details["controls"] = controls_json(controls)
    told = summary_of(sweep, len(instances), verdict) if all_fired(controls) else ""
    details["summary"] = f"{told} {controls_text(controls)}".strip()
    claim = claim_of(sweep, name, sampler, family_text(quick, seed, max_vocab, pairs), allowed)
    return StageResult(
        name=NAME,
        verdict=verdict,
        claim=claim if verdict is Verdict.CERTIFIED else None,
        statistic=float(sweep.worst),
        sample_size=len(sweep.checked),
        threshold=float(allowed),
        replay=replay_of(name, quick, seed, max_vocab, bounds, tolerance),
        seconds=time.monotonic() - started,
        details=details,
    )


def _sweep(
    source: Sampler | SamplerSource,
    instances: list[SamplerInstance],
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
    jobs: int,
    journal: Journal | None,
    progress: ProgressCallback | None,
) -> Sweep:
    """Examine instances in their order until there is a reason to stop."""
    sweep = Sweep()

    def tasks(missing: list[SamplerInstance]) -> Iterator[tuple[Any, ...]]:
        return ((source, instance, limits, deadline, tolerance) for instance in missing)

    results = _results(tasks, instances, jobs, journal)
    try:
        for number, (instance, found) in enumerate(zip(instances, results, strict=True), 1):
            _take(sweep, instance, found, limits)
            if progress is not None:
                progress(NAME, number, len(instances))
            if sweep.stopped:
                sweep.stopped += f", in instance {number} of {len(instances)}"
                break
    except KeyboardInterrupt:
        # What was done is kept; a counterexample is a proof, however early the end.
        if journal is not None and not sweep.failing:
            raise
        sweep.stopped = f"it was interrupted after {len(sweep.checked)} of {len(instances)}"
    finally:
        results.close()
    return sweep


def _results(
    tasks: Callable[[list[SamplerInstance]], Iterator[tuple[Any, ...]]],
    instances: list[SamplerInstance],
    jobs: int,
    journal: Journal | None,
) -> Generator[Examined]:
    """What was found on each instance: from the journal if it passed there, else examined."""
    known = [
        journal.get(NAME, str(number)) if journal else None for number in range(len(instances))
    ]
    recalled = [None if value in (None, _FAILED) else _recalled(value) for value in known]
    pairs = list(zip(instances, recalled, strict=True))
    fresh = in_order(examine, tasks([one for one, value in pairs if value is None]), jobs)
    try:
        for number, (_, value) in enumerate(pairs):
            if value is not None:
                yield value
                continue
            found = next(fresh)
            if journal is not None and found.complete and known[number] is None:
                journal.record(NAME, str(number), _entry(found))
            yield found
    finally:
        fresh.close()


def _entry(found: Examined) -> Any:
    """What passed as three facts; what failed as 0: it is computed again when a run goes on."""
    if found.failing is not None:
        return _FAILED
    return [found.num_paths, str(found.total_variation), list(found.at_zero)]


def _recalled(value: Any) -> Examined:
    match value:
        case [int(num_paths), str(distance), list(at_zero)] if _FRACTION.fullmatch(distance):
            return Examined(num_paths, True, Fraction(distance), None, tuple(at_zero))
    raise InputError(f"the journal's entry {value!r} of the sampler stage is damaged")


def _take(sweep: Sweep, instance: SamplerInstance, found: Examined, limits: Limits) -> None:
    """Add one more instance to the sums, and say whether to stop.

    Raises:
      RheocheckError: The sampler misbehaved on it.
    """
    if found.error is not None:
        raise found.error
    sweep.num_paths += found.num_paths
    if found.complete:
        sweep.checked.append(instance)
        sweep.worst = max(sweep.worst, found.total_variation)
        if len(sweep.at_zero) < MOST_FINDINGS:
            sweep.at_zero += found.at_zero
    if found.failing is not None:
        sweep.failing.append(found.failing)
    if len(sweep.failing) >= _ENOUGH_FAILURES:
        sweep.stopped = f"after {len(sweep.failing)} counterexamples"
    elif not found.complete and found.late:
        sweep.stopped = f"the bound of {limits.max_seconds:g} seconds was met"
    elif not found.complete:
        sweep.stopped = (
            f"an instance on {instance.vocab} tokens has more than {limits.max_paths:,} paths"
        )


def _check_arguments(seed: int, max_vocab: int, limits: Limits, tolerance: object) -> None:
    if seed < 0:
        raise InputError(f"seed is {seed}; required: at least 0")
    if max_vocab not in VOCABS:
        raise InputError(f"max_vocab is {max_vocab}; required: one of {VOCABS}")
    for name in ("max_paths", "max_seconds", "max_run_seconds", "max_choices"):
        value = getattr(limits, name)
        if not value > 0:
            raise InputError(f"{name} is {value}; required: above 0")
    if not isinstance(tolerance, int | Fraction) or not 0 <= tolerance <= LARGEST_TOLERANCE:
        raise InputError(
            f"tolerance is {tolerance!r}; required: an exact rational between 0 and "
            f"{LARGEST_TOLERANCE}: it is for rounding, a larger distance is a defect"
        )
