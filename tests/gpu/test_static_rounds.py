"""Static trees in torch against the exact twin on the same uniforms, draw for draw."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from rheocheck.audit.differential import logits_at_nodes
from rheocheck.audit.differential_instances import (
    LARGEST_UNIFORM,
    Batch,
    ExactRow,
    TableDrafter,
    make_batch,
)
from rheocheck.config import STATIC_RULES, SamplingConfig, StaticConfig, StaticRule
from rheocheck.gpu import static_verification
from rheocheck.gpu.processing import target_law
from rheocheck.gpu.static_tree import StaticUniforms, grow_static, static_places, static_uniforms
from rheocheck.gpu.static_verification import verify_static
from rheocheck.gpu.tree import Tree
from rheocheck.gpu.verification import Verification
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.laws import Law
from rheocheck.reference.replay import UniformDraws
from rheocheck.reference.static_round import StaticRound, sample_static_round

SHAPES = ((), (1,), (1, 1, 1), (2,), (4,), (2, 2), (3, 1, 2), (1, 3), (2, 1, 1, 2))
# Decisions closer than this to their threshold may fall either way in float64.
TOLERANCE = Fraction(1, 2**36)


class StaticUniformDraws(UniformDraws):
    """Probes by slot too: a static tree draws every child."""

    def probe(self, weights: Law, key: NodeKey) -> int:
        uniform = Fraction(self._probe[key.layer - 1][key.parent_rank][key.slot])
        return self._inverse_cdf(uniform, weights, "probe", key)


def nested(config: StaticConfig, values: np.ndarray) -> list[Any]:
    """[nodes] -> values[layer - 1][parent place][slot]."""
    found, start, width = [], 0, 1
    for children in config.branching:
        found.append(values[start : start + width * children].reshape(width, children).tolist())
        start, width = start + width * children, width * children
    return found


def random_uniforms(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values, edge = rng.random(shape), rng.random(shape)
    values = np.where(edge < 0.2, rng.integers(0, 16, size=shape) / 16, values)
    return np.where(edge < 0.1, 0.0, np.where(edge > 0.93, LARGEST_UNIFORM, values))


def torch_rounds(
    batch: Batch, config: StaticConfig, draws: StaticUniforms
) -> tuple[Tree, Verification]:
    tree = grow_static(TableDrafter(batch), draws, config, batch.temperature)
    sampling = SamplingConfig(temperature=batch.temperature)
    laws = target_law(logits_at_nodes(batch, tree), sampling)
    return tree, verify_static(tree, laws, draws, config)


def drafted(tree: Tree, row: int) -> dict[NodeKey, int]:
    size = int(tree.valid[row].sum())
    columns = (tree.layer, tree.parent_rank, tree.slot, tree.token)
    return {
        NodeKey(layer, place, slot): token
        for layer, place, slot, token in zip(
            *(column[row, :size].tolist() for column in columns), strict=True
        )
    }


def drafted_exactly(done: StaticRound, config: StaticConfig) -> dict[NodeKey, int]:
    return {
        NodeKey(layer, place // children, place % children): token
        for layer, (tokens, children) in enumerate(
            zip(done.layers, config.branching, strict=True), start=1
        )
        for place, token in enumerate(tokens)
        if token is not None
    }


def compare(seed: int, number: int, rule: StaticRule, family: Any = "small") -> tuple[int, int]:
    """Rounds compared in one batch, and how many of them rounding excuses."""
    rng = np.random.default_rng([seed, number, STATIC_RULES.index(rule)])
    batch = make_batch(seed, family, number)
    config = StaticConfig(
        branching=SHAPES[rng.integers(len(SHAPES))],
        rule=rule,
        support_size=batch.config.support_size,
    )
    rows = len(batch.vocab)
    child, accept = (random_uniforms(rng, (rows, config.num_nodes)) for _ in range(2))
    final = random_uniforms(rng, (rows,))
    draws = StaticUniforms(*(torch.from_numpy(array) for array in (child, accept, final)))
    tree, verification = torch_rounds(batch, config, draws)
    excused = 0
    for row in range(rows):
        exact = ExactRow(batch, row)
        exact_draws = StaticUniformDraws(
            nested(config, child[row]), nested(config, accept[row]), float(final[row])
        )
        done = sample_static_round(exact.target, exact.draft, config, exact_draws)
        length = int(verification.num_accepted[row]) + 1
        emitted = tuple(verification.emitted[row, :length].tolist())
        if (drafted(tree, row), emitted) != (drafted_exactly(done, config), done.emission):
            assert min(margin.gap for margin in exact_draws.margins) <= TOLERANCE, (
                f"{rule} {config.branching} batch {number} row {row}: {emitted}, {done.emission}"
            )
            excused += 1
    return rows, excused


@pytest.mark.parametrize("rule", STATIC_RULES)
def test_torch_decides_as_the_exact_twin(rule: StaticRule) -> None:
    """A fault that changes one round in 200 is missed with probability below 1e-4."""
    counts = [compare(0, number, rule) for number in range(60)]
    rounds, excused = (sum(column) for column in zip(*counts, strict=True))
    assert rounds == 1920 and excused <= rounds // 50


def test_a_residual_that_vanishes_keeps_no_rounding_error() -> None:
    """Of a small acceptance b, 1 - (1 - b) is off by 1e-13: a uniform of 0 would draw that."""
    target, draft = torch.tensor([[1 / 1765, 0.0]]).double(), torch.tensor([[1 / 37, 36 / 37]])
    law = static_verification.static_node_law(
        target, 1 - target.sum(1), draft.double(), torch.tensor([[1]]),
        torch.tensor([[True]]), "kseq",
    )  # fmt: skip
    assert law.kept.tolist() == [[0.0, 0.0]]


@pytest.mark.nightly
@pytest.mark.parametrize("rule", STATIC_RULES)
def test_torch_decides_as_the_exact_twin_on_many_rounds(rule: StaticRule) -> None:
    counts = [compare(1, number, rule) for number in range(1000)]
    counts += [compare(1, number, rule, "large") for number in range(20)]
    rounds, excused = (sum(column) for column in zip(*counts, strict=True))
    assert excused <= rounds // 50


def keep_draft_after_refusal(original: Any) -> Any:
    def faulty(*arguments: Any) -> Any:
        return original(*arguments[:-1], "specinfer")

    return faulty


def unit_scale(original: Any) -> Any:
    return lambda on_support, *rest: torch.ones_like(original(on_support, *rest))


@pytest.mark.parametrize(
    ("name", "plant", "rule"),
    [
        ("static_node_law", keep_draft_after_refusal, "sequoia"),
        ("kseq_scale", unit_scale, "kseq"),
        ("accept_tests", lambda _: lambda uniform, acceptance: uniform <= acceptance, "specinfer"),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, plant: Any, rule: StaticRule
) -> None:
    monkeypatch.setattr(static_verification, name, plant(getattr(static_verification, name)))
    with pytest.raises(AssertionError):
        for number in range(60):
            compare(0, number, rule)


def test_uniforms_are_keyed_by_place_and_row() -> None:
    config = StaticConfig(branching=(3, 2))
    request = torch.tensor([5, 9])
    both = static_uniforms(7, request, torch.tensor([0, 4]), config)
    alone = static_uniforms(7, request[1:], torch.tensor([4]), config)
    assert torch.equal(both.child[1], alone.child[0])
    assert torch.equal(both.accept[1], alone.accept[0])
    values = torch.cat([both.child, both.accept, both.final[:, None]], dim=1).flatten()
    assert len(set(values.tolist())) == 2 * (2 * config.num_nodes + 1)


def test_places_of_a_small_tree() -> None:
    places = static_places(StaticConfig(branching=(2, 2)), torch.device("cpu"))
    assert places.layer.tolist() == [1, 1, 2, 2, 2, 2]
    assert places.parent.tolist() == [0, 0, 1, 1, 2, 2]
    assert places.parent_place.tolist() == [0, 0, 0, 0, 1, 1]
    assert places.slot.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_batch_without_rows() -> None:
    batch = make_batch(0, "small", 0)
    config = StaticConfig(branching=(2, 1))
    nothing = torch.zeros(0, config.num_nodes, dtype=torch.float64)
    draws = StaticUniforms(nothing, nothing, nothing[:, 0])
    vocab = batch.target.shape[-1]

    class Empty:
        token_ids = None

        def root(self) -> torch.Tensor:
            return torch.zeros(0, vocab)

        def extend(self, parent: torch.Tensor, token: Any, valid: Any) -> torch.Tensor:
            return torch.zeros(0, parent.shape[1], vocab)

    tree = grow_static(Empty(), draws, config, 1.0)
    laws = torch.zeros(0, config.num_nodes + 1, vocab, dtype=torch.float64)
    assert verify_static(tree, laws, draws, config).emitted.shape == (0, 3)


def test_bad_draft_logits_are_reported_by_row() -> None:
    config = StaticConfig(branching=(2, 2))
    draws = static_uniforms(0, torch.arange(3), torch.zeros(3, dtype=torch.int64), config)

    class Drafter:
        token_ids = None

        def root(self) -> torch.Tensor:
            return torch.tensor([[0.0, 1.0], [float("nan"), 0.0], [1.0, 1.0]])

        def extend(self, parent: torch.Tensor, token: Any, valid: Any) -> torch.Tensor:
            logits = torch.zeros(3, 2, 2)
            logits[2, 1] = -torch.inf
            return logits

    tree = grow_static(Drafter(), draws, config, 1.0)
    assert tree.fault.tolist() == [0, 1, 3]
    assert tree.fault_layer.tolist() == [0, 1, 2]
    assert tree.fault_rank.tolist() == [0, 0, 1]
    assert tree.num_survivors().tolist() == [6, 0, 4]
