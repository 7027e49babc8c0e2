"""What the sampled stage says of a dtype whose rounding it has no limit for."""

import numpy as np
import pytest

from rheocheck.audit.emissions import Emitted, compare_with
from rheocheck.audit.sampled import SampledRun, sampled_stage
from rheocheck.certificate import Verdict


def run_with_a_wrong_law() -> SampledRun:
    """One emitted token; the verifier's law is 0.4 from the plain one."""
    law, plain = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    row = Emitted(text=[0, 1], start=1, verified=[law], draft=[law], uniform=[0.5], place=[(0, 0)])
    return SampledRun(1.0, compare_with({0: row}, {0: plain[None]}))


@pytest.mark.parametrize(
    ("dtype", "verdict", "said"),
    [
        ("torch.float32", Verdict.LOSSY, False),
        ("torch.bfloat16", Verdict.NO_EVIDENCE, True),
    ],
)
def test_a_comparison_that_is_not_judged_is_said_to_be_none(
    dtype: str, verdict: Verdict, said: bool
) -> None:
    stage = sampled_stage([run_with_a_wrong_law()], dtype, 5, "").result
    assert stage.verdict is verdict
    assert (f"which is not judged in {dtype}" in stage.details["summary"]) == said
