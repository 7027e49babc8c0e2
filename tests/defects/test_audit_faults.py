"""Faults planted in the torch path turn the audit of the tiny pair LOSSY, or fail its start.

Each test names the stage that has to see the fault; a fault that several stages see is pinned at
the one that sees it on real trees, because the differential stage has its own tests.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.audit.pair import load_pair
from rheocheck.certificate import Report, Verdict
from rheocheck.errors import BackendError
from rheocheck.gpu import decoding, randomness, target, verification
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms
from rheocheck.gpu.target import TargetModel
from rheocheck.gpu.tree import Tree
from tests.audit.small_audit import STAGES, audit, share_exact_stage, verdicts
from tests.defects import torch_faults


@pytest.fixture(autouse=True)
def _share(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    share_exact_stage(monkeypatch)
    yield
    # A pair that was loaded under a fault must not serve the next test.
    load_pair.cache_clear()


def lossy_stages(report: Report) -> set[str]:
    return {name for name, verdict in verdicts(report).items() if verdict is Verdict.LOSSY}


def test_without_a_fault_no_stage_is_lossy() -> None:
    assert lossy_stages(audit()) == set()


@pytest.mark.parametrize(
    ("plant", "stages"),
    [
        (torch_faults.temperature_ignored_in_ratio, {"differential", "whitebox"}),
        (torch_faults.residual_is_target, {"differential", "whitebox"}),
        (torch_faults.fillers_before_probe, {"differential", "whitebox"}),
        (torch_faults.probe_scored_by_itself, {"differential", "probe"}),
        (torch_faults.ties_by_token_id, {"differential", "probe"}),
        (torch_faults.unstable_topk, {"differential", "probe"}),
        (torch_faults.accept_at_equality, {"differential"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_of_the_scheme_is_lossy(
    plant: torch_faults.Plant, stages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    report = audit()
    assert report.verdict is Verdict.LOSSY
    assert stages <= lossy_stages(report)
    assert report.claims == []
    witness = next(s.details["witness"] for s in report.stages if s.verdict is Verdict.LOSSY)
    assert witness


def stale_cache(patch: pytest.MonkeyPatch) -> None:
    """After a rejection the first nodes of the tree stay in the cache, not the accepted ones."""
    right = TargetModel.commit

    def wrong(self: TargetModel, state: Any, output: Any, kept: Tensor) -> Any:
        first = torch.arange(kept.shape[1]).expand_as(kept)
        return right(self, state, output, torch.where(kept >= 0, first, kept))

    patch.setattr(TargetModel, "commit", wrong)


def wrong_mask_row(patch: pytest.MonkeyPatch) -> None:
    """The second survivor sees the first, which is its sibling or an unrelated node."""
    right = decoding.tree_inputs

    def wrong(tree: Tree, root: Tensor) -> Any:
        token, depth, visible = right(tree, root)
        visible = visible.clone()
        if visible.shape[1] > 2:
            visible[:, 2, 1] = True
        return token, depth, visible

    patch.setattr(decoding, "tree_inputs", wrong)


def positions_by_index(patch: pytest.MonkeyPatch) -> None:
    """A node's position is its index in the tree instead of its depth."""
    right = decoding.tree_inputs

    def wrong(tree: Tree, root: Tensor) -> Any:
        token, _, visible = right(tree, root)
        return token, torch.arange(token.shape[1]).expand_as(token), visible

    patch.setattr(decoding, "tree_inputs", wrong)


@pytest.mark.parametrize(
    "plant", [stale_cache, wrong_mask_row, positions_by_index], ids=lambda plant: plant.__name__
)
def test_a_fault_of_the_loop_is_seen_by_plain_passes(
    plant: torch_faults.Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted after the start-up check, which refuses the same fault in the target itself."""
    audit(num_prompts=1, regrow_prompts=0)
    plant(monkeypatch)
    report = audit(max_new_tokens=16)
    assert "numerics" in lossy_stages(report)
    witness = report.stages[STAGES.index("numerics")].details["witness"]
    assert witness["total_variation"] > 1e-3
    assert witness["verifier"] != witness["plain"]
    assert witness["prompt_line"] == witness["prompt"] + 1
    assert isinstance(witness["token_text"], str)


def probe_draw_also_accepts(draws: RoundUniforms) -> RoundUniforms:
    """The accept test of a layer's first slot reads the uniform that drew the probe."""
    accept = draws.accept.clone()
    accept[..., 0] = draws.probe
    return dataclasses.replace(draws, accept=accept)


def siblings_share_a_coin(draws: RoundUniforms) -> RoundUniforms:
    """All children of a node are tested with one uniform."""
    return dataclasses.replace(draws, accept=draws.accept[..., :1].expand_as(draws.accept))


def coin_of_the_test_draws_the_residual(draws: RoundUniforms) -> RoundUniforms:
    """The final token is drawn with the uniform of the first accept test."""
    return dataclasses.replace(draws, final=draws.accept[:, 0, 0, 0])


@pytest.mark.parametrize(
    "change",
    [probe_draw_also_accepts, siblings_share_a_coin, coin_of_the_test_draws_the_residual],
    ids=lambda change: change.__name__,
)
def test_a_uniform_used_twice_in_a_round_is_lossy(
    change: Callable[[RoundUniforms], RoundUniforms], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = round_uniforms
    for module in (decoding, randomness):
        monkeypatch.setattr(
            module, "round_uniforms", lambda *args, **options: change(right(*args, **options))
        )
    report = audit(regrow_prompts=0, num_prompts=4)
    assert "draws" in lossy_stages(report)


@pytest.mark.parametrize("forgotten", [1, 2], ids=["request", "round"])
def test_uniforms_that_forget_their_round_or_request_are_lossy(
    forgotten: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = round_uniforms

    def wrong(*args: Any, **options: Any) -> RoundUniforms:
        changed = list(args)
        changed[forgotten] = torch.zeros_like(changed[forgotten])
        return right(*changed, **options)

    for module in (decoding, randomness):
        monkeypatch.setattr(module, "round_uniforms", wrong)
    report = audit(regrow_prompts=0, num_prompts=4, max_new_tokens=16)
    assert "draws" in lossy_stages(report)
    witness = report.stages[STAGES.index("draws")].details["witness"]
    assert (witness["prompt"], witness["round"]) != (
        witness["other_prompt"],
        witness["other_round"],
    )


def test_a_loop_that_verifies_by_another_law_than_it_shows_is_lossy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The law is cut to its 95 % nucleus on the way into verification, after it was recorded."""
    right = verification.verify

    def wrong(
        tree: Tree, logits: Tensor, draws: Any, rule: Any, temperature: float, **options: Any
    ) -> Any:
        laws = (logits / max(temperature, 1e-3)).softmax(-1)
        ranked, order = laws.sort(dim=-1, descending=True)
        kept = torch.zeros_like(laws, dtype=torch.bool)
        kept.scatter_(-1, order, ranked.cumsum(-1) - ranked < 0.95)
        cut = torch.where(kept, logits, -torch.inf)
        return right(tree, cut, draws, rule, temperature, **options)

    monkeypatch.setattr(decoding, "verify", wrong)
    report = audit(regrow_prompts=0, num_prompts=32)
    assert "draws" in lossy_stages(report)
    witness = report.stages[STAGES.index("draws")].details["witness"]
    assert witness["emitted"] != witness["decided_again"]


def test_a_wrong_greedy_choice_is_lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    """At temperature 0 the second most probable token is taken for the first."""
    right = verification.verify

    def wrong(
        tree: Tree, logits: Tensor, draws: Any, rule: Any, temperature: float, **options: Any
    ) -> Any:
        if temperature == 0:
            logits = logits.scatter(-1, logits.argmax(-1, keepdim=True), -torch.inf)
        return right(tree, logits, draws, rule, temperature, **options)

    monkeypatch.setattr(decoding, "verify", wrong)
    report = audit(regrow_prompts=0)
    assert lossy_stages(report) == {"greedy"}
    assert report.stages[-1].details["witness"]["margin"] > 0


def test_a_mask_that_is_not_honoured_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    load_pair.cache_clear()
    monkeypatch.setattr(
        target,
        "additive_mask",
        lambda visible, dtype: torch.zeros(visible.shape, dtype=dtype)[:, None],
    )
    with pytest.raises(BackendError, match="runs trees wrongly"):
        audit()


def test_a_cache_that_keeps_rejected_nodes_fails_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_pair.cache_clear()
    stale_cache(monkeypatch)
    with pytest.raises(BackendError, match="runs trees wrongly"):
        audit()
