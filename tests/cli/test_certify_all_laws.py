"""`rheocheck certify --all-laws` as a user runs it."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit import exact
from rheocheck.audit.universal_shapes import node_shapes, tree_shapes
from rheocheck.cli import main
from rheocheck.reference.families import family
from rheocheck.reference.round_law import round_law


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few instances, few shapes."""
    monkeypatch.setattr(exact, "family", lambda quick, seed: family(quick, seed)[::60])
    for module in ("universal", "universal_recheck"):
        monkeypatch.setattr(
            f"rheocheck.audit.{module}.shapes_of",
            lambda quick, full: [
                *node_shapes(2, zeros=True, small=False),
                *node_shapes(3, zeros=False, small=False),
                *list(tree_shapes(num_points=10))[:3],
            ],
        )


def run(*words: str) -> int:
    """Exit code of the command."""
    with pytest.raises(SystemExit) as done:
        main(["certify", "--quick", "--jobs", "1", *words])
    return int(done.value.code or 0)


def test_both_stages_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "certificate.json"
    assert run("--all-laws", "--json", str(file)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("all laws of small shapes", "V = 2, one node, complete", "trees, drawn",
                 "miss below", "lossless for all target, ranking and draft laws",
                 "Verdict: CERTIFIED"):  # fmt: skip
        assert text in shown
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [stage["name"] for stage in written["stages"]] == ["exact", "all_laws"]
    assert len(written["claims"]) == 2
    assert "zero mass up to 2 tokens" in written["claims"][1]
    assert "distinct cells of 3 shapes drawn" in written["claims"][1]


def test_both_stages_of_a_file_are_checked_and_what_is_not_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rheocheck.audit import certificate_check

    monkeypatch.setattr(certificate_check, "family", lambda quick, seed: family(quick, seed)[::60])
    file = tmp_path / "certificate.json"
    assert run("--all-laws", "--json", str(file)) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as done:
        main(["check-certificate", str(file), "--jobs", "1"])
    assert not done.value.code
    shown = " ".join(capsys.readouterr().out.split())
    assert "all laws: " in shown and "at other random laws" in shown
    assert "not made again: the other points, the numbers of distinct cells" in shown


def test_a_lossy_cell_exits_with_1_and_prints_the_laws(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(*arguments: Any, **named: Any) -> Any:
        law = round_law(*arguments, **named)
        return replace(law, emissions={(0,): Fraction(1)})

    monkeypatch.setattr("rheocheck.audit.universal_points.round_law", faulty)
    assert run("--all-laws") == 1
    shown = capsys.readouterr().out
    for text in ("Lossy: V", "  cell: ranking ", "  target: (", "Verdict: LOSSY"):
        assert text in shown
