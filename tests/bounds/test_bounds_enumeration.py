"""Every closed form against the full enumeration of its rule, in exact rationals."""

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rheocheck.bounds import NODE_RULES, node_acceptance, rule_acceptance
from rheocheck.bounds.laws import read_node
from rheocheck.bounds.node import NodeRule
from rheocheck.bounds.rules import DraftRule, kseq_factor
from tests.bounds import node_programs
from tests.bounds.small_laws import Law, floats, law_from, pairs, triples

CONFIGS = st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(1, 5))
POINT = law_from([1, 0, 0, 0])
FLAT = law_from([1, 1, 1, 1])
ONE_FILLER_FAVOURED = law_from([5, 1, 3, 1]), law_from([35, 9, 3, 3])


@pytest.mark.parametrize("rule", NODE_RULES)
@settings(max_examples=60, deadline=None)
@given(laws=triples(), config=CONFIGS)
@example(laws=(FLAT, FLAT, FLAT), config=(3, 1, 5))
@example(laws=(POINT, FLAT, POINT), config=(3, 1, 5))  # tempered draft has no mass in the tail
@example(laws=(FLAT, POINT, POINT), config=(4, 0, 5))  # support of one token
@example(laws=(POINT, POINT, POINT), config=(1, 0, 1))
@example(laws=(law_from([0, 1, 1, 0]), FLAT, FLAT), config=(3, 1, 3))  # target mass off the support
def test_a_node_is_lossless_and_accepts_as_its_closed_form_says(
    rule: NodeRule, laws: tuple[Law, Law, Law], config: tuple[int, int, int]
) -> None:
    target, ranking, draft = laws
    program = node_programs.dual_node(target, ranking, draft, *config, rule)
    emitted, accepted, member = node_programs.facts(program, len(target))
    assert emitted == list(target)
    assert accepted == member == node_acceptance(target, (ranking, draft), *config, rule)


@pytest.mark.parametrize("rule", NODE_RULES)
@settings(max_examples=60, deadline=None)
@given(laws=triples(), config=CONFIGS)
def test_floats_give_the_rational_value(
    rule: NodeRule, laws: tuple[Law, Law, Law], config: tuple[int, int, int]
) -> None:
    target, ranking, draft = laws
    exact = node_acceptance(target, (ranking, draft), *config, rule)
    # Tie-breaking is part of the scheme: floats of equal Fractions are equal, so order agrees.
    value = node_acceptance(floats(target), (floats(ranking), floats(draft)), *config, rule)
    assert isinstance(exact, Fraction)
    assert isinstance(value, float)
    assert value == pytest.approx(float(exact), abs=1e-12)


DRAFT_PROGRAMS = {
    "single": node_programs.single,
    "specinfer": node_programs.specinfer,
    "naive": node_programs.naive,
    "nss": node_programs.nss,
    "sequoia": node_programs.sequoia,
}


@pytest.mark.parametrize("rule", DRAFT_PROGRAMS)
@settings(max_examples=50, deadline=None)
@given(laws=pairs(4), num_drafts=st.integers(1, 3))
@example(laws=(FLAT, FLAT), num_drafts=3)
@example(laws=(law_from([1, 0]), law_from([0, 1])), num_drafts=3)
@example(laws=(law_from([1, 2]), law_from([2, 1])), num_drafts=3)  # more draws than tokens
def test_a_published_rule_is_lossless_and_accepts_as_its_formula_says(
    rule: DraftRule, laws: tuple[Law, Law], num_drafts: int
) -> None:
    target, draft = laws
    program = DRAFT_PROGRAMS[rule](target, draft, num_drafts)
    emitted, accepted, member = node_programs.facts(program, len(target))
    found = rule_acceptance(target, draft, num_drafts, rule)
    assert emitted == list(target)
    assert (found.accept_test, found.membership) == (accepted, member)


@settings(max_examples=25, deadline=None)
@given(laws=pairs(3), num_drafts=st.integers(1, 3))
@example(laws=(law_from([1, 0]), law_from([0, 1])), num_drafts=2)
@example(laws=(law_from([1, 1]), law_from([1, 1])), num_drafts=2)
def test_kseq_is_lossless_at_its_rational_factor(laws: tuple[Law, Law], num_drafts: int) -> None:
    target, draft = laws
    factor = kseq_factor(read_node(target, draft), num_drafts)
    program = node_programs.kseq(target, draft, num_drafts, Fraction(factor))
    emitted, accepted, member = node_programs.facts(program, len(target))
    found = rule_acceptance(target, draft, num_drafts, "kseq")
    assert emitted == list(target)
    assert (found.accept_test, found.membership) == (accepted, member)


@settings(max_examples=60, deadline=None)
@given(laws=triples(5))
@example(laws=(FLAT, POINT, POINT))
def test_spechub_step_by_step_is_the_greedy_optimum(laws: tuple[Law, Law, Law]) -> None:
    target, ranking, draft = laws
    draft = tuple(d if r else Fraction(0) for d, r in zip(draft, ranking, strict=True))
    if not any(draft):
        draft = ranking
    draft = tuple(mass / sum(draft) for mass in draft)
    emitted, accepted, member = node_programs.facts(
        node_programs.spechub(target, ranking, draft), len(target)
    )
    hub = rule_acceptance(target, (ranking, draft), 2, "spechub")
    assert emitted == list(target)
    assert hub.accept_test == hub.membership == accepted == member
    alone = rule_acceptance(target, ranking, 2, "spechub")
    assert alone == rule_acceptance(target, ranking, 2, "greedy")


@settings(max_examples=60, deadline=None)
@given(laws=pairs(5), num_drafts=st.integers(1, 4))
def test_greedy_and_topk_are_nodes_with_other_counts(
    laws: tuple[Law, Law], num_drafts: int
) -> None:
    target, draft = laws
    greedy = rule_acceptance(target, draft, num_drafts, "greedy").membership
    assert greedy == node_acceptance(target, draft, num_drafts, num_drafts - 1, 5, "rheo")
    first = node_programs.ranked(draft, num_drafts)
    topk = rule_acceptance(target, draft, num_drafts, "topk").membership
    assert topk == sum(target[token] for token in first)


@pytest.mark.parametrize("rule", [*DRAFT_PROGRAMS, "kseq", "spechub", "greedy", "topk"])
@settings(max_examples=30, deadline=None)
@given(laws=pairs(6))
def test_float_rules_give_the_rational_value(rule: DraftRule, laws: tuple[Law, Law]) -> None:
    exact = rule_acceptance(*laws, 2, rule)
    value = rule_acceptance(floats(laws[0]), floats(laws[1]), 2, rule)
    assert value.accept_test == pytest.approx(float(exact.accept_test), abs=1e-10)
    assert value.membership == pytest.approx(float(exact.membership), abs=1e-10)


def test_the_published_counterexample_by_hand() -> None:
    target, draft = ONE_FILLER_FAVOURED
    # Core {0, 1}; the probe is 1 (3/5), 2 (1/5) or 3 (1/5).
    values = [node_acceptance(target, draft, 3, 1, 5, rule) for rule in NODE_RULES]
    assert values == [Fraction(59, 60), 1, Fraction(43, 50), 1]


def test_resampling_from_the_target_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The enumeration has teeth: a wrong residual changes the emitted law."""
    monkeypatch.setattr(node_programs, "excess", lambda target, draft: list(target))
    target, draft = ONE_FILLER_FAVOURED
    program = node_programs.dual_node(target, draft, draft, 2, 1, 5, "rheo")
    emitted, _, _ = node_programs.facts(program, 4)
    assert emitted != list(target)


def test_a_formula_that_forgets_the_fillers_would_be_seen() -> None:
    target, draft = ONE_FILLER_FAVOURED
    program = node_programs.dual_node(target, draft, draft, 3, 1, 5, "rheo")
    _, accepted, _ = node_programs.facts(program, 4)
    assert accepted != node_acceptance(target, draft, 2, 1, 5, "rheo")
