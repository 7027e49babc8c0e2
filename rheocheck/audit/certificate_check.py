"""Checking a certificate: every instance is made again, by the other enumerator where it can."""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rheocheck.audit.certificate_facts import NOT_AGAIN, fact_problems, group_totals
from rheocheck.audit.digests import SHORT_LENGTH, Digests, digests_of
from rheocheck.audit.exact_check import is_affordable, law_of_instance
from rheocheck.audit.instance_certificate import CertificateFile, InstanceCertificate
from rheocheck.audit.universal import NAME as ALL_LAWS
from rheocheck.audit.universal_recheck import recheck
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import BudgetExceededError, InputError
from rheocheck.parallel import in_order, num_processes
from rheocheck.reference.defect import worst_violation
from rheocheck.reference.families import Instance, family
from rheocheck.reference.round_law import Method, RoundLaw

NAME = "check_certificate"
ProgressCallback: TypeAlias = Callable[[str, int, int], None]
_CHUNK = 60
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Derivation:
    """One instance, made again.

    Attributes:
      index: Its index in the family.
      method: The enumerator that made the law; "eager" is the other one.
      digests: Its digests.
      num_paths: Paths of the eager enumerator, or classes.
      verdict: CERTIFIED if the law has defect 0 and mass 1.
    """

    index: int
    method: Method
    digests: Digests
    verdict: Verdict
    num_paths: int


@dataclass(slots=True)
class Comparison:
    """What has been compared so far.

    Attributes:
      methods: Instances by the enumerator that made them again.
      not_other: Instances by group that the other enumerator could not do within its bound.
      eager: Instances by group that the other enumerator made.
      paths: Paths that it ran on them.
      problems: What does not agree: instance (None for the file as a whole) and what.
      num_exceptions: Instances that the certificate itself does not certify.
    """

    methods: Counter[Method] = field(default_factory=Counter)
    not_other: Counter[str] = field(default_factory=Counter)
    eager: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)
    num_exceptions: int = 0


def check_certificate(
    file: CertificateFile,
    jobs: int = 1,
    max_eager_paths: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> StageResult:
    """Make the instances of a certificate again and compare.

    Args:
      file: The certificate, as read.
      jobs: Worker processes.
      max_eager_paths: Most paths of an instance that the eager enumerator runs; None takes the
        certificate's own bound. Above it the class enumerator makes the law once more.
      sample: Check so many instances only, drawn by `seed`; None checks all.
      seed: Draws the sample, and the laws at which an all-laws stage is looked at again.
      progress: Called with (what, units done, units in all).

    Returns:
      CERTIFIED if everything agrees and the certificate certifies every instance; LOSSY if
      something does not agree (`details["problems"]` names the instance) or if the certificate
      truly is that of a lossy instance; INCONCLUSIVE if everything agrees and the file says so.

    Raises:
      InputError: `jobs` or `sample` below 1, `max_eager_paths` below 0.
    """
    started = time.perf_counter()
    certificate = file.certificate
    bound = certificate.max_eager_paths if max_eager_paths is None else max_eager_paths
    num_processes(jobs)
    least = (("max_eager_paths", bound, 0), ("sample", 1 if sample is None else sample, 1))
    for name, value, lowest in least:
        if value < lowest:
            raise InputError(f"{name} is {value}; required: at least {lowest}")
    instances = family(certificate.quick, certificate.seed)
    comparison = Comparison(num_exceptions=len(certificate.exceptions))
    _compare_file(file, instances, comparison)
    chosen = list(range(len(instances)))
    if sample is not None and sample < len(chosen):
        chosen = sorted(random.Random(seed).sample(chosen, sample))
    if _same_groups(certificate, instances):
        derived = _derivations(instances, chosen, bound, jobs)
        _compare_all(certificate, instances, derived, len(chosen), comparison, progress)
        if len(chosen) == len(instances) and bound == certificate.max_eager_paths:
            _compare_paths(file, comparison)
    all_laws = _compare_all_laws(file, seed, jobs, comparison, progress)
    seconds = time.perf_counter() - started
    return _result(file, comparison, len(chosen), len(instances), all_laws, seconds)


def derive(index: int, instance: Instance, max_eager_paths: int) -> Derivation:
    """Make one instance again.

    Args:
      index: Its index in the family, repeated in the result.
      instance: The instance.
      max_eager_paths: Most paths of the eager enumerator.

    Returns:
      Its digests and verdict, by the eager enumerator if it can, by classes if not.
    """
    target, draft = instance.models()
    law: RoundLaw | None = None
    method: Method = "eager"
    if is_affordable(instance, target, draft, max_eager_paths):
        try:
            law = law_of_instance(instance, target, draft, "eager", max_eager_paths)
        except BudgetExceededError:
            pass
    if law is None:
        method = "classes"
        law = law_of_instance(instance, target, draft, "classes", None)
    verdict = Verdict.CERTIFIED
    if worst_violation(law, target, complete=False) is not None:
        verdict = Verdict.LOSSY
    elif sum(law.emissions.values()) != 1:
        verdict = Verdict.INCONCLUSIVE
    digests = digests_of(instance, target, draft, law)
    return Derivation(index, method, digests, verdict, law.num_classes)


def _derive_all(tasks: list[tuple[int, Instance]], max_eager_paths: int) -> list[Derivation]:
    return [derive(index, instance, max_eager_paths) for index, instance in tasks]


def _derivations(
    instances: list[Instance], chosen: list[int], max_eager_paths: int, jobs: int
) -> Iterator[Derivation]:
    """The chosen instances, made again in their order."""
    tasks = [(index, instances[index]) for index in chosen]
    chunks = [tasks[start : start + _CHUNK] for start in range(0, len(tasks), _CHUNK)]
    for done in in_order(_derive_all, ((chunk, max_eager_paths) for chunk in chunks), jobs):
        yield from done


def _compare_file(file: CertificateFile, instances: list[Instance], comparison: Comparison) -> None:
    """What can be told without computing a law."""
    comparison.problems += [{"instance": None, "what": what} for what in fact_problems(file)]
    if not _same_groups(file.certificate, instances):
        seed = file.certificate.seed
        what = f"its groups and their sizes are not those of the family of seed {seed}"
        comparison.problems.append({"instance": None, "what": what})


def _compare_all_laws(
    file: CertificateFile,
    seed: int,
    jobs: int,
    comparison: Comparison,
    progress: ProgressCallback | None,
) -> str | None:
    """Look at the all-laws stage again, if the file has one; says what was done."""
    stage = next((s for s in file.report.stages if s.name == ALL_LAWS), None)
    if stage is None:
        return None
    found = recheck(stage, file.report.settings, seed, jobs, progress)
    comparison.problems += [{"instance": None, "what": what} for what in found.problems]
    return found.summary


def _compare_paths(file: CertificateFile, comparison: Comparison) -> None:
    """Paths of the eager enumerator, where it was run as it was for the file."""
    for group in group_totals(file.stage.details.get("groups")) or []:
        own = (comparison.eager[group.name], comparison.paths[group.name])
        if own != (group.num_eager_instances, group.num_eager_paths):
            what = (
                f"group {group.name!r} has {group.num_eager_paths} eager paths on "
                f"{group.num_eager_instances} instances in the file, {own[1]} on {own[0]} by "
                f"running them"
            )
            comparison.problems.append({"instance": None, "what": what})


def _same_groups(certificate: InstanceCertificate, instances: list[Instance]) -> bool:
    sizes = Counter(instance.group for instance in instances)
    return {group.name: group.num_instances for group in certificate.groups} == dict(sizes)


def _compare_all(
    certificate: InstanceCertificate,
    instances: list[Instance],
    derived: Iterator[Derivation],
    num_chosen: int,
    comparison: Comparison,
    progress: ProgressCallback | None,
) -> None:
    """Compare every derivation with the file, and the groups' digests where all were made."""
    stated = _stated_pairs(certificate, instances)
    full: dict[str, list[Digests]] = {}
    for done, own in enumerate(derived, 1):
        instance = instances[own.index]
        comparison.methods[own.method] += 1
        if own.method == "classes":
            comparison.not_other[instance.group] += 1
        else:
            comparison.eager[instance.group] += 1
            comparison.paths[instance.group] += own.num_paths
        full.setdefault(instance.group, []).append(own.digests)
        verdict = certificate.exceptions.get(str(own.index), "certified")
        for what in _differences(stated[own.index], verdict, own):
            comparison.problems.append(
                {"instance": instance.name, "index": own.index, "what": what}
            )
        if progress is not None and (done % _CHUNK == 0 or done == num_chosen):
            progress(NAME, done, num_chosen)
    if num_chosen < len(instances):
        return
    for group in certificate.groups:
        found = full[group.name]
        instances_sha256 = hashlib.sha256(b"".join(pair.instance for pair in found)).hexdigest()
        laws_sha256 = hashlib.sha256(b"".join(pair.law for pair in found)).hexdigest()
        if (instances_sha256, laws_sha256) != (group.instances_sha256, group.laws_sha256):
            what = f"the SHA-256 of group {group.name!r} is another"
            comparison.problems.append({"instance": None, "what": what})


def _stated_pairs(certificate: InstanceCertificate, instances: list[Instance]) -> list[str]:
    """[instance] the 16 characters that the file states."""
    pairs = {group.name: group.pairs() for group in certificate.groups}
    return [next(pairs[instance.group]) for instance in instances]


def _differences(stated: str, verdict: str, own: Derivation) -> Iterator[str]:
    computed = own.digests.short()
    if stated[:SHORT_LENGTH] != computed[:SHORT_LENGTH]:
        yield "the digest of its scheme and laws is another: not the instance that is named"
    if stated[SHORT_LENGTH:] != computed[SHORT_LENGTH:]:
        yield f"the digest of its law is another than the {own.method} enumerator's"
    if verdict != own.verdict:
        yield f"its verdict is {verdict} in the file and {own.verdict} by computing it"


def _result(
    file: CertificateFile,
    comparison: Comparison,
    num_checked: int,
    num_instances: int,
    all_laws: str | None,
    seconds: float,
) -> StageResult:
    problems = comparison.problems
    other, same = comparison.methods["eager"], comparison.methods["classes"]
    verdict = Verdict.LOSSY if problems else file.report.verdict
    where = ", ".join(f"{count:,} in {group!r}" for group, count in comparison.not_other.items())
    summary = (
        f"{other:,} of {num_checked:,} instances made again by the other enumerator (eager), with "
        f"equal digests; {same:,} have too many paths for it and were made again by classes"
        + (f" ({where})" if where else "")
    )
    if num_checked < num_instances:
        summary += f"; {num_instances - num_checked:,} instances were not drawn"
    if all_laws is not None:
        summary += f"; {all_laws}"
    summary += f"; not made again: {NOT_AGAIN}"
    if problems:
        named = [problem for problem in problems if problem["instance"]] or problems
        first = named[0]
        summary = (
            f"the certificate is wrong in {len(problems):,} places; first: "
            f"{first['instance'] or 'the file'}: {first['what']}"
        )
    elif comparison.num_exceptions:
        summary += f"; the file is genuine and does not certify {comparison.num_exceptions:,}"
    return StageResult(
        name=NAME,
        verdict=verdict,
        claim=file.stage.claim if verdict is Verdict.CERTIFIED else None,
        statistic=float(len(problems)),
        sample_size=num_checked,
        threshold=0.0,
        seconds=seconds,
        details={
            "summary": summary,
            "num_by_other_enumerator": other,
            "num_by_same_enumerator": same,
            "not_by_other_enumerator": dict(comparison.not_other),
            "num_problems": len(problems),
            "problems": problems[:_SHOWN],
            "versions": file.certificate.versions,
        },
    )
