"""Audits of traces: honest ones pass, faults are lossy and found where they were planted.

Levels: an honest trace is called lossy with probability 1e-6 and suspect with 1e-3; seeds are
fixed. Each fault changes some 15 % of the mass of 2,000 rounds, ten times what is detectable.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rheocheck.audit.trace_drafts import PROBE_LAW
from rheocheck.audit.trace_facts import DECIDED, NODE_LAW, OFF_SUPPORT, REPEATED
from rheocheck.audit.trace_record import run_record
from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.errors import TraceError
from rheocheck.traces.writer import TraceWriter
from tests.traces.synthetic import VOCAB, random_laws, write_chains, write_minimal
from tests.traces.test_bad_traces import edit_arrays, edit_index, put


def stage(report: Report, name: str) -> StageResult:
    return next(found for found in report.stages if found.name == name)


def top(report: Report, dimension: str) -> str:
    """Category of a dimension with most violations."""
    assert report.localisation is not None
    found = report.localisation["violations"]
    return str(next(item["category"] for item in found if item["dimension"] == dimension))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("uniforms", [True, False])
def test_an_honest_trace_is_not_lossy(seed: int, uniforms: bool, tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 1500, seed=seed, uniforms=uniforms)
    report = run_trace_audit(folder, seed)
    assert report.verdict is Verdict.NO_EVIDENCE
    assert report.localisation is None
    assert report.claims == []
    names = [found.name for found in report.stages]
    assert names == ["support", "sampled", "stale", "draws", "roles", "probe", "whitebox"]
    assert stage(report, "draws").details["summary"].endswith("0 differ within rounding")
    assert stage(report, "stale").details["shift_found"] == 0


@pytest.mark.parametrize("rounds", [0, 1])
def test_no_and_one_context_are_inconclusive_and_say_what_would_do(
    rounds: int, tmp_path: Path
) -> None:
    report = run_trace_audit(write_minimal(tmp_path / "trace", rounds))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "TV 0.05 needs some 8," in stage(report, "sampled").details["summary"]


@pytest.mark.parametrize(
    ("fault", "kind", "role"),
    [
        ("residual", DECIDED, "residual"),
        ("lenient", DECIDED, "probe"),
        ("ratio", PROBE_LAW, "probe"),
    ],
)
def test_a_fault_is_lossy_and_named_by_its_role(
    fault: str, kind: str, role: str, tmp_path: Path
) -> None:
    folder = write_chains(tmp_path / "trace", 2000, fault=fault)
    report = run_trace_audit(folder)
    assert report.verdict is Verdict.LOSSY
    assert stage(report, "sampled").verdict is Verdict.LOSSY
    assert report.localisation is not None
    also = {NODE_LAW} if fault == "ratio" else set()
    assert {item["what"] for item in report.localisation["violations"]} == {kind} | also
    assert top(report, "role") == role
    first = report.localisation["first"]
    assert first["role"] == role
    assert report.localisation["replay"].endswith(f"--record {first['record']}")
    again = run_record(folder, first["record"])
    assert again.verdict is Verdict.LOSSY
    assert kind in again.stages[0].details["summary"]
    if kind == DECIDED:
        step = again.stages[0].details["steps"][first["depth"]]
        pair = step["expected_token"], step["expected_role"]
        assert pair != (step["recorded_token"], step["recorded_role"])
        if fault == "residual":
            assert step["expected_token"] == first["wanted"]
    json.dumps(report.localisation, allow_nan=False)


def test_a_lenient_test_shows_in_the_roles_without_uniforms(tmp_path: Path) -> None:
    report = run_trace_audit(write_chains(tmp_path / "t", 2000, fault="lenient", uniforms=False))
    assert stage(report, "roles").verdict is Verdict.LOSSY
    assert report.localisation is not None
    largest = report.localisation["deviations"][0]
    assert (largest["dimension"], largest["category"]) in (("role", "probe"), ("role", "residual"))


def test_a_minimal_trace_of_wrong_tokens_is_lossy_with_its_token_set(tmp_path: Path) -> None:
    """A tenth of the tokens are token 4, whatever their law."""
    rng = np.random.default_rng(8)
    trace = TraceWriter(tmp_path / "trace", VOCAB, {})
    for number in range(3000):
        law = random_laws(rng, 1)
        wrong = rng.random() < 0.1
        trace.add(number, 0, [4 if wrong else int(rng.choice(VOCAB, p=law[0]))], target_law=law)
    trace.close()
    report = run_trace_audit(tmp_path / "trace")
    assert report.verdict is Verdict.LOSSY
    assert report.localisation is not None
    assert report.localisation["token_set"]["tokens"][0] == 4
    assert report.localisation["token_set"]["z"] > 5
    assert report.localisation["violations"] == []
    lacking = " ".join(report.facts["not_checked"])
    assert "no draft laws" in lacking and "no trees" in lacking


def test_a_token_of_probability_zero_is_lossy_at_once(tmp_path: Path) -> None:
    folder = write_minimal(tmp_path / "trace", 50)

    def change(arrays: dict[str, Any]) -> None:
        law = arrays["target_law"][17]
        law[arrays["token"][17]] = 0
        law /= law.sum()

    edit_arrays(folder, change)
    report = run_trace_audit(folder)
    assert stage(report, "support").details["witness"]["record"] == 17
    assert report.localisation is not None and report.localisation["first"]["what"] == OFF_SUPPORT


def test_laws_that_are_stale_by_one_row_are_called_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    trace = TraceWriter(tmp_path / "trace", VOCAB, {})
    for request in range(20):
        laws = random_laws(rng, 41)
        for number in range(40):
            token = [int(rng.choice(VOCAB, p=laws[number + 1]))]
            trace.add(request, number, token, target_law=laws[number : number + 1])
    trace.close()
    report = run_trace_audit(tmp_path / "trace")
    assert report.verdict is Verdict.LOSSY
    assert stage(report, "stale").verdict is Verdict.LOSSY
    assert "laws are stale by one row" in stage(report, "stale").details["summary"]


def test_a_uniform_used_twice_is_lossy(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 60)

    def change(arrays: dict[str, Any]) -> None:
        arrays["node_uniform"][21] = arrays["final_uniform"][10]

    edit_arrays(folder, change)
    report = run_trace_audit(folder)
    assert stage(report, "draws").verdict is Verdict.LOSSY
    assert report.localisation is not None
    found = {item["what"] for item in report.localisation["violations"]}
    assert REPEATED in found


def test_a_uniform_that_ends_two_rounds_is_lossy(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 60)

    def change(arrays: dict[str, Any]) -> None:
        arrays["final_uniform"][40] = arrays["final_uniform"][10]

    edit_arrays(folder, change)
    report = run_trace_audit(folder)
    assert stage(report, "draws").verdict is Verdict.LOSSY
    assert "one uniform ends two rounds" in stage(report, "draws").details["summary"]


def test_a_probe_that_its_uniform_does_not_draw_is_lossy(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 60)
    edit_arrays(folder, put("probe_below", 5, 0.0))
    edit_arrays(folder, put("probe_at", 5, 1e-6))
    assert stage(run_trace_audit(folder), "probe").verdict is Verdict.LOSSY


def test_a_scheme_beyond_one_probe_is_not_decided_again_and_said_so(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 100)
    edit_index(folder, lambda index: index["runs"][0].update(merged=True))
    report = run_trace_audit(folder)
    assert {"roles", "whitebox"}.isdisjoint(found.name for found in report.stages)
    assert any("no rule of one probe" in line for line in report.facts["not_checked"])


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 5)
    edit_index(folder, lambda index: index["runs"][0].update(rule="best"))
    with pytest.raises(TraceError, match="rule = 'best'"):
        run_trace_audit(folder)
    edit_index(folder, lambda index: index["runs"][0].update(rule="rheo", num_top=-1))
    with pytest.raises(TraceError, match="num_top = -1"):
        run_trace_audit(folder)
