"""A judge that passes everything, or accuses everything, is found out by its own run."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit import exact, exact_check, sampler_check, universal_points
from rheocheck.audit.controls import Control, all_fired, controls_text
from rheocheck.audit.exact import exact_stage
from rheocheck.audit.exact_controls import exact_controls
from rheocheck.audit.sampler_controls import sampler_controls
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.audit.universal import universal_stage
from rheocheck.audit.universal_controls import universal_controls
from rheocheck.audit.universal_shapes import node_shapes
from rheocheck.certificate import Verdict
from rheocheck.cli import main
from rheocheck.reference import worst_violation
from rheocheck.reference.families import family

ZERO = Fraction(0)


def test_an_honest_judge_passes_every_control() -> None:
    for controls in (exact_controls(), universal_controls(0), sampler_controls()):
        assert all_fired(controls)
        assert controls_text(controls).endswith("judged as they must be.")


def test_no_control_is_no_proof() -> None:
    assert not all_fired([])
    silent = [Control("a fault", "defect 1/2", "nothing"), Control("other", "a", "a")]
    assert not all_fired(silent)
    assert "1 of 2" in controls_text(silent)
    assert "'a fault' gave 'nothing', required: 'defect 1/2'" in controls_text(silent)


def without_words(*words: str) -> Callable[[Any], str | None]:
    """The comparison of laws, blind for some of what it tells."""
    real = exact_check._disagreement

    def blind(laws: Any) -> str | None:
        found = real(laws)
        return None if found in words else found

    return blind


def first_token_only(law: Any, target: Any, **options: Any) -> Any:
    found = worst_violation(law, target, **options)
    return found if found is None or not found.path else None


BLIND: dict[str, tuple[str, Any]] = {
    "everything agrees": ("_disagreement", lambda laws: None),
    "acceptance is not compared": ("_disagreement", without_words("expected acceptance")),
    "laws are not compared": ("_disagreement", without_words("law")),
    "mass is not summed": ("_disagreement", without_words("total mass")),
    "everything disagrees": ("_disagreement", lambda laws: "law"),
    "nothing is lossy": ("worst_violation", lambda law, target, **options: None),
    "only the first token counts": ("worst_violation", first_token_only),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_blind_judge_of_instances_concludes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(exact, "family", lambda quick, seed: family(True, seed)[:30])
    monkeypatch.setattr(exact_check, *BLIND[name])
    stage = exact_stage(quick=True)
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert stage.claim is None
    assert "The judge of this run is defective" in stage.details["summary"]
    assert not all(control["fired"] for control in stage.details["controls"])
    with pytest.raises(SystemExit) as done:
        main(["certify", "--quick", "--jobs", "1"])
    assert done.value.code == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "The judge of this run is defective" in shown
    assert "Claim" not in shown


@pytest.mark.parametrize(
    "blind",
    [
        lambda emissions, target: True,
        lambda emissions, target: False,
        lambda emissions, target: not worst_violation(emissions, target, complete=False),
    ],
    ids=["nothing is lossy", "everything is lossy", "mass is not summed"],
)
def test_a_blind_judge_of_cells_concludes_nothing(
    blind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = list(node_shapes(2, zeros=True, small=False))[:1]
    assert universal_stage(True, 0, 1, shapes=shapes).verdict is Verdict.CERTIFIED
    monkeypatch.setattr(universal_points, "is_lossless", blind)
    stage = universal_stage(True, 0, 1, shapes=shapes)
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert stage.claim is None
    assert "The judge of this run is defective" in stage.details["summary"]


@pytest.mark.parametrize(
    ("name", "blind"),
    [
        ("worst_violation", lambda law, target: None),
        ("worst_violation", first_token_only),
        ("total_variation", lambda law, target, length: Fraction(0)),
        ("total_variation", lambda law, target, length: Fraction(1)),
        ("check_repeats", lambda *arguments: None),
    ],
)
def test_a_blind_judge_of_samplers_concludes_nothing(
    name: str, blind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sampler(target: Any, draft: Any, choose: Any) -> tuple[int, ...]:
        return (choose.categorical(target(())),)

    monkeypatch.setattr(sampler_check, name, blind)
    stage = sampler_stage(sampler, "mine", quick=True, max_vocab=2)
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert stage.claim is None
    assert "The judge of this run is defective" in stage.details["summary"]


def test_the_controls_are_a_line_of_the_table_and_a_list_in_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exact, "family", lambda quick, seed: family(True, seed)[:30])
    with pytest.raises(SystemExit):
        main(["certify", "--quick", "--jobs", "1"])
    count = len(exact_controls())
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.split()[:5] == ["planted", "controls", str(count), "of", str(count)] for line in lines
    )
