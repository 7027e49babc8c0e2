"""Verification: by hand, against the exact twin, and at the edges of its uniforms."""

from dataclasses import fields, replace
from fractions import Fraction

import pytest
import torch
from beartype import beartype
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.gpu.expansion import Expansion, Role, child_ranks, expand, slot_roles
from rheocheck.gpu.node_law import OrderedChildren, list_nodes
from rheocheck.gpu.node_law import node_acceptance as plain_node_acceptance
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.tree import Tree, grow
from rheocheck.gpu.verification import Verification
from rheocheck.gpu.verification import verify as plain_verify
from rheocheck.reference import expansion as exact_expansion
from rheocheck.reference import verification as exact
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.laws import Law
from rheocheck.reference.tree import Node
from tests.gpu.dense_verification import NodeLaw, emitted_law
from tests.gpu.path_drafter import PathDrafter, draws, random_logits

INF = float("inf")
BELOW_ONE = 1 - 2.0**-53
node_acceptance = jaxtyped(typechecker=beartype)(plain_node_acceptance)
verify = jaxtyped(typechecker=beartype)(plain_verify)

WEIGHTS = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)


def law_of(weights: list[int]) -> torch.Tensor:
    row = torch.tensor([weights], dtype=torch.float64)
    return row / row.sum()


def law_at(expansion: Expansion, target: torch.Tensor, valid: torch.Tensor, rule: Rule) -> NodeLaw:
    return dense_law(
        target, expansion.token, expansion.role, valid, expansion.support, expansion.probe_law, rule
    )


def dense_law(
    target: torch.Tensor,
    token: torch.Tensor,
    role: torch.Tensor,
    valid: torch.Tensor,
    support: torch.Tensor,
    probe_law: torch.Tensor,
    rule: Rule,
) -> NodeLaw:
    """The sparse law of nodes, from masses read off a dense target, and spread out again."""
    nodes = list_nodes(token, support, probe_law, OrderedChildren.of(role, valid, rule))
    known = nodes.listed >= 0
    mass = torch.where(known, target.gather(1, nodes.listed.clamp_min(0)), 0.0)
    column = torch.where(known, nodes.listed, target.shape[1])
    wide = torch.nn.functional.pad(target, (0, 1))
    outside = wide.scatter(1, column, 0.0)[:, :-1]
    law = node_acceptance(mass, outside.sum(1), nodes)
    residual = wide * law.scale.unsqueeze(1)
    residual = residual.scatter(1, column, law.residual)[:, :-1]
    return NodeLaw(law.order, law.acceptance, residual)


def test_rheo_by_hand() -> None:
    # Target 4/8, 1/8, 2/8, 1/8; top 0, probe 2 of tail law 1/4, 2/4, 1/4 on 1, 2, 3, filler 1.
    config = SpeculationConfig(top_k=3, num_top=1)
    draft = torch.tensor([[4.0, 1.0, 2.0, 1.0]], dtype=torch.float64).log()
    node = expand(draft, torch.tensor([0.1]).double(), config, 1.0)
    assert node.token.tolist() == [[0, 2, 1]]
    law = law_at(node, law_of([4, 1, 2, 1]), node.valid, "rheo")
    assert law.order.tolist() == [[1, 0, 2]]
    # Probe: (2/8) / (2/4); then nothing but token 0 is left of the residual.
    assert law.acceptance[0].tolist() == pytest.approx([1 / 2, 1, 0])


def test_rrsw_by_hand() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    draft = torch.tensor([[4.0, 1.0, 2.0, 1.0]], dtype=torch.float64).log()
    node = expand(draft, torch.tensor([0.1]).double(), config, 1.0)
    law = law_at(node, law_of([4, 3, 1, 2]), node.valid, "rrsw")
    assert law.order.tolist() == [[0, 1, 2]]
    # Top: 4/10. Then 3/6, 1/6, 2/6 against 1/4, 2/4, 1/4: the probe 2 with 1/3; residual 3/12 on
    # token 1 and 1/12 on token 3.
    assert law.acceptance[0].tolist() == pytest.approx([4 / 10, 1 / 3, 3 / 4])
    assert law.residual[0].tolist() == pytest.approx([0, 0, 0, 1])


def test_onehot_by_hand() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    draft = torch.tensor([[4.0, 1.0, 2.0, 1.0]], dtype=torch.float64).log()
    node = expand(draft, torch.tensor([0.1]).double(), config, 1.0)
    law = law_at(node, law_of([4, 3, 1, 2]), node.valid, "onehot")
    assert law.order.tolist() == [[0, 1, 2]]
    assert law.acceptance[0].tolist() == pytest.approx([4 / 10, 1 / 6, 3 / 5])
    assert law.residual[0].tolist() == pytest.approx([0, 0, 0, 1])


class RejectAll:
    """Draws that reject whenever a rejection is possible, and remember the probabilities."""

    def __init__(self) -> None:
        self.tests: list[tuple[int, Fraction]] = []

    def probe(self, weights: Law, key: NodeKey) -> int:
        raise AssertionError("the tree is given")

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        self.tests.append((key.slot, probability))
        return probability == 1

    def final(self, weights: Law, key: NodeKey) -> int:
        raise AssertionError("only one node is tested")


@settings(deadline=None, max_examples=200)
@given(
    target=WEIGHTS,
    draft=WEIGHTS,
    num_top=st.integers(0, 2),
    top_k=st.integers(1, 4),
    probe=st.integers(0, 5),
    survive=st.lists(st.booleans(), min_size=4, max_size=4),
    rule=st.sampled_from(RULES),
)
@example([1, 2, 1], [1, 2, 1], 0, 3, 0, [True] * 4, "rheo")  # target equals the probe law
@example([2, 1, 1], [5, 1, 1], 1, 3, 0, [True] * 4, "rrsw")  # ... once the top is gone
@example([0, 0, 1], [3, 2, 1], 1, 3, 0, [True] * 4, "rheo")  # no mass on what is tested first
@example([1, 0, 0], [3, 2, 1], 1, 3, 0, [True] * 4, "rrsw")  # all mass on the top
@example([1, 1], [1, 1], 0, 2, 0, [False] * 4, "rheo")  # no child at all
def test_a_node_is_the_exact_twins(
    target: list[int],
    draft: list[int],
    num_top: int,
    top_k: int,
    probe: int,
    survive: list[bool],
    rule: Rule,
) -> None:
    target, draft = (weights + [0] * (6 - len(weights)) for weights in (target, draft))
    config = SpeculationConfig(top_k=top_k, num_top=num_top)
    laws = [tuple(Fraction(w, sum(ws)) for w in ws) for ws in (target, draft)]
    expected = exact_expansion.expand(laws[1], laws[1], config)
    index = probe % len(expected.probe_law) if expected.probe_law else None
    children = exact_expansion.children(expected, index)
    candidates = [
        Node(NodeKey(1, 0, child.slot), (child.token,), child.role, child.factor, child.factor)
        for child in children
        if survive[child.slot]
    ]
    draws_made = RejectAll()
    probe_law = exact.vocab_probe_law(expected, 6)
    chosen, residual = exact.verify_node(laws[0], candidates, probe_law, rule, draws_made)

    forced = None if index is None else torch.tensor([expected.tail[index]])
    node = expand(
        torch.tensor([draft], dtype=torch.float64).log(),
        torch.tensor([0.5], dtype=torch.float64),
        config,
        1.0,
        forced_probe=forced,
    )
    valid = node.valid & torch.tensor([survive[:top_k]])
    law = law_at(node, law_of(target), valid, rule)
    tests = list(zip(law.order[0].tolist(), law.acceptance[0].tolist(), strict=True))
    for (slot, probability), (column, acceptance) in zip(draws_made.tests, tests, strict=False):
        assert slot == column
        # Integers up to 5 over sums up to 30: every mass that is left is at least 1/900, so an
        # error of a few 2**-53 grows to 1e-12 at most; 0 and 1 come out exactly.
        assert acceptance == pytest.approx(float(probability), abs=1e-12)
        assert (acceptance == 0, acceptance == 1) == (probability == 0, probability == 1)
    if chosen is None:
        assert law.residual[0].tolist() == pytest.approx([float(m) for m in residual], abs=1e-12)
        assert [m > 0 for m in law.residual[0].tolist()] == [m > 0 for m in residual]
    assert not bool(law.residual.isnan().any() | law.acceptance.isnan().any())
    assert float(law.residual.sum()) == pytest.approx(1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_top", [0, 1, 3])
def test_a_node_emits_its_target_law_whatever_survives(rule: Rule, num_top: int) -> None:
    generator = torch.Generator().manual_seed(num_top)
    config = SpeculationConfig(top_k=4, num_top=num_top, support_size=20)
    logits = 2 * torch.randn(1, 50, generator=generator).double()
    target = (2 * torch.randn(1, 50, generator=generator).double()).softmax(-1)
    for survive in ([True] * 4, [True, True, True, False], [True, False, False, False]):
        node = expand(logits, torch.tensor([0.5]).double(), config, 0.7)
        weights = node.probe_law[0]
        ranks = weights.nonzero().flatten()
        tokens = child_ranks(ranks.unsqueeze(1), torch.full_like(ranks, 20), config)
        tokens = node.support[0][tokens]
        many = len(ranks)
        valid = torch.tensor(survive).expand(many, 4)
        law = dense_law(
            target.expand(many, -1),
            tokens,
            slot_roles(config, tokens.device).expand_as(tokens),
            valid,
            node.support.expand(many, -1),
            node.probe_law.expand(many, -1),
            rule,
        )
        emitted = emitted_law(law, tokens, valid)
        average = (weights[ranks].unsqueeze(1) * emitted).sum(0)
        assert torch.allclose(average, target[0], rtol=0, atol=1e-14)


def simple_round(
    rule: Rule, uniforms: dict[str, float], target: list[int], draft: list[int], **shape: int
) -> tuple[Tree, Verification]:
    """One round with the same laws at every node and the same uniform at every place."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=2).model_copy(update=shape)
    given_draws = draws(config, 1)
    parts = {"probe": 0.0, "accept": 0.0, "final": 0.0} | uniforms
    given_draws = RoundUniforms(
        **{name: torch.full_like(getattr(given_draws, name), parts[name]) for name in parts}
    )
    logits = torch.tensor(draft, dtype=torch.float64).log().tolist()
    tree = grow(PathDrafter(lambda row, path: logits, 1), given_draws, config, 1.0)
    laws = law_of(target).expand(1, config.budget + 1, len(target))
    done: Verification = verify(tree, laws.log(), given_draws, rule)
    return tree, done


@pytest.mark.parametrize("rule", RULES)
def test_acceptance_zero_never_accepts_at_a_uniform_of_zero(rule: Rule) -> None:
    _, done = simple_round(rule, {"accept": 0.0}, target=[0, 0, 1], draft=[3, 2, 1])
    assert done.num_accepted.tolist() == [0]
    assert done.emitted.tolist() == [[2, -1, -1]]


@pytest.mark.parametrize("rule", RULES)
def test_acceptance_one_always_accepts(rule: Rule) -> None:
    ends = {"accept": BELOW_ONE, "final": BELOW_ONE}
    tree, done = simple_round(rule, ends, target=[1, 0, 0], draft=[3, 2, 1])
    assert done.num_accepted.tolist() == [2]
    assert done.emitted.tolist() == [[0, 0, 0]]
    assert tree.token[0][done.accepted[0] - 1].tolist() == [0, 0]
    assert done.final_node.tolist() == [int(done.accepted[0, 1])]


@pytest.mark.parametrize("draft", [[1, 1, 1], [7, 3, 2, 11], [1, 2, 3, 4, 5, 6, 7]])
@pytest.mark.parametrize("probe", [0.0, 0.3, BELOW_ONE])
def test_a_target_equal_to_the_probe_law_accepts_every_probe(
    draft: list[int], probe: float
) -> None:
    ends = {"probe": probe, "accept": BELOW_ONE, "final": 0.0}
    _, done = simple_round("rheo", ends, target=draft, draft=draft, num_top=0, top_k=3)
    assert done.num_accepted.tolist() == [2]


@pytest.mark.parametrize("uniform", [0.0, BELOW_ONE])
def test_the_final_token_has_mass(uniform: float) -> None:
    _, done = simple_round(
        "rheo", {"final": uniform, "accept": BELOW_ONE}, [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]
    )
    assert done.final_token.tolist() == [1 if uniform == 0 else 3]


def test_the_bonus_token_comes_from_the_target_at_the_last_node() -> None:
    _, done = simple_round("onehot", {"final": 0.6}, target=[1, 1], draft=[1, 1], depth=1)
    assert done.num_accepted.tolist() == [1]
    assert done.emitted.tolist() == [[0, 1]]


@pytest.mark.parametrize("empty", [{"budget": 0}, {"depth": 0}])
def test_without_a_tree_a_round_is_plain_sampling(empty: dict[str, int]) -> None:
    _, done = simple_round("rheo", {"final": 0.6}, target=[1, 2], draft=[1, 1], **empty)
    assert done.num_accepted.tolist() == [0]
    assert done.emitted[:, 0].tolist() == [1]
    assert done.final_node.tolist() == [0]


def test_a_residual_that_no_rejection_can_reach_is_the_target() -> None:
    node = expand(
        torch.zeros(1, 2).double(), torch.zeros(1).double(),
        SpeculationConfig(top_k=2, num_top=1), 1.0,
    )  # fmt: skip
    law = law_at(node, law_of([1, 1]), node.valid, "onehot")
    assert law.acceptance.tolist() == [[0.5, 1]]
    assert law.residual.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("rule", RULES)
def test_rows_do_not_depend_on_their_batch(rule: Rule) -> None:
    config = SpeculationConfig(top_k=3, num_top=1, budget=8, depth=3)
    uniforms = draws(config, 16, 3)
    tree = grow(PathDrafter(random_logits(3, 6), 16), uniforms, config, 1.0)
    laws = torch.randn(16, 9, 6, generator=torch.Generator().manual_seed(0)).double().softmax(-1)
    together = verify(tree, laws.log(), uniforms, rule)
    assert len(set(together.num_accepted.tolist())) > 1
    for row in range(16):
        one_tree = replace(
            tree,
            **{
                part.name: getattr(tree, part.name)[row : row + 1]
                for part in fields(tree)
                if isinstance(getattr(tree, part.name), torch.Tensor)
                if part.name != "depth"
            },
        )
        one = replace(
            uniforms,
            **{part.name: getattr(uniforms, part.name)[row : row + 1] for part in fields(uniforms)},
        )
        alone = verify(one_tree, laws[row : row + 1].log(), one, rule)
        for part in fields(Verification):
            assert torch.equal(getattr(together, part.name)[row], getattr(alone, part.name)[0])


@pytest.mark.parametrize("rule", RULES)
def test_an_emission_is_its_path_and_one_token_more(rule: Rule) -> None:
    config = SpeculationConfig(top_k=3, num_top=1, budget=8, depth=3)
    uniforms = draws(config, 64, 4)
    tree = grow(PathDrafter(random_logits(4, 5), 64), uniforms, config, 1.0)
    laws = torch.full((64, 9, 5), 0.2).double()
    done = verify(tree, laws.log(), uniforms, rule)
    for row in range(64):
        size = int(done.num_accepted[row])
        path = done.accepted[row, :size].tolist()
        parents = [0, *path[:-1]] if path else []
        assert [int(tree.parent[row, node - 1]) for node in path] == parents
        tokens = [int(tree.token[row, node - 1]) for node in path]
        assert done.emitted[row].tolist() == [
            *tokens, int(done.final_token[row]), *[-1] * (3 - size)
        ]  # fmt: skip
        assert int(done.final_node[row]) == (path[-1] if path else 0)


def test_probe_roles_match_the_slots() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    assert slot_roles(config, torch.device("cpu")).tolist() == [Role.TOP, Role.PROBE, Role.FILLER]


@settings(deadline=None)
@given(WEIGHTS, WEIGHTS, st.sampled_from(RULES))
def test_acceptance_is_a_probability(target: list[int], draft: list[int], rule: Rule) -> None:
    size = min(len(target), len(draft))
    target, draft = target[:size], draft[:size]
    assume(any(target) and any(draft))
    node = expand(
        torch.tensor([draft]).double().log(), torch.tensor([0.9]).double(),
        SpeculationConfig(top_k=3, num_top=1), 0.5,
    )  # fmt: skip
    law = law_at(node, law_of(target), node.valid, rule)
    assert bool((law.acceptance >= 0).all()) and bool((law.acceptance <= 1).all())
