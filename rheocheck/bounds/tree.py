"""Expected accepted tokens of a drafted tree, integrated exactly over verification.

Given a tree and the target laws at its nodes, the probability that verification reaches each node
is a product of node-level closed forms. Summed over nodes it is E[tau | tree]: no accept test is
drawn, so only the trees themselves are random, and on small models they are enumerated too.

`tau` counts accepted draft tokens; the residual or bonus token that ends a round is not counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rheocheck.bounds.growth import (
    Drafting,
    DraftModel,
    DraftTree,
    Expansion,
    Path,
    all_trees,
    dual_identity,
)
from rheocheck.bounds.laws import Array, LawLike, Number, ratio, read_node, total
from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference import Role

TargetModel: TypeAlias = Callable[[Path], LawLike]


@dataclass(frozen=True, slots=True)
class ChildTests:
    """What verification does with the surviving children of one node, given that it is there.

    Attributes:
      accepted: [child] probability that each is accepted, in the order given.
      tested: [child] probability that each is tested at all.
    """

    accepted: list[Any]
    tested: list[Any]


@dataclass(frozen=True, slots=True)
class TreeAcceptance:
    """Verification of one tree.

    Attributes:
      reached: [node] probability that each node is reached; 1 at the root.
      tested: [node] probability that each node is tested; 1 at the root.
      expected_accepted: E[tau | tree].
    """

    reached: list[Any]
    tested: list[Any]
    expected_accepted: Any


def tree_acceptance(
    tree: DraftTree, target_laws: Sequence[Array] | Array, rule: Rule
) -> TreeAcceptance:
    """Probability that verification reaches each node of a tree.

    Args:
      tree: A drafted tree.
      target_laws: [node] [vocab] target law at the root and at each survivor.
      rule: "rheo", "rrsw" or "onehot".
    """
    one = total(target_laws[0]) * 0 + 1
    reached, tested = [one] * (len(tree.token) + 1), [one] * (len(tree.token) + 1)
    for node, below in enumerate(tree.children()):
        if not below:
            continue
        tokens = [tree.token[child - 1] for child in below]
        roles = [tree.role[child - 1] for child in below]
        tests = child_tests(target_laws[node], tokens, roles, tree.expansions[node], rule)
        for child, accepted, seen in zip(below, tests.accepted, tests.tested, strict=True):
            reached[child] = reached[node] * accepted
            tested[child] = reached[node] * seen
    return TreeAcceptance(reached, tested, sum(reached[1:], one * 0))


def child_tests(
    target: Array,
    tokens: Sequence[int],
    roles: Sequence[Role],
    expansion: Expansion | None,
    rule: Rule,
) -> ChildTests:
    """Acceptance of the surviving children of one node.

    Args:
      target: [vocab] target law.
      tokens: [child] surviving children in slot order.
      roles: [child] their roles.
      expansion: The node's probe law and tail; needed where the probe survived.
      rule: "rheo" tests the probe first, "rrsw" and "onehot" go by slot.
    """
    if rule not in RULES:
        raise InputError(f"rule = {rule!r}; required: one of {', '.join(RULES)}")
    places = list(range(len(tokens)))
    masses = [target[token] for token in tokens]
    if rule == "onehot" or Role.PROBE not in roles:
        return _in_order(masses, places)
    assert expansion is not None
    probe = list(roles).index(Role.PROBE)
    earlier = places[:probe] if rule == "rrsw" else []
    # Recursive rejection reaches the probe with this much target mass: all but the top's.
    left = 1 - sum(masses[place] for place in earlier)
    tail = list(expansion.tokens[expansion.num_top :])
    law = np.asarray(expansion.probe_law, dtype=target.dtype) * left
    overlap = np.minimum(target[tail], law)
    rejected = total(law - overlap)
    at = tail.index(tokens[probe])
    # All in units of P(probe = token), which conditions on the tree.
    drawn = expansion.probe_law[at]
    accepted: list[Any] = list(masses)
    accepted[probe] = ratio(overlap[at], drawn)
    missed = ratio(ratio(law[at] - overlap[at], drawn), rejected)
    in_tail = dict(zip(tail, overlap, strict=True))
    for place in places:
        if place != probe and place not in earlier:
            accepted[place] = missed * (masses[place] - in_tail.get(tokens[place], 0))
    order = places if rule == "rrsw" else [probe, *places[:probe], *places[probe + 1 :]]
    return _in_order(accepted, order)


def expected_accepted(
    target: TargetModel,
    draft: DraftModel,
    config: SpeculationConfig,
    drafting: Drafting = dual_identity,
) -> Number:
    """E[tau] of a round, by enumerating every class of draws.

    Args:
      target: path -> [vocab] target law.
      draft: path -> [vocab] draft law, or a 2-tuple (ranking, tempered draft).
      config: The scheme, with its rule.
      drafting: How a node's children are made.

    Returns:
      A Fraction for exact laws, a float otherwise.

    Raises:
      LawError: A law that was asked for is none.
    """
    return expected_by_rule(target, draft, config, (config.rule,), drafting)[config.rule]


def expected_by_rule(
    target: TargetModel,
    draft: DraftModel,
    config: SpeculationConfig,
    rules: Sequence[Rule] = RULES,
    drafting: Drafting = dual_identity,
) -> dict[Rule, Number]:
    """E[tau] of each rule on the same trees, see `expected_accepted`."""
    known: dict[Path, Array] = {}

    def target_at(path: Path) -> Array:
        if path not in known:
            law = target(path)
            known[path] = read_node(law, law).target
        return known[path]

    one = total(target_at(())) * 0 + 1
    sums: dict[Rule, Any] = dict.fromkeys(rules, one * 0)
    for tree in all_trees(draft, config, drafting):
        children = tree.children()
        laws = [
            target_at(path) if below else target_at(())
            for path, below in zip(tree.paths(), children, strict=True)
        ]
        for rule in rules:
            accepted = tree_acceptance(tree, laws, rule).expected_accepted
            sums[rule] = sums[rule] + tree.probability * accepted
    return sums


def _in_order(accepted: list[Any], order: list[int]) -> ChildTests:
    """Tests in `order`: each is made if none before it accepted."""
    tested: list[Any] = list(accepted)
    left: Any = 1
    for place in order:
        tested[place] = left
        left = left - accepted[place]
    return ChildTests(accepted, tested)
