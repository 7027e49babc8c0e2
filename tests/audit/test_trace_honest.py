"""Honest traces of unusual engines are not called faulty; copies and lost masses are refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import Report, Verdict
from rheocheck.errors import TraceError
from rheocheck.traces.writer import TraceWriter
from tests.traces.synthetic import inverse_cdf, write_minimal
from tests.traces.test_bad_traces import edit_index

LAW = np.array([0.3, 0.25, 0.2, 0.15, 0.1])


def verdicts(report: Report) -> dict[str, Verdict]:
    return {stage.name: stage.verdict for stage in report.stages}


def test_texts_that_end_at_an_end_of_text_token_are_in_place(tmp_path: Path) -> None:
    """One token a round, every request uncut to its first 0, which comes with probability 0.2."""
    rng = np.random.default_rng(1)
    trace = TraceWriter(tmp_path / "trace", 12, {"temperature": 1.0})
    for request in range(1000):
        for number in range(100):
            law = rng.gamma(1.0, size=12)
            law[0] = 0.0
            law = law * 0.8 / law.sum()
            law[0] = 0.2
            token = int(rng.choice(12, p=law))
            trace.add(request, number, [token], target_law=law[None])
            if token == 0:
                break
    trace.close()
    found = verdicts(run_trace_audit(tmp_path / "trace"))
    assert found["stale"] is found["sampled"] is Verdict.NO_EVIDENCE


def write_finals(folder: Path, uniforms: NDArray[np.float64]) -> Path:
    """Rounds without drafts that end by these uniforms."""
    trace = TraceWriter(folder, 5, {"temperature": 1.0, "rule": "rheo", "num_top": 0})
    for number, uniform in enumerate(uniforms):
        trace.add(
            number, 0, [inverse_cdf(LAW, float(uniform))], target_law=LAW[None], num_nodes=[0],
            at_node=[0], node_token=[], node_parent=[], node_role=[], final_uniform=[uniform],
        )  # fmt: skip
    trace.close()
    return folder


@pytest.mark.parametrize("bits", [10, 16])
def test_coarse_uniforms_repeat_by_chance(bits: int, tmp_path: Path) -> None:
    drawn = np.random.default_rng(2).integers(0, 2**bits, 500) / 2.0**bits
    report = run_trace_audit(write_finals(tmp_path / "trace", drawn))
    assert verdicts(report)["draws"] is Verdict.NO_EVIDENCE


def test_a_stream_of_coarse_uniforms_used_twice_is_lossy(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3).integers(0, 2**24, 250) / 2.0**24
    report = run_trace_audit(write_finals(tmp_path / "trace", np.concatenate([drawn, drawn])))
    assert verdicts(report)["draws"] is Verdict.LOSSY


@pytest.mark.parametrize(("vanished", "lossy"), [(2, False), (40, True)])
def test_a_zero_of_float16_proves_nothing_by_itself(
    vanished: int, lossy: bool, tmp_path: Path
) -> None:
    """A tail of 1e-8 each, which F16 writes as 0; drawn too often it is a fault all the same."""
    law = np.full(4000, 1e-8)
    law[:8] = (1.0 - law[8:].sum()) / 8
    half = law.astype(np.float16)
    assert half[8:].sum() == 0
    rng = np.random.default_rng(4)
    trace = TraceWriter(tmp_path / "trace", 4000, {"temperature": 1.0})
    for number in range(300):
        token = 100 + number if number < vanished else int(rng.integers(8))
        trace.add(number, 0, [token], target_law=half[None])
    trace.close()
    found = verdicts(run_trace_audit(tmp_path / "trace"))
    assert (found["support"] is Verdict.LOSSY) == lossy


def test_a_large_vocabulary_in_float16_is_refused(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path / "trace", 5000, {})
    trace.add(0, 0, [3], target_law=np.full((1, 5000), 2e-4, dtype=np.float16))
    trace.close()
    with pytest.raises(TraceError, match=r"record 0 .*F16 over 5,000 tokens.*write F32"):
        run_trace_audit(tmp_path / "trace")


def test_rounds_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    """A copied shard would multiply the evidence of whatever chance did in it."""
    folder = write_minimal(tmp_path / "trace", 30)
    shutil.copy(folder / "00000.safetensors", folder / "00001.safetensors")

    def twice(index: dict[str, list[dict[str, object]]]) -> None:
        index["shards"].append({**index["shards"][0], "file": "00001.safetensors"})

    edit_index(folder, twice)
    with pytest.raises(TraceError, match=r"record 30: request 0, round 0 .* record 0;"):
        run_trace_audit(folder)
