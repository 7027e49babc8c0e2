"""Verification's laws against plain ones in a trace: single precision, half precision, neither."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rheocheck.audit.trace_numerics import trace_limit
from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.errors import TraceError
from rheocheck.traces.writer import TraceWriter
from tests.traces.synthetic import VOCAB, random_laws


def report_of(
    folder: Path, settings: dict[str, Any], noise: float, dtype: type[Any] = np.float64
) -> Report:
    """600 tokens drawn from plain laws; the verifier's have noise on their logits."""
    rng = np.random.default_rng(5)
    trace = TraceWriter(folder, VOCAB, settings)
    for number in range(600):
        plain = random_laws(rng, 1)
        with np.errstate(divide="ignore"):
            law = np.exp(np.log(plain) + noise * rng.normal(size=plain.shape))
        law /= law.sum()
        token = int(rng.choice(VOCAB, p=plain[0]))
        laws = {"target_law": law.astype(dtype), "plain_law": plain.astype(dtype)}
        trace.add(number, 0, [token], **laws)
    trace.close()
    return run_trace_audit(folder)


def numerics(report: Report) -> StageResult:
    return next(stage for stage in report.stages if stage.name == "numerics")


def test_single_precision_has_the_limit_of_the_audit(tmp_path: Path) -> None:
    honest = numerics(report_of(tmp_path / "honest", {"dtype": "float32"}, 1e-6))
    assert honest.verdict is Verdict.NO_EVIDENCE
    assert honest.details["limits"] == [1e-3]
    assert 0 < honest.details["max_kl"] < 1e-10
    wrong = report_of(tmp_path / "wrong", {"dtype": "float32"}, 0.02)
    assert numerics(wrong).verdict is Verdict.LOSSY
    assert wrong.localisation is not None


@pytest.mark.parametrize("settings", [{"dtype": "torch.bfloat16"}, {"dtype": "fp16"}, {}])
def test_half_precision_without_its_noise_is_shown_and_not_judged(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """Laws stored in 16 bits count as half precision, whatever the settings say."""
    dtype = np.float64 if settings else np.float16
    report = report_of(tmp_path / "trace", settings, 0.02, dtype)
    stage = numerics(report)
    assert stage.verdict is Verdict.NO_EVIDENCE
    assert "600 tokens in half precision are not judged" in stage.details["summary"]
    assert stage.details["max_tv"] > 1e-3
    assert any("without plain_noise" in line for line in report.facts["not_checked"])


def test_half_precision_with_its_noise_is_judged(tmp_path: Path) -> None:
    settings = {"dtype": "bfloat16", "temperature": 1.0, "plain_noise": 0.02}
    honest = report_of(tmp_path / "honest", settings, 0.02)
    assert numerics(honest).verdict is Verdict.NO_EVIDENCE
    assert numerics(honest).details["limits"] == [pytest.approx(0.12)]
    assert not any("plain decoding" in line for line in honest.facts["not_checked"])
    wrong = report_of(tmp_path / "wrong", settings, 1.0)
    assert numerics(wrong).verdict is Verdict.LOSSY
    assert numerics(wrong).details["witness"]["got"] > 0.12


def test_the_least_limit_of_half_precision_is_that_of_the_audit() -> None:
    settings = {"dtype": "bf16", "temperature": 0.5, "plain_noise": 0.0}
    assert trace_limit(settings, 8) == pytest.approx(np.tanh(0.125))
    assert trace_limit({**settings, "dtype": "half"}, 8) == pytest.approx(np.tanh(0.015625))
    assert trace_limit({}, 4) == 1e-3
    assert trace_limit({}, 2) is None


@pytest.mark.parametrize("value", [-0.1, 1.5, "0.1", True, float("nan"), [0.1]])
def test_a_noise_that_is_no_total_variation_is_refused(value: Any) -> None:
    with pytest.raises(TraceError, match=r"plain_noise = .*: must be a total variation in"):
        trace_limit({"plain_noise": value}, 4)
