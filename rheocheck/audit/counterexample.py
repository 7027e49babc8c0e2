"""Counterexamples that people can read: the smallest instance found, and why it fails."""

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.audit.causes import likely_causes
from rheocheck.audit.sampler_family import (
    SamplerInstance,
    instance_size,
    law_text,
    path_text,
    sampler_family,
)
from rheocheck.audit.sampler_run import (
    Limits,
    SamplerPath,
    sampler_law,
    sampler_paths,
    takes_pairs,
)
from rheocheck.audit.simpler_instances import simpler_pairs
from rheocheck.errors import RheocheckError
from rheocheck.protocols import Path, Sampler, Shrinkable
from rheocheck.reference import Violation, total_variation, worst_violation

_SHOWN_LAWS = 10


@dataclass(frozen=True, slots=True)
class Counterexample:
    """An instance on which a sampler is lossy.

    Attributes:
      sampler: The sampler, perhaps a smaller one of the same kind.
      instance: The laws.
      emissions: Exact law of what it emits.
      violation: The worst place.
      total_variation: Of the joint law.
      first_token: Total variation of the first token alone.
      path: The likeliest run that emits the token at that place, or another one if none does.
      asked: Paths at which a law was asked for on any run, in order of length.
      causes: Sentences, most telling first; perhaps none.
      minimal: Whether every single simplification was tried and none still fails.
    """

    sampler: Sampler
    instance: SamplerInstance
    emissions: dict[Path, Fraction]
    violation: Violation
    total_variation: Fraction
    first_token: Fraction
    path: SamplerPath | None
    asked: tuple[Path, ...]
    causes: tuple[str, ...]
    minimal: bool


def smallest_failing(
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction = Fraction(0),
) -> Counterexample | None:
    """Look for a smaller failing pair of sampler and laws, and simplify it step by step.

    First smaller samplers of the same kind and then the sampler itself are tried on the quick
    family, smallest laws first. The first failure is simplified until no single step still fails: a
    smaller sampler, one token less, one row less, a simpler law in a row.

    Args:
      sampler: A sampler that is lossy on `instance`.
      instance: Where.
      limits: Bounds of one enumeration.
      deadline: Time (of time.monotonic) at which to stop simplifying.
      tolerance: Largest total variation that counts as lossless.

    Returns:
      The counterexample; None if `instance` itself cannot be enumerated within the limits.
    """
    sampler, instance = _first_failing(sampler, instance, limits, deadline, tolerance)
    minimal = False
    while not minimal and time.monotonic() < deadline:
        for smaller_sampler, smaller in simpler_pairs(sampler, instance):
            if time.monotonic() > deadline:
                break
            if _fails(smaller_sampler, smaller, limits, deadline, tolerance):
                sampler, instance = smaller_sampler, smaller
                break
        else:
            minimal = True
    return _described(sampler, instance, limits, minimal)


def _first_failing(
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
) -> tuple[Sampler, SamplerInstance]:
    """A failing pair from the quick family: the smallest sampler, then the smallest laws."""
    smaller = tuple(sampler.smaller()) if isinstance(sampler, Shrinkable) else ()
    for candidate in (*smaller, sampler):
        for laws in sampler_family(quick=True, pairs=takes_pairs(candidate)):
            if candidate is sampler and instance_size(laws) >= instance_size(instance):
                break
            if time.monotonic() > deadline:
                return sampler, instance
            if _fails(candidate, laws, limits, deadline, tolerance):
                return candidate, laws
    return sampler, instance


def _fails(
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    tolerance: Fraction,
) -> bool:
    try:
        law = sampler_law(sampler, instance, limits, deadline)
    except RheocheckError:
        return False  # another fault than the one that is being simplified
    if not law.complete or worst_violation(law.emissions, instance.target) is None:
        return False
    length = max(map(len, law.emissions))
    return total_variation(law.emissions, instance.target, length) > tolerance


def _described(
    sampler: Sampler, instance: SamplerInstance, limits: Limits, minimal: bool
) -> Counterexample | None:
    paths: list[SamplerPath] = []
    emissions: dict[Path, Fraction] = {}
    for path in sampler_paths(sampler, instance, limits):
        paths.append(path)
        emissions[path.emission] = emissions.get(path.emission, Fraction(0)) + path.probability
        if len(paths) > limits.max_paths:
            return None
    violation = worst_violation(emissions, instance.target)
    if violation is None:
        return None
    longer = (*violation.path, violation.token)
    witnesses = [path for path in paths if path.emission[: len(longer)] == longer]
    if not witnesses:
        # The token is never emitted there: show what is.
        place = violation.path
        beyond = (path for path in paths if len(path.emission) > len(place))
        witnesses = [path for path in beyond if path.emission[: len(place)] == place]
    asked = {context for path in paths for context in (*path.asked, *path.drafted)}
    asked |= {violation.path[:length] for length in range(len(violation.path) + 1)}
    length = max(map(len, emissions))
    return Counterexample(
        sampler,
        instance,
        emissions,
        violation,
        total_variation(emissions, instance.target, length),
        total_variation(emissions, instance.target, 1),
        max(witnesses, key=lambda path: path.probability, default=None),
        tuple(sorted(asked, key=lambda context: (len(context), context))),
        tuple(likely_causes(paths, instance, emissions)),
        minimal,
    )


def counterexample_json(found: Counterexample) -> dict[str, Any]:
    """A counterexample as JSON values; fractions are strings."""
    instance, violation = found.instance, found.violation
    laws = [
        {
            "path": list(path),
            **{name: list(map(str, table(path))) for name, table in instance.tables.items()},
        }
        for path in found.asked
    ]
    emissions = sorted(found.emissions.items(), key=lambda item: (-item[1], item[0]))
    return {
        "sampler": sampler_text(found.sampler),
        "vocab": instance.vocab,
        "size": list(instance_size(instance)),
        "laws": laws,
        "path": list(violation.path),
        "token": violation.token,
        "got": str(violation.got),
        "wanted": str(violation.wanted),
        "total_variation": str(found.total_variation),
        "first_token_total_variation": str(found.first_token),
        "emissions": [[list(emission), str(mass)] for emission, mass in emissions],
        "choices": [str(choice) for choice in found.path.choices] if found.path else [],
        "trees": _trees(found.path) if found.path else [],
        "rounds": [list(tokens) for tokens in found.path.rounds] if found.path else [],
        "causes": list(found.causes),
        "minimal": found.minimal,
    }


def _trees(path: SamplerPath) -> list[list[list[int]]]:
    """Drafted nodes of each round of a run, where the sampler took a note of them."""
    return [[list(node) for node in value] for name, value in path.notes if name == "tree"]


def sampler_text(sampler: object) -> str:
    """A function's name, or the parameters of a sampler that has some."""
    return str(getattr(sampler, "__qualname__", None) or repr(sampler))


def counterexample_lines(found: dict[str, Any]) -> list[str]:
    """A counterexample for people.

    Args:
      found: What `counterexample_json` returned.

    Returns:
      Lines without markup.
    """
    vocab = found["vocab"]
    search = "no single simplification fails" if found["minimal"] else "search stopped by its time"
    lines = [f"Smallest counterexample found ({vocab} tokens; {search}): {found['sampler']}"]
    rows = found["laws"]
    constant = all(row | {"path": []} == rows[0] | {"path": []} for row in rows)
    for row in rows[: 1 if constant else _SHOWN_LAWS]:
        where = "everywhere" if constant else f"after {path_text(row['path'])}"
        names = [name for name in ("target", "ranking", "draft") if name in row]
        lines.append(f"  {where}: {', '.join(f'{name} {law_text(row[name])}' for name in names)}")
    if not constant and len(rows) > _SHOWN_LAWS:
        lines.append(f"  and after {len(rows) - _SHOWN_LAWS} more paths (see --json)")
    token, path = found["token"], found["path"]
    lines += [
        f"  after {path_text(path)}, token {token}:",
        f"    got    {found['got']}, the probability that the emission extends "
        f"{path_text([*path, token])}",
        f"    wanted {found['wanted']}, the probability that it goes beyond {path_text(path)} "
        f"times the target's of token {token} there",
        f"  total variation of the joint law {found['total_variation']}, of the first token alone "
        f"{found['first_token_total_variation']}",
    ]
    if found["choices"]:
        emitted = " then ".join(path_text(tokens) for tokens in found["rounds"])
        lines.append(f"  one run that emits {emitted}: {'; '.join(found['choices'])}")
    for tree in found["trees"]:
        nodes = ", ".join(path_text(node) for node in tree) or "no node"
        lines.append(f"  on the drafted tree {nodes}")
    lines += [f"  cause: {cause}" for cause in found["causes"]]
    if not found["causes"]:
        lines.append("  cause: not told by the draws and the laws asked for")
    return lines
