"""`rheocheck audit`: exit codes, errors of one paragraph, JSON and HTML of the same content."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rheocheck.audit import run
from rheocheck.audit.settings import AuditSettings
from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.cli import main
from rheocheck.config import SpeculationConfig

BIDI = "\u202e"


def report_of(verdict: Verdict) -> Report:
    witness = {"prompt": 3, "token_text": f"\x1b[31m<script>alert(1)</script>{BIDI}"}
    return Report(
        command="audit",
        verdict=verdict,
        claims=["Everything <b>holds</b>."] if verdict is Verdict.CERTIFIED else [],
        settings={"model": "tiny"},
        stages=[
            StageResult(
                name="whitebox",
                verdict=verdict,
                statistic=0.5,
                replay="rheocheck audit --seed 1",
                details={"summary": "a summary", "witness": witness},
            )
        ],
        environment={"python": "3"},
        seconds=1.0,
    )


def run_command(*words: str) -> int:
    """Exit code of `rheocheck audit`."""
    with pytest.raises(SystemExit) as exit_info:
        main(["audit", *words])
    return int(exit_info.value.code or 0)


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[AuditSettings]:
    """Replace the audit by a finished report; returns the settings that it was asked for."""
    asked: list[AuditSettings] = []

    def fake(settings: AuditSettings, *others: object) -> Report:
        asked.append(settings)
        return report_of(getattr(request, "param", Verdict.CERTIFIED))

    monkeypatch.setattr(run, "run_audit", fake)
    return asked


@pytest.mark.parametrize(
    ("canned", "code"),
    [
        (Verdict.CERTIFIED, 0),
        (Verdict.NO_EVIDENCE, 0),
        (Verdict.LOSSY, 1),
        (Verdict.SUSPECT, 3),
        (Verdict.INCONCLUSIVE, 3),
    ],
    indirect=["canned"],
)
def test_the_exit_code_is_the_verdicts(canned: list[AuditSettings], code: int) -> None:
    assert run_command() == code
    assert canned[0] == AuditSettings(jobs=2)


def test_options_reach_the_settings(canned: list[AuditSettings], tmp_path: Path) -> None:
    words = (
        "--model dsl8b --target a --draft b --num-prompts 3 --temperature 0.3 --temperature 2 "
        "--top-k 4 --num-top 2 --budget 9 --depth 3 --support-size 16 --rule rrsw "
        "--max-new-tokens 5 --seed 9 --jobs 1 --device cuda:1"
    )
    assert run_command(*words.split()) == 0
    settings = canned[0]
    assert (settings.model, settings.target, settings.draft) == ("dsl8b", Path("a"), Path("b"))
    assert settings.temperatures == (0.3, 2.0)
    assert settings.config == SpeculationConfig(
        top_k=4, num_top=2, budget=9, depth=3, support_size=16, rule="rrsw"
    )
    assert (settings.seed, settings.jobs, settings.device) == (9, 1, "cuda:1")
    assert settings.num_prompts == 3
    assert settings.max_new_tokens == 5


@pytest.mark.parametrize(
    ("words", "certify"), [("", 0.01), ("--certify 0.003", 0.003), ("--deep", 0.001)]
)
def test_the_mean_to_certify_is_a_setting(
    canned: list[AuditSettings], words: str, certify: float
) -> None:
    assert run_command(*words.split()) == 0
    assert canned[0] == AuditSettings(jobs=2, certify=certify)


def test_the_distance_to_detect_is_a_setting(canned: list[AuditSettings]) -> None:
    assert run_command("--detect", "0.02", "--token-cap", "5000") == 0
    assert canned[0] == AuditSettings(jobs=2, detect=0.02, token_cap=5000)


@pytest.mark.parametrize("canned", [Verdict.LOSSY], indirect=True)
def test_text_json_and_page_say_the_same_and_escape_what_models_say(
    canned: list[AuditSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_file, html_file = tmp_path / "a.json", tmp_path / "a.html"
    assert run_command("--json", str(json_file), "--html", str(html_file)) == 1
    text = capsys.readouterr().out
    assert "LOSSY" in text and "a summary" in text and "rheocheck audit --seed 1" in text
    assert "\x1b[31m" not in text and BIDI not in text
    assert "\\x1b[31m" in text.replace("\n", "")
    written = json.loads(json_file.read_text(encoding="utf-8"))
    assert written["verdict"] == "lossy"
    assert written["schema_version"] == 1
    page = html_file.read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "LOSSY" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "gpt5"], "unknown model 'gpt5'"),
        (["--prompts", "nowhere.txt"], "nowhere.txt: No such file"),
        (["--json", "nowhere/a.json"], "the folder nowhere does not exist"),
        (["--html", "."], "it is a folder"),
        (["--num-prompts", "4801"], "prompts.jsonl has 4,800 prompts, 4,801 were asked for"),
        (["--certify", "0"], "certify = 0"),
        (["--certify", "1.5"], "certify = 1.5"),
        (["--certify", "nan"], "certify = nan"),
        (["--detect", "0"], "detect = 0"),
        (["--detect", "1"], "detect = 1"),
        (["--detect", "-0.01"], "detect = -0.01"),
        (["--detect", "nan"], "detect = nan"),
        (["--detect", "0.1", "--token-cap", "0"], "token_cap = 0"),
        (["--token-cap", "9"], "--token-cap was given, which has no effect without --detect"),
        (["--deep", "--certify", "0.01"], "--deep is --certify 0.001: one of the two"),
        (["--top-k", "0"], "top_k = 0"),
        (["--budget", "-1"], "budget = -1"),
        (["--rule", "best"], "rule = 'best'"),
        (["--temperature", "0"], "temperature 0 (number 1) must be positive"),
        (["--device", "abacus"], "device = 'abacus': torch cannot use it"),
        (["--target", "somewhere"], "--target was given without --draft"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_two(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("--jobs", "1", *words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert len(captured.err.strip().split("\n\n")) == 1
    assert captured.out == ""


@pytest.mark.parametrize("name", ["llama31", "vicuna13b", "dsl8b"])
def test_missing_weights_are_two_lines(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert run_command("--model", name) == 2
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 2
    assert f"model {name} lacks" in lines[0]
    assert "--target" in lines[1]


@pytest.mark.parametrize("words", [["--nope"], ["--top-k", "many"], ["extra"]])
def test_usage_errors_are_exit_two(words: list[str]) -> None:
    assert run_command(*words) == 2


def test_without_torch_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "torch" else real(name)
    )
    assert run_command() == 2
    assert "pip install 'rheocheck[torch]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["audit", "--help"], ["--version"]])
def test_help_fits_a_screen_and_imports_no_torch(words: list[str]) -> None:
    program = (
        "import sys\nfrom rheocheck.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit as done:\n    code = done.code\n"
        "heavy = [name for name in ('torch', 'transformers', 'scipy', 'matplotlib') "
        "if name in sys.modules]\n"
        "assert not heavy, heavy\nassert not code, code\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env={"COLUMNS": "100", "PATH": ""},
    )  # fmt: skip
    lines = done.stdout.rstrip().split("\n")
    assert len(lines) <= 40
    if words[0] == "audit":
        assert any("Example:" in line for line in lines)
