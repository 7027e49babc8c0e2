"""The tiny pair in half precision: its rounding is no fault, and faults are no rounding.

Faults are planted after the start-up check, as in `test_audit_faults.py`.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from rheocheck.audit.emissions import EmissionRecorder
from rheocheck.audit.findings import settle
from rheocheck.audit.numerics import numerics_stage
from rheocheck.audit.numerics_findings import compare_laws, null_arm, plain_pass
from rheocheck.audit.numerics_judgement import NumericsRun
from rheocheck.audit.pair import load_pair
from rheocheck.audit.prompts import read_prompts
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.audit.trace_facts import NUMERICS
from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu import decoding
from rheocheck.gpu.target import TargetModel
from rheocheck.models import registry
from rheocheck.models.registry import Pair
from tests.audit.small_audit import audit, share_exact_stage, verdicts
from tests.defects import torch_faults
from tests.defects.test_audit_faults import positions_by_index, stale_cache, wrong_mask_row

TEMPERATURE = 0.7


@lru_cache(maxsize=1)
def tiny(dtype: torch.dtype) -> Pair:
    return registry.load_pair("tiny", dtype=dtype)


def numerics(dtype: torch.dtype, seed: int = 0, first: int = 0, count: int = 8) -> StageResult:
    """The stage on some prompts, decoded at full tree size, without the other stages."""
    pair, config = tiny(dtype), SpeculationConfig()
    texts = read_prompts(None, first + count)[first:]
    recorder = EmissionRecorder(seed, config, TEMPERATURE)
    decoding.generate(
        pair.target,
        lambda batch: RecordingDrafter(pair.new_drafter(batch)),
        [tuple(pair.tokenizer.encode(text.text)) for text in texts],
        config,
        SamplingConfig(temperature=TEMPERATURE, max_new_tokens=16, seed=seed),
        eos=pair.eos,
        observer=recorder.observe,
    )
    rows, target = recorder.rows(), pair.target
    plain = plain_pass(rows, target.plain_logits, TEMPERATURE, target.logit_noise())
    arms = null_arm(rows, target, plain, TEMPERATURE)
    found = replace(compare_laws(rows, plain), null=arms, null_prompts=len(rows))
    return settle([numerics_stage([NumericsRun(TEMPERATURE, found)], str(dtype), "")])[0]


@pytest.mark.parametrize(
    ("dtype", "seed"),
    [
        (torch.bfloat16, 1),
        (torch.bfloat16, 2),
        (torch.bfloat16, 3),
        (torch.float16, 1),
        *[pytest.param(torch.float16, seed, marks=pytest.mark.nightly) for seed in (2, 3)],
    ],
    ids=str,
)
def test_honest_rounding_is_no_fault_and_far_from_the_limit(dtype: torch.dtype, seed: int) -> None:
    """Other prompts for each seed. Rounding reaches half of the limit nowhere."""
    result = numerics(dtype, seed, first=8 * seed)
    assert result.verdict is Verdict.NO_EVIDENCE
    assert result.statistic is not None and result.threshold is not None
    assert 0 < result.statistic < result.threshold / 2
    (row,) = result.details["per_temperature"]
    assert row["flips_beyond_rounding"] == 0
    assert row["mean_above_floor_p"] == 1.0
    assert 0 < row["mean_tv"] < row["noise_floor"] < row["noise_max_tv"]
    # No shape of plain passes is the base's own.
    assert max(item["max_tv"] for item in result.details["null_arm"]) > 0


def law_of_the_neighbour(patch: pytest.MonkeyPatch) -> None:
    """Every drafted node reads the logits of the root."""
    right = TargetModel.tree_forward

    def wrong(self: TargetModel, *given: Any) -> Any:
        output = right(self, *given)
        output.logits[:, 1:] = output.logits[:, :1].clone()
        return output

    patch.setattr(TargetModel, "tree_forward", wrong)


def one_stale_slot(patch: pytest.MonkeyPatch) -> None:
    """The slot of each round's first accepted node keeps the root's keys and values."""
    right = TargetModel.commit

    def wrong(self: TargetModel, state: Any, output: Any, kept: torch.Tensor) -> Any:
        kept = kept.clone()
        if kept.shape[1] > 1:
            kept[:, 1] = kept[:, 1].clamp_max(0)
        return right(self, state, output, kept)

    patch.setattr(TargetModel, "commit", wrong)


@pytest.mark.parametrize(
    "plant",
    [law_of_the_neighbour, one_stale_slot, stale_cache, wrong_mask_row, positions_by_index],
    ids=lambda plant: plant.__name__,
)
def test_a_fault_is_no_rounding(plant: torch_faults.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(torch.bfloat16)
    plant(monkeypatch)
    result = numerics(torch.bfloat16)
    assert result.verdict is Verdict.LOSSY
    assert result.statistic is not None and result.threshold is not None
    assert result.statistic > 2 * result.threshold
    witness = result.details["witness"]
    assert "too far apart for rounding" in witness["what"]
    assert witness["verifier"] != witness["plain"]


@pytest.fixture
def _in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Audits load the pair as a GPU would run it."""
    right = registry.load_pair

    def load(*given: Any, **named: Any) -> Pair:
        return right(*given, **{**named, "dtype": torch.bfloat16})

    share_exact_stage(monkeypatch)
    monkeypatch.setattr(registry, "load_pair", load)
    load_pair.cache_clear()
    yield
    load_pair.cache_clear()


@pytest.mark.usefixtures("_in_bfloat16")
def test_an_audit_in_bfloat16_measures_its_floor_judges_and_localises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = audit(regrow_prompts=1, max_new_tokens=16)
    assert verdicts(report)["numerics"] is Verdict.NO_EVIDENCE
    stage = next(stage for stage in report.stages if stage.name == "numerics")
    assert stage.details["dtype"] == "torch.bfloat16"
    assert {item["shape"] for item in stage.details["null_arm"]} > {"whole texts, one a pass"}
    wrong_mask_row(monkeypatch)
    folder = tmp_path / "trace"
    wrong = audit(regrow_prompts=0, max_new_tokens=16, save_trace=folder)
    assert verdicts(wrong)["numerics"] is Verdict.LOSSY
    assert wrong.verdict is Verdict.LOSSY and wrong.claims == []
    witness = next(s for s in wrong.stages if s.name == "numerics").details["witness"]
    assert wrong.localisation is not None
    places = [item for item in wrong.localisation["origins"] if item["what"] == NUMERICS]
    assert sum(item["requests"] for item in places) >= 1
    counted = [item for item in wrong.localisation["violations"] if item["what"] == NUMERICS]
    assert str(witness["prompt"]) in {i["category"] for i in counted if i["dimension"] == "request"}
    # The saved trace knows the noise, so it is judged by itself, with roles.
    again = run_trace_audit(folder)
    assert verdicts(again)["numerics"] is Verdict.LOSSY
    assert again.localisation is not None
    found = [item for item in again.localisation["violations"] if item["what"] == NUMERICS]
    assert {item["violations"] for item in found if item["dimension"] == "run"} == {
        item["violations"] for item in counted if item["dimension"] == "run"
    }
