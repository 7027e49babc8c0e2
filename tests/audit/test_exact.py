"""The exact stage: verdicts, counterexamples, independence from the number of jobs."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from rheocheck.audit import exact, exact_check
from rheocheck.audit.exact import exact_stage
from rheocheck.audit.exact_check import check_instance, describe, smaller_failing
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError
from rheocheck.reference import RoundLaw, families, round_law, verification
from rheocheck.reference.families import EDGE_GROUP, SEQUENCE_GROUP, Instance, family
from tests.defects.reference_faults import FAULTS

FAMILY = family(quick=True)


def part(step: int = 19) -> list[Instance]:
    """A part of the quick family with every kind of instance in it."""
    grid = [instance for instance in FAMILY if instance.group not in (EDGE_GROUP, SEQUENCE_GROUP)]
    rest = [instance for instance in FAMILY if instance.group in (EDGE_GROUP, SEQUENCE_GROUP)]
    return [*grid[::step], *rest[::step]]


@pytest.fixture
def small_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage sees a part of its family only."""
    monkeypatch.setattr(exact, "family", lambda quick, seed: part())


def without_time(stage: StageResult) -> dict[str, Any]:
    return {key: value for key, value in stage.model_dump().items() if key != "seconds"}


@pytest.mark.usefixtures("small_family")
def test_the_scheme_is_certified_with_a_claim_that_says_what_ran() -> None:
    stage = exact_stage(quick=True)
    assert stage.verdict is Verdict.CERTIFIED
    assert (stage.statistic, stage.threshold, stage.sample_size) == (0.0, 0.0, len(part()))
    details = stage.details
    assert (details["worst_defect"], details["num_disagreements"]) == ("0", 0)
    assert stage.claim is not None
    for number in (len(part()), details["num_classes"], details["num_eager_paths"]):
        assert f"{number:,}" in stage.claim
    assert "Nothing is claimed about floating point" in stage.claim
    assert sum(group["num_instances"] for group in details["groups"]) == len(part())
    assert {group["name"] for group in details["groups"]} == {i.group for i in part()}
    assert "counterexample" not in details
    assert stage.replay == "rheocheck certify --seed 0 --quick"
    json.dumps(details, allow_nan=False)


@pytest.mark.usefixtures("small_family")
def test_the_result_does_not_depend_on_the_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_CHUNK", 7)
    assert without_time(exact_stage(quick=True, jobs=2)) == without_time(exact_stage(quick=True))


@pytest.mark.usefixtures("small_family")
def test_progress_is_reported_up_to_the_last_instance() -> None:
    seen: list[tuple[str, int, int]] = []
    exact_stage(quick=True, max_eager_paths=0, progress=lambda *step: seen.append(step))
    assert seen[-1] == ("exact", len(part()), len(part()))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


@pytest.mark.usefixtures("small_family")
def test_where_only_classes_ran_the_table_and_the_claim_say_so() -> None:
    stage = exact_stage(quick=True, max_eager_paths=0)
    assert stage.details["num_classes_only"] == len(part())
    assert stage.claim is not None
    assert "On 0 of them" in stage.claim
    assert stage.replay is not None
    assert stage.replay.endswith("--max-eager-paths 0")


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_lossy_with_a_small_counterexample(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "family", lambda quick, seed: part(7))
    FAULTS[name](monkeypatch)
    stage = exact_stage(quick=True)
    assert stage.verdict is Verdict.LOSSY
    assert stage.claim is None
    found = stage.details["counterexample"]
    assert found["enumerator"] == "eager"
    assert abs(Fraction(found["got"]) - Fraction(found["wanted"])) == Fraction(found["defect"]) > 0
    assert Fraction(stage.details["worst_defect"]) > 0
    assert stage.details["num_disagreements"] > 0
    root = found["laws"][0]
    assert root["path"] == []
    assert sum(map(Fraction, root["target"])) == sum(map(Fraction, root["ranking"])) == 1
    assert found["vocab"] <= 4
    assert found["config"]["depth"] <= 2
    assert stage.details["witness"]["got"] == found["got"]


@pytest.mark.usefixtures("small_family")
def test_a_fault_of_the_class_enumerator_is_lossy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both enumerators are checked, not only compared."""
    from rheocheck.reference.class_sites import Site

    expand = Site.expand

    def faulty(self: Site, *args: Any) -> None:
        expand(self, *args)
        self.weights = self.weights[::-1]

    monkeypatch.setattr(Site, "expand", faulty)
    # Weights and tokens are still one law, but for another draft: lossless, and not what was asked.
    stage = exact_stage(quick=True)
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert stage.details["num_disagreements"] > 0
    assert stage.details["counterexample"]["disagreement"] == "law"
    assert "one of them is wrong" in stage.details["summary"]

    def lossy(self: Site, *args: Any) -> None:
        expand(self, *args)
        self.weight_total += bool(self.weights)

    monkeypatch.setattr(Site, "expand", lossy)
    stage = exact_stage(quick=True)
    assert stage.verdict in (Verdict.LOSSY, Verdict.INCONCLUSIVE)
    assert stage.details["num_disagreements"] > 0


def test_mass_that_is_lost_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditional laws that are right on half the mass have defect 0 and are still wrong."""
    real = round_law

    def half(*args: Any, **options: Any) -> RoundLaw:
        law = real(*args, **options)
        return replace(law, emissions={e: mass / 2 for e, mass in law.emissions.items()})

    monkeypatch.setattr(exact_check, "round_law", half)
    monkeypatch.setattr(exact, "family", lambda quick, seed: FAMILY[:9])
    stage = exact_stage(quick=True)
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert stage.details["counterexample"]["disagreement"] == "total mass"


def test_a_failing_instance_is_made_smaller_and_keeps_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FAULTS["residual_is_the_target"](monkeypatch)
    large = next(
        finding
        for finding in (check_instance(i, 500) for i in FAMILY)
        if finding.failed and finding.instance.config.depth == 2
    )
    small = smaller_failing(large, 500)
    assert small.failed
    before, after = large.instance.config, small.instance.config
    assert after.depth == 1
    assert after.budget <= before.budget
    assert after.top_k <= before.top_k
    described = describe(small)
    assert described["config"]["budget"] == after.budget


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs is 0; required: at least 1"),
        ({"seed": -1}, "seed is -1; required: at least 0"),
        ({"max_eager_paths": -5}, "max_eager_paths is -5; required: at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact_stage(**options)  # type: ignore[arg-type]


def test_both_modules_patched_here_are_the_ones_in_use() -> None:
    """The faults above plant themselves by name: a renamed function must not disarm them."""
    assert vars(exact)["family"] is families.family
    assert verification.order_of_tests.__module__ == verification.__name__
