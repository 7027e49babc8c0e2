"""Dominance: the theorem without fillers, smallest counterexamples, and the merged law."""

from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.bounds import node_acceptance
from rheocheck.bounds.dominance import check_no_fillers, compositions, search_node
from rheocheck.bounds.dominance_stage import (
    filler_stage,
    frequency_stage,
    merged_stage,
    no_filler_stage,
    tree_stage,
)
from rheocheck.bounds.dominance_trees import search_tree
from rheocheck.bounds.growth import all_trees
from rheocheck.bounds.laws import NodeLaws
from rheocheck.bounds.merged import (
    core_and_merged_child,
    foreseen_mixture,
    merged_round,
)
from rheocheck.bounds.merged_counterexamples import COUNTEREXAMPLES, Counterexample
from rheocheck.bounds.merged_study import faulty_sampler, merged_study, random_instance, sampler
from rheocheck.bounds.node import NodeLayout, NodeRule, layout_acceptance
from rheocheck.bounds.tree import expected_accepted, expected_by_rule
from rheocheck.certificate import Verdict
from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference import exact_law, lossless_defect, round_law
from tests.bounds.small_laws import Law, pairs


@settings(max_examples=80, deadline=None)
@given(laws=pairs(6), num_top=st.integers(0, 4))
def test_without_fillers_rheo_leads_by_at_most_t_times_one_minus_t(
    laws: tuple[Law, Law], num_top: int
) -> None:
    target, draft = laws
    rheo = node_acceptance(target, draft, num_top + 1, num_top, 6, "rheo")
    rrsw = node_acceptance(target, draft, num_top + 1, num_top, 6, "rrsw")
    order = sorted(range(len(draft)), key=lambda token: (-draft[token], token))
    top = sum(target[token] for token in order[:num_top] if draft[token])
    assert 0 <= rheo - rrsw <= top * (1 - top) <= Fraction(1, 4)


@settings(max_examples=60, deadline=None)
@given(laws=pairs(6), top_k=st.integers(1, 5))
def test_without_top_tokens_the_rules_are_the_same(laws: tuple[Law, Law], top_k: int) -> None:
    rheo = node_acceptance(*laws, top_k, 0, 6, "rheo")
    assert rheo == node_acceptance(*laws, top_k, 0, 6, "rrsw")


def test_the_bound_is_attained() -> None:
    found = check_no_fillers(3, 1, 4)
    assert found.holds
    assert found.largest_gap == 0.25
    assert found.num_pairs == sum(
        len(list(compositions(d, 3)))
        * sum(1 for law in compositions(d, 3) if sorted(law)[::-1] == list(law))
        for d in range(1, 5)
    )


def test_the_check_of_the_bound_sees_a_rule_that_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(laws: NodeLaws, layout: NodeLayout, rule: NodeRule) -> object:
        return layout_acceptance(laws, layout, "rrsw" if rule == "rheo" else "rheo")

    monkeypatch.setattr("rheocheck.bounds.dominance.layout_acceptance", swapped)
    assert not check_no_fillers(3, 1, 4).holds


def test_the_smallest_node_at_which_recursive_rejection_wins() -> None:
    found = search_node(4, 3, 1, 8)
    assert found.witness is not None
    assert found.denominator == 4
    assert found.witness.acceptance["rrsw"] == 1
    assert found.witness.acceptance["rheo"] == Fraction(29, 30)
    # Nothing smaller: by brute force in rationals, without the float screen.
    for denominator in range(1, 4):
        laws = [
            tuple(Fraction(weight, denominator) for weight in law)
            for law in compositions(denominator, 4)
        ]
        for draft in laws:
            if list(draft) == sorted(draft, reverse=True):
                for target in laws:
                    rheo = node_acceptance(target, draft, 3, 1, 4, "rheo")
                    assert rheo >= node_acceptance(target, draft, 3, 1, 4, "rrsw")
    assert search_node(3, 3, 1, 10).witness is None


def test_the_smallest_tree_without_fillers_in_which_recursive_rejection_wins() -> None:
    found = search_tree(3, 2, 6)
    assert found.witness is not None
    assert found.denominator == 3
    assert found.witness.expected_accepted["rrsw"] == Fraction(3, 2)
    assert found.witness.expected_accepted["rheo"] == Fraction(4, 3)
    for rule in ("rheo", "rrsw"):
        config = found.witness.config.model_copy(update={"rule": rule})
        law = round_law(found.witness.target_at, found.witness.draft_at, config, method="eager")
        assert law.expected_accepted == found.witness.expected_accepted[rule]
        assert lossless_defect(law, found.witness.target_at) == 0
    assert search_tree(3, 1, 8).witness is None
    assert search_tree(4, 1, 6).denominator == 3
    assert search_tree(2, 3, 8).witness is None


def test_no_small_tree_of_depth_two_on_three_tokens_favours_recursive_rejection() -> None:
    """`search_tree` says so by a bound; here random trees are enumerated."""
    for number in range(60):
        target, draft, _ = random_instance(7, number)
        if len(target(())) != 3:
            continue
        for budget in (3, 4, 5):
            config = SpeculationConfig(top_k=2, num_top=1, budget=budget, depth=2)
            found = expected_by_rule(target, draft, config, ("rheo", "rrsw"))
            assert found["rheo"] >= found["rrsw"]


def test_searches_refuse_sizes_that_floats_or_memory_cannot_take() -> None:
    with pytest.raises(InputError, match="max_denominator = 31; required: 1 to 30"):
        search_node(3, 3, 1, 31)
    with pytest.raises(InputError, match="max_denominator = 0; required: 1 to 30"):
        check_no_fillers(3, 1, 0)
    with pytest.raises(InputError, match="more than 300,000 pairs of laws on 6 tokens"):
        search_tree(6, 1, 20)
    with pytest.raises(InputError, match="levels = 0; required: at least 1"):
        search_tree(3, 0, 3)


@pytest.mark.parametrize("example", COUNTEREXAMPLES, ids=lambda example: example.condition)
def test_too_weak_a_condition_for_the_merged_law_is_lossy(example: Counterexample) -> None:
    violation = example.violation()
    assert violation is not None
    assert violation.defect > 0
    assert example.violation("foreseen") is None
    assert example.violation("never") is None


def test_the_counterexamples_by_their_numbers() -> None:
    found = {example.condition: example.violation() for example in COUNTEREXAMPLES}
    survivors, regrown = found["survivors"], found["regrown"]
    assert survivors is not None
    assert regrown is not None
    assert (survivors.path, survivors.token) == ((), 0)
    assert (survivors.got, survivors.wanted) == (Fraction(7, 9), Fraction(5, 6))
    assert (regrown.path, regrown.token) == ((1,), 0)
    assert (regrown.got, regrown.wanted) == (Fraction(5, 18), Fraction(1, 4))


def test_merged_verification_is_lossless_where_it_was_foreseen() -> None:
    study = merged_study(40, seed=1)
    assert study.worst_defect == {"foreseen": 0, "drafted": 0}
    # The certificate is not empty: nodes are merged, also in trees that lose other nodes.
    assert study.num_merged >= 10
    assert study.num_mixed >= 5


def test_without_pruning_every_node_is_foreseen_and_every_node_is_optimal() -> None:
    target, draft, _ = random_instance(0, 3)
    config = SpeculationConfig(top_k=3, num_top=1, budget=3, depth=1)
    assert foreseen_mixture(draft, config) == (True, False)
    law = exact_law(merged_round(target, draft, config, "foreseen"))
    accepted = sum((len(tokens) - 1) * mass for tokens, mass in law.items())
    assert accepted == node_acceptance(target(()), draft(()), 3, 1, 4, "merged")


def test_probe_first_rounds_of_this_module_are_those_of_the_reference() -> None:
    for number in range(15):
        target, draft, config = random_instance(2, number)
        law = exact_law(merged_round(target, draft, config, "never"))
        assert law == round_law(target, draft, config).emissions


def test_the_merged_child_as_probe_has_the_candidates_of_dual_identity() -> None:
    target, draft, _ = random_instance(4, 1)
    config = SpeculationConfig(top_k=3, num_top=1, budget=3, depth=1)
    laws: list[dict[frozenset[int], Fraction]] = []
    for trees in (all_trees(draft, config), all_trees(draft, config, core_and_merged_child)):
        law: dict[frozenset[int], Fraction] = {}
        for tree in trees:
            candidates = frozenset(tree.token)
            law[candidates] = law.get(candidates, Fraction(0)) + tree.probability
        laws.append(law)
    assert laws[0] == laws[1]
    merged = node_acceptance(target(()), draft(()), 3, 1, 4, "merged")
    assert expected_accepted(target, draft, config, core_and_merged_child) == merged


def test_an_unknown_condition_is_refused() -> None:
    target, draft, config = random_instance(0, 0)
    with pytest.raises(InputError, match="condition is 'always'; required: one of never"):
        merged_round(target, draft, config, "always")  # type: ignore[arg-type]


def test_the_samplers_for_certify_are_lossless_and_lossy() -> None:
    lossy = 0
    for number in range(12):
        target, draft, _ = random_instance(9, number)
        assert lossless_defect(exact_law(partial(sampler, target, draft)), target) == 0
        lossy += lossless_defect(exact_law(partial(faulty_sampler, target, draft)), target) > 0
    assert lossy > 0


def test_stages_claim_what_they_prove() -> None:
    stages = [
        no_filler_stage(4, "replay"),
        filler_stage(5, "replay"),
        tree_stage(4, "replay"),
        merged_stage(12, 0, "replay"),
    ]
    assert all(stage.verdict is Verdict.CERTIFIED and stage.claim for stage in stages)
    assert "29/30" in str(stages[1].claim)
    assert "3/2" in str(stages[2].claim)
    assert filler_stage(3, "replay").verdict is Verdict.NO_EVIDENCE
    frequency = frequency_stage(30, 5, 0, 1, "replay")
    assert frequency.verdict is Verdict.NO_EVIDENCE
    assert frequency.claim is None
