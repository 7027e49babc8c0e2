"""`rheocheck audit --trace`: exit codes, one text for terminal, JSON and page, all escaped."""

import json
from pathlib import Path

import pytest

from tests.cli.test_audit_command import run_command
from tests.traces.synthetic import write_chains, write_minimal
from tests.traces.test_bad_traces import edit_index

EVIL = "\x1b[31m<script>alert(1)</script>\u202e"


def test_exit_codes_follow_the_verdict(tmp_path: Path) -> None:
    honest = write_minimal(tmp_path / "honest", 100)
    assert run_command("--trace", str(honest)) == 0
    assert run_command("--trace", str(honest / "index.json")) == 0
    assert run_command("--trace", str(honest), "--record", "3") == 0
    assert run_command("--trace", str(write_minimal(tmp_path / "one", 1))) == 3
    assert run_command("--trace", str(tmp_path / "none")) == 2


def test_a_lossy_trace_is_localised_in_all_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_chains(tmp_path / "trace", 300, fault="residual")
    edit_index(folder, lambda index: index["runs"][0].update(temperature=EVIL, note=EVIL))
    edit_index(folder, lambda index: index.update(versions={"engine": EVIL}))
    page, data = tmp_path / "a.html", tmp_path / "a.json"
    assert run_command("--trace", str(folder), "--json", str(data), "--html", str(page)) == 1
    text = capsys.readouterr().out
    assert "role residual" in text and "\x1b[31m" not in text and "\u202e" not in text
    html = page.read_text(encoding="utf-8")
    assert "role" in html and "residual" in html and "<script>" not in html
    report = json.loads(data.read_text(encoding="utf-8"))
    replay = report["localisation"]["replay"]
    assert replay in html.replace("&#39;", "'")
    assert report["verdict"] == "lossy" and report["schema_version"] == 1
    words = replay.split()
    assert words[:2] == ["rheocheck", "audit"]
    assert run_command(*words[2:]) == 1
    assert "expected_token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "DIR", "--num-prompts", "3"], "--num-prompts has no effect with --trace"),
        (["--record", "3"], "it needs --trace"),
        (["--trace", "DIR", "--record", "-1"], "--record -1"),
        (["--trace", "DIR", "--record", "9"], "records go from 0 to 4"),
    ],
)
def test_bad_options_are_one_paragraph(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_minimal(tmp_path / "trace", 5)
    assert run_command(*[str(folder) if word == "DIR" else word for word in words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert captured.out == ""
