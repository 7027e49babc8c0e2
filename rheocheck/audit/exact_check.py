"""One instance of the exact sweep: both enumerators, the worst defect, a smaller failing one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from rheocheck.audit.digests import Digests, digests_of
from rheocheck.config import SpeculationConfig
from rheocheck.errors import BudgetExceededError, ConfigError, ProgramError
from rheocheck.reference.choices import Choose
from rheocheck.reference.defect import Violation, worst_violation
from rheocheck.reference.draws import OracleDraws
from rheocheck.reference.families import EDGE_GROUP, Instance
from rheocheck.reference.laws import Draft, Path, Target
from rheocheck.reference.models import Models
from rheocheck.reference.oracle import estimate_num_paths
from rheocheck.reference.round_law import Method, RoundLaw, round_law, sequence_round_law
from rheocheck.reference.sampler import round_program

# So many paths are run before it is worth estimating whether there are too many.
_CHEAP_PATHS = 40


@dataclass(frozen=True, slots=True)
class Finding:
    """What one instance showed.

    Attributes:
      instance: The instance.
      num_classes: Classes visited, over all rounds.
      num_eager_paths: Paths run; None where there were too many, so that only classes ran.
      violation: The worst place where a law is not the target's, of either enumerator; None if both
        are lossless.
      enumerator: The one that met the violation.
      disagreement: What the two enumerators disagree on: "law", "expected acceptance", the error
        that one of them met; or "total mass" where a law does not sum to 1.
      digests: Of the instance and of its law by classes.
    """

    instance: Instance
    num_classes: int
    num_eager_paths: int | None
    violation: Violation | None = None
    enumerator: Method | None = None
    disagreement: str | None = None
    digests: Digests | None = None

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return self.violation is not None or self.disagreement is not None

    @property
    def defect(self) -> Fraction:
        """The worst defect; 0 if both laws are lossless."""
        return Fraction(0) if self.violation is None else self.violation.defect


def check_instance(instance: Instance, max_eager_paths: int) -> Finding:
    """Compute the law of an instance by classes, and eagerly where that is affordable.

    Args:
      instance: What to check.
      max_eager_paths: Most paths that the eager enumerator may run; 0 runs classes only.

    Returns:
      The finding.
    """
    target, draft = instance.models()
    by_classes = law_of_instance(instance, target, draft, "classes", None)
    laws: dict[Method, RoundLaw] = {"classes": by_classes}
    failure: str | None = None
    try:
        if is_affordable(instance, target, draft, max_eager_paths):
            laws["eager"] = law_of_instance(instance, target, draft, "eager", max_eager_paths)
    except BudgetExceededError:
        pass
    except ProgramError as error:
        failure = f"the eager run: {error}"
    finding = judge(instance, target, laws, failure)
    return replace(finding, digests=digests_of(instance, target, draft, by_classes))


def judge(
    instance: Instance, target: Target, laws: dict[Method, RoundLaw], failure: str | None = None
) -> Finding:
    """Compare an instance's laws with the target and with one another.

    Args:
      instance: The instance, repeated in the result.
      target: Its target.
      laws: The law by "classes", and by "eager" where that ran.
      failure: What the eager enumerator failed with, if it did.

    Returns:
      The finding, without digests.
    """
    worst: Violation | None = None
    enumerator: Method | None = None
    disagreement = failure or _disagreement(laws)
    for method, law in laws.items():
        if method == "eager" and disagreement is None:
            break  # the same law has the same violation
        violation = worst_violation(law, target, complete=False)
        if violation is not None and (worst is None or violation.defect > worst.defect):
            worst, enumerator = violation, method
    return Finding(
        instance=instance,
        num_classes=laws["classes"].num_classes,
        num_eager_paths=laws["eager"].num_classes if "eager" in laws else None,
        violation=worst,
        enumerator=enumerator,
        disagreement=disagreement,
    )


def smaller_failing(finding: Finding, max_eager_paths: int) -> Finding:
    """Make a failing instance smaller, one setting at a time, as long as it still fails alike."""
    lossy = finding.violation is not None
    for instance in _smaller(finding.instance):
        smaller = check_instance(instance, max_eager_paths)
        if smaller.failed and (smaller.violation is not None) == lossy:
            return smaller_failing(smaller, max_eager_paths)
    return finding


def size(finding: Finding) -> tuple[Any, ...]:
    """Sort key by which one counterexample is easier to read than another."""
    config = finding.instance.config
    return (
        finding.violation is None,
        finding.instance.num_tokens,
        finding.instance.vocab,
        config.depth,
        config.budget,
        config.top_k,
        config.num_top,
        config.support_size,
        finding.instance.name,
    )


def describe(finding: Finding) -> dict[str, Any]:
    """A failing instance as JSON values, with the laws at every path that was asked for.

    Fractions are strings such as "1/3".
    """
    instance = finding.instance
    target, draft = instance.models()
    asked = _RecordingModels(target, draft)
    law_of_instance(instance, asked.target, asked.draft, finding.enumerator or "classes", None)
    described: dict[str, Any] = {
        "instance": instance.name,
        "group": instance.group,
        "vocab": instance.vocab,
        "config": instance.config.model_dump(),
        "enumerator": finding.enumerator,
        "disagreement": finding.disagreement,
        "laws": asked.as_json(),
    }
    if finding.violation is not None:
        violation = finding.violation
        described |= {
            "path": list(violation.path),
            "token": violation.token,
            "got": str(violation.got),
            "wanted": str(violation.wanted),
            "defect": str(violation.defect),
        }
    return described


class _RecordingModels:
    """Models that remember which paths they were asked for."""

    def __init__(self, target: Target, draft: Draft) -> None:
        self._models = Models(target, draft)
        self._target_paths: set[Path] = set()
        self._draft_paths: set[Path] = set()

    def target(self, path: Path) -> Any:
        self._target_paths.add(path)
        return self._models.target(path)

    def draft(self, path: Path) -> Any:
        self._draft_paths.add(path)
        return self._models.draft(path)

    def as_json(self) -> list[dict[str, Any]]:
        rows = []
        for path in sorted(self._target_paths | self._draft_paths, key=lambda p: (len(p), p)):
            row: dict[str, Any] = {"path": list(path)}
            if path in self._target_paths:
                row["target"] = [str(mass) for mass in self._models.target(path)]
            if path in self._draft_paths:
                ranking, draft = self._models.draft(path)
                row["ranking"] = [str(mass) for mass in ranking]
                row["draft"] = [str(mass) for mass in draft]
            rows.append(row)
        return rows


def law_of_instance(
    instance: Instance, target: Target, draft: Draft, method: Method, max_paths: int | None
) -> RoundLaw:
    """Law of an instance: of one round, or of its first tokens over several.

    Args:
      instance: The instance.
      target: Its target.
      draft: Its draft.
      method: The enumerator.
      max_paths: Most classes or paths; None sets no bound.

    Returns:
      The law.

    Raises:
      BudgetExceededError: `max_paths` was met.
    """
    config = instance.config
    if not instance.num_tokens:
        return round_law(target, draft, config, method, max_paths=max_paths)
    return sequence_round_law(
        target, draft, config, instance.num_tokens, method, max_paths=max_paths
    )


def is_affordable(instance: Instance, target: Target, draft: Draft, max_paths: int) -> bool:
    """Whether the eager enumerator has a fair chance to finish within `max_paths`."""
    if max_paths <= _CHEAP_PATHS or instance.num_tokens:
        return max_paths > 0
    program = round_program(Models(target, draft), instance.config)

    def emission(choose: Choose) -> Path:
        return program(OracleDraws(choose)).emission

    first = estimate_num_paths(emission, num_dives=1)
    return first <= _CHEAP_PATHS or estimate_num_paths(emission, num_dives=8) <= max_paths


def _disagreement(laws: dict[Method, RoundLaw]) -> str | None:
    classes, eager = laws["classes"], laws.get("eager", laws["classes"])
    if dict(classes.emissions) != dict(eager.emissions):
        return "law"
    if classes.expected_accepted != eager.expected_accepted:
        return "expected acceptance"
    # Conditional laws may all be right while some mass is lost.
    if sum(classes.emissions.values()) != 1:
        return "total mass"
    return None


def _smaller(instance: Instance) -> Iterator[Instance]:
    """Instances with one setting less."""
    values = instance.config.model_dump()
    if instance.group != EDGE_GROUP and instance.vocab > 2:
        yield replace(instance, vocab=instance.vocab - 1)
    for name in ("depth", "budget", "top_k", "num_top", "support_size"):
        largest = instance.vocab if name == "support_size" else values[name]
        try:
            smaller = SpeculationConfig(**{**values, name: min(values[name], largest + 1) - 1})
        except ConfigError:
            continue
        yield replace(instance, config=smaller)
