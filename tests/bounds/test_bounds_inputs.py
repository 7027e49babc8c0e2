"""What the public functions refuse, with its text, and the edges that they define."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rheocheck.bounds import (
    NODE_RULES,
    node_acceptance,
    optimal_acceptance,
    optimal_for_sets,
    optimal_independent,
    optimal_without_replacement,
    rule_acceptance,
    set_law,
)
from rheocheck.bounds.laws import law_from_weights, rank_order, read_node
from rheocheck.errors import ConfigError, InputError, LawError

HALF = Fraction(1, 2)
EVEN = (HALF, HALF)


@pytest.mark.parametrize(
    ("target", "draft", "message"),
    [
        ((HALF, HALF), (1,), r"draft has 1 tokens and target has 2; required: one vocabulary"),
        ((HALF, HALF), ((1,), (1,)), r"ranking has 1 tokens and target has 2"),
        ((HALF, HALF), ((1, 0), (1,)), r"draft has 1 tokens and target has 2"),
        ((0.5, float("nan")), (0.5, 0.5), r"target\[1\] is nan; required: a finite mass"),
        ((0.5, 0.5), (float("inf"), 0.5), r"draft\[0\] is inf; required: a finite mass"),
        ((0.5, 0.5), (1.5, -0.5), r"draft\[1\] is -0.5; required: a mass, at least 0"),
        ((HALF, HALF), (3 * HALF, -HALF), r"draft\[1\] is -1/2; required: a mass, at least 0"),
        ((HALF, Fraction(1, 3)), EVEN, r"target sums to 5/6; required: exactly 1"),
        ((0.5, 0.4), (0.5, 0.5), r"target sums to 0.9; required: 1 within 1e-05"),
        ((0, 0), EVEN, r"target sums to 0; required: exactly 1"),
        ((), (), r"target is empty; required: at least one token"),
        (EVEN, (0.5, 0.5), r"target holds Fractions and draft holds floats; required: one kind"),
        ((HALF, 0.5), EVEN, r"target\[1\] is 0.5 of type float beside masses of another kind"),
        (EVEN, [[HALF, HALF], [HALF, HALF]], r"draft is not a flat sequence .*shape \(2, 2\)"),
        (EVEN, [[1], [1, 0]], r"draft is not a flat sequence of numbers"),
        (EVEN, "ab", r"draft is 'ab' of type str; required: a sequence of numbers"),
        (EVEN, 1.0, r"draft is 1.0 of type float; required: a sequence of numbers"),
        (EVEN, ["a", "b"], r"draft\[0\] is 'a' of type str; required: Fractions, ints or floats"),
        (EVEN, [True, False], r"draft\[0\] is True of type bool"),
        (EVEN, [Decimal(1), Decimal(0)], r"draft\[0\] is Decimal\('1'\)"),
        (EVEN, [HALF, None], r"draft\[1\] is None of type NoneType"),
    ],
)  # fmt: skip
def test_laws_that_are_none_are_refused(target: Any, draft: Any, message: str) -> None:
    with pytest.raises(LawError, match=message):
        node_acceptance(target, draft)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 0}, r"top_k = 0; required: an integer, at least 1"),
        ({"num_top": -1}, r"num_top = -1; required: an integer, at least 0"),
        ({"support_size": 0}, r"support_size = 0; required: an integer, at least 1"),
        ({"top_k": 2.0}, r"top_k = 2.0; required: an integer"),
        ({"rule": "best"}, r"rule = 'best'; required: one of rheo, rrsw, onehot, merged"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        node_acceptance(EVEN, EVEN, **settings)


def test_other_functions_refuse_their_own_settings() -> None:
    with pytest.raises(ConfigError, match=r"num_drafts = 0; required: an integer, at least 1"):
        rule_acceptance(EVEN, EVEN, 0)
    with pytest.raises(ConfigError, match=r"rule = 'x'; required: one of single, specinfer"):
        rule_acceptance(EVEN, EVEN, 2, "x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"num_drafts = 3; required by spechub: exactly 2"):
        rule_acceptance(EVEN, EVEN, 3, "spechub")
    with pytest.raises(ConfigError, match=r"num_drafts = 4; required without replacement: at most"):
        optimal_without_replacement(EVEN, EVEN, 4)
    with pytest.raises(ConfigError, match=r"support_size = 0"):
        optimal_independent(EVEN, EVEN, 2, 0)
    with pytest.raises(ConfigError, match=r"top_k = 0"):
        optimal_acceptance(EVEN, EVEN, 0)
    with pytest.raises(InputError, match=r"weights \[0, 0\] sum to 0"):
        law_from_weights([0, 0])


@pytest.mark.parametrize(
    ("masses", "message"),
    [
        ({}, r"the masses of 0 sets sum to 0; required: 1"),
        ({(0,): HALF}, r"the masses of 1 sets sum to 1/2; required: 1"),
        ({(0, 0): 1}, r"set \(0, 0\); required: distinct tokens"),
        ({(-1,): 1}, r"set \(-1,\); required: distinct tokens, each at least 0"),
        ({(0,): -1, (1,): 2}, r"set \(0,\) has mass -1; required: a finite mass"),
        ({(0,): float("nan")}, r"set \(0,\) has mass nan"),
        ({(0,): "1"}, r"set \(0,\) has mass '1'"),
    ],
)
def test_laws_of_sets_that_are_none_are_refused(masses: Any, message: str) -> None:
    with pytest.raises(LawError, match=message):
        set_law(masses)


def test_a_set_law_must_fit_its_target() -> None:
    with pytest.raises(LawError, match=r"candidate 2 is outside the vocabulary of 2 tokens"):
        optimal_for_sets(EVEN, set_law({(2,): 1}))
    with pytest.raises(LawError, match=r"target holds floats and the set law holds Fractions"):
        optimal_for_sets((0.5, 0.5), set_law({(0,): HALF, (1,): HALF}))


def test_sets_given_in_two_orders_are_one_set() -> None:
    merged = set_law({(0, 1): HALF, (1, 0): HALF})
    assert list(merged) == [((0, 1), 1)]


def test_a_tuple_of_two_numbers_is_one_law_and_whole_numbers_go_with_floats() -> None:
    assert node_acceptance(EVEN, (1, 0), 1, 0) == HALF
    assert node_acceptance((0.5, 0.5), (1, 0), 1, 0) == 0.5
    assert isinstance(node_acceptance((0, 1), (1, 0), 1, 0), Fraction)
    assert node_acceptance(np.array([0, 1]), np.array([1, 0]), 1, 0) == 0


def test_float32_laws_that_sum_to_one_within_their_rounding_are_accepted() -> None:
    law = np.random.default_rng(0).dirichlet(np.ones(1000)).astype(np.float32)
    assert 0.999 < float(node_acceptance(law, law, 1, 0, 1000)) <= 1


@pytest.mark.parametrize("rule", NODE_RULES)
def test_edges_of_one_node_are_defined(rule: Any) -> None:
    target = [Fraction(mass, 10) for mass in (1, 2, 3, 4)]
    point = [0, 0, 1, 0]
    # A support of one token: it is the only candidate, whatever the counts.
    for num_top in range(4):
        assert node_acceptance(target, point, 3, num_top, 128, rule) == Fraction(3, 10)
    # num_top >= top_k: the first tokens, no probe. top_k above the support: all of it.
    draft = [Fraction(mass, 10) for mass in (4, 3, 2, 1)]
    for num_top in (2, 3, 9):
        assert node_acceptance(target, draft, 2, num_top, 128, rule) == Fraction(3, 10)
    for num_top in range(6):
        assert node_acceptance(target, draft, 5, num_top, 128, rule) == 1
        assert node_acceptance(target, draft, 5, num_top, 2, rule) == Fraction(3, 10)


def test_an_empty_tempered_tail_is_the_limit_of_temperature_zero() -> None:
    target = [Fraction(mass, 10) for mass in (1, 2, 3, 4)]
    ranking = [Fraction(mass, 10) for mass in (4, 3, 2, 1)]
    tempered = [1, 0, 0, 0]
    for rule in NODE_RULES:
        # Probe 1 and filler 2 for certain; with num_top = 0 the probe is token 0.
        assert node_acceptance(target, (ranking, tempered), 3, 1, 128, rule) == Fraction(6, 10)
        assert node_acceptance(target, (ranking, tempered), 3, 0, 128, rule) == Fraction(6, 10)


def test_ties_go_to_the_smaller_token_in_every_selection() -> None:
    law = np.array([0.1, 0.2, 0.2, 0.3, 0.2])
    for count in range(1, 6):
        assert rank_order(law, count).tolist() == [3, 1, 2, 4, 0][:count]
        assert rank_order(np.stack([law, law]), count)[1].tolist() == [3, 1, 2, 4, 0][:count]
    exact = law_from_weights([1, 2, 2, 3, 2])
    assert rank_order(exact, 3).tolist() == [3, 1, 2]
    # All tied: the support of two tokens is {0, 1}.
    flat = [Fraction(1, 4)] * 4
    assert node_acceptance((0, 0, HALF, HALF), flat, 2, 1, 2) == 0


def test_denormal_masses_give_no_nan() -> None:
    draft = (1.0, 5e-324, 5e-324)
    for num_drafts in (2, 3):
        value = optimal_without_replacement((0.2, 0.3, 0.5), draft, num_drafts).value
        assert 0 <= value <= 1
        tested = rule_acceptance((0.2, 0.3, 0.5), draft, num_drafts, "sequoia").membership
        assert 0 <= tested <= 1
    for rule in NODE_RULES:
        assert 0 <= node_acceptance((0.2, 0.3, 0.5), draft, 2, 1, 128, rule) <= 1


def test_laws_are_checked_once_and_left_alone() -> None:
    target, draft = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    laws = read_node(target, draft)
    node_acceptance(target, draft, 2, 1)
    assert laws.ranking is laws.draft
    assert target.tolist() == [0.5, 0.5]
    assert draft.tolist() == [0.25, 0.75]
