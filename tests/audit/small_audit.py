"""A small audit of the tiny pair, in this process so that faults can be planted."""

from functools import lru_cache
from typing import Any

import pytest

from rheocheck.audit import exact
from rheocheck.audit.run import run_audit
from rheocheck.audit.settings import AuditSettings
from rheocheck.certificate import Report, StageResult, Verdict

STAGES = [
    "exact", "differential", "whitebox", "probe", "sampled", "numerics", "draws", "greedy",
]  # fmt: skip


@lru_cache(maxsize=1)
def real_exact_stage() -> StageResult:
    """The quick exact stage, run once: it reads no torch code, so no planted fault can touch it."""
    return exact.exact_stage(True, 0, 1)


def small_settings(**changes: Any) -> AuditSettings:
    """Eight prompts, one temperature at which ratio and scores differ, a few trees."""
    values: dict[str, Any] = {
        "num_prompts": 8,
        "temperatures": (0.7,),
        "max_new_tokens": 8,
        "regrow_prompts": 4,
        "differential_rounds": 256,
        "compare_schemes": False,
    }
    return AuditSettings(**{**values, **changes})


def audit(**changes: Any) -> Report:
    """Run it."""
    return run_audit(small_settings(**changes))


def verdicts(report: Report) -> dict[str, Verdict]:
    """By stage."""
    return {stage.name: stage.verdict for stage in report.stages}


def share_exact_stage(patch: pytest.MonkeyPatch) -> None:
    """Let audits of one session share the exact stage."""
    found = real_exact_stage()
    patch.setattr(exact, "exact_stage", lambda *given: found)
