"""One instance of the sampler sweep: its joint law against the target's, exactly."""

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.audit.sampler_family import SamplerInstance
from rheocheck.audit.sampler_report import SamplerFinding
from rheocheck.audit.sampler_run import Limits, SamplerLaw, check_repeats, sampler_law
from rheocheck.audit.sampler_source import SamplerSource
from rheocheck.errors import ProgramError, RheocheckError
from rheocheck.protocols import Sampler
from rheocheck.reference import Violation, total_variation, worst_violation

# Laws of this many paths are enumerated twice, to see whether the sampler repeats itself.
_REPEATED_PATHS = 2_000


@dataclass(frozen=True, slots=True)
class Examined:
    """What the sweep keeps of an instance.

    Attributes:
      num_paths: Runs.
      complete: Whether every outcome of every draw was met.
      total_variation: Of the joint law, if complete.
      failing: The finding, if it proves a violation.
      at_zero: Findings at the end points of real generators.
      late: Whether time was over.
      error: What the sampler did wrong; nothing else is known then.
    """

    num_paths: int
    complete: bool
    total_variation: Fraction = Fraction(0)
    failing: SamplerFinding | None = None
    at_zero: tuple[dict[str, Any], ...] = ()
    late: bool = False
    error: RheocheckError | None = None


def examine(
    source: Sampler | SamplerSource,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
) -> Examined:
    """Check one instance in every respect; a worker process may do it.

    Args:
      source: The sampler, or where to import it from.
      instance: The laws.
      limits: Bounds.
      deadline: Time (of time.monotonic) at which to stop.
      tolerance: Largest total variation that counts as lossless.

    Returns:
      What was found; an error of the sampler is returned, so that the first one in the order of the
      instances is told whatever the number of processes.
    """
    try:
        sampler = source.load() if isinstance(source, SamplerSource) else source
        return _examine(sampler, instance, limits, deadline, tolerance)
    except RheocheckError as error:
        return Examined(0, False, error=error)


def _examine(
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
) -> Examined:
    finding = check_instance(sampler, instance, limits, deadline, tolerance)
    law = finding.law
    failing = finding if finding.violation is not None else None
    if not law.complete:
        late = time.monotonic() > deadline
        return Examined(law.num_paths, False, failing=failing, late=late)
    if failing is not None or law.num_paths <= _REPEATED_PATHS:
        check_repeats(sampler, instance, limits, law)
    at_zero: tuple[dict[str, Any], ...] = ()
    if law.used_uniforms:
        at_zero = tuple(_endpoint_findings(sampler, instance, limits, deadline, law))
    distance = finding.total_variation or Fraction(0)
    return Examined(law.num_paths, True, distance, failing, at_zero)


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
