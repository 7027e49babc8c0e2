"""Outcomes of a probe added up sparsely equal the dense sum, over large vocabularies too."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.audit import node_law, node_mixture
from rheocheck.audit.laws import softmax
from rheocheck.audit.node_law import ReachedNode, check_node
from rheocheck.config import Rule, SpeculationConfig
from rheocheck.gpu import expansion, top_tokens
from rheocheck.gpu.all_nodes import laws_of
from rheocheck.gpu.final_draw import dense_residual
from rheocheck.gpu.node_law import Nodes
from tests.audit.node_cases import random_node

VOCAB = 6000
CONFIG = SpeculationConfig(top_k=4, num_top=1, budget=4, depth=1, support_size=20)


def dense_sum(
    logits: Tensor, nodes: Nodes, child_token: Tensor, weights: NDArray[np.float64],
    target_law: NDArray[np.float64], temperature: float,
) -> NDArray[np.float64]:  # fmt: skip
    """One dense row an outcome, and a loop over tests."""
    rows = len(weights)
    law, residual = laws_of(logits.expand(rows, -1), nodes, temperature)
    last = dense_residual(residual, torch.from_numpy(target_law).expand(rows, -1)).numpy()
    emitted = np.zeros(len(target_law))
    for row in range(rows):
        reach = float(weights[row])
        for slot, accept in zip(law.order[row].tolist(), law.acceptance[row].tolist(), strict=True):
            token = int(child_token[row, slot])
            if token >= 0:
                emitted[token] += reach * accept
                reach *= 1.0 - accept
        emitted += reach * last[row]
    return emitted


@pytest.mark.parametrize("rule", get_args(Rule))
def test_the_sum_is_the_dense_one(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    compared = []

    def both(*given: Any) -> NDArray[np.float64]:
        found = node_mixture.emitted_law(*given)
        compared.append(float(np.abs(found - dense_sum(*given)).max()))
        return found

    monkeypatch.setattr(node_law, "emitted_law", both)
    for seed in range(40):
        config = CONFIG.model_copy(update={"rule": rule, "num_top": seed % 4, "support_size": 7})
        node, ids = random_node(seed, config, 0.7)
        # Laws of the tree that the outcomes' children do not come from: the lists differ.
        other = random_node(seed + 100, config, 0.7)[0]
        swapped = replace(node, support=other.support, probe_law=other.probe_law)
        for case in (node, swapped):
            check_node(case, config, 0.7, ids)
    assert len(compared) == 80
    assert max(compared) < 1e-13


def wide_node(seed: int, temperature: float) -> tuple[ReachedNode, Tensor]:
    """A node over a vocabulary that is expanded in a part; ties cross the cut of the support."""
    generator = torch.Generator().manual_seed(seed)
    target = (3 * torch.randn(VOCAB, generator=generator)).double()
    ids = torch.randperm(VOCAB, generator=generator)[:5000].sort().values
    draft = (target[ids] + torch.randn(5000, generator=generator)).mul(2).round().div(2)
    uniform = torch.rand(1, 1, generator=generator, dtype=torch.float64)
    made = expansion.expand(draft.view(1, 1, -1), uniform, CONFIG, temperature, token_ids=ids)
    law = torch.from_numpy(softmax(target.numpy(), temperature))
    node = ReachedNode(
        0, 0, 0, draft, target, law, made.token[0, 0], made.support[0, 0], made.probe_law[0, 0],
        True,
    )  # fmt: skip
    return node, ids


@pytest.mark.parametrize("seed", range(8))
def test_a_large_vocabulary_has_the_targets_law(seed: int) -> None:
    node, ids = wide_node(seed, 0.7)
    found = check_node(node, CONFIG, 0.7, ids)
    assert found.num_outcomes == CONFIG.support_size - 1
    assert found.total_variation < 1e-12
    assert not found.is_violation


def test_support_lost_in_a_large_vocabulary_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expanded in part cannot show it; the one expansion that reads all logits does."""
    node, ids = wide_node(1, 0.7)
    right = top_tokens.rank_support

    def without_the_second(logits: Tensor, support_size: int) -> tuple[Tensor, Tensor]:
        if logits.shape[-1] < 4096:
            return right(logits, support_size)
        index, ranked = right(logits, support_size + 1)
        kept = torch.arange(support_size + 1) != 1
        return index[..., kept], ranked[..., kept]

    monkeypatch.setattr(expansion, "rank_support", without_the_second)
    found = check_node(node, CONFIG, 0.7, ids)
    assert found.misdrawn is not None
    assert found.is_violation
