"""The exact stage: every law of a stated family, in rationals, by two enumerators."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.controls import all_fired, controls_json, controls_text
from rheocheck.audit.exact_check import Finding, check_instance, describe, size, smaller_failing
from rheocheck.audit.exact_controls import exact_controls
from rheocheck.audit.exact_resume import as_entry, recalled
from rheocheck.audit.instance_certificate import CertificateBuilder
from rheocheck.audit.resume import Journal
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import RULES
from rheocheck.errors import InputError
from rheocheck.parallel import in_order, num_processes
from rheocheck.reference.families import (
    BUDGETS,
    DEPTHS,
    EDGE_GROUP,
    RECIPES,
    SEQUENCE_GROUP,
    TOP_KS,
    VOCABS,
    Instance,
    family,
)

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
DEFAULT_MAX_EAGER_PATHS = 500
QUICK_MAX_EAGER_PATHS = 500
_CHUNK = 60
# So many of the smallest failing instances are made smaller still; the smallest result is shown.
_SHRUNK = 8


@dataclass(slots=True)
class GroupTotals:
    """Sums over the instances of one group.

    Attributes:
      name: The group, or the name of an edge case.
      num_instances: Instances checked.
      num_classes: Classes of draws visited.
      num_eager_instances: Instances on which the eager enumerator ran too.
      num_eager_paths: Paths it ran.
      worst_defect: Largest defect, exact.
      num_disagreements: Instances on which the enumerators disagree.
    """

    name: str
    num_instances: int = 0
    num_classes: int = 0
    num_eager_instances: int = 0
    num_eager_paths: int = 0
    worst_defect: Fraction = field(default_factory=Fraction)
    num_disagreements: int = 0

    def add(self, finding: Finding) -> None:
        """Count one more instance."""
        self.num_instances += 1
        self.num_classes += finding.num_classes
        if finding.num_eager_paths is not None:
            self.num_eager_instances += 1
            self.num_eager_paths += finding.num_eager_paths
        self.worst_defect = max(self.worst_defect, finding.defect)
        self.num_disagreements += finding.disagreement is not None

    def as_json(self) -> dict[str, Any]:
        """The sums as JSON values; the defect is a fraction in a string."""
        return {
            "name": self.name,
            "num_instances": self.num_instances,
            "num_classes": self.num_classes,
            "num_eager_instances": self.num_eager_instances,
            "num_classes_only": self.num_instances - self.num_eager_instances,
            "num_eager_paths": self.num_eager_paths,
            "worst_defect": str(self.worst_defect),
            "num_disagreements": self.num_disagreements,
        }


def exact_stage(
    quick: bool = False,
    seed: int = 0,
    jobs: int = 1,
    progress: ProgressCallback | None = None,
    max_eager_paths: int | None = None,
    journal: Journal | None = None,
) -> StageResult:
    """Check the whole family and conclude.

    Args:
      quick: Check a part of the grid; the named edge cases are all checked.
      seed: Changes vocabularies, support sizes and laws of the grid.
      jobs: Worker processes; 1 runs in this process. The result does not depend on it.
      progress: Called with (what, units done, units in all).
      max_eager_paths: Most paths of an instance that the eager enumerator runs.
      journal: Instances that a stopped run has done are taken from it, new ones are recorded.

    Returns:
      The stage: CERTIFIED if every defect is the integer 0 and the enumerators agree, LOSSY with
      the smallest counterexample found if a defect is not 0, INCONCLUSIVE if the enumerators
      disagree on laws that are both lossless, or if a planted fault is not found.

    Raises:
      InputError: `jobs` below 1, `seed` or `max_eager_paths` below 0.
    """
    started = time.perf_counter()
    bound = max_eager_paths
    if bound is None:
        bound = QUICK_MAX_EAGER_PATHS if quick else DEFAULT_MAX_EAGER_PATHS
    num_processes(jobs)
    for name, value in (("seed", seed), ("max_eager_paths", bound)):
        if value < 0:
            raise InputError(f"{name} is {value}; required: at least 0")
    total = GroupTotals("all")
    groups: dict[str, GroupTotals] = {}
    edges: dict[str, GroupTotals] = {}
    failing: list[Finding] = []
    certificate = CertificateBuilder()
    instances = family(quick, seed)
    for done, finding in enumerate(_findings(instances, jobs, bound, journal), 1):
        instance = finding.instance
        tables = [total, groups.setdefault(instance.group, GroupTotals(instance.group))]
        if instance.group == EDGE_GROUP:
            tables.append(edges.setdefault(instance.recipe, GroupTotals(instance.recipe)))
        for table in tables:
            table.add(finding)
        if finding.digests is not None:
            certificate.add(instance.group, finding.digests, _verdict_of(finding))
        if finding.failed:
            failing = sorted([*failing, finding], key=size)[:_SHRUNK]
        if progress is not None and (done % _CHUNK == 0 or done == len(instances)):
            progress("exact", done, len(instances))
    smallest = min((smaller_failing(finding, bound) for finding in failing), key=size, default=None)
    details: dict[str, Any] = {
        **{key: value for key, value in total.as_json().items() if key != "name"},
        "max_eager_paths": bound,
        "family": family_json(quick, seed),
        "groups": [table.as_json() for table in groups.values()],
        "edge_cases": [table.as_json() for table in edges.values()],
    }
    if smallest is not None:
        details["counterexample"] = describe(smallest)
        details["witness"] = _witness(smallest)
    controls = exact_controls()
    verdict = _verdict(total) if all_fired(controls) else Verdict.INCONCLUSIVE
    details["controls"] = controls_json(controls)
    told = summary_of(total, verdict) if all_fired(controls) else _counted(total)
    details["summary"] = f"{told} {controls_text(controls)}"
    stage = StageResult(
        name="exact",
        verdict=verdict,
        claim=claim_of(total, quick, seed) if verdict is Verdict.CERTIFIED else None,
        statistic=float(total.worst_defect),
        sample_size=total.num_instances,
        threshold=0.0,
        replay=replay_of(quick, seed, max_eager_paths),
        seconds=time.perf_counter() - started,
        details=details,
    )
    certificate.attach(stage, quick, seed, bound)
    return stage


def _findings(
    instances: list[Instance], jobs: int, max_eager_paths: int, journal: Journal | None
) -> Iterator[Finding]:
    """Findings in the order of the instances."""
    # Small chunks, so that a costly one does not leave the other workers idle at the end.
    chunks = [instances[start : start + _CHUNK] for start in range(0, len(instances), _CHUNK)]
    known = [
        journal.get("exact", str(number)) if journal else None for number in range(len(chunks))
    ]
    missing = [chunk for chunk, values in zip(chunks, known, strict=True) if values is None]
    fresh = in_order(_check_all, ((chunk, max_eager_paths) for chunk in missing), jobs)
    for number, (chunk, values) in enumerate(zip(chunks, known, strict=True)):
        if values is not None:
            yield from recalled(chunk, values, max_eager_paths)
            continue
        findings = next(fresh)
        if journal is not None:
            journal.record("exact", str(number), [as_entry(finding) for finding in findings])
        yield from findings


def _check_all(instances: Iterable[Instance], max_eager_paths: int) -> list[Finding]:
    return [check_instance(instance, max_eager_paths) for instance in instances]


def _verdict_of(finding: Finding) -> Verdict:
    if finding.violation is not None:
        return Verdict.LOSSY
    return Verdict.INCONCLUSIVE if finding.failed else Verdict.CERTIFIED


def _verdict(total: GroupTotals) -> Verdict:
    if total.worst_defect:
        return Verdict.LOSSY
    return Verdict.INCONCLUSIVE if total.num_disagreements else Verdict.CERTIFIED


def _witness(finding: Finding) -> dict[str, Any]:
    """The counterexample in one line."""
    witness: dict[str, Any] = {"instance": finding.instance.name}
    if finding.violation is not None:
        violation = finding.violation
        witness |= {
            "path": str(violation.path),
            "token": violation.token,
            "got": str(violation.got),
            "wanted": str(violation.wanted),
        }
    if finding.disagreement is not None:
        witness["enumerators_disagree_on"] = finding.disagreement
    return witness


def family_json(quick: bool, seed: int) -> dict[str, Any]:
    """The family as JSON values."""
    return {
        "vocab": [VOCABS[0], VOCABS[-1]],
        "top_k": [TOP_KS[0], TOP_KS[-1]],
        "num_top": "0..top_k",
        "budget": [BUDGETS[0], BUDGETS[-1]],
        "depth": [DEPTHS[0], DEPTHS[-1]],
        "support_size": "1..vocab",
        "rules": list(RULES),
        "laws": [*RECIPES, EDGE_GROUP, SEQUENCE_GROUP],
        "quick": quick,
        "seed": seed,
    }


def _family_text(quick: bool, seed: int) -> str:
    part = "a fixed part of" if quick else "all of"
    return (
        f"{part} the grid of top_k {TOP_KS[0]}..{TOP_KS[-1]}, num_top 0..top_k, budget "
        f"{BUDGETS[0]}..{BUDGETS[-1]}, depth {DEPTHS[0]}..{DEPTHS[-1]} and {len(RECIPES)} kinds of "
        f"laws, with vocabularies of {VOCABS[0]}..{VOCABS[-1]} and support sizes up to them drawn "
        f"by seed {seed}, the named edge cases, and laws of several rounds; each under the rules "
        f"{', '.join(RULES)}"
    )


def claim_of(total: GroupTotals, quick: bool, seed: int) -> str:
    """What CERTIFIED proves, and what it does not."""
    return (
        f"On each of {total.num_instances:,} instances ({_family_text(quick, seed)}) the exact law "
        f"of what is emitted, by deferred decisions over {total.num_classes:,} classes of draws, "
        f"has defect 0 in rational arithmetic. On {total.num_eager_instances:,} of them the "
        f"sampler was also run once for every outcome of every draw ({total.num_eager_paths:,} "
        f"paths) and gave the same law and the same expected acceptance, exactly. Nothing is "
        f"claimed about floating point, nor about schemes and laws outside this family."
    )


def _counted(total: GroupTotals) -> str:
    return (
        f"{total.num_instances:,} instances, {total.num_classes:,} classes, "
        f"{total.num_eager_paths:,} eager paths on {total.num_eager_instances:,} of them."
    )


def summary_of(total: GroupTotals, verdict: Verdict) -> str:
    """The counts and what they come to, in one sentence."""
    counted = _counted(total).removesuffix(".")
    if verdict is Verdict.CERTIFIED:
        return f"{counted}: every defect is 0 and the two enumerators agree exactly."
    if verdict is Verdict.LOSSY:
        return f"{counted}: the worst defect is {total.worst_defect}, not 0."
    return (
        f"{counted}: no defect, but the two enumerators disagree on {total.num_disagreements:,}, "
        f"so one of them is wrong and nothing is certified."
    )


def replay_of(quick: bool, seed: int, max_eager_paths: int | None) -> str:
    """The command line that gives the stage again."""
    words = ["rheocheck certify", f"--seed {seed}"]
    if quick:
        words.append("--quick")
    if max_eager_paths is not None:
        words.append(f"--max-eager-paths {max_eager_paths}")
    return " ".join(words)
