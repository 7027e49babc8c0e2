"""The yardstick of the rounds benchmark decides as the batched path does."""

import pytest
import torch

from rheocheck.bench.random_laws import RandomLaws
from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.gpu.randomness import round_uniforms
from tests.benchmarks import plain_rounds
from tests.benchmarks.bench_rounds import SPREAD, batched, decided, plain

SCHEMES = ((3, 1, 6, 3), (2, 0, 4, 2), (4, 2, 9, 2), (2, 2, 5, 3), (3, 1, 0, 2), (1, 0, 3, 3))


def num_different(rule: Rule, vocab: int = 12, batch: int = 32) -> int:
    different = 0
    for number, (top_k, num_top, budget, depth) in enumerate(SCHEMES):
        config = SpeculationConfig(
            top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=9, rule=rule
        )
        tables, request = RandomLaws(batch, vocab, number, SPREAD), torch.arange(batch)
        draws = round_uniforms(number, request, torch.zeros_like(request), config)
        tree, done = batched(tables, draws, config, 0.8)
        different += sum(
            decided(tree, done, row) != plain(tables, draws, config, 0.8, row)
            for row in range(batch)
        )
    return different


@pytest.mark.parametrize("rule", RULES)
def test_rounds_are_decided_alike(rule: Rule) -> None:
    # 192 rounds with generic logits; rounding decides a draw once in some 1e10.
    assert num_different(rule) == 0


def test_a_wrong_order_of_tests_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = plain_rounds.test_order
    monkeypatch.setattr(
        plain_rounds, "test_order", lambda children, rule: original(children, "rrsw")
    )
    assert num_different("rheo") > 0
