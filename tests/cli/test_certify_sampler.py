"""`rheocheck certify --sampler`: import, exit codes, JSON, what is printed."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit.sampler_check import examine
from rheocheck.audit.sampler_source import SamplerSource
from rheocheck.cli import main
from rheocheck.errors import InputError

MODULE = """
from fractions import Fraction
import time


def lossless(target, draft, choose):
    return (choose.categorical(target(())),)


def lossy(target, draft, choose):
    token = choose.categorical(draft(()))
    if choose.bernoulli(min(Fraction(1), target(())[token] / draft(())[token])):
        return (token,)
    return (choose.categorical(target(())),)


def two_rounds(target, draft, choose):
    return (choose.categorical(target(())),)


two_rounds.num_rounds = 2


def unhashable(target, draft, choose):
    return [choose.categorical(target(()))]


class Holder:
    inner = staticmethod(lossless)


NUMBER = 3
"""


@pytest.fixture
def samplers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `my_samplers` in the current directory; the module path is put back."""
    (tmp_path / "my_samplers.py").write_text(MODULE)
    (tmp_path / "broken_samplers.py").write_text("raise RuntimeError('at import')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("my_samplers", "broken_samplers"):
        sys.modules.pop(name, None)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["certify", "--quick", "--max-vocab", "2", *words])
    code = caught.value.code
    return code if isinstance(code, int) else 0


def load_sampler(spec: str) -> Any:
    """The sampler of that name, with the current directory first on the module path."""
    return SamplerSource(spec, str(Path.cwd())).load()


@pytest.mark.usefixtures("samplers")
def test_a_sampler_is_imported_from_the_current_directory() -> None:
    assert load_sampler("my_samplers:lossless").__qualname__ == "lossless"
    assert callable(load_sampler("my_samplers:Holder.inner"))


@pytest.mark.usefixtures("samplers")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_samplers", "required: package.module:function"),
        ("my_samplers:", "required: package.module:function"),
        (":lossless", "required: package.module:function"),
        ("__import__('os').getcwd():x", "required: package.module:function"),
        ("my_samplers:lossless()", "required: package.module:function"),
        ("../my_samplers:lossless", "required: package.module:function"),
        ("no_such_module:x", "importing no_such_module raised ModuleNotFoundError"),
        ("broken_samplers:x", "importing broken_samplers raised RuntimeError: at import"),
        ("my_samplers:missing", "my_samplers has no missing"),
        ("my_samplers:Holder.missing", "my_samplers has no Holder.missing"),
        ("my_samplers:NUMBER", "is of type int; required: a callable"),
    ],
)
def test_a_sampler_that_cannot_be_loaded_is_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_sampler(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lossless_sampler_exits_with_0_and_writes_its_claim(
    samplers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--sampler", "my_samplers:lossless", "--json", "out.json") == 0
    printed = capsys.readouterr().out
    assert "Verdict: CERTIFIED" in printed
    assert "the joint law is the target's, exactly" in printed
    report: dict[str, Any] = json.loads((samplers / "out.json").read_text())
    assert (report["schema_version"], report["verdict"]) == (1, "certified")
    (stage,) = report["stages"]
    assert {"name", "verdict", "statistic", "sample_size", "threshold", "power", "replay"} <= set(
        stage
    )
    assert stage["replay"].startswith("rheocheck certify --sampler my_samplers:lossless --seed 0")
    assert report["claims"] == [stage["claim"]]


@pytest.mark.usefixtures("samplers")
def test_a_lossy_sampler_exits_with_1_and_prints_its_counterexample(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--sampler", "my_samplers:lossy") == 1
    printed = capsys.readouterr().out
    assert "Smallest counterexample found (2 tokens" in printed
    assert "everywhere: target (1/2, 1/2), draft (0, 1)" in printed
    assert "cause: the residual is the whole target" in printed
    assert "Verdict: LOSSY" in printed


@pytest.mark.usefixtures("samplers")
def test_several_rounds_are_asked_for_by_an_attribute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--sampler", "my_samplers:two_rounds") == 0
    assert "2 rounds jointly" in capsys.readouterr().out


@pytest.mark.usefixtures("samplers")
def test_a_bound_that_is_met_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--sampler", "my_samplers:lossy", "--max-paths", "1") in (1, 3)
    assert run("--sampler", "my_samplers:lossless", "--max-paths", "1") == 3
    assert "Verdict: INCONCLUSIVE" in capsys.readouterr().out


@pytest.mark.usefixtures("samplers")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sampler", "my_samplers:unhashable"], "cannot be hashed; required: a tuple"),
        (["--sampler", "my_samplers:missing"], "has no missing"),
        (["--sampler", "my_samplers:lossless", "--tolerance", "x"], "--tolerance is 'x'"),
        (["--sampler", "my_samplers:lossless", "--tolerance", "0.5"], "between 0 and 1/1000"),
        (["--sampler", "my_samplers:lossless", "--max-seconds", "0"], "max_seconds is 0"),
        (
            ["--sampler", "my_samplers:lossless", "--all-laws"],
            "--all-laws was given, which has no effect",
        ),
        (["--sampler", "my_samplers:lossless", "--json", "no/such/out.json"], "does not exist"),
    ],
)
def test_bad_input_exits_with_2_in_one_paragraph(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("rheocheck: error:") and shown.count("\n") == 1
    assert "Traceback" not in shown


@pytest.mark.usefixtures("samplers")
def test_a_tolerance_may_be_a_decimal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--sampler", "my_samplers:lossless", "--tolerance", "1e-9") == 0
    assert "at most 1e-09 (rounding)" in capsys.readouterr().out


def test_a_shipped_adapter_is_checked_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--sampler", "rheocheck.adapters.shared_coin:sampler") == 0
    printed = capsys.readouterr().out
    assert "Finding: accepts zero probability at u = 0: token 0 after the empty path" in printed


@pytest.mark.usefixtures("samplers")
@pytest.mark.parametrize("name", ["lossless", "lossy"])
def test_the_result_does_not_depend_on_the_number_of_jobs(name: str, samplers: Path) -> None:
    found = []
    for jobs in ("1", "2"):
        run("--sampler", f"my_samplers:{name}", "--jobs", jobs, "--json", "out.json")
        report = json.loads((samplers / "out.json").read_text())
        del report["seconds"], report["stages"][0]["seconds"], report["environment"]
        found.append(report)
    assert found[0] == found[1]


@pytest.mark.usefixtures("samplers")
def test_a_stopped_run_goes_on_with_the_same_result(
    samplers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the middle, then the printed command line; what passed is not run again."""
    words = ("--sampler", "my_samplers:lossless", "--jobs", "1")
    assert run(*words, "--json", "whole.json") == 0
    whole = json.loads((samplers / "whole.json").read_text())
    with monkeypatch.context() as patch:
        examined = counted(patch, stop=5)
        assert run(*words) == 3
    told = capsys.readouterr().err
    assert "interrupted; 5 parts are done" in told
    (kept,) = samplers.glob("*.resume")
    going_on = shlex.split(told.split("Go on with: ")[1])
    assert going_on[-2:] == ["--resume", kept.name]
    examined = counted(monkeypatch)
    with pytest.raises(SystemExit) as done:
        main([*going_on[1:], "--json", "resumed.json"])
    assert not done.value.code
    resumed = json.loads((samplers / "resumed.json").read_text())
    assert len(examined) == whole["stages"][0]["sample_size"] - 5
    for report in (whole, resumed):
        del report["seconds"], report["stages"][0]["seconds"], report["environment"]
    assert whole == resumed


@pytest.mark.usefixtures("samplers")
def test_a_changed_sampler_does_not_go_on(
    samplers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--sampler", "my_samplers:lossless", "--jobs", "1", "--resume", "run.resume")
    assert run(*words) == 0
    (samplers / "my_samplers.py").write_text(MODULE + "\n# changed\n")
    assert run(*words) == 2
    assert "belongs to another run: its sampler_code is" in capsys.readouterr().err


@pytest.mark.usefixtures("samplers")
def test_a_counterexample_outlives_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted(monkeypatch, stop=12)
    assert run("--sampler", "my_samplers:lossy", "--jobs", "1") == 1
    assert "Verdict: LOSSY" in capsys.readouterr().out


@pytest.mark.usefixtures("samplers")
def test_a_lossy_run_goes_on_with_the_same_counterexample(samplers: Path) -> None:
    found = []
    for _ in range(2):
        words = ("--jobs", "1", "--resume", "run.resume", "--json", "out.json")
        assert run("--sampler", "my_samplers:lossy", *words) == 1
        found.append(json.loads((samplers / "out.json").read_text())["stages"][0]["details"])
    assert found[0] == found[1]


@pytest.mark.usefixtures("samplers")
def test_a_damaged_journal_is_refused(samplers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--sampler", "my_samplers:lossless", "--jobs", "1", "--resume", "run.resume")
    assert run(*words) == 0
    kept = samplers / "run.resume"
    lines = kept.read_text().splitlines()
    for entry in ('["sampler","0",[1,2,3]]', '["sampler","0",[1,"x",[]]]', '["sampler","0","x"]'):
        kept.write_text("\n".join([lines[0], entry, *lines[2:]]) + "\n")
        assert run(*words) == 2
        assert "damaged" in capsys.readouterr().err


def counted(monkeypatch: pytest.MonkeyPatch, stop: int = 10**6) -> list[Any]:
    """Instances examined from now on; Ctrl-C comes at one of them."""
    seen: list[Any] = []

    def watched(source: Any, instance: Any, *rest: Any) -> Any:
        if len(seen) == stop:
            raise KeyboardInterrupt
        seen.append(instance)
        return examine(source, instance, *rest)

    monkeypatch.setattr("rheocheck.audit.sampler_stage.examine", watched)
    return seen
