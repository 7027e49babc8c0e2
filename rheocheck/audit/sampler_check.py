"""The sampler stage: any sampler, on a family of small laws, exactly."""

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.counterexample import (
    Counterexample,
    counterexample_json,
    sampler_text,
    smallest_failing,
)
from rheocheck.audit.sampler_family import (
    VOCABS,
    SamplerInstance,
    family_text,
    sampler_family,
)
from rheocheck.audit.sampler_report import (
    SamplerFinding,
    Sweep,
    claim_of,
    coverage_of,
    replay_of,
    summary_of,
    witness_of,
)
from rheocheck.audit.sampler_run import Limits, SamplerLaw, check_repeats, sampler_law
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError, ProgramError
from rheocheck.protocols import Sampler
from rheocheck.reference import Violation, total_variation, worst_violation

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
LARGEST_TOLERANCE = Fraction(1, 1000)
# Laws of this many paths are enumerated twice, to see whether the sampler repeats itself.
_REPEATED_PATHS = 2_000
# Failing instances after which the sweep stops: one is a proof, the rest serve the worst figure.
_ENOUGH_FAILURES = 12
_SHRINK_SECONDS = 20.0


def check_instance(
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction = Fraction(0),
) -> SamplerFinding:
    """Enumerate one instance and compare its joint law with the target's.

    Args:
      sampler: The sampler under test.
      instance: The laws.
      limits: Bounds.
      deadline: Time (of time.monotonic) at which to stop.
      tolerance: Largest total variation that counts as lossless.

    Returns:
      The finding. An incomplete law can still prove a violation: what was not enumerated is too
      little to explain the excess.

    Raises:
      ProgramError: The sampler misbehaved.
    """
    law = sampler_law(sampler, instance, limits, deadline)
    if not law.complete:
        return SamplerFinding(instance, law, _excess_violation(law, instance), None)
    violation = worst_violation(law.emissions, instance.target)
    distance = Fraction(0)
    if violation is not None:
        length = max(map(len, law.emissions))
        distance = total_variation(law.emissions, instance.target, length)
    proved = violation if distance > tolerance else None
    return SamplerFinding(instance, law, proved, distance)


def _excess_violation(law: SamplerLaw, instance: SamplerInstance) -> Violation | None:
    """A token that is too likely even if everything not enumerated goes beyond its path."""
    missing = 1 - sum(law.emissions.values(), Fraction(0))
    beyond: dict[tuple[int, ...], Fraction] = {}
    extends: dict[tuple[int, ...], Fraction] = {}
    for emission, probability in law.emissions.items():
        for length in range(len(emission)):
            path, longer = emission[:length], emission[: length + 1]
            beyond[path] = beyond.get(path, Fraction(0)) + probability
            extends[longer] = extends.get(longer, Fraction(0)) + probability
    for longer, got in sorted(extends.items(), key=lambda item: (len(item[0]), item[0])):
        path, token = longer[:-1], longer[-1]
        wanted_law = instance.target(path)
        mass = wanted_law[token] if 0 <= token < len(wanted_law) else Fraction(0)
        wanted = (beyond[path] + missing) * mass
        if got > wanted:
            return Violation(path, token, got, wanted)
    return None


def sampler_stage(
    sampler: Sampler,
    name: str,
    *,
    quick: bool = False,
    seed: int = 0,
    max_vocab: int = VOCABS[-1],
    limits: Limits | None = None,
    tolerance: Fraction | None = None,
    progress: ProgressCallback | None = None,
) -> StageResult:
    """Check a sampler on the family and conclude.

    Args:
      sampler: The sampler under test.
      name: What to call it: module:function.
      quick: Check about a third of the family.
      seed: Changes the laws that look at the last tokens.
      max_vocab: Largest vocabulary, 2 to 4.
      limits: Bounds in paths and seconds.
      tolerance: Largest total variation that counts as lossless; None takes the sampler's
        attribute `tolerance`, 0 if it has none.
      progress: Called with (what, units done, units in all).

    Returns:
      CERTIFIED if every instance was enumerated in full and none exceeds the tolerance; LOSSY with
      the smallest counterexample found; INCONCLUSIVE if a bound was met first.

    Raises:
      InputError: An argument is out of range.
      ProgramError: The sampler misbehaved; no verdict.
    """
    started = time.monotonic()
    bounds = limits or Limits()
    allowed = getattr(sampler, "tolerance", Fraction(0)) if tolerance is None else tolerance
    _check_arguments(seed, max_vocab, bounds, allowed)
    instances = sampler_family(quick, seed, max_vocab)
    sweep = _sweep(sampler, instances, bounds, started + bounds.max_seconds, allowed, progress)
    smallest: Counterexample | None = None
    if sweep.failing:
        deadline = time.monotonic() + _SHRINK_SECONDS
        smallest = smallest_failing(sampler, sweep.failing[0].instance, bounds, deadline, allowed)
    verdict = Verdict.CERTIFIED
    if sweep.failing:
        verdict = Verdict.LOSSY
    elif sweep.stopped:
        verdict = Verdict.INCONCLUSIVE
    details: dict[str, Any] = {
        "sampler": name,
        "parameters": sampler_text(sampler),
        "num_rounds": getattr(sampler, "num_rounds", 1),
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
    details["summary"] = summary_of(sweep, len(instances), verdict)
    claim = claim_of(sweep, name, sampler, family_text(quick, seed, max_vocab), allowed)
    return StageResult(
        name="sampler",
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
    sampler: Sampler,
    instances: list[SamplerInstance],
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
    progress: ProgressCallback | None,
) -> Sweep:
    sweep = Sweep()
    try:
        for number, instance in enumerate(instances, 1):
            _check_next(sweep, sampler, instance, limits, deadline, tolerance)
            if progress is not None:
                progress("sampler", number, len(instances))
            if sweep.stopped:
                sweep.stopped += f", in instance {number} of {len(instances)}"
                break
    except KeyboardInterrupt:
        sweep.stopped = f"it was interrupted after {len(sweep.checked)} of {len(instances)}"
    return sweep


def _check_next(
    sweep: Sweep,
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
) -> None:
    """Check one more instance, add it to the sums, and say whether to stop."""
    finding = check_instance(sampler, instance, limits, deadline, tolerance)
    law = finding.law
    sweep.num_paths += law.num_paths
    if law.complete:
        sweep.checked.append(instance)
        sweep.worst = max(sweep.worst, finding.total_variation or Fraction(0))
        if finding.violation is not None or law.num_paths <= _REPEATED_PATHS:
            check_repeats(sampler, instance, limits, law)
        if law.used_uniforms and len(sweep.at_zero) < _ENOUGH_FAILURES:
            sweep.at_zero += _endpoint_findings(sampler, instance, limits, deadline, law)
    if finding.violation is not None:
        sweep.failing.append(finding)
    if len(sweep.failing) >= _ENOUGH_FAILURES:
        sweep.stopped = f"after {len(sweep.failing)} counterexamples"
    elif not law.complete and time.monotonic() > deadline:
        sweep.stopped = f"the bound of {limits.max_seconds:g} seconds was met"
    elif not law.complete:
        sweep.stopped = (
            f"an instance on {instance.vocab} tokens has more than {limits.max_paths:,} paths"
        )


def _endpoint_findings(
    sampler: Sampler, instance: SamplerInstance, limits: Limits, deadline: float, law: SamplerLaw
) -> list[dict[str, Any]]:
    """Emissions of target probability 0 that only uniforms of exactly 0 or near 1 lead to.

    On the grid of a real generator 0 has probability 2^-53, so that `u <= p` accepts p = 0.
    """
    if all(all(row) for row in instance.target.rows.values()):
        return []
    try:
        on_grid = sampler_law(sampler, instance, limits, deadline, grid=True)
    except ProgramError as error:
        return [
            {
                "finding": "fails when a uniform is exactly 0 or the largest below 1",
                "error": str(error),
            }
        ]
    masses: dict[tuple[int, ...], Fraction] = {}
    for emission, probability in on_grid.emissions.items():
        for length, token in enumerate(emission):
            wanted = instance.target(emission[:length])
            if not 0 <= token < len(wanted) or wanted[token] == 0:
                reached = emission[: length + 1]
                masses[reached] = masses.get(reached, Fraction(0)) + probability
                break
    met = {emission[:length] for emission in law.emissions for length in range(len(emission) + 1)}
    new = sorted((-mass, reached) for reached, mass in masses.items() if reached not in met)
    return [
        {
            "finding": "accepts zero probability at u = 0",
            "path": list(reached[:-1]),
            "token": reached[-1],
            "probability": str(-negative),
            "target": [str(mass) for mass in instance.target(reached[:-1])],
        }
        for negative, reached in new[:1]
    ]


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
