"""Sign cells: complete, disjoint, none empty, and what they fix is what the scheme compares."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.config import Rule, SpeculationConfig
from rheocheck.reference.cell_points import sample_law, sample_laws
from rheocheck.reference.cells import NodeCell, cell_of, is_feasible, node_cells, random_cell
from rheocheck.reference.laws import Law


def scheme(
    top_k: int = 2, num_top: int = 1, support_size: int = 8, rule: Rule = "rheo"
) -> SpeculationConfig:
    return SpeculationConfig(
        top_k=top_k, num_top=num_top, support_size=support_size, rule=rule, budget=top_k, depth=1
    )


@st.composite
def laws(draw: st.DrawFn, vocab: int) -> Law:
    weights = draw(st.lists(st.integers(0, 3), min_size=vocab, max_size=vocab).filter(any))
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


@st.composite
def schemes(draw: st.DrawFn) -> tuple[int, SpeculationConfig]:
    vocab = draw(st.integers(1, 4))
    rule: Rule = draw(st.sampled_from(("rheo", "rrsw", "onehot")))
    top_k = draw(st.integers(1, 3))
    num_top = draw(st.integers(0, 3))
    return vocab, scheme(top_k, num_top, draw(st.integers(1, vocab)), rule)


def test_two_tokens_and_a_probe_by_hand() -> None:
    """Ranking tied or not; one tail token, so that probe law and residual leave no choice."""
    cells = list(node_cells(2, scheme(num_top=1), zeros=False))
    assert [(cell.groups, cell.side, cell.top, cell.tail) for cell in cells] == [
        ((2,), 0, "p", "-"),
        ((1, 1), 1, "p", "-"),
    ]


def test_a_probe_without_top_needs_signs_that_balance() -> None:
    tails = {cell.tail for cell in node_cells(2, scheme(num_top=0), zeros=False)}
    assert tails == {"-+", "==", "+-"}


def test_three_tail_orders_of_proxy_and_mass_are_all_met() -> None:
    sides = {cell.side for cell in node_cells(3, scheme(num_top=1), zeros=False)}
    assert sides == {-1, 0, 1}


@given(case=schemes(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_laws_lie_in_exactly_one_listed_cell(
    case: tuple[int, SpeculationConfig], data: st.DataObject
) -> None:
    vocab, config = case
    target, ranking, draft = (data.draw(laws(vocab)) for _ in range(3))
    listed = list(node_cells(vocab, config, zeros=True))
    assert len(listed) == len(set(listed))
    assert cell_of(target, ranking, draft, config) in listed


@given(case=schemes(), seed=st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_points_lie_in_the_cell_they_were_drawn_for(
    case: tuple[int, SpeculationConfig], seed: int
) -> None:
    vocab, config = case
    generator = random.Random(seed)
    cell = random_cell(vocab, config, generator, generator)
    for bits, ranking_bits in ((32, None), (1, None), (32, 1)):
        found = sample_laws(cell, generator, generator, bits, ranking_bits)
        for law in (found.target, found.ranking, found.draft):
            assert sum(law) == 1
            assert min(law) >= 0
        assert cell_of(found.target, found.ranking, found.draft, config) == cell


@pytest.mark.parametrize("rule", ["rheo", "rrsw"])
def test_every_listed_cell_has_a_point(rule: Rule) -> None:
    config = scheme(top_k=2, num_top=1, rule=rule)
    generator = random.Random(0)
    for cell in node_cells(3, config, zeros=True):
        found = sample_laws(cell, generator, generator)
        assert cell_of(found.target, found.ranking, found.draft, config) == cell


def test_open_cells_are_the_listed_cells_without_zero_masses() -> None:
    config = scheme(top_k=3, num_top=1)
    every = list(node_cells(4, config, zeros=True))
    open_cells = [
        cell
        for cell in every
        if cell.num_unranked == 0
        and not cell.fallback
        and set(cell.tail) <= set("-=+")
        and "0" not in cell.top + cell.outside
    ]
    assert set(node_cells(4, config, zeros=False)) == set(open_cells)
    assert len(open_cells) < len(every)


def test_recursive_rejection_compares_what_the_top_leaves() -> None:
    """Target (1/2, 1/4, 1/4), probe law (1/3, 2/3): only the reduced target exceeds it at x2."""
    target = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
    ranking = (Fraction(1, 2), Fraction(2, 6), Fraction(1, 6))
    draft = (Fraction(0), Fraction(1, 3), Fraction(2, 3))
    assert cell_of(target, ranking, draft, scheme(top_k=2, rule="rheo")).tail == "--"
    assert cell_of(target, ranking, draft, scheme(top_k=2, rule="rrsw")).tail == "+-"


def test_what_the_target_lacks_somewhere_it_must_have_elsewhere() -> None:
    def cell(tail: str, top: str = "0", reduced: bool = False) -> NodeCell:
        return NodeCell((1, 1, 1), 0, 1, -1, False, top, tail, "", reduced)

    assert not is_feasible(cell("--"))
    assert is_feasible(cell("--", top="p"))
    assert not is_feasible(cell("==", top="p"))
    assert not is_feasible(cell("++"))
    assert is_feasible(cell("-+"))
    # The top may hold all of the target; then recursive rejection never comes to the probe.
    assert is_feasible(cell("zz", top="p", reduced=True))
    assert not is_feasible(cell("-z", top="p", reduced=True))


def test_a_cell_is_described_in_one_line() -> None:
    cell = NodeCell((1, 2), 1, 1, -1, False, "p", "-+", "0", False)
    assert cell.describe() == (
        "ranking x1 > x2=x3 > x4=0, x1 < tail mass, target: top p, tail -+, outside 0"
    )


def test_laws_of_places_without_comparisons_are_positive() -> None:
    law = sample_law(5, random.Random(1))
    assert sum(law) == 1
    assert min(law) > 0
