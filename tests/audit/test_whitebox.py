"""What a stage says that lacks prompts."""

from rheocheck.audit.whitebox import what_would_do
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
