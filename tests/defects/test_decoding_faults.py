"""Planted faults of the loop: each shows where its comparison looks.

The start-up check refuses the same faults when they are in the target wrapper (`test_target.py`);
here they are planted after it, in what the loop does with the wrapper.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu import decoding, node_law, verification
from rheocheck.gpu.decoding import generate
from rheocheck.gpu.decoding_numerics import EmissionLog, check_greedy, verify_row_deviation
from rheocheck.gpu.drafting import EagleDrafter
from rheocheck.gpu.node_law import NodeLaw
from rheocheck.gpu.target import TargetModel
from rheocheck.gpu.tree import Tree
from rheocheck.gpu.verification import Verification
from tests.gpu.random_models import random_head, random_target
from tests.gpu.test_decoding import joint_chi_square

TARGET = random_target()
NEW_DRAFTER = partial(EagleDrafter, random_head(TARGET))
SCHEME = SpeculationConfig(top_k=4, num_top=1, budget=12, depth=4, support_size=8)
PROMPTS = [[(5 * row + place) % 19 for place in range(2 + row % 7)] for row in range(24)]
SETTINGS = SamplingConfig(max_new_tokens=12)


def worst_deviation() -> float:
    """Largest total variation between a law that was verified with and the plain one."""
    log = EmissionLog()
    generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, SETTINGS, observer=log)
    found = verify_row_deviation(TARGET, log, SETTINGS)
    return max(deviation.max().item() for deviation in found.values())


def test_without_a_fault_only_rounding_is_left() -> None:
    assert worst_deviation() < 1e-4


def plant_in_inputs(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the tokens, depths and visibility that the loop gives to the target."""
    right = decoding.tree_inputs

    def wrong(tree: Tree, root: Tensor) -> Any:
        return change(tree, *right(tree, root))

    monkeypatch.setattr(decoding, "tree_inputs", wrong)


def test_a_node_that_sees_its_sibling_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(tree: Tree, token: Tensor, depth: Tensor, visible: Tensor) -> Any:
        visible = visible.clone()
        # The second survivor of the root's children sees the first; all other rows are right.
        visible[:, 2, 1] = True
        return token, depth, visible

    plant_in_inputs(monkeypatch, change)
    assert worst_deviation() > 0.1


def test_positions_by_index_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(tree: Tree, token: Tensor, depth: Tensor, visible: Tensor) -> Any:
        return token, torch.arange(token.shape[1]).expand_as(token), visible

    plant_in_inputs(monkeypatch, change)
    assert worst_deviation() > 0.1


def test_a_rejected_node_that_stays_in_the_cache_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TargetModel.commit

    def wrong(self: TargetModel, state: Any, output: Any, kept: Tensor) -> Any:
        # As many slots as were accepted, but the first ones of the tree instead of the path's.
        first = torch.arange(kept.shape[1]).expand_as(kept)
        return right(self, state, output, torch.where(kept >= 0, first, kept))

    monkeypatch.setattr(TargetModel, "commit", wrong)
    assert worst_deviation() > 0.1


def test_a_bonus_law_of_the_wrong_row_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TargetModel.tree_forward

    def wrong(self: TargetModel, *given: Any) -> Any:
        output = right(self, *given)
        output.logits[:, 1:] = output.logits[:, :1].clone()
        return output

    monkeypatch.setattr(TargetModel, "tree_forward", wrong)
    assert worst_deviation() > 0.1


def test_a_final_token_drawn_at_the_parent_is_not_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits are right here and their use is wrong, so text has to be compared."""
    greedy = SamplingConfig(max_new_tokens=12, temperature=0.0)
    made = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, greedy)
    assert check_greedy(TARGET, PROMPTS, made).unexplained == ()
    right = verification.verify

    def wrong(tree: Tree, logits: Tensor, *given: Any, **named: Any) -> Verification:
        found = right(tree, logits, *given, **named)
        row = torch.arange(len(logits))
        ended = found.final_node > 0
        parent = tree.parent[row, (found.final_node - 1).clamp_min(0)]
        token = torch.where(ended, logits[row, parent].argmax(-1), found.final_token)
        found.emitted.scatter_(1, found.num_accepted[:, None], token[:, None])
        return found

    monkeypatch.setattr(decoding, "verify", wrong)
    made = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, greedy)
    assert check_greedy(TARGET, PROMPTS, made).unexplained


def test_a_residual_that_is_the_target_fails_the_chi_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The size of the joint chi-square test is enough for the classic wrong replacement law."""
    right = node_law.node_acceptance

    def wrong(mass: Tensor, *given: Any) -> NodeLaw:
        law = right(mass, *given)
        return replace(law, residual=mass, scale=torch.ones_like(law.scale))

    monkeypatch.setattr(node_law, "node_acceptance", wrong)
    statistic, freedom = joint_chi_square(6000)
    assert stats.chi2.sf(statistic, freedom) < 1e-6
