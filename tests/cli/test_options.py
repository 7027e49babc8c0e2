"""Options: the same ones everywhere, none ignored, tables that lose no figure."""

from pathlib import Path

import pytest
from rich.console import Console

from rheocheck.cli import main
from rheocheck.cli.console import make_table, print_table

COMMANDS = [
    ("certify",),
    ("audit",),
    ("check-certificate",),
    ("bounds", "node"),
    ("bounds", "tree"),
    ("bounds", "sweep"),
    ("bounds", "dominance"),
]


def run(*words: str) -> int:
    """Exit code of the command line."""
    with pytest.raises(SystemExit) as done:
        main(words)
    return int(done.value.code or 0)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_json_and_seed(
    command: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command, flag) == 0
    shown = capsys.readouterr().out
    for option in ("--json", "--seed", "Example:"):
        assert option in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_negative_seed_and_a_lost_folder(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = (str(tmp_path / "x.json"),) if command[-1] == "check-certificate" else ()
    assert run(*command, *file, "--json", str(tmp_path / "none" / "x.json")) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(*command, *file, "--seed", "-1") == 2
    told = capsys.readouterr().err
    assert "seed" in told and "-1" in told and " 0" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("jobs", ["0", "-3"])
@pytest.mark.parametrize(
    "command",
    [
        ("certify",),
        ("certify", "--sampler", "rheocheck.adapters.scheme:sampler"),
        ("audit",),
        ("bounds", "tree"),
        ("bounds", "sweep"),
        ("bounds", "dominance"),
    ],
)
def test_jobs_below_one_are_refused(
    command: tuple[str, ...], jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command, "--jobs", jobs) == 2
    told = capsys.readouterr().err
    assert "jobs" in told and jobs in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("certify", "--max-vocab", "3"), "--max-vocab was given, which has no effect without"),
        (("certify", "--max-paths", "50000"), "--max-paths was given, which has no effect without"),
        (("certify", "--max-seconds", "9"), "--max-seconds was given, which has no effect without"),
        (("certify", "--tolerance", "0"), "--tolerance was given, which has no effect without"),
        (("certify", "--full", "--sampler", "a:b"), "--full was given, which has no effect with"),
        (
            ("certify", "--max-eager-paths", "5", "--sampler", "a:b"),
            "--max-eager-paths was given, which has no effect with --sampler",
        ),
        (("bounds", "node", "x.json", "--vocab", "6"), "--vocab was given, which has no effect on"),
        (
            ("bounds", "node", "x.json", "--temperature", "2"),
            "--temperature was given, which has no effect on the laws of x.json",
        ),
        (("bounds", "node", "--rounds", "2"), "--rounds was given, which has no effect without"),
        (
            ("bounds", "tree", "--model", "tiny", "--family", "zipf"),
            "--family was given, which has no effect with --model",
        ),
        (
            ("bounds", "node", "--model", "tiny", "--num-drafts", "2"),
            "--num-drafts was given, which has no effect with --model",
        ),
        (("bounds", "sweep", "--device", "cpu"), "--device was given, which has no effect without"),
        (
            ("bounds", "dominance", "--temperature", "2"),
            "--temperature was given, which has no effect without --model",
        ),
    ],
)
def test_an_option_without_effect_is_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("width", [200, 60, 40, 20, 1])
@pytest.mark.parametrize("framed", [True, False])
def test_no_terminal_is_too_narrow_for_the_figures(
    width: int, framed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = ("19,812", "123,456,789", "7/1234567890123456789")
    table = make_table(("laws",), ("cases", "classes", "defect"), "a [family]", framed=framed)
    table.add_row("laws with a name that is rather long, in words", *figures)
    print_table(table, Console(width=width))
    lines = capsys.readouterr().out.splitlines()
    assert any(all(figure in line for figure in figures) for line in lines)
    shown = "".join("".join(lines).split())
    for word in ("long,", "words", "laws", "classes"):
        assert word in shown


def test_narrow_terminals_show_the_whole_of_certify(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rheocheck.audit import exact
    from rheocheck.reference.families import family

    monkeypatch.setattr(exact, "family", lambda quick, seed: family(True, seed)[::40])
    monkeypatch.setenv("COLUMNS", "40")
    assert run("certify", "--quick", "--jobs", "1") == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    (line,) = (line for line in shown.splitlines() if line.startswith(" all  "))
    assert len(line.split()) == 7
