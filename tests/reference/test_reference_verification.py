"""The three verification rules at one node, and the walk down a tree."""

from fractions import Fraction

import pytest

from rheocheck.config import Rule, SpeculationConfig
from rheocheck.reference import sample_round
from rheocheck.reference.draws import ROOT, NodeKey
from rheocheck.reference.expansion import Role
from rheocheck.reference.laws import Law
from rheocheck.reference.tree import Node
from rheocheck.reference.verification import (
    order_of_tests,
    residual_after_probe,
    residual_without,
    verify_node,
)
from tests.strategies import constant, law_of

TARGET = law_of(3, 1, 4, 2)
PROBE_LAW = (Fraction(0), Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))


def node(slot: int, token: int, role: Role, score: Fraction) -> Node:
    return Node(NodeKey(1, 0, slot), (token,), role, score, score)


TOP = node(0, 0, Role.TOP, Fraction(1, 2))
PROBE = node(1, 1, Role.PROBE, Fraction(1, 2))
FILLER = node(2, 2, Role.FILLER, Fraction(1, 4))


class Scripted:
    """Rejects a given number of tests, then accepts; records every test and the final law."""

    def __init__(self, rejections: int) -> None:
        self.rejections = rejections
        self.tests: list[tuple[int, Fraction]] = []
        self.final_law: Law = ()
        self.end: NodeKey | None = None

    def probe(self, weights: Law, key: NodeKey) -> int:
        return 0

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        self.tests.append((key.slot, probability))
        return len(self.tests) > self.rejections

    def final(self, weights: Law, key: NodeKey) -> int:
        self.final_law, self.end = weights, key
        return next(token for token, mass in enumerate(weights) if mass)


def made_tests(rule: Rule, rejections: int = 99) -> tuple[list[tuple[int, Fraction]], Law]:
    draws = Scripted(rejections)
    _, residual = verify_node(TARGET, [TOP, PROBE, FILLER], PROBE_LAW, rule, draws)
    return draws.tests, residual


def test_rheo_tests_the_probe_first_and_then_the_others_on_its_residual() -> None:
    # Probe token 1: (1/10) / (1/2). Residual: (3/10, 0, 3/20, 0), that is (2/3, 0, 1/3, 0).
    tests, residual = made_tests("rheo", 2)
    assert tests == [(1, Fraction(1, 5)), (0, Fraction(2, 3)), (2, Fraction(1))]
    assert residual == law_of(0, 0, 1, 0)


def test_rrsw_tests_in_slot_order_and_meets_the_probe_with_what_is_left() -> None:
    # After token 0: (0, 1/7, 4/7, 2/7). Probe: (1/7) / (1/2). Residual: (0, 0, 9/28, 1/28).
    tests, residual = made_tests("rrsw")
    assert tests == [(0, Fraction(3, 10)), (1, Fraction(2, 7)), (2, Fraction(9, 10))]
    assert residual == law_of(0, 0, 0, 1)


def test_onehot_tests_every_child_as_a_point_mass() -> None:
    tests, residual = made_tests("onehot")
    assert tests == [(0, Fraction(3, 10)), (1, Fraction(1, 7)), (2, Fraction(4, 6))]
    assert residual == law_of(0, 0, 0, 1)


@pytest.mark.parametrize(
    ("rule", "slots"), [("rheo", [1, 0, 2]), ("rrsw", [0, 1, 2]), ("onehot", [0, 1, 2])]
)
def test_order_of_the_tests(rule: Rule, slots: list[int]) -> None:
    assert [child.key.slot for child in order_of_tests([TOP, PROBE, FILLER], rule)] == slots


def test_without_a_probe_rheo_tests_point_masses() -> None:
    draws = Scripted(99)
    _, residual = verify_node(TARGET, [TOP], PROBE_LAW, "rheo", draws)
    assert (draws.tests, residual) == ([(0, Fraction(3, 10))], law_of(0, 1, 4, 2))


def test_a_node_without_children_leaves_the_target() -> None:
    assert verify_node(TARGET, [], PROBE_LAW, "rheo", Scripted(0)) == (None, TARGET)


def test_residuals_by_hand() -> None:
    third = law_of(1, 1, 1)
    assert residual_after_probe(law_of(2, 1, 0), third) == law_of(1, 0, 0)
    assert residual_without(third, 1) == law_of(1, 0, 1)


def test_a_residual_of_equal_laws_is_unreachable_and_says_so() -> None:
    with pytest.raises(AssertionError, match="a test that cannot fail was failed"):
        residual_after_probe(TARGET, TARGET)


def test_the_round_ends_with_a_bonus_where_everything_was_accepted() -> None:
    config = SpeculationConfig(top_k=1, num_top=1, budget=2, depth=2)
    draws = Scripted(0)
    done = sample_round(constant(law_of(1, 1)), constant(law_of(2, 1)), config, draws)
    assert done.emission == (0, 0, 0)
    assert (draws.end, draws.final_law) == (NodeKey(2, 0, 0), law_of(1, 1))


def test_the_round_ends_at_the_root_where_everything_was_rejected() -> None:
    config = SpeculationConfig(top_k=1, num_top=1, budget=2, depth=2)
    draws = Scripted(99)
    done = sample_round(constant(law_of(1, 1)), constant(law_of(2, 1)), config, draws)
    assert (done.emission, draws.end, draws.final_law) == ((1,), ROOT, law_of(0, 1))
