"""A saved audit is a trace that says the same as the audit, however many processes wrote it."""

from pathlib import Path

import numpy as np
import pytest

from rheocheck.audit.run import run_audit
from rheocheck.audit.trace_record import run_record
from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import Verdict
from rheocheck.errors import InputError
from rheocheck.traces.reader import open_trace, read_batches
from tests.audit.small_audit import audit, share_exact_stage, small_settings


@pytest.fixture(autouse=True)
def _share(monkeypatch: pytest.MonkeyPatch) -> None:
    share_exact_stage(monkeypatch)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_saved_audit_is_an_honest_trace_of_every_round(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    report = audit(num_prompts=4, regrow_prompts=0, temperatures=(1.0, 0.7), save_trace=folder)
    assert report.verdict is Verdict.INCONCLUSIVE and report.localisation is None
    again = run_trace_audit(folder)
    assert again.verdict is Verdict.NO_EVIDENCE
    names = [stage.name for stage in again.stages]
    assert names == [
        "support",
        "sampled",
        "stale",
        "draws",
        "roles",
        "probe",
        "whitebox",
        "numerics",
    ]
    sampled = next(stage for stage in report.stages if stage.name == "sampled")
    by_name = {stage.name: stage for stage in again.stages}
    assert by_name["sampled"].sample_size == sampled.sample_size
    # Two paths to the accept rates: verification's own laws, and NumPy's from the trace.
    rates, (seen,) = sampled.details["accept_rate"], by_name["sampled"].details["accept_rate"]
    assert seen["nodes"] == sum(row["nodes"] for row in rates)
    too_often = sum(row["accepted_too_often"] for row in rates)
    assert seen["accepted_too_often"] == pytest.approx(too_often, abs=1e-6)
    numerics = next(stage for stage in report.stages if stage.name == "numerics")
    worst = max(item["max_tv"] for item in numerics.details["per_temperature"])
    assert by_name["numerics"].details["max_tv"] == pytest.approx(worst)
    assert by_name["whitebox"].details["max_tv"] < 1e-12
    assert by_name["draws"].details["summary"].endswith("0 differ within rounding")
    runs = open_trace(folder).runs
    assert [run["temperature"] for run in runs] == [1.0, 0.7]
    found = run_record(folder, 3)
    assert found.verdict is Verdict.NO_EVIDENCE
    for step in found.stages[0].details["steps"]:
        assert step["expected_token"] == step["recorded_token"]
        assert step["expected_role"] == step["recorded_role"]


@pytest.mark.parametrize("rule", ["rrsw", pytest.param("onehot", marks=pytest.mark.nightly)])
def test_other_rules_are_decided_again_too(rule: str, tmp_path: Path) -> None:
    config = small_settings().config.model_copy(update={"rule": rule, "depth": 3, "budget": 12})
    audit(num_prompts=4, regrow_prompts=0, config=config, save_trace=tmp_path / "trace")
    assert run_trace_audit(tmp_path / "trace").verdict is Verdict.NO_EVIDENCE


@pytest.mark.parametrize("changes", [{"budget": 0}, {"num_top": 10}])
def test_schemes_without_nodes_or_probes_make_traces(
    changes: dict[str, int], tmp_path: Path
) -> None:
    config = small_settings().config.model_copy(update=changes)
    audit(num_prompts=2, regrow_prompts=0, config=config, save_trace=tmp_path / "trace")
    assert run_trace_audit(tmp_path / "trace").verdict in (
        Verdict.NO_EVIDENCE,
        Verdict.INCONCLUSIVE,
    )


@pytest.mark.nightly
def test_processes_do_not_change_a_byte(tmp_path: Path) -> None:
    settings = small_settings(num_prompts=36, regrow_prompts=0, max_new_tokens=2)
    for jobs in (1, 2):
        save = tmp_path / str(jobs)
        run_audit(settings.model_copy(update={"jobs": jobs, "save_trace": save}))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    numbers = [batch.request.tolist() for batch in read_batches(open_trace(tmp_path / "1"))]
    assert set(np.concatenate(numbers)) == set(range(36))


def test_a_folder_in_use_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="the folder is not empty"):
        audit(save_trace=tmp_path)
    with pytest.raises(InputError, match="cannot save a trace"):
        audit(save_trace=tmp_path / "file")
    with pytest.raises(InputError, match="No such file"):
        audit(save_trace=tmp_path / "no" / "where")
