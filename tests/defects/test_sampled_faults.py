"""Faults planted in the torch path that statistics of the emitted tokens must see by themselves.

Other stages see them too; each test asks for the p-values of the statistics that are meant for it,
corrected for the whole run, at 1e-6.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.audit.pair import load_pair
from rheocheck.audit.settings import make_config
from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.gpu import decoding, randomness, verification
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms
from rheocheck.gpu.tree import Tree
from tests.audit.small_audit import STAGES, audit, share_exact_stage


@pytest.fixture(autouse=True)
def _share(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    share_exact_stage(monkeypatch)
    yield
    load_pair.cache_clear()


def sampled(report: Report) -> StageResult:
    return report.stages[STAGES.index("sampled")]


def adjusted(report: Report, name: str) -> float:
    return float(sampled(report).details["p_values"][f"{name} T=0.7"]["adjusted"])


def larger_audit(**changes: Any) -> Report:
    """Thirty-two prompts of sixteen tokens, and no more of the other stages than must be."""
    values = {"num_prompts": 32, "max_new_tokens": 16, "regrow_prompts": 0}
    return audit(**{**values, "differential_rounds": 1, **changes})


def test_accepting_all_that_can_be_shows_in_the_draft_score_and_the_accept_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The laws that are shown are right, the decisions are not theirs."""
    monkeypatch.setattr(verification, "accept_tests", lambda uniform, acceptance: acceptance > 0)
    report = larger_audit()
    assert report.verdict is Verdict.LOSSY
    assert sampled(report).verdict is Verdict.LOSSY
    assert adjusted(report, "draft score") < 1e-6
    assert adjusted(report, "accept rate") < 1e-6
    rate = sampled(report).details["accept_rate"][0]
    assert rate["z"] > 8
    witness = sampled(report).details["witness"]
    assert witness["tv_lower_bound"] > 0
    assert witness["observed"] > witness["expected"]
    assert 1 <= len(witness["tokens"]) <= 8
    assert all(isinstance(row["text"], str) for row in witness["tokens"])


@pytest.mark.nightly
def test_a_draw_that_two_rounds_share_shows_in_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without drafts a round is one token, drawn here with the draw of the round before."""

    def wrong(seed: int, request: Tensor, round_index: Tensor, *rest: Any) -> RoundUniforms:
        return round_uniforms(seed, request, round_index // 2, *rest)

    for module in (decoding, randomness):
        monkeypatch.setattr(module, "round_uniforms", wrong)
    values = {"top_k": 10, "num_top": 1, "depth": 8, "support_size": 128, "rule": "rheo"}
    report = larger_audit(num_prompts=1000, config=make_config(budget=0, **values))
    assert adjusted(report, "pairs") < 1e-6
    assert sampled(report).details["accept_rate"] == []


def test_the_accept_rate_of_the_unfaulted_pair_is_exact() -> None:
    """At 1e-9 by the normal approximation; fixed seed."""
    report = larger_audit()
    row = sampled(report).details["accept_rate"][0]
    assert row["nodes"] > 300
    assert abs(row["z"]) < 6.1
    assert sampled(report).verdict is Verdict.NO_EVIDENCE


def with_changed_tokens(change: Any) -> Any:
    right = verification.verify

    def wrong(tree: Tree, logits: Tensor, draws: Any, *rest: Any, **options: Any) -> Any:
        return right(tree, change(logits), draws, *rest, **options)

    return wrong


@pytest.mark.nightly
def test_a_hot_verifier_shows_in_surprisal_and_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "verify", with_changed_tokens(lambda logits: logits / 1.3))
    report = larger_audit(num_prompts=64)
    for name in ("surprisal", "PIT by target", "ranks"):
        assert adjusted(report, name) < 1e-6


@pytest.mark.nightly
def test_a_token_that_is_cut_shows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The space is never drawn."""
    space = torch.zeros(1).new_tensor(ord(" ")).long()

    def cut(logits: Tensor) -> Tensor:
        return logits.index_fill(-1, space.reshape(1), -torch.inf)

    monkeypatch.setattr(decoding, "verify", with_changed_tokens(cut))
    report = larger_audit(num_prompts=48)
    assert adjusted(report, "tokens") < 1e-6
