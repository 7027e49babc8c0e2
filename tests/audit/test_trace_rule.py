"""The tests at a trace's nodes are those of the torch path and of the exact reference."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rheocheck.audit.trace_rule import node_tests
from rheocheck.config import RULES, Rule
from rheocheck.traces.trees import FILLER, PROBE, TOP
from tests.gpu.dense_verification import node_acceptance


def random_law(rng: np.random.Generator, vocab: int) -> NDArray[np.float64]:
    """Small integers over their sum: zeros, ties and point masses are common."""
    while True:
        weights = rng.integers(0, 5, vocab).astype(float) * (rng.random(vocab) < 0.7)
        if weights.sum():
            return np.asarray(weights / weights.sum(), dtype=np.float64)


@pytest.mark.parametrize("rule", RULES)
def test_tests_of_a_node_are_those_of_the_torch_path(rule: Rule) -> None:
    rng = np.random.default_rng(5)
    vocab, children = 7, 4
    for _ in range(300):
        target, probe = random_law(rng, vocab), random_law(rng, vocab)
        token = rng.permutation(vocab)[:children]
        role = np.array([TOP, PROBE, FILLER, FILLER])
        role[rng.random(children) < 0.3] = -1
        if (role == PROBE).any() and not probe[token[1]]:
            continue  # a probe is never drawn where its law has no mass
        if not (role == PROBE).any():
            probe = np.zeros(vocab)
        mine = node_tests(target[None], token[None], role[None], probe[None], rule)
        support = torch.arange(vocab)[None]
        theirs = node_acceptance(
            torch.tensor(target)[None], torch.tensor(token)[None], torch.tensor(role)[None],
            torch.tensor(role >= 0)[None], support, torch.tensor(probe)[None], rule,
        )  # fmt: skip
        present = int((role >= 0).sum())
        np.testing.assert_array_equal(mine.order[0, :present], theirs.order[0, :present])
        reached = mine.reach[0, :present] > 1e-12
        np.testing.assert_allclose(
            mine.acceptance[0, :present][reached],
            theirs.acceptance[0, :present].numpy()[reached],
            atol=1e-13,
        )
        if mine.refused[0] > 1e-12:
            np.testing.assert_allclose(mine.residual, theirs.residual.numpy(), atol=1e-13)
        emitted = mine.residual[0] * mine.refused[0]
        for step in range(present):
            at = mine.order[0, step]
            emitted[token[at]] += mine.reach[0, step] * mine.acceptance[0, step]
        assert emitted.sum() == pytest.approx(1)


def test_a_child_without_a_column_is_never_accepted() -> None:
    target, probe = np.array([[0.5, 0.5, 0.0]]), np.array([[0.25, 0.25, 0.5]])
    found = node_tests(target, np.array([[-1]]), np.array([[PROBE]]), probe, "rheo")
    assert found.acceptance[0, 0] == 0
    np.testing.assert_allclose(found.residual, [[0.5, 0.5, 0]])
