"""Growing and cutting the draft tree."""

import functools
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck.config import SpeculationConfig
from rheocheck.reference.draws import NodeKey, OracleDraws
from rheocheck.reference.expansion import Role, expand
from rheocheck.reference.laws import Law, Path
from rheocheck.reference.oracle import enumerate_paths
from rheocheck.reference.tree import Tree, grow
from tests.strategies import configs, law_of, random_law, random_model


class FixedProbes:
    """Draws that take given places in the tail, in order, then always the first."""

    def __init__(self, places: Sequence[int] = ()) -> None:
        self.places = list(places)
        self.keys: list[NodeKey] = []

    def probe(self, weights: Law, key: NodeKey) -> int:
        self.keys.append(key)
        return self.places.pop(0) if self.places else 0

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        raise AssertionError("growing a tree accepts nothing")

    def final(self, weights: Law, key: NodeKey) -> int:
        raise AssertionError("growing a tree ends nothing")


def grown(law: Law, probes: Sequence[int] = (), **settings: Any) -> Tree:
    config = SpeculationConfig(**settings)
    return grow(lambda path: expand(law, law, config), config, FixedProbes(probes))


def keys(tree: Tree) -> list[NodeKey]:
    return [node.key for node in tree.survivors]


def test_two_layers_by_hand() -> None:
    # Root: top 0 (1/2), probe 1 (proxy 1/2). Both are expanded alike: children at 1/4 each.
    tree = grown(law_of(2, 1, 1), top_k=2, num_top=1, budget=4, depth=2)
    assert [node.path for node in tree.survivors] == [(0,), (1,), (0, 0), (0, 1)]
    assert [node.score for node in tree.survivors] == [Fraction(1, n) for n in (2, 2, 4, 4)]
    assert keys(tree) == [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)]
    assert [node.role for node in tree.survivors] == [Role.TOP, Role.PROBE] * 2


def test_equal_scores_go_by_layer_then_parent_then_slot_whatever_the_tokens() -> None:
    settings: dict[str, Any] = {"top_k": 2, "num_top": 1, "budget": 5, "depth": 2}
    expected = [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0)]
    assert keys(grown(law_of(1, 1, 1), (0, 0, 0), **settings)) == expected
    assert keys(grown(law_of(1, 1, 1), (1, 1, 1), **settings)) == expected


def test_only_the_best_top_k_of_a_layer_are_expanded() -> None:
    tree = grown(law_of(4, 3, 2, 1), top_k=2, num_top=2, budget=99, depth=3)
    assert [len(layer) for layer in tree.layers] == [2, 4, 4]
    assert {node.path[:-1] for node in tree.layers[2]} == {(0, 0), (0, 1)}
    # (0, 1) and (1, 0) tie at 12/100: the one with the better parent goes first.
    assert [node.path for node in tree.layers[1]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_every_probe_is_drawn_before_anything_is_cut() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=1, depth=3)
    draws = FixedProbes()
    law = law_of(3, 2, 1)
    tree = grow(lambda path: expand(law, law, config), config, draws)
    assert [tuple(key) for key in draws.keys] == [
        (1, 0, 1), (2, 0, 1), (2, 1, 1), (3, 0, 1), (3, 1, 1)
    ]  # fmt: skip
    assert len(tree.survivors) == 1


def test_243_draws_for_five_probes_on_three_tokens() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3)
    law = law_of(4, 3, 2, 1)
    expand_at = functools.cache(lambda path: expand(law, law, config))
    paths = enumerate_paths(lambda choose: grow(expand_at, config, OracleDraws(choose)))
    assert sum(1 for _ in paths) == 3**5


@pytest.mark.parametrize("settings", [{"budget": 0}, {"depth": 0}])
def test_no_budget_or_no_depth_leaves_no_survivor(settings: dict[str, Any]) -> None:
    tree = grown(law_of(1, 1), **{"budget": 3, "depth": 2, **settings})
    assert tree.survivors == ()
    assert tree.surviving_children(()) == []


def test_a_budget_above_the_tree_keeps_all_of_it() -> None:
    tree = grown(law_of(2, 1), top_k=2, num_top=1, budget=99, depth=2)
    assert len(tree.survivors) == 2 + 4


@given(config=configs(4, 8, 3), seed=st.integers(0, 999), places=st.randoms(use_true_random=False))
def test_survivors_hold_their_parents_and_their_better_siblings(
    config: SpeculationConfig, seed: int, places: random.Random
) -> None:
    model = random_model(seed, 4)

    class Anywhere(FixedProbes):
        def probe(self, weights: Law, key: NodeKey) -> int:
            return places.choice([i for i, weight in enumerate(weights) if weight])

    tree = grow(lambda path: expand(model(path), model(path), config), config, Anywhere())
    kept: set[Path] = {node.path for node in tree.survivors}
    assert len(tree.survivors) == min(config.budget, sum(map(len, tree.layers)))
    for node in tree.survivors:
        assert node.path[:-1] == () or node.path[:-1] in kept
        slots = [child.key.slot for child in tree.surviving_children(node.path[:-1])]
        assert slots == list(range(len(slots)))


@given(seed=st.integers(0, 999), budget=st.integers(1, 8))
def test_survival_of_a_node_does_not_depend_on_the_probes_below_or_beside_it(
    seed: int, budget: int
) -> None:
    """The keys that survive up to and including the first probe do not depend on its token."""
    law = random_law(random.Random(seed), 4)
    settings: dict[str, Any] = {"top_k": 3, "num_top": 1, "budget": budget, "depth": 1}
    survivors = {tuple(keys(grown(law, (place,), **settings))) for place in range(3)
                 if place < sum(1 for mass in law if mass) - 1}  # fmt: skip
    assert len(survivors) <= 1
