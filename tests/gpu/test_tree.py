"""Growth and pruning: by hand, closure under parents, edges, and forced probes."""

import math
from dataclasses import fields, replace

import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu.expansion import Role
from rheocheck.gpu.layers import best_first, comparable_score
from rheocheck.gpu.top_tokens import Fault
from rheocheck.gpu.tree import ForcedProbe, Tree
from rheocheck.gpu.tree import grow as plain_grow
from tests.gpu.path_drafter import Path, PathDrafter, draws, random_logits

INF, NAN = float("inf"), float("nan")
grow = jaxtyped(typechecker=beartype)(plain_grow)

CONFIGS = st.builds(
    SpeculationConfig,
    top_k=st.integers(1, 4),
    num_top=st.integers(0, 4),
    budget=st.integers(0, 20),
    depth=st.integers(0, 4),
    support_size=st.integers(1, 6),
)


def random_tree(config: SpeculationConfig, seed: int, batch: int = 3, levels: int = 0) -> Tree:
    logits_at = random_logits(seed, 6, levels=levels)
    tree: Tree = grow(PathDrafter(logits_at, batch), draws(config, batch, seed), config, 0.7)
    return tree


def rows_of(tree: Tree, row: int) -> list[tuple[int, int, int, int, int]]:
    """(layer, parent_rank, slot, token, parent) of each survivor."""
    size = int(tree.num_survivors()[row])
    columns = (tree.layer, tree.parent_rank, tree.slot, tree.token, tree.parent)
    values = [column[row, :size].tolist() for column in columns]
    return list(zip(*values, strict=True))


def test_a_tree_by_hand() -> None:
    # Every node: probabilities 1/2, 1/4, 1/8, 1/8; one top token, then the probe with factor
    # min(1/2, 1/2). Layer 1: 1/2, 1/2. Layer 2: four nodes of 1/4.
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=2)
    logits = [math.log(2), math.log(4), 0.0, 0.0]
    uniforms = draws(config, 1)
    # The tail is 0 (1/2), 2 (1/4), 3 (1/4): draw 3 at the root, 0 and 2 below it.
    uniforms = replace(
        uniforms, probe=torch.tensor([[[0.8, NAN], [0.1, 0.6]]], dtype=torch.float64)
    )
    tree = grow(PathDrafter(lambda row, path: logits, 1), uniforms, config, 1.0)
    assert rows_of(tree, 0) == [
        (1, 0, 0, 1, 0),
        (1, 0, 1, 3, 0),
        (2, 0, 0, 1, 1),
        (2, 0, 1, 0, 1),
    ]
    assert tree.score[0].tolist() == pytest.approx(
        [math.log(1 / 2), math.log(1 / 2), math.log(1 / 4), math.log(1 / 4)], abs=1e-12
    )
    assert tree.child[0].tolist() == [[1, 2], [3, 4], [0, 0], [0, 0], [0, 0]]
    assert tree.role[0].tolist() == [Role.TOP, Role.PROBE, Role.TOP, Role.PROBE]
    assert tree.probe_rank[0].tolist() == [3, 1, 2, -1, -1]
    assert tree.support[0, 2].tolist() == [1, 0, 2, 3]
    assert tree.support[0, 3].tolist() == [-1] * 4
    assert tree.probe_law[0, 0].tolist() == pytest.approx([0, 1 / 2, 1 / 4, 1 / 4])
    assert tree.depths()[0].tolist() == [0, 1, 1, 2, 2]


def test_products_that_tie_compare_equal() -> None:
    # Factors 1/18 and 1, or 1/3 and 1/6: equal products, unequal float log sums.
    products = [math.log(1 / 18), math.log(1 / 3) + math.log(1 / 6)]
    sums = torch.tensor([products], dtype=torch.float64)
    assert float(sums[0, 0]) != float(sums[0, 1])
    assert best_first(comparable_score(sums)).tolist() == [[0, 1]]
    assert best_first(comparable_score(sums.flip(1))).tolist() == [[0, 1]]


def test_random_tying_products_seldom_straddle_the_grid() -> None:
    # Relative errors of some 1e-15 against a grid of 2**-40: about 2 in 1,000 ties are missed.
    a, b, c = (torch.randint(1, 1000, (100_000,)).double() for _ in range(3))
    one, two = (a / b).log() + (b / (a + c)).log(), (a / (a + c)).log() + torch.zeros(1).double()
    missed = (comparable_score(one) != comparable_score(two)).double().mean()
    assert 0 < float(missed) < 0.005


def test_rounding_scores_reverses_no_order() -> None:
    values = -torch.rand(10_000, dtype=torch.float64).cumsum(0) * 1e-12 - 3
    rounded = comparable_score(values)
    assert bool((rounded[1:] <= rounded[:-1]).all())
    extreme = torch.tensor([0.0, -0.0, -1e30, -INF], dtype=torch.float64)
    assert torch.equal(comparable_score(extreme), extreme)


@settings(deadline=None, max_examples=60)
@given(config=CONFIGS, seed=st.integers(0, 10**6), levels=st.sampled_from([0, 1, 2]))
def test_survivors_are_closed_under_parents_and_best_first(
    config: SpeculationConfig, seed: int, levels: int
) -> None:
    tree = random_tree(config, seed, levels=levels)
    mask = tree.ancestor_mask()
    for row in range(3):
        nodes = rows_of(tree, row)
        assert len({(layer, rank, slot) for layer, rank, slot, _, _ in nodes}) == len(nodes)
        keys = [
            (-score, *node[:3])
            for score, node in zip(tree.score[row].tolist(), nodes, strict=False)
        ]
        assert keys == sorted(keys)
        for index, (layer, rank, slot, token, parent) in enumerate(nodes, start=1):
            assert 0 <= parent < index
            above = {index, 0}
            if parent:
                assert nodes[parent - 1][0] == layer - 1
                assert int(tree.rank_in_layer[row, parent - 1]) == rank < config.top_k
                above |= {other for other in range(index) if mask[row, parent, other]}
            else:
                assert (layer, rank) == (1, 0)
            assert set(mask[row, index].nonzero().flatten().tolist()) == above
            assert int(tree.child[row, parent, slot]) == index
            if slot == config.num_top < config.top_k:
                chosen = tree.support[row, parent, int(tree.probe_rank[row, parent])]
                assert int(chosen) == token
        for padding in range(len(nodes) + 1, config.budget + 1):
            assert mask[row, padding].nonzero().flatten().tolist() == [padding]
        assert int((tree.child[row] > 0).sum()) == len(nodes)


def test_a_budget_above_the_tree_keeps_all_of_it() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=100, depth=3)
    tree = random_tree(config, 1)
    assert tree.num_survivors().tolist() == [2 + 4 + 4] * 3
    assert tree.valid.shape == (3, 100) and tree.support.shape == (3, 101, 6)
    assert bool((tree.token[:, 10:] == -1).all()) and bool((tree.parent[:, 10:] == 0).all())


@pytest.mark.parametrize(("budget", "depth"), [(0, 3), (3, 0)])
def test_without_budget_or_depth_nothing_is_drafted(budget: int, depth: int) -> None:
    config = SpeculationConfig(top_k=2, budget=budget, depth=depth)
    drafter = PathDrafter(random_logits(0, 4), 2)
    tree = grow(drafter, draws(config, 2), config, 1.0)
    assert drafter.calls == 0
    assert tree.num_survivors().tolist() == [0, 0]
    assert tree.ancestor_mask().shape == (2, config.budget + 1, config.budget + 1)
    assert tree.child.shape == (2, config.budget + 1, 2) and not bool(tree.child.any())
    assert bool((tree.depths() == 0).all())


def test_the_drafter_is_asked_once_a_layer() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=5, depth=4)
    drafter = PathDrafter(random_logits(0, 4), 2)
    grow(drafter, draws(config, 2), config, 1.0)
    assert drafter.calls == 4


def test_rows_of_different_shape_share_a_batch() -> None:
    config = SpeculationConfig(top_k=3, num_top=1, budget=30, depth=3)
    rows = ([0.0, -INF, -INF, -INF], [0.0, 1.0, -INF, -INF], [0.0, 1.0, 2.0, 3.0])
    tree = grow(PathDrafter(lambda row, path: rows[row], 3), draws(config, 3), config, 1.0)
    # A chain; a binary tree with a frontier of at most three; three children everywhere.
    assert tree.num_survivors().tolist() == [3, 2 + 4 + 6, 3 + 9 + 9]
    assert not bool(tree.score.isnan().any() | tree.probe_law.isnan().any())


def test_rows_do_not_depend_on_their_batch() -> None:
    config = SpeculationConfig(top_k=3, num_top=1, budget=12, depth=3)
    together = random_tree(config, 5, batch=3)
    logits_at = random_logits(5, 6)
    for row in range(3):
        uniforms = draws(config, 3, 5)
        one = replace(
            uniforms,
            **{part.name: getattr(uniforms, part.name)[row : row + 1] for part in fields(uniforms)},
        )
        drafter = PathDrafter(lambda _, path, row=row: logits_at(row, path), 1)  # type: ignore[misc]
        alone = grow(drafter, one, config, 0.7)
        for part in fields(Tree):
            if part.name not in ("depth", "num_probes"):
                ours, theirs = getattr(together, part.name), getattr(alone, part.name)
                assert torch.equal(ours[row], theirs[0]), part.name


def test_target_ids_come_through_the_token_map() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=10, depth=2)
    seen: list[Path] = []

    def logits_at(row: int, path: Path) -> list[float]:
        seen.append(path)
        return [0.0, 1.0, 2.0]

    ids = torch.tensor([10, 20, 30])
    tree = grow(PathDrafter(logits_at, 1, ids), draws(config, 1), config, 1.0)
    assert set(tree.token[tree.valid].tolist()) <= {10, 20, 30}
    assert all(token in (10, 20, 30) for path in seen for token in path)


@pytest.mark.parametrize("levels", [0, 2])
def test_a_forced_probe_takes_the_place_and_moves_nothing_above_it(levels: int) -> None:
    config = SpeculationConfig(top_k=3, num_top=1, budget=9, depth=3)
    logits_at, uniforms = random_logits(8, 6, levels=levels), draws(config, 4, 8)
    drawn = grow(PathDrafter(logits_at, 4), uniforms, config, 1.0)
    probes = drawn.valid & (drawn.role == Role.PROBE)
    for node in probes[0].nonzero().flatten().tolist():
        layer, rank = int(drawn.layer[0, node]), int(drawn.parent_rank[0, node])
        parent = int(drawn.parent[0, node])
        tail = drawn.support[0, parent][drawn.probe_law[0, parent] > 0].tolist()
        for token in tail:
            forced = ForcedProbe(
                layer=torch.tensor([layer, 0, 0, 0]),
                parent_rank=torch.tensor([rank, 0, 0, 0]),
                token=torch.tensor([token, 0, 0, 0]),
            )
            again = grow(PathDrafter(logits_at, 4), uniforms, config, 1.0, forced=forced)
            assert rows_of(again, 0)[:node] == rows_of(drawn, 0)[:node]
            assert rows_of(again, 0)[node][:3] == rows_of(drawn, 0)[node][:3]
            assert rows_of(again, 0)[node][3] == token
            assert all(rows_of(again, row) == rows_of(drawn, row) for row in (1, 2, 3))


@pytest.mark.parametrize(
    ("bad", "fault", "text"),
    [
        ([NAN, 0.0], Fault.NAN, "NaN;"),
        ([0.0, INF], Fault.INFINITE, r"\+inf;"),
        ([-INF, -INF], Fault.EMPTY, "-inf at every token;"),
    ],
)
def test_bad_draft_logits_are_refused_with_row_and_layer(
    bad: list[float], fault: Fault, text: str
) -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=9, depth=3)

    def logits_at(row: int, path: Path) -> list[float]:
        # Both nodes of layer 2 below token 1 are bad too: the first node is named.
        return bad if row == 1 and path[:1] == (1,) else [0.0, 1.0]

    with pytest.raises(InputError, match=rf"layer 2: row 1, position \(0,\) has {text}"):
        grow(PathDrafter(logits_at, 3), draws(config, 3), config, 1.0)
    tree = grow(PathDrafter(logits_at, 3), draws(config, 3), config, 1.0, check=False)
    assert tree.fault.tolist() == [0, fault, 0]
    assert tree.fault_layer.tolist() == [0, 2, 0] and tree.fault_rank.tolist() == [0, 0, 0]
    assert not bool(tree.score.isnan().any() | tree.probe_law.isnan().any())
    good = grow(PathDrafter(lambda row, path: [0.0, 1.0], 3), draws(config, 3), config, 1.0)
    assert rows_of(tree, 0) == rows_of(good, 0) and rows_of(tree, 2) == rows_of(good, 2)
    # Below the bad node nothing grows; the root's other child keeps its own subtree.
    assert all(node[4] != 1 for node in rows_of(tree, 1))


def test_a_bad_root_leaves_a_row_without_a_tree() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2)
    bad = {0: [NAN, 0.0], 2: [-INF, -INF]}
    drafter = PathDrafter(lambda row, path: bad.get(row, [0.0, 1.0]), 3)
    tree = grow(drafter, draws(config, 3), config, 1.0, check=False)
    assert tree.fault.tolist() == [Fault.NAN, Fault.NONE, Fault.EMPTY]
    assert tree.fault_layer.tolist() == [1, 0, 1]
    assert tree.num_survivors().tolist() == [0, 3, 0]


def test_logits_of_padding_are_no_fault() -> None:
    """A chain leaves all but one place of each frontier empty, and there the logits are NaN."""
    config = SpeculationConfig(top_k=3, num_top=1, budget=9, depth=3)
    tree = grow(PathDrafter(lambda row, path: [0.0, -INF], 2), draws(config, 2), config, 1.0)
    assert tree.fault.tolist() == [0, 0] and tree.num_survivors().tolist() == [3, 3]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_rows_grow_no_trees(depth: int) -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=5, depth=depth)
    table = torch.zeros(0, 7)

    class Nobody:
        token_ids = None

        def root(self) -> torch.Tensor:
            return table

        def extend(
            self, parent: torch.Tensor, token: torch.Tensor, valid: torch.Tensor
        ) -> torch.Tensor:
            return table.unsqueeze(1).expand(0, 2, 7)

    tree = plain_grow(Nobody(), draws(config, 0), config, 1.0)
    assert tree.valid.shape == (0, 5) and tree.child.shape == (0, 6, 2)
    assert tree.fault.shape == (0,) and tree.ancestor_mask().shape == (0, 6, 6)


@settings(deadline=None, max_examples=40)
@given(
    num_top=st.integers(0, 6),
    budget=st.integers(0, 3),
    top_k=st.integers(1, 6),
    vocab=st.integers(1, 3),
)
def test_small_budgets_and_supports_below_top_k_are_defined(
    num_top: int, budget: int, top_k: int, vocab: int
) -> None:
    """Budgets below num_top, more slots than tokens: the best nodes that exist, no more."""
    config = SpeculationConfig(top_k=top_k, num_top=num_top, budget=budget, depth=2)
    tree = grow(PathDrafter(random_logits(1, vocab), 2), draws(config, 2), config, 1.0)
    width = min(top_k, vocab)
    nodes = width + min(width, top_k) * width
    assert tree.num_survivors().tolist() == [min(budget, nodes)] * 2


def test_a_pair_of_logits_is_checked_on_both_sides() -> None:
    config = SpeculationConfig(top_k=2, num_top=0, budget=2, depth=1)

    class Pair:
        token_ids = None

        def root(self) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.zeros(1, 2), torch.full((1, 2), NAN)

        def extend(
            self, parent: torch.Tensor, token: torch.Tensor, valid: torch.Tensor
        ) -> torch.Tensor:
            raise AssertionError("depth 1 needs no second layer")

    with pytest.raises(InputError, match="draft logits of layer 1: row 0"):
        plain_grow(Pair(), draws(config, 1), config, 1.0)
