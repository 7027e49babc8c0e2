"""Optima: closed form, sorted prefix, brute force over all sets, HiGHS and exact flow agree."""

from collections.abc import Callable
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rheocheck.bounds import (
    OptimalAcceptance,
    node_acceptance,
    optimal_acceptance,
    optimal_for_sets,
    optimal_independent,
    optimal_without_replacement,
    rule_acceptance,
    set_law,
)
from rheocheck.bounds.laws import exact_array, read_node
from rheocheck.bounds.node import lay_out
from rheocheck.bounds.set_laws import SetLaw, independent_sets, rheo_sets, sequential_sets
from rheocheck.bounds.transport import Plan, certify, solve_by_highs, solve_exactly
from rheocheck.errors import BudgetExceededError, LawError
from tests.bounds.small_laws import Law, floats, law_from, pairs, triples

CONFIGS = st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(1, 6))


def brute_force(target: Law, candidates: SetLaw) -> Fraction:
    """1 + the least of target(A) - P(candidates within A) over all 2**vocab sets."""
    tokens = range(len(target))
    subsets = chain.from_iterable(combinations(tokens, size) for size in range(len(target) + 1))
    return 1 + min(
        sum((target[token] for token in subset), Fraction(0))
        - sum((mass for members, mass in candidates if set(members) <= set(subset)), Fraction(0))
        for subset in subsets
    )


@settings(max_examples=80, deadline=None)
@given(laws=triples(6), config=CONFIGS)
@example(laws=(law_from([3, 2, 0]), law_from([0, 2, 3]), law_from([0, 2, 3])), config=(4, 2, 3))
def test_the_closed_form_is_certified_and_is_the_brute_force_optimum(
    laws: tuple[Law, Law, Law], config: tuple[int, int, int]
) -> None:
    target, ranking, draft = laws
    optimum = optimal_acceptance(target, (ranking, draft), *config)
    proof = optimum.certificate()
    assert proof.tight
    assert (
        optimum.value == proof.lower == node_acceptance(target, (ranking, draft), *config, "merged")
    )
    assert optimum.value == brute_force(target, proof.set_law)
    cut = optimum.dual_set
    within = sum((mass for members, mass in proof.set_law if set(members) <= cut), Fraction(0))
    assert optimum.value == 1 + sum(target[token] for token in cut) - within


OPTIMA: dict[str, tuple[Callable[..., OptimalAcceptance], Callable[..., SetLaw]]] = {
    "independent": (optimal_independent, independent_sets),
    "without replacement": (optimal_without_replacement, sequential_sets),
}


@pytest.mark.parametrize("kind", OPTIMA)
@settings(max_examples=60, deadline=None)
@given(laws=pairs(6), num_drafts=st.integers(1, 3))
@example(laws=(law_from([1, 1]), law_from([1, 1])), num_drafts=3)  # more draws than tokens
@example(laws=(law_from([1, 0, 0]), law_from([0, 1, 1])), num_drafts=2)
@example(laws=(law_from([1, 1, 1]), law_from([1, 1, 1])), num_drafts=3)
def test_a_sorted_prefix_is_the_best_of_all_sets(
    kind: str, laws: tuple[Law, Law], num_drafts: int
) -> None:
    target, draft = laws
    optimum_of, sets_of = OPTIMA[kind]
    optimum = optimum_of(target, draft, num_drafts)
    candidates = sets_of(exact_array(draft), num_drafts)
    proof = optimum.certificate()
    assert sum(candidates.masses) == 1
    assert proof.tight
    assert optimum.value == proof.lower == brute_force(target, candidates)
    flow, own_cut = proof.plan.flow, optimum.dual_set
    assert certify(exact_array(target), candidates, Plan(flow, own_cut)).tight


@settings(max_examples=40, deadline=None)
@given(laws=pairs(6), num_drafts=st.integers(1, 3))
def test_no_rule_beats_the_optimum_of_its_candidates(
    laws: tuple[Law, Law], num_drafts: int
) -> None:
    target, draft = laws
    best = optimal_independent(target, draft, num_drafts).value
    for rule in ("single", "specinfer", "kseq", "naive", "nss"):
        found = rule_acceptance(target, draft, num_drafts, rule)
        assert found.accept_test <= found.membership <= best
    distinct = optimal_without_replacement(target, draft, num_drafts).value
    assert rule_acceptance(target, draft, num_drafts, "sequoia").membership <= distinct


@settings(max_examples=40, deadline=None)
@given(laws=triples(6), config=CONFIGS)
def test_no_node_rule_beats_the_optimum(
    laws: tuple[Law, Law, Law], config: tuple[int, int, int]
) -> None:
    target, ranking, draft = laws
    best = optimal_acceptance(target, (ranking, draft), *config).value
    for rule in ("rheo", "rrsw", "onehot"):
        assert node_acceptance(target, (ranking, draft), *config, rule) <= best


def test_highs_agrees_with_the_closed_forms_to_ten_digits() -> None:
    generator = np.random.default_rng(20261)
    worst = 0.0
    for _ in range(60):
        vocab = int(generator.integers(2, 12))
        target, draft = generator.dirichlet(np.full(vocab, 0.5), size=2)
        top_k, num_top = int(generator.integers(1, 6)), int(generator.integers(0, 4))
        layout = lay_out(read_node(target, draft), top_k, num_top, 128)
        solved = [(optimal_acceptance(target, draft, top_k, num_top), rheo_sets(layout))]
        for optimum_of, sets_of in OPTIMA.values():
            solved.append((optimum_of(target, draft, 2), sets_of(draft, 2)))
        for optimum, candidates in solved:
            by_highs = optimal_for_sets(target, candidates).value
            worst = max(worst, abs(float(optimum.value) - float(by_highs)))
    assert worst < 1e-10


@settings(max_examples=30, deadline=None)
@given(laws=pairs(5), num_drafts=st.integers(1, 3))
def test_float_optima_are_the_rational_ones_and_their_certificates_bracket_them(
    laws: tuple[Law, Law], num_drafts: int
) -> None:
    target, draft = floats(laws[0]), floats(laws[1])
    for optimum_of, _ in OPTIMA.values():
        exact, optimum = optimum_of(*laws, num_drafts), optimum_of(target, draft, num_drafts)
        assert isinstance(optimum.value, float)
        assert optimum.value == pytest.approx(float(exact.value), abs=1e-12)
        proof = optimum.certificate()
        assert isinstance(proof.lower, Fraction)
        assert proof.tight
        assert float(proof.lower) == pytest.approx(optimum.value, abs=1e-12)


def test_a_peaked_draft_loses_no_digit_without_replacement() -> None:
    # draft[0] = 1 - 2**-60 is 1 in floating point; the second draw still has its own law.
    small = Fraction(1, 2**60)
    draft = (1 - small, small * 3 / 4, small / 4)
    target = (Fraction(1, 5), Fraction(1, 2), Fraction(3, 10))
    for num_drafts in (2, 3):
        exact = optimal_without_replacement(target, draft, num_drafts).value
        assert optimal_without_replacement(
            floats(target), floats(draft), num_drafts
        ).value == pytest.approx(float(exact), abs=1e-12)
        tested = rule_acceptance(target, draft, num_drafts, "sequoia").membership
        assert rule_acceptance(
            floats(target), floats(draft), num_drafts, "sequoia"
        ).membership == pytest.approx(float(tested), abs=1e-12)


def test_any_law_of_sets_is_solved_exactly_or_by_highs() -> None:
    third = Fraction(1, 3)
    exact = set_law({(0, 1): third, (1, 2): third, (2,): third})
    target = (Fraction(1, 2), Fraction(1, 2), Fraction(0))
    # (2,) can send nothing, (0, 1) and (1, 2) send all: A = {2} is the cut.
    optimum = optimal_for_sets(target, exact)
    assert (optimum.value, optimum.dual_set) == (Fraction(2, 3), frozenset({2}))
    assert optimum.certificate().tight
    rounded = set_law({members: float(mass) for members, mass in exact})
    by_highs = optimal_for_sets(floats(target), rounded)
    assert by_highs.value == pytest.approx(2 / 3, abs=1e-12)
    assert by_highs.certificate().tight


def test_a_wrong_flow_and_a_wrong_cut_prove_nothing() -> None:
    target = exact_array([Fraction(1, 2), Fraction(1, 2)])
    candidates = set_law({(0,): Fraction(3, 4), (1,): Fraction(1, 4)})
    good = solve_exactly(target, candidates)
    assert certify(target, candidates, good).tight
    assert not certify(target, candidates, Plan(good.flow, frozenset({1}))).tight
    assert not certify(target, candidates, Plan(good.flow * 0, good.dual_set)).tight
    with pytest.raises(LawError, match=r"flow at token 0 is 3/4; required: at most 1/2"):
        certify(target, candidates, Plan(candidates.masses, good.dual_set))
    with pytest.raises(LawError, match=r"flow at set 1 is 1/2; required: at most 1/4"):
        certify(target, candidates, Plan(target, good.dual_set))
    with pytest.raises(LawError, match=r"flow\[0\] is -1/2; required: at least 0"):
        certify(target, candidates, Plan(-target, good.dual_set))
    with pytest.raises(LawError, match="flow has 1 entries; required: 2"):
        certify(target, candidates, Plan(target[:1], good.dual_set))


def test_highs_flow_is_certified_in_floats() -> None:
    generator = np.random.default_rng(5)
    target, draft = generator.dirichlet(np.ones(9), size=2)
    candidates = independent_sets(draft, 3)
    plan = solve_by_highs(target, candidates, "highs-ipm")
    proof = certify(target, candidates, plan)
    assert proof.lower == pytest.approx(proof.upper, abs=1e-9)


def test_float_pairs_are_those_of_the_general_enumeration() -> None:
    draft = np.array([0.5, 0.0, 0.3, 0.2])
    fast = dict(independent_sets(draft, 2))
    slow = dict(independent_sets(exact_array(draft.tolist()), 2))
    assert fast.keys() == slow.keys()
    assert all(fast[key] == pytest.approx(float(slow[key]), abs=1e-15) for key in slow)


def test_too_many_sets_are_refused_before_they_are_made() -> None:
    uniform = np.full(1000, 1e-3)
    with pytest.raises(BudgetExceededError, match=r"has 167167000 entries; at most 1000000"):
        independent_sets(uniform, 3)
    with pytest.raises(BudgetExceededError, match=r"has 997002000 entries"):
        sequential_sets(uniform, 3)
