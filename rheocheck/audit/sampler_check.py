"""The sampler stage: any sampler, on a family of small laws, exactly."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.counterexample import Counterexample, counterexample_json, smallest_failing
from rheocheck.audit.sampler_family import (
    GROUPS,
    VOCABS,
    SamplerInstance,
    family_text,
    sampler_family,
)
from rheocheck.audit.sampler_run import Limits, SamplerLaw, check_repeats, sampler_law
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError
from rheocheck.protocols import Sampler
from rheocheck.reference import Violation, total_variation, worst_violation

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
# Laws of this many paths are enumerated twice, to see whether the sampler repeats itself.
_REPEATED_PATHS = 2_000
# Failing instances after which the sweep stops: one is a proof, the rest serve the worst figure.
_ENOUGH_FAILURES = 12
_SHRINK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class SamplerFinding:
    """What one instance showed.

    Attributes:
      instance: The laws.
      law: What was enumerated.
      violation: Where the joint law is not the target's; None if it is, or nothing is proved.
      total_variation: Of the joint law over the longest emission; of an incomplete law, None.
    """

    instance: SamplerInstance
    law: SamplerLaw
    violation: Violation | None
    total_variation: Fraction | None


@dataclass(slots=True)
class Sweep:
    """Sums over the instances that were checked.

    Attributes:
      checked: Complete instances.
      failing: Those whose law is not the target's.
      num_paths: Runs in all.
      stopped: Why the sweep ended early; None if it did not.
      worst: Largest total variation.
      at_zero: Emissions of target probability 0 that the grid of a real generator makes possible.
    """

    checked: list[SamplerInstance] = field(default_factory=list)
    failing: list[SamplerFinding] = field(default_factory=list)
    num_paths: int = 0
    stopped: str | None = None
    worst: Fraction = Fraction(0)
    at_zero: list[dict[str, Any]] = field(default_factory=list)


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
        "parameters": repr(sampler),
        "num_rounds": getattr(sampler, "num_rounds", 1),
        "num_instances": len(instances),
        "num_checked": len(sweep.checked),
        "num_paths": sweep.num_paths,
        "covered": _coverage(sweep.checked, instances),
        "worst_total_variation": str(sweep.worst),
        "tolerance": str(allowed),
        "endpoint_findings": sweep.at_zero,
        "limits": {"max_paths": bounds.max_paths, "max_seconds": bounds.max_seconds},
    }
    if sweep.stopped:
        details["stopped"] = sweep.stopped
    if sweep.failing:
        details["witness"] = _witness(sweep.failing[0])
    if smallest is not None:
        details["counterexample"] = counterexample_json(smallest)
    details["summary"] = _summary(sweep, len(instances), verdict, allowed)
    claim = _claim(sweep, name, sampler, family_text(quick, seed, max_vocab), allowed)
    return StageResult(
        name="sampler",
        verdict=verdict,
        claim=claim if verdict is Verdict.CERTIFIED else None,
        statistic=float(sweep.worst),
        sample_size=len(sweep.checked),
        threshold=float(allowed),
        replay=_replay(name, quick, seed, max_vocab, bounds, tolerance),
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
    for number, instance in enumerate(instances, 1):
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
        if progress is not None:
            progress("sampler", number, len(instances))
        if len(sweep.failing) >= _ENOUGH_FAILURES:
            sweep.stopped = f"after {len(sweep.failing)} counterexamples"
            break
        if not law.complete:
            reason = (
                f"the bound of {limits.max_seconds:g} seconds was met"
                if time.monotonic() > deadline
                else f"an instance on {instance.vocab} tokens has more than {limits.max_paths:,} "
                f"paths"
            )
            sweep.stopped = f"{reason}, in instance {number} of {len(instances)}"
            break
    return sweep


def _endpoint_findings(
    sampler: Sampler, instance: SamplerInstance, limits: Limits, deadline: float, law: SamplerLaw
) -> list[dict[str, Any]]:
    """Emissions of target probability 0 that only uniforms of exactly 0 or near 1 lead to.

    On the grid of a real generator 0 has probability 2^-53, so that `u <= p` accepts p = 0.
    """
    if all(all(row) for row in instance.target.rows.values()):
        return []
    on_grid = sampler_law(sampler, instance, limits, deadline, grid=True)
    found: list[dict[str, Any]] = []
    for emission, probability in sorted(on_grid.emissions.items()):
        for length, token in enumerate(emission):
            wanted = instance.target(emission[:length])
            possible = 0 <= token < len(wanted) and wanted[token] > 0
            if not possible and emission not in law.emissions:
                found.append(
                    {
                        "finding": "accepts zero probability at u = 0",
                        "path": list(emission[:length]),
                        "token": token,
                        "probability": str(probability),
                        "target": [str(mass) for mass in wanted],
                    }
                )
                break
    return found[:1]


def _coverage(checked: list[SamplerInstance], instances: list[SamplerInstance]) -> list[Any]:
    """Instances checked and in all, by group and vocabulary."""
    rows = []
    for group in GROUPS:
        for vocab in VOCABS:
            in_all = sum(i.group == group and i.vocab == vocab for i in instances)
            done = sum(i.group == group and i.vocab == vocab for i in checked)
            if in_all:
                rows.append({"group": group, "vocab": vocab, "checked": done, "in_all": in_all})
    return rows


def _summary(sweep: Sweep, in_all: int, verdict: Verdict, tolerance: Fraction) -> str:
    counted = f"{len(sweep.checked)} of {in_all} instances in full, {sweep.num_paths:,} paths"
    if verdict is Verdict.LOSSY:
        text = f"{counted}: the joint law is not the target's; worst total variation {sweep.worst}"
        text += f" ({float(sweep.worst):.4g})."
    elif verdict is Verdict.INCONCLUSIVE:
        text = (
            f"{counted}, no defect among them; then {sweep.stopped}. Nothing is certified: raise "
            f"--max-paths or --max-seconds, or lower --max-vocab for a smaller claim."
        )
    elif sweep.worst == 0:
        text = f"{counted}: the joint law is the target's, exactly."
    else:
        text = f"{counted}: worst total variation {float(sweep.worst):.3g}, of rounding."
    if sweep.at_zero:
        text += (
            " Separately: a token of probability 0 is accepted when a uniform is exactly 0, which "
            "a generator gives once in 2^53 draws or less (u <= p where u < p is meant)."
        )
    return text


def _witness(finding: SamplerFinding) -> dict[str, str]:
    """The first violation met, as it was met: got is a lower bound if the law is incomplete."""
    assert finding.violation is not None
    return {
        "target": ", ".join(map(str, finding.instance.target(finding.violation.path))),
        "path": str(finding.violation.path),
        "token": str(finding.violation.token),
        "got": str(finding.violation.got),
        "wanted": str(finding.violation.wanted),
    }


def _claim(sweep: Sweep, name: str, sampler: Sampler, family: str, tolerance: Fraction) -> str:
    num_rounds = getattr(sampler, "num_rounds", 1)
    rounds = "one round" if num_rounds == 1 else f"{num_rounds} rounds"
    distance = "0" if tolerance == 0 else f"at most {float(tolerance):g} (rounding)"
    return (
        f"On each of {len(sweep.checked)} instances ({family}) the exact joint law of the tokens "
        f"of {rounds} of {name}, over all outcomes of all draws ({sweep.num_paths:,} paths), has total "
        f"variation {distance} from the target's. Nothing is claimed about other laws, or about "
        f"how a real generator rounds."
    )


def _replay(
    name: str,
    quick: bool,
    seed: int,
    max_vocab: int,
    limits: Limits,
    tolerance: Fraction | None,
) -> str:
    words = ["rheocheck certify", f"--sampler {name}", f"--seed {seed}"]
    if quick:
        words.append("--quick")
    if max_vocab != VOCABS[-1]:
        words.append(f"--max-vocab {max_vocab}")
    if limits.max_paths != Limits().max_paths:
        words.append(f"--max-paths {limits.max_paths}")
    if limits.max_seconds != Limits().max_seconds:
        words.append(f"--max-seconds {limits.max_seconds:g}")
    if tolerance is not None:
        words.append(f"--tolerance {tolerance}")
    return " ".join(words)


def _check_arguments(seed: int, max_vocab: int, limits: Limits, tolerance: object) -> None:
    if seed < 0:
        raise InputError(f"seed is {seed}; required: at least 0")
    if max_vocab not in VOCABS:
        raise InputError(f"max_vocab is {max_vocab}; required: one of {VOCABS}")
    for name in ("max_paths", "max_seconds", "max_run_seconds", "max_choices"):
        value = getattr(limits, name)
        if not value > 0:
            raise InputError(f"{name} is {value}; required: above 0")
    if not isinstance(tolerance, int | Fraction) or not 0 <= tolerance < 1:
        raise InputError(
            f"tolerance is {tolerance!r}; required: an exact rational, at least 0 and below 1"
        )
