"""`rheocheck bench`: all schemes run, the figures add up, bad sizes are refused."""

import json
from pathlib import Path

import pytest

from rheocheck.bench.phases import Clock, Timed
from rheocheck.cli import main

SMALL = ["bench", "--vocab", "60", "--batch", "2", "--rounds", "2", "--depth", "3", "--budget", "9"]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, *words])
    return int(stop.value.code or 0)


def test_every_scheme_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    assert run("--num-prompts", "2", "--json", str(file)) == 0
    report = json.loads(file.read_text())
    assert report["verdict"] == "no_evidence" and report["schema_version"] == 1
    assert report["facts"]["peak_memory_bytes"] > 2**20
    names = [stage["name"] for stage in report["stages"]]
    assert len(names) == 10 and sum(name.startswith("tiny: ") for name in names) == 3
    for stage in report["stages"]:
        details = stage["details"]
        assert stage["sample_size"] > 0 and details["rounds_a_second"] > 0
        assert sum(details["milliseconds_a_round"].values()) > 0
        assert 0 <= details["accepted"] <= 4 and 0 < details["nodes"] <= 58
    shown = capsys.readouterr().out
    assert "random laws, milliseconds" in shown and "Sequoia" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vocab", "0"], "vocab = 0; required: at least 1"),
        (["--batch", "-1"], "batch = -1"),
        (["--rounds", "0"], "rounds = 0"),
        (["--num-prompts", "-1"], "num_prompts = -1"),
        (["--temperature", "0"], "temperature = 0.0; required: above 0"),
        (["--temperature", "nan"], "temperature"),
        (["--top-k", "0"], "top_k = 0"),
        (["--seed", "-1"], "seed = -1"),
        (["--json", "/no/such/folder/x.json"], "/no/such/folder"),
        (["--model", "nobody"], "nobody"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_phase_inside_another_is_counted_once() -> None:
    """A clock that is read at 0, 1, 4 and 10 seconds: three inside, seven outside."""
    clock = Clock(iter([0.0, 1.0, 4.0, 10.0]).__next__)

    class Inner:
        size = 3

        def work(self, count: int) -> int:
            return 2 * count

    timed = Timed(Inner(), clock, "inner", ("work",))
    assert timed.size == 3
    assert clock.timed("outer", lambda: timed.work(4)) == 8
    assert clock.seconds == {"inner": 3.0, "outer": 7.0}
