"""Inputs that once crashed, hung or destroyed something: one line and exit code 2."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rheocheck import cli
from tests.traces.synthetic import write_minimal
from tests.traces.test_bad_traces import edit_index

SAMPLER = "def good(target, draft, choose):\n    return (choose.categorical(target(())),)\n"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and what standard error says."""
    with pytest.raises(SystemExit) as exit_info:
        cli.main(list(words))
    return int(exit_info.value.code or 0), " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("option", ["--json", "--html"])
@pytest.mark.parametrize("by_index", [False, True])
def test_a_trace_is_never_written_over(
    option: str, by_index: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_minimal(tmp_path / "trace", 5)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    given = folder / "index.json" if by_index else folder
    for name in ("index.json", "00000.safetensors", "new.json"):
        found = run(capsys, "audit", "--trace", str(given), option, str(folder / name))
        assert found[0] == 2 and "which is read; write elsewhere" in found[1]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_hard_link_to_an_input_is_no_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laws = tmp_path / "laws.json"
    laws.write_text('{"target": [1, 0], "draft": [1, 0]}')
    os.link(laws, tmp_path / "link.json")
    found = run(capsys, "bounds", "node", str(laws), "--json", str(tmp_path / "link.json"))
    assert found[0] == 2 and "which is read" in found[1]


@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_seeds_are_checked_for_traces_too(
    seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_minimal(tmp_path / "trace", 5)
    found = run(capsys, "audit", "--trace", str(folder), "--seed", seed)
    assert found[0] == 2 and "must be from 0 to 2^63 - 1" in found[1]


@pytest.mark.parametrize(
    "words",
    [
        ["bounds", "node", "deep.json"],
        ["check-certificate", "deep.json"],
        ["audit", "--prompts", "deep.jsonl", "--num-prompts", "1"],
        ["audit", "--carry", "deep.json", "--num-prompts", "1"],
    ],
    ids=["bounds", "certificate", "prompts", "carry"],
)
def test_deeply_nested_files_are_refused(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("deep.json", "deep.jsonl"):
        (tmp_path / name).write_text("[" * 200_000)
    assert run(capsys, *words)[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["bounds", "node", "--vocab", "²"],
        ["bounds", "node", "laws.json"],
        ["certify", "--sampler", "sampler.py:good", "--tolerance", "1e-99999999"],
        ["certify", "--json", "-"],
        ["audit", "--top-k", "5000", "--support-size", "5000"],
    ],
    ids=["superscript", "exponent of a law", "exponent of the tolerance", "dash", "keys"],
)
def test_odd_values_are_refused_at_once(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sampler.py").write_text(SAMPLER)
    (tmp_path / "laws.json").write_text('{"target": ["1e-99999999", 1], "draft": [1, 0]}')
    assert run(capsys, *words)[0] == 2


def test_lone_surrogates_do_not_stop_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_minimal(tmp_path / "trace", 5)

    def odd(index: dict[str, Any]) -> None:
        index["versions"] = {"engine": "\ud800"}

    edit_index(folder, odd)
    files = [tmp_path / "a.json", tmp_path / "a.html"]
    words = ["--json", str(files[0]), "--html", str(files[1])]
    assert run(capsys, "audit", "--trace", str(folder), *words)[0] in (0, 3)
    assert json.loads(files[0].read_text())["facts"]["written_by"] == {"engine": "\\ud800"}


def test_a_terminal_without_unicode_keeps_the_exit_code(tmp_path: Path) -> None:
    folder = write_minimal(tmp_path / "träce", 5)
    done = subprocess.run(
        [sys.executable, "-m", "rheocheck", "audit", "--trace", str(folder)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 3) and b"itself failed" not in done.stderr


def test_an_interrupt_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rheocheck.audit.run.run_audit", stopped)
    assert run(capsys, "audit") == (130, "rheocheck: error: interrupted; nothing was concluded")
