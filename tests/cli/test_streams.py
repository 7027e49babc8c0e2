"""A reader that leaves early changes neither exit code nor files, and sees no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rheocheck.cli import main

LAWS = '{"target": ["1/2", "1/2"], "draft": ["1/4", "3/4"]}'


def closed_early(words: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and errors of a command whose output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-c", "from rheocheck.cli import main; main()", *words],
        stdout=write, stderr=subprocess.PIPE, text=True, cwd=folder, check=False, timeout=120,
    )  # fmt: skip
    os.close(write)
    return process.returncode, process.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes that break are POSIX's")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["bounds", "node", "laws.json", "--json", "out.json"], 0),
        (["certify", "--sampler", "mine:right", "--quick", "--jobs", "1", "--json", "out.json"], 0),
        (["certify", "--sampler", "mine:wrong", "--quick", "--jobs", "1", "--json", "out.json"], 1),
    ],
)
def test_a_broken_pipe_ends_quietly(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "laws.json").write_text(LAWS)
    (tmp_path / "mine.py").write_text(
        "def right(target, draft, choose):\n    return (choose.categorical(target(())),)\n"
        "def wrong(target, draft, choose):\n    return (choose.categorical(draft(())),)\n"
    )
    assert closed_early(words, tmp_path) == (code, "")
    assert (tmp_path / "out.json").exists() == ("--json" in words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_output_that_cannot_be_written_for_another_reason_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "laws.json").write_text(LAWS)
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", "from rheocheck.cli import main; main()", "bounds", "node",
             "laws.json"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False, timeout=120,
        )  # fmt: skip
    assert process.returncode == 2
    assert "No space left on device" in process.stderr
    assert "Traceback" not in process.stderr


def test_the_streams_are_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(SystemExit):
        main(["--version"])
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out.startswith("rheocheck ")
