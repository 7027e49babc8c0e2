"""`rheocheck certify` as a user runs it."""

import json
from pathlib import Path

import pytest

from rheocheck.audit import exact
from rheocheck.certificate import Report
from rheocheck.cli import main
from rheocheck.cli.certify import counterexample_lines
from rheocheck.reference.families import Instance, family
from tests.defects.reference_faults import FAULTS


def run(*words: str) -> int:
    """Exit code of the command."""
    with pytest.raises(SystemExit) as done:
        main(["certify", *words])
    return int(done.value.code or 0)


def some(step: int) -> list[Instance]:
    """One instance in so many of the quick family."""
    return family(quick=True)[::step]


def test_quick_certifies_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole quick family, once."""
    file = tmp_path / "certificate.json"
    assert run("--quick", "--jobs", "1", "--json", str(file)) == 0
    shown = capsys.readouterr().out
    for text in ("Verdict: CERTIFIED", "several rounds", "budget = 0", "target equals draft",
                 "Claim: On each of", "not eager", "every defect is 0"):  # fmt: skip
        assert text in " ".join(shown.split())
    written = json.loads(file.read_text())
    assert (written["schema_version"], written["verdict"]) == (1, "certified")
    (stage,) = written["stages"]
    assert {"name", "verdict", "statistic", "sample_size", "threshold", "power", "replay"} <= set(
        stage
    )
    assert stage["details"]["worst_defect"] == "0"
    assert stage["power"] is None
    assert Report.model_validate(written).claims == [stage["claim"]]


@pytest.mark.parametrize("name", ["residual_is_the_target", "ties_broken_by_token_id"])
def test_a_planted_fault_exits_with_1_and_shows_the_counterexample_in_fractions(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(exact, "family", lambda quick, seed: some(8))
    FAULTS[name](monkeypatch)
    file = tmp_path / "certificate.json"
    assert run("--quick", "--jobs", "1", "--json", str(file)) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "Verdict: LOSSY" in shown
    assert "Claim" not in shown
    found = json.loads(file.read_text())["stages"][0]["details"]["counterexample"]
    assert f"got {found['got']}, wanted {found['wanted']}" in shown
    assert found["instance"] in shown
    assert "after the empty path: target (" in shown


def test_enumerators_that_disagree_exit_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fractions import Fraction

    from rheocheck.reference import class_law

    monkeypatch.setattr(exact, "family", lambda quick, seed: some(50))
    real = class_law._VerifiedSite.outcomes

    def faulty(self: class_law._VerifiedSite, count: int, probe: int) -> class_law._Outcomes:
        return real(self, 0, -1)._replace(accepted=dict.fromkeys(range(9), Fraction(0)))

    # Nothing is ever accepted: lossless, and not the scheme.
    monkeypatch.setattr(class_law._VerifiedSite, "outcomes", faulty)
    assert run("--quick", "--jobs", "1") == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "Verdict: INCONCLUSIVE" in shown
    assert "the two enumerators disagree on: law" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "jobs is 0; required: at least 1"),
        (["--seed", "-1"], "seed is -1; required: at least 0"),
        (["--max-eager-paths", "-1"], "max_eager_paths is -1; required: at least 0"),
        (["--json", "/nowhere/at/all.json"], "cannot write /nowhere/at/all.json: the folder"),
        (["--json", "/"], "cannot write /: it is a folder"),
    ],
)
def test_bad_options_are_one_paragraph_and_exit_with_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--fast") == 2
    assert "No such option" in capsys.readouterr().err


def test_help_fits_a_screen_and_gives_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 40
    assert "rheocheck certify --json certificate.json" in " ".join(shown.split())


def test_a_long_counterexample_says_how_many_laws_it_leaves_out() -> None:
    row = {"path": [], "target": ["1"], "ranking": ["1"], "draft": ["1"]}
    pair = {"path": [0], "target": ["1"], "ranking": ["1", "0"], "draft": ["0", "1"]}
    lines = counterexample_lines(
        {
            "instance": "ties: V=2",
            "enumerator": None,
            "disagreement": "law",
            "laws": [row, pair, *[row] * 20],
        }
    )
    assert lines[0] == "Counterexample (both enumerators):"
    assert "  after the empty path: target (1); draft (1)" in lines
    assert "  after path (0): target (1); ranking (1, 0); draft (0, 1)" in lines
    assert "  and the laws after 10 more paths (see --json)" in lines
    assert lines[-1] == "  the two enumerators disagree on: law"
