"""Evidence from run to run: products, refusals, and a file that is whole or not there."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit.carry import Carry, carried, claim_of, read_carry, run_digest, write_carry
from rheocheck.audit.digests import sha256_of
from rheocheck.audit.findings import StageFindings
from rheocheck.audit.settings import AuditSettings
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError

CLAIM = claim_of(AuditSettings(), ["a", "b"])


def stage(surprisal: float, draft: float) -> StageFindings:
    row = {"temperature": 1.0, "surprisal_log_e": surprisal, "draft_score_log_e": draft}
    details: dict[str, Any] = {"per_temperature": [row]}
    result = StageResult(name="sampled", verdict=Verdict.NO_EVIDENCE, details=details)
    return StageFindings(result, {"PIT T=1": 0.5})


def saved(path: Path, **changes: Any) -> None:
    """A carry file with some fields changed and its checksum made anew."""
    write_carry(path, Carry(CLAIM).with_run(1, {"surprisal T=1": 2.0}))
    values = {**json.loads(path.read_text()), **changes}
    values.pop("checksum")
    values["checksum"] = sha256_of(values).hex()
    path.write_text(json.dumps(values))


def test_three_runs_of_little_evidence_make_much(tmp_path: Path) -> None:
    path = tmp_path / "carry.json"
    for seed in range(3):
        found, after = carried(stage(6.0, -1.0), read_carry(path, CLAIM), seed)
        write_carry(path, after)
    assert found.p_values["carried surprisal T=1"] == pytest.approx(math.exp(-18))
    assert found.p_values["carried draft score T=1"] == 1.0
    assert found.p_values["PIT T=1"] == 0.5
    assert found.result.details["carry"]["runs"] == 3
    assert read_carry(path, CLAIM) == after
    assert after.log_e == pytest.approx({"surprisal T=1": 18.0, "draft score T=1": -3.0})
    assert not (tmp_path / "carry.json.part").exists()


def test_a_run_counts_once(tmp_path: Path) -> None:
    carry = Carry(CLAIM).with_run(5, {"a": 1.0}).with_run(6, {"a": 1.0})
    with pytest.raises(InputError, match=r"already counts this run \(run 1 of 2, seed 5\)"):
        carry.with_run(5, {"a": 1.0})
    twice = [{"digest": run_digest(CLAIM, 1), "seed": 1, "log_e": {"a": 1.0}}] * 2
    saved(tmp_path / "c", runs=twice)
    with pytest.raises(InputError, match="already counts"):
        read_carry(tmp_path / "c", CLAIM)


def test_other_settings_are_another_claim(tmp_path: Path) -> None:
    path = tmp_path / "c"
    saved(path)
    assert read_carry(path, claim_of(AuditSettings(seed=9, jobs=2), ["a", "b"])).runs
    for settings, prompts, text in (
        (AuditSettings(max_new_tokens=3), ["a", "b"], "max_new_tokens = 16, this run has 3"),
        (AuditSettings(temperatures=(1.0,)), ["a", "b"], "temperatures"),
        (AuditSettings(model="llama31"), ["a", "b"], "model"),
        (AuditSettings(), ["a", "c"], "prompts"),
    ):
        with pytest.raises(InputError, match=text):
            read_carry(path, claim_of(settings, prompts))


def test_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    saved(path)
    text = path.read_text()
    path.write_text(text.replace("2.0", "9.0"))
    with pytest.raises(InputError, match="damaged or edited"):
        read_carry(path, CLAIM)
    path.write_text(text[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        read_carry(path, CLAIM)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        read_carry(path, CLAIM)
    for other in ("[]", "{}", "3"):
        path.write_text(other)
        with pytest.raises(InputError, match="not a carry file"):
            read_carry(path, CLAIM)
    saved(path, schema_version=2)
    with pytest.raises(InputError, match="schema version 2, 1 required"):
        read_carry(path, CLAIM)
    for runs in (None, [3], [{"seed": 1}], [{"seed": "1", "log_e": {}}]):
        saved(path, runs=runs)
        with pytest.raises(InputError, match="not a carry file"):
            read_carry(path, CLAIM)
    with pytest.raises(InputError, match="cannot be read"):
        read_carry(tmp_path, CLAIM)


def test_other_statistics_and_no_numbers_are_refused() -> None:
    carry = Carry(CLAIM).with_run(0, {"a": 1.0})
    with pytest.raises(InputError, match="the run has statistics"):
        carry.with_run(1, {"b": 1.0})
    with pytest.raises(InputError, match="finite"):
        carry.with_run(1, {"a": math.inf})


def test_the_audit_reads_and_writes_its_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rheocheck.audit.run import run_audit
    from tests.audit.small_audit import small_settings

    quick = StageResult(name="exact", verdict=Verdict.INCONCLUSIVE)
    monkeypatch.setattr("rheocheck.audit.exact.exact_stage", lambda *given: quick)
    path = tmp_path / "carry.json"
    settings = small_settings(num_prompts=2, regrow_prompts=0, differential_rounds=1)
    report = run_audit(settings, carry=path)
    sampled = next(item for item in report.stages if item.name == "sampled")
    assert set(sampled.details["carry"]["log_e"]) == {"surprisal T=0.7", "draft score T=0.7"}
    assert "carried surprisal T=0.7" in sampled.details["p_values"]
    # Power is stated at the level that the correction's first step really uses.
    num_tests = sum(len(item.details.get("p_values", ())) for item in report.stages)
    assert sampled.details["num_tests"] == num_tests
    assert f"at level {1e-6 / num_tests:.2g} " in sampled.details["power_is"]
    assert json.loads(path.read_text())["log_e"] == sampled.details["carry"]["log_e"]
    with pytest.raises(InputError, match="already counts this run"):
        run_audit(settings, carry=path)
