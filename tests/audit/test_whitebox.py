"""What a stage says that lacks prompts."""

import pytest

from rheocheck.audit.node_law import NodeFinding
from rheocheck.audit.whitebox import WhiteboxRun, what_would_do, whitebox_stage
from rheocheck.certificate import Verdict
from tests.audit.small_audit import audit


def test_a_stage_that_lacks_prompts_says_how_many_would_do() -> None:
    few = what_would_do(Verdict.INCONCLUSIVE, 459, 32)
    assert few == "; to certify, 459 prompts with such a node are needed and 32 had one"
    assert what_would_do(Verdict.CERTIFIED, 459, 500) == ""


def test_it_stands_in_the_summaries_of_a_small_audit() -> None:
    stages = {stage.name: stage for stage in audit(num_prompts=4, regrow_prompts=2).stages}
    assert "459 prompts" in stages["whitebox"].details["summary"]
    assert "44 prompts" in stages["probe"].details["summary"]


def finding(request: int, distance: float = 0.0) -> NodeFinding:
    return NodeFinding(request, 0, 0, 1, distance, 0, 0.5, 0.5, None)


@pytest.mark.parametrize(
    ("certified_tv", "enough", "percent"), [(0.001, 4603, "0.1 %"), (0.02, 228, "2 %")]
)
def test_the_bound_that_was_asked_for_is_certified_and_claimed(
    certified_tv: float, enough: int, percent: str
) -> None:
    """One prompt fewer does not do; the claim states the bound asked for, never a rounded one."""
    for count, verdict in ((enough, Verdict.CERTIFIED), (enough - 1, Verdict.INCONCLUSIVE)):
        run = WhiteboxRun(1.0, [finding(number) for number in range(count)])
        result = whitebox_stage([run], "replay", certified_tv).result
        assert result.verdict is verdict
        assert result.threshold == certified_tv
        assert result.details["prompts_needed"] == enough
        claimed = f"of at most {percent}, at 99 %"
        assert (result.claim is not None and claimed in result.claim) == (count == enough)


def test_a_deep_bound_is_not_certified_by_one_distance_that_is_large() -> None:
    """Planted: one node of 4,696 off by less than the tolerance changes nothing, by 1 is lossy."""
    nodes = [finding(number) for number in range(4696)]
    for distance, verdict in ((5e-7, Verdict.CERTIFIED), (1.0, Verdict.LOSSY)):
        run = WhiteboxRun(1.0, [finding(4696, distance), *nodes])
        assert whitebox_stage([run], "replay", 0.001).result.verdict is verdict
