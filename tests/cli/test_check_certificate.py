"""`rheocheck check-certificate`, and stopping and going on, as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit import certificate_check, exact
from rheocheck.cli import main
from rheocheck.reference.families import family

# The command line on one instance in three of the family.
# Shells start background jobs with Ctrl-C ignored, and children inherit that.
PART = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from rheocheck.audit import exact
from rheocheck.audit.resume import Journal
from rheocheck.cli import main
recorded = Journal.record
def record(journal, *unit):
    recorded(journal, *unit)
    if len(journal) == 3:
        time.sleep(60)  # the interrupt comes here
Journal.record = record
whole = exact.family
exact.family = lambda quick, seed: whole(quick, seed)[::3]
main()
"""


def run(*words: str) -> int:
    """Exit code of the command line."""
    with pytest.raises(SystemExit) as done:
        main(words)
    return int(done.value.code or 0)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate of one instance in twenty of the quick family."""
    for module in (exact, certificate_check):
        monkeypatch.setattr(module, "family", lambda quick, seed: family(quick, seed)[::20])
    path = tmp_path / "certificate.json"
    assert run("certify", "--quick", "--jobs", "1", "--json", str(path)) == 0
    return path


def test_a_genuine_certificate_passes(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "check.json"
    capsys.readouterr()
    assert run("check-certificate", str(file), "--jobs", "1", "--json", str(out)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("made with python", "by the other enumerator", "Verdict: CERTIFIED", "Claim:"):
        assert text in shown
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["command"] == "check-certificate"
    assert written["verdict"] == "certified"
    assert written["stages"][0]["details"]["num_problems"] == 0


def test_a_tampered_certificate_exits_with_1_and_names_the_instance(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = json.loads(file.read_text(encoding="utf-8"))
    group = value["stages"][0]["details"]["certificate"]["groups"][0]
    digests = group["digests"]
    group["digests"] = ("A" if digests[0] != "A" else "B") + digests[1:]
    file.write_text(json.dumps(value), encoding="utf-8")
    capsys.readouterr()
    assert run("check-certificate", str(file), "--jobs", "1") == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert family(quick=True)[0].name in shown
    assert "Verdict: REJECTED" in shown
    assert "Claim:" not in shown


@pytest.mark.parametrize("text", ["", "{}", "no json at all"])
def test_a_malformed_file_exits_with_2_and_one_paragraph(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    assert run("check-certificate", str(path)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rheocheck: error:")
    assert "malformed" in captured.err
    assert "Traceback" not in captured.err


def test_a_file_that_is_not_there_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check-certificate", "none.json") == 2
    assert "cannot read none.json" in capsys.readouterr().err


def test_help_gives_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check-certificate", "--help") == 0
    assert "rheocheck check-certificate certificate.json" in capsys.readouterr().out


def test_full_needs_all_laws(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("certify", "--full") == 2
    assert "required: --all-laws" in capsys.readouterr().err


def test_resuming_another_run_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "family", lambda quick, seed: family(True, seed)[::100])
    path = str(tmp_path / "run.resume")
    assert run("certify", "--quick", "--jobs", "1", "--resume", path) == 0
    assert run("certify", "--quick", "--jobs", "1", "--resume", path, "--seed", "1") == 2
    assert "its seed is 0, this run's is 1" in capsys.readouterr().err


def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a part of the quick family, then the printed command line."""
    if os.name != "posix":
        pytest.skip("process groups are POSIX's")
    kept = tmp_path / "part.resume"
    process = subprocess.Popen(
        [sys.executable, "-c", PART, "certify", "--quick", "--jobs", "1", "--resume", str(kept)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if kept.exists() and len(kept.read_text(encoding="utf-8").splitlines()) == 4:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 3, told
    assert "Traceback" not in told
    assert f"--quick --seed 0 --jobs 1 --resume {kept}" in told
    monkeypatch.setattr(exact, "family", lambda quick, seed: family(quick, seed)[::3])
    # A commit made while the test runs is no difference of the runs.
    monkeypatch.setattr("rheocheck.audit.instance_certificate.environment", dict)
    resumed, whole = tmp_path / "resumed.json", tmp_path / "whole.json"
    going_on = ("certify", "--quick", "--resume", str(kept))
    assert run(*going_on, "--jobs", "2", "--json", str(resumed)) == 0
    assert run("certify", "--quick", "--jobs", "1", "--json", str(whole)) == 0
    one, two = (json.loads(path.read_text(encoding="utf-8")) for path in (resumed, whole))
    for value in (one, two):
        # The seal is of the seconds too.
        del value["seconds"], value["stages"][0]["seconds"], value["environment"], value["facts"]
    assert one == two
    capsys.readouterr()


def test_two_interrupted_runs_keep_two_files_and_one_run_adds_to_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exact, "family", lambda quick, seed: family(True, seed)[::4])
    real = exact._check_all

    def stopped_after(count: int, seed: str) -> str:
        done = []

        def check(*task: Any) -> Any:
            done.append(task)
            if len(done) > count:
                raise KeyboardInterrupt
            return real(*task)

        monkeypatch.setattr(exact, "_check_all", check)
        words = ("--quick", "--jobs", "1", "--max-eager-paths", "0", "--seed", seed)
        assert run("certify", *words) == 3
        return capsys.readouterr().err

    assert "2 parts are done" in stopped_after(2, "0")
    assert "1 parts are done" in stopped_after(1, "1")
    assert len(list(tmp_path.glob("rheocheck-certify-*.resume"))) == 2
    # The same run again, stopped sooner: what the first one did is not lost.
    assert "2 parts are done" in stopped_after(1, "0")
    assert len(list(tmp_path.iterdir())) == 2
    for kept in tmp_path.iterdir():
        kept.write_text("something else", encoding="utf-8")
    assert "cannot be kept" in stopped_after(1, "0")
    assert {kept.read_text(encoding="utf-8") for kept in tmp_path.iterdir()} == {"something else"}
