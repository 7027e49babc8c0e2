"""The audit as a whole, small, on the tiny pair."""

from pathlib import Path

import pytest

from rheocheck.audit import preparation
from rheocheck.audit.run import run_audit
from rheocheck.audit.settings import AuditSettings, make_config
from rheocheck.certificate import Report, Verdict
from rheocheck.errors import InputError
from tests.audit.small_audit import STAGES, audit, share_exact_stage, small_settings, verdicts


@pytest.fixture(autouse=True)
def _share(monkeypatch: pytest.MonkeyPatch) -> None:
    share_exact_stage(monkeypatch)


def without_times(report: Report) -> str:
    stages = [stage.model_copy(update={"seconds": None}) for stage in report.stages]
    facts = {key: value for key, value in report.facts.items() if "seconds" not in key}
    settings = {key: value for key, value in report.settings.items() if key != "jobs"}
    update = {"stages": stages, "facts": facts, "settings": settings, "seconds": None}
    update["environment"] = {}
    return report.model_copy(update=update).model_dump_json()


def test_a_small_audit_runs_every_stage_and_claims_nothing_it_cannot() -> None:
    """Eight prompts certify nothing: the white box asks for 459, and says so."""
    report = audit(compare_schemes=True, temperatures=(1.0, 0.7))
    assert [stage.name for stage in report.stages] == STAGES
    assert verdicts(report) == {
        "exact": Verdict.CERTIFIED,
        "differential": Verdict.NO_EVIDENCE,
        "whitebox": Verdict.INCONCLUSIVE,
        "probe": Verdict.INCONCLUSIVE,
        "sampled": Verdict.NO_EVIDENCE,
        "numerics": Verdict.NO_EVIDENCE,
        "draws": Verdict.NO_EVIDENCE,
        "greedy": Verdict.NO_EVIDENCE,
    }
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.claims == []
    rows = report.facts["acceptance"]
    assert [row["temperature"] for row in rows] == [1.0, 0.7, 1.0, 1.0]
    assert {row["scheme"] for row in rows} == {
        "EAGLE Top-K (one-hot)",
        "Rheo + RRSw",
        "Rheo + RheoVerification",
    }
    whitebox = report.stages[2]
    assert whitebox.details["per_temperature"][0]["max_tv"] < 1e-9
    assert whitebox.replay == small_settings(temperatures=(1.0, 0.7)).replay()


def test_the_result_does_not_depend_on_the_number_of_processes() -> None:
    settings = small_settings(num_prompts=36, regrow_prompts=2, max_new_tokens=4)
    alone = run_audit(settings)
    several = run_audit(settings.model_copy(update={"jobs": 2}))
    assert without_times(alone) == without_times(several)


def test_progress_ends_at_the_total_of_every_part() -> None:
    seen: dict[str, tuple[int, int]] = {}
    run_audit(small_settings(), lambda what, done, total: seen.update({what: (done, total)}))
    assert {"differential", "decoding"} <= set(seen)
    assert all(done == total for done, total in seen.values())


def test_a_deep_run_without_the_prompts_says_what_would_do() -> None:
    report = audit(certify=0.001, num_prompts=4, regrow_prompts=0)
    whitebox = {stage.name: stage for stage in report.stages}["whitebox"]
    assert (report.verdict, whitebox.verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert whitebox.threshold == 0.001
    assert "4603 prompts with such a node are needed and 4 had one" in whitebox.details["summary"]
    assert "--certify 0.001" in (whitebox.replay or "")


def test_a_large_run_says_first_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bar for "large" below this run's size; a run of the usual size says nothing."""
    said: list[str] = []
    settings = small_settings(num_prompts=4, regrow_prompts=0, max_new_tokens=2)
    monkeypatch.setattr(preparation, "FEWEST_PROMPTS", 3)
    started: list[str] = []

    def progress(what: str, done: int, total: int) -> None:
        started.append(f"{len(said)} {what}")

    report = run_audit(settings, progress, notice=said.append)
    assert len(said) == 1 and started[0].startswith("1 ")
    assert said[0].startswith("4 prompts at T = 0.7, to certify a mean TV of 1 %: decoding takes")
    assert report.facts["expected_decoding_seconds"] > 0
    monkeypatch.setattr(preparation, "FEWEST_PROMPTS", 4)
    again = run_audit(settings, notice=said.append)
    assert len(said) == 1
    assert without_times(again) == without_times(report)


def test_prompts_of_a_short_file_are_all_used_unless_more_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("a few words\nand some more\n", encoding="utf-8")
    small = {"prompts": path, "regrow_prompts": 0, "max_new_tokens": 2}
    assert audit(num_prompts=None, **small).facts["num_prompts"] == 2
    with pytest.raises(InputError, match="has 2 prompts, 3 were asked for"):
        audit(num_prompts=3, **small)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": 0},
        {"depth": 0},
        {"num_top": 10, "rule": "onehot"},
        {"num_top": 0, "rule": "rrsw"},
        {"support_size": 1},
        {"top_k": 1, "num_top": 0, "depth": 3},
    ],
    ids=str,
)
def test_edge_schemes_are_audited_and_not_lossy(changes: dict[str, object]) -> None:
    values = {
        "top_k": 10, "num_top": 1, "budget": 20, "depth": 3, "support_size": 128, "rule": "rheo",
    }  # fmt: skip
    config = make_config(**{**values, **changes})
    report = audit(config=config, num_prompts=4, regrow_prompts=2, max_new_tokens=4)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert Verdict.LOSSY not in verdicts(report).values()


def test_a_prompt_that_is_too_long_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("short\n" + "x" * 2000 + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="prompts, line 2: its prompt has 2000 tokens"):
        run_audit(small_settings(prompts=path, num_prompts=2))


@pytest.mark.parametrize("seed", range(4))
def test_the_unfaulted_pair_is_neither_lossy_nor_suspect(seed: int) -> None:
    """The run's level is 1e-6 for lossy and 1e-3 for suspect; four fixed seeds."""
    report = audit(seed=seed, num_prompts=6, regrow_prompts=2)
    assert not {Verdict.LOSSY, Verdict.SUSPECT} & set(verdicts(report).values())


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_the_whole_audit_is_certified_for_every_seed(seed: int) -> None:
    assert run_audit(AuditSettings(seed=seed, jobs=2)).verdict is Verdict.CERTIFIED
