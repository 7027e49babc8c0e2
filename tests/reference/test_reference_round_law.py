"""Laws of rounds and sequences, and how far they are from the target's."""

import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck import SpeculationConfig, exact_law
from rheocheck.config import RULES, Rule
from rheocheck.errors import BudgetExceededError, ConfigError, InputError, LawError
from rheocheck.reference import (
    METHODS,
    Method,
    OracleDraws,
    Violation,
    lossless_defect,
    round_law,
    sample_round,
    sequence_law,
    sequence_round_law,
    total_variation,
    worst_violation,
)
from rheocheck.reference.laws import Law, Path, Target
from tests.strategies import configs, constant, law_of, random_model, random_pair

ZERO, SIXTH, THIRD, HALF, ONE = (
    Fraction(0), Fraction(1, 6), Fraction(1, 3), Fraction(1, 2), Fraction(1)
)  # fmt: skip
FAIR = constant(law_of(1, 1))
SKEWED = constant(law_of(1, 2))
ONE_PROBE = SpeculationConfig(top_k=1, num_top=0, budget=1, depth=1)


def joint(target: Target, length: int, path: Path = ()) -> dict[Path, Fraction]:
    """The target's own law of the first `length` tokens."""
    if length == 0:
        return {path: ONE}
    found = {}
    for token, mass in enumerate(target(path)):
        if mass:
            for longer, rest in joint(target, length - 1, (*path, token)).items():
                found[longer] = mass * rest
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", ["rheo", "rrsw"])
def test_one_drafted_token_by_hand(method: Method, rule: Rule) -> None:
    # Leviathan et al.: token 0 (1/3) is kept, token 1 (2/3) with 3/4, else token 0 is emitted.
    config = ONE_PROBE.model_copy(update={"rule": rule})
    law = round_law(FAIR, SKEWED, config, method)
    assert dict(law.emissions) == {
        (0,): SIXTH, (0, 0): SIXTH, (0, 1): SIXTH, (1, 0): HALF / 2, (1, 1): HALF / 2
    }  # fmt: skip
    assert law.expected_accepted == 5 * SIXTH
    assert law.num_classes == {"classes": 2, "eager": 5}[method]


@pytest.mark.parametrize("method", METHODS)
def test_a_probe_tested_as_a_point_mass_is_accepted_less(method: Method) -> None:
    law = round_law(FAIR, SKEWED, ONE_PROBE.model_copy(update={"rule": "onehot"}), method)
    assert law.expected_accepted == HALF
    assert law.emissions[1,] == THIRD * HALF


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("settings", [{"budget": 0}, {"depth": 0}])
def test_without_budget_or_depth_a_round_is_one_target_token(
    method: Method, rule: Rule, settings: dict[str, Any]
) -> None:
    config = SpeculationConfig(**{"top_k": 2, "depth": 2, "budget": 2, **settings}, rule=rule)
    law = round_law(SKEWED, FAIR, config, method)
    assert (dict(law.emissions), law.expected_accepted) == (
        {(0,): THIRD, (1,): 2 * THIRD},
        ZERO,
    )


def test_classes_are_few_where_draws_are_many() -> None:
    """At most 9 classes against 3**5 trees on four tokens, each verified in several ways."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3)
    for seed in range(20):
        target, draft = random_model((seed, 0), 4), random_model((seed, 1), 4, 9)
        assert round_law(target, draft, config).num_classes <= 9
    positive = constant(law_of(4, 3, 2, 1))
    assert round_law(positive, positive, config).num_classes == 9
    with pytest.raises(BudgetExceededError):
        round_law(positive, positive, config, "eager", max_paths=3**5)


@given(config=configs(max_budget=3), seed=st.integers(0, 999))
def test_the_eager_law_is_the_law_of_the_whole_round_as_one_program(
    config: SpeculationConfig, seed: int
) -> None:
    target, draft = random_model((seed, 0), 2), random_pair((seed, 1), 2)
    whole = exact_law(
        lambda choose: sample_round(target, draft, config, OracleDraws(choose)).emission
    )
    assert dict(round_law(target, draft, config, "eager").emissions) == whole


@given(config=configs(max_budget=8, max_depth=3), seed=st.integers(0, 10**6))
def test_every_round_is_lossless_sums_to_one_and_accepts_what_it_emits(
    config: SpeculationConfig, seed: int
) -> None:
    target, draft = random_model((seed, 0), 4), random_pair((seed, 1), 4)
    law = round_law(target, draft, config)
    assert sum(law.emissions.values()) == 1
    assert lossless_defect(law, target) == 0
    accepted = sum((len(e) - 1) * mass for e, mass in law.emissions.items())
    assert law.expected_accepted == accepted
    assert max(map(len, law.emissions)) <= config.depth + 1
    assert all(mass > 0 for mass in law.emissions.values())


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4])
def test_a_lossless_round_has_no_total_variation_at_any_length(length: int) -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=2)
    target, draft = random_model("t", 3), random_model("d", 3)
    assert total_variation(round_law(target, draft, config), target, length) == 0


def test_the_defect_by_hand() -> None:
    """The residual replaced by the target: token 0 is short of 1/12 at the root."""
    law = {(0, 0): SIXTH, (0, 1): SIXTH, (1, 0): HALF / 2, (1, 1): HALF / 2,
           (0,): SIXTH / 2, (1,): SIXTH / 2}  # fmt: skip
    assert worst_violation(law, FAIR) == Violation((), 0, 5 * SIXTH / 2, HALF)
    assert lossless_defect(law, FAIR) == SIXTH / 2
    assert total_variation(law, FAIR, 1) == SIXTH / 2


def test_a_fault_of_the_joint_law_leaves_the_first_token_alone() -> None:
    """One coin for two tokens: each is fair, together they are not."""
    law = {(0, 0): HALF, (1, 1): HALF}
    assert total_variation(law, FAIR, 1) == 0
    assert total_variation(law, FAIR, 2) == HALF
    assert total_variation(law, FAIR, 3) == HALF
    assert worst_violation(law, FAIR) == Violation((0,), 0, HALF, HALF / 2)


@given(seed=st.integers(0, 999), length=st.integers(0, 4))
def test_total_variation_is_half_the_sum_over_all_sequences(seed: int, length: int) -> None:
    target = random_model(seed, 2)
    law = {(0,): THIRD, (0, 1, 1): THIRD, (1, 0): SIXTH, (1, 1, 1): SIXTH}
    got: dict[Path, Fraction] = {}
    for emission, mass in law.items():
        for rest, share in joint(
            lambda path, start=emission: target((*start, *path)),  # type: ignore[misc]
            max(0, length - len(emission)),
        ).items():
            sequence = (*emission, *rest)[:length]
            got[sequence] = got.get(sequence, ZERO) + mass * share
    wanted = joint(target, length)
    distance = sum(abs(got.get(s, ZERO) - wanted.get(s, ZERO)) for s in {*got, *wanted})
    assert total_variation(law, target, length) == distance / 2


def test_a_token_outside_the_vocabulary_is_a_violation() -> None:
    assert worst_violation({(0,): HALF, (5,): HALF}, FAIR) == Violation((), 1, ZERO, HALF)
    assert lossless_defect({(0,): HALF, (1,): SIXTH, (-1,): THIRD}, FAIR) == THIRD
    assert total_variation({(0,): HALF, (5,): HALF}, FAIR, 2) == HALF


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", RULES)
def test_a_sequence_over_several_rounds_has_the_law_of_the_target(
    method: Method, rule: Rule
) -> None:
    """Target and draft look at their whole history, also across rounds."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=2, rule=rule)
    target, draft = random_model("whole history", 2), random_pair("drafts", 2)
    assert sequence_law(target, draft, config, 4, method) == joint(target, 4)


def test_a_draft_that_forgets_is_still_lossless_and_a_target_that_forgets_is_not() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=2)
    target = random_model("whole history", 2, 5)

    def forgets(path: Path) -> Law:
        return target(path[-1:])

    assert sequence_law(target, forgets, config, 4) == joint(target, 4)
    assert sequence_law(forgets, target, config, 4) != joint(target, 4)


def test_a_sequence_costs_one_round_for_each_history() -> None:
    config = ONE_PROBE
    assert sequence_law(FAIR, SKEWED, config, 0) == {(): ONE}
    law = sequence_round_law(FAIR, SKEWED, config, 2)
    # Rounds start from (), (0,): a rejected draft is always token 1, so token 0 was emitted.
    assert law.num_classes == 2 * 2
    assert law.expected_accepted == 5 * SIXTH + SIXTH * 5 * SIXTH


@pytest.mark.parametrize("method", METHODS)
def test_bad_models_are_refused_by_both_methods(method: Method) -> None:
    with pytest.raises(InputError, match=r"target is .* required: a callable"):
        round_law((HALF, HALF), FAIR, ONE_PROBE, method)  # type: ignore[arg-type]
    with pytest.raises(LawError, match=r"draft\(\(\)\) has 3 tokens; required: 2"):
        round_law(FAIR, constant(law_of(1, 1, 1)), ONE_PROBE, method)
    with pytest.raises(LawError, match=r"draft\(\(\)\)\[0\] is 0.5 of type float"):
        round_law(FAIR, lambda path: (0.5, 0.5), ONE_PROBE, method)
    with pytest.raises(LawError, match=r"target\(\(\)\) sums to 2"):
        round_law(lambda path: (ONE, ONE), FAIR, ONE_PROBE, method)
    with pytest.raises(LawError, match=r"target\(\(0,\)\)\[1\] is -1"):
        round_law(lambda path: (1 + len(path), -len(path)), SKEWED, ONE_PROBE, method)


def test_a_bad_method_config_or_count_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="method is 'magic'; required: one of classes, eager"):
        round_law(FAIR, FAIR, ONE_PROBE, "magic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="config is None of type NoneType; required: a Specul"):
        round_law(FAIR, FAIR, None)  # type: ignore[arg-type]
    for count in (-1, 1.5, True, None):
        with pytest.raises(InputError, match=f"num_tokens is {count}; required: an int"):
            sequence_law(FAIR, FAIR, ONE_PROBE, count)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"length is {count}; required: an int"):
            total_variation({(0,): ONE}, FAIR, count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="top_k = 0: "):
        SpeculationConfig(top_k=0)
    with pytest.raises(ConfigError, match="rule = 'greedy': "):
        SpeculationConfig(rule="greedy")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_an_enumeration_that_meets_its_bound_is_no_result(method: Method) -> None:
    with pytest.raises(BudgetExceededError, match=r"more than max_paths = 1 .*law is unknown"):
        round_law(FAIR, SKEWED, ONE_PROBE, method, max_paths=1)


@pytest.mark.parametrize("emission", [3, "0", (0.5,), ("a",)])
def test_an_emission_that_is_no_tuple_of_tokens_is_refused(emission: Any) -> None:
    with pytest.raises(InputError, match=r"emission is .* required: a tuple of int tokens"):
        lossless_defect({emission: ONE}, FAIR)


def test_an_empty_emission_is_refused() -> None:
    with pytest.raises(InputError, match="an emission is empty; required: at least one token"):
        total_variation({(): ONE}, FAIR, 1)


def test_laws_may_be_asked_where_the_target_is_zero() -> None:
    """The draft is expanded below a token that the target never emits."""
    asked = set()

    def target(path: Path) -> Law:
        asked.add(path)
        return law_of(0, 1)

    config = SpeculationConfig(top_k=2, num_top=2, budget=6, depth=2)
    for method in METHODS:
        assert lossless_defect(round_law(target, SKEWED, config, method), target) == 0
    assert all(set(path) <= {0, 1} for path in asked)


def test_expected_acceptance_of_the_rules_by_hand() -> None:
    """Probe first accepts sum min(target, probe law) plus the top's share of the residual."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1)
    target, draft = law_of(1, 2, 3), law_of(3, 2, 1)
    probe_law = (ZERO, 2 * THIRD, THIRD)
    kept = sum(map(min, target, probe_law))
    excess = [max(ZERO, mass - drawn) for mass, drawn in zip(target, probe_law, strict=True)]
    rheo = kept + (1 - kept) * excess[0] / sum(excess)
    found = {
        rule: round_law(
            constant(target), constant(draft), config.model_copy(update={"rule": rule})
        ).expected_accepted
        for rule in RULES
    }
    assert found["rheo"] == rheo
    assert found["onehot"] == target[0] + sum(map(lambda p, d: p * d, target, probe_law))
    left = [ZERO, *(mass / (1 - target[0]) for mass in target[1:])]
    assert found["rrsw"] == target[0] + (1 - target[0]) * sum(map(min, left, probe_law))
    assert list(itertools.accumulate(found.values(), max))[-1] == found["rheo"]


HALVES = (Fraction(1, 2), Fraction(1, 2))


@pytest.mark.parametrize(
    ("law", "text"),
    [
        ({}, "is empty"),
        ({(0,): Fraction(1, 4), (1,): Fraction(1, 4)}, "sums to 1/2"),
        ({(0,): Fraction(3, 2), (1,): Fraction(-1, 2)}, "law of emissions"),
        ({(0,): 0.5, (1,): 0.5}, "law of emissions"),
        (None, "required: a RoundLaw, or a mapping"),
    ],
    ids=str,
)
def test_what_is_no_law_of_emissions_is_refused(law: Any, text: str) -> None:
    """A defect of 0 on half the mass would call a sampler lossless that loses the other half."""
    for judge in (
        lossless_defect,
        worst_violation,
        lambda law, target: total_variation(law, target, 1),
    ):
        with pytest.raises(LawError, match=text):
            judge(law, lambda path: HALVES)


@pytest.mark.parametrize("law", [{0: HALVES[0], 1: HALVES[1]}, set(HALVES), {0: 1}.keys()], ids=str)
def test_a_law_without_an_order_is_refused(law: Any) -> None:
    """The keys of a dictionary must not pass for probabilities."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1)
    with pytest.raises(LawError, match="required: a sequence of exact rationals"):
        round_law(lambda path: law, lambda path: HALVES, config)
