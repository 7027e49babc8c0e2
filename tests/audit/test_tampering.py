"""Every leaf of a certificate file, changed: rejected, and for what can be made again even if the
one who changed it forged both seals."""

import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rheocheck.audit import certificate_check, exact, universal_points, universal_recheck
from rheocheck.audit.certificate_check import check_certificate, derive
from rheocheck.audit.certify_report import certify_report
from rheocheck.audit.exact import exact_stage
from rheocheck.audit.file_seal import SEAL, is_sealed, seal_of
from rheocheck.audit.instance_certificate import KEY, CertificateFile
from rheocheck.audit.universal import universal_stage
from rheocheck.audit.universal_points import check_points, models_at
from rheocheck.audit.universal_shapes import Shape, node_shapes, tree_shapes
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import RheocheckError
from rheocheck.reference.families import Instance, family
from rheocheck.reference.round_law import round_law
from tests.defects.reference_faults import FAULTS

Leaf: TypeAlias = tuple[str | int, ...]


def few(quick: bool, seed: int) -> list[Instance]:
    return family(True, seed)[::400]


def shapes(quick: bool, full: bool) -> list[Shape]:
    return [
        *list(node_shapes(2, zeros=True, small=False))[:2],
        *list(tree_shapes(num_points=4))[:1],
    ]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few instances, few shapes."""
    for module in (exact, certificate_check):
        monkeypatch.setattr(module, "family", few)
    for name in ("universal", "universal_recheck"):
        monkeypatch.setattr(f"rheocheck.audit.{name}.shapes_of", shapes)


def made() -> dict[str, Any]:
    """A certificate of both stages, as JSON."""
    stages = [exact_stage(True, 0, 1, max_eager_paths=100), universal_stage(True, 0, 1)]
    report = certify_report(stages, quick=True, seed=0, all_laws=True, seconds=1.0)
    value: dict[str, Any] = json.loads(report.model_dump_json())
    return value


def leaves(value: Any, path: Leaf = ()) -> Iterator[Leaf]:
    """Paths of all values that hold no others; empty lists and objects are leaves."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    if not items:
        yield path
    for key, inner in items:
        yield from leaves(inner, (*path, key))


def changed(value: Any, leaf: Leaf) -> Any:
    """A copy with one leaf changed to another value of its type."""
    whole = copy.deepcopy(value)
    holder = whole
    for key in leaf[:-1]:
        holder = holder[key]
    old = holder[leaf[-1]]
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int | float):
        new = old + 1
    elif isinstance(old, str):
        verdicts = {"certified": "no_evidence", "classes": "eager"}
        new = verdicts.get(old) or (("1" if old[:1] != "1" else "2") + old[1:])
    elif isinstance(old, list):
        new = ["x"]
    elif isinstance(old, dict):
        new = {"0": "lossy"}
    else:
        new = 0.5 if leaf[-1] != "replay" else "x"
    holder[leaf[-1]] = new
    return whole


def checked(value: Any, folder: Path, **options: Any) -> StageResult | None:
    """The outcome of a file's check; None if it is refused as an input error."""
    path = folder / "certificate.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    try:
        return check_certificate(CertificateFile.read(path), **options)
    except RheocheckError:
        return None


def forged(value: Any, folder: Path) -> Any:
    """The file with both seals made again; unchanged if it cannot be read."""
    path = folder / "certificate.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    try:
        file = CertificateFile.read(path)
    except RheocheckError:
        return value
    value["stages"][0]["details"][KEY]["sha256"] = file.certificate.seal(file.stage)
    value["facts"][SEAL] = seal_of(value)
    return value


def test_every_changed_leaf_breaks_the_seal() -> None:
    value = made()
    assert is_sealed(value)
    every = list(leaves(value))
    assert len(every) > 250
    assert [leaf for leaf in every if is_sealed(changed(value, leaf))] == []


def test_a_broken_seal_is_rejected(tmp_path: Path) -> None:
    value = made()
    genuine = checked(value, tmp_path)
    assert genuine is not None and genuine.verdict is Verdict.CERTIFIED
    assert "all laws: " in genuine.details["summary"]
    value["seconds"] = 2.0
    outcome = checked(value, tmp_path, sample=1)
    assert outcome is not None and outcome.verdict is Verdict.LOSSY
    assert outcome.details["problems"][0]["what"].startswith("the seal of the whole file")
    del value["facts"][SEAL]
    outcome = checked(value, tmp_path, sample=1)
    assert outcome is not None and outcome.verdict is Verdict.LOSSY


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.nightly), 9])
def test_forged_seals_leave_only_what_is_said_not_to_be_made_again(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = made()
    undetected = []
    # Most changes leave the instances as they are: what is made again is remembered.
    monkeypatch.setattr(certificate_check, "derive", functools.cache(derive))
    look_again = functools.cache(
        lambda shape, points, seed, real=universal_recheck._look_again: real(shape, points, seed)
    )
    monkeypatch.setattr(
        universal_recheck,
        "_look_again",
        lambda shape, points, seed: look_again(shape, tuple(points), seed),
    )
    for leaf in list(leaves(value))[::step]:
        if leaf[:2] == ("facts", SEAL) or leaf[-1] == "sha256":
            continue
        outcome = checked(forged(changed(value, leaf), tmp_path), tmp_path)
        if outcome is not None and not outcome.details["num_problems"]:
            undetected.append(leaf)
    assert {leaf[-1] for leaf in undetected} <= {"seconds"}


def test_a_consistent_lie_about_classes_is_said_not_to_be_made_again(tmp_path: Path) -> None:
    outcome = checked(made(), tmp_path)
    assert outcome is not None
    for text in ("not made again: counts of classes, seconds, versions", "distinct cells"):
        assert text in outcome.details["summary"]


def test_a_forged_all_laws_stage_of_a_lossy_program_is_found_at_other_laws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = made()
    FAULTS["residual_is_the_target"](monkeypatch)  # of the eager sampler, which looks again
    outcome = checked(value, tmp_path, max_eager_paths=0)
    assert outcome is not None and outcome.verdict is Verdict.LOSSY
    told = [problem["what"] for problem in outcome.details["problems"]]
    assert any("is lossy at other laws than those of the file" in what for what in told)


def test_an_all_laws_stage_that_is_truly_lossy_is_genuine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both enumerators share a fault: the witness is made again and agrees."""
    from dataclasses import replace
    from fractions import Fraction

    real = round_law

    def first_token(*arguments: Any, **named: Any) -> Any:
        return replace(real(*arguments, **named), emissions={(0,): Fraction(1)})

    monkeypatch.setattr(universal_points, "round_law", first_token)
    monkeypatch.setattr(universal_recheck, "round_law", first_token)
    value = made()
    assert value["verdict"] == "lossy"
    outcome = checked(value, tmp_path)
    assert outcome is not None and outcome.verdict is Verdict.LOSSY
    assert outcome.details["problems"] == []
    witness = value["stages"][1]["details"]["witness"]
    witness["defect"] = "1/3"
    value["stages"][1]["statistic"] = 1 / 3
    outcome = checked(forged(value, tmp_path), tmp_path)
    assert outcome is not None
    assert "the witness of the all-laws stage is another" in outcome.details["problems"][0]["what"]


def test_points_are_looked_at_at_other_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_points.__module__ == "rheocheck.audit.universal_points"
    seeds: set[int] = set()
    real = models_at

    def watched(shape: Shape, point: int, seed: int) -> Any:
        seeds.add(seed)
        return real(shape, point, seed)

    monkeypatch.setattr(universal_recheck, "models_at", watched)
    stage = universal_stage(True, 7, 1)
    settings = {"quick": True, "full": False, "seed": 7}
    for seed in (0, 1):
        assert universal_recheck.recheck(stage, settings, seed, 1).problems == []
    assert len(seeds) == 2 and 7 not in seeds


@pytest.mark.parametrize(
    ("command", "stage", "kind"),
    [
        ("certify", "sampler", "certify --sampler"),
        ("audit", "exact", "audit"),
        ("bounds node", "node", "bounds node"),
    ],
)
def test_other_reports_are_refused_with_what_to_do(
    command: str, stage: str, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.json"
    stages = [{"name": stage, "verdict": "certified", "replay": "rheocheck replay line"}]
    path.write_text(json.dumps({"command": command, "verdict": "certified", "stages": stages}))
    with pytest.raises(RheocheckError) as caught:
        CertificateFile.read(path)
    message = str(caught.value)
    assert f"it is a report of `rheocheck {kind}`" in message
    assert message.endswith("To check this one, run it again: rheocheck replay line")
