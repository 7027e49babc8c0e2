"""Rounds on given uniforms."""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference import replay_round, round_law
from rheocheck.reference.draws import ROOT, NodeKey
from rheocheck.reference.replay import Margin, Replay, UniformDraws
from tests.strategies import configs, constant, law_of, random_model, random_pair

HALF = Fraction(1, 2)
KEY = NodeKey(1, 0, 0)
BELOW_ONE = 1 - 2**-53


def draws(uniform: Any) -> UniformDraws:
    return UniformDraws([[uniform]], [[[uniform]]], uniform)


@pytest.mark.parametrize(
    ("uniform", "index"), [(0.0, 1), (0.25, 1), (0.5, 3), (0.75, 3), (BELOW_ONE, 3)]
)
def test_the_inverse_cdf_never_lands_on_weight_zero(uniform: float, index: int) -> None:
    law = law_of(0, 1, 0, 1, 0)
    assert draws(uniform).final(law, ROOT) == index
    assert draws(uniform).probe(law, KEY) == index


def test_a_test_never_accepts_at_zero_and_always_at_one() -> None:
    assert not draws(0.0).accept(Fraction(0), KEY)
    assert draws(BELOW_ONE).accept(Fraction(1), KEY)
    assert not draws(0.5).accept(HALF, KEY)
    assert draws(np.nextafter(0.5, 0)).accept(HALF, KEY)


@pytest.mark.parametrize("uniform", [1.0, -0.25, float("nan"), float("inf"), "0.5", None, 7])
def test_a_uniform_outside_the_unit_interval_is_refused(uniform: object) -> None:
    with pytest.raises(InputError, match=r"accept\[0\]\[0\]\[0\] is .*; required: a uniform"):
        draws(uniform).accept(HALF, KEY)


def test_margins_of_draws_by_hand() -> None:
    made = draws(0.625)
    made.accept(HALF, KEY)
    made.accept(Fraction(1), KEY)
    made.final(law_of(1, 1, 2), ROOT)
    made.probe(law_of(3, 1), KEY)
    assert made.margins == [
        Margin("accept", KEY, Fraction(1, 8)),
        Margin("accept", KEY, Fraction(1)),
        Margin("final", ROOT, Fraction(1, 8)),
        Margin("probe", KEY, Fraction(1, 8)),
    ]


def uniforms(seed: int, config: SpeculationConfig) -> tuple[Any, Any, float]:
    generator = np.random.default_rng(seed)
    shape = config.depth, config.top_k
    return generator.random(shape), generator.random((*shape, config.top_k)), generator.random()


def replayed(seed: int, config: SpeculationConfig, vocab: int = 5) -> Replay:
    target, draft = random_model((seed, "target"), vocab), random_pair((seed, "draft"), vocab)
    return replay_round(target, draft, config, *uniforms(seed, config))


@given(seed=st.integers(0, 10**6), config=configs(4, 8, 3))
def test_arrays_lists_and_fractions_give_the_same_round(
    seed: int, config: SpeculationConfig
) -> None:
    target, draft = random_model((seed, "target"), 5), random_pair((seed, "draft"), 5)
    probe, accept, final = uniforms(seed, config)
    first = replay_round(target, draft, config, probe, accept, final)
    second = replay_round(target, draft, config, probe.tolist(), accept.tolist(), Fraction(final))
    assert first.round.tree.survivors == second.round.tree.survivors
    assert first.round.verification == second.round.verification
    assert first.margins() == second.margins()


def worst_deviation(rule: Rule) -> float:
    """Largest |count - expected| over 1,500 replayed rounds, in standard deviations."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2, rule=rule)
    target, draft = random_model("target", 3, 4), random_model("draft", 3, 4)
    law = round_law(target, draft, config).emissions
    num_rounds = 1500
    counts = dict.fromkeys(law, 0)
    for seed in range(num_rounds):
        emission = replay_round(target, draft, config, *uniforms(seed, config)).round.emission
        counts[emission] = counts.get(emission, 0) + 1
    expected = {emission: float(law.get(emission, 0)) for emission in counts}
    return max(
        abs(counts[emission] - num_rounds * mass) / math.sqrt(num_rounds * mass * (1 - mass) + 1e-9)
        for emission, mass in expected.items()
    )


@pytest.mark.parametrize("rule", RULES)
def test_replayed_rounds_have_the_exact_law(rule: Rule) -> None:
    """Seeds are fixed, so this cannot fail by chance; the next test shows what it would find."""
    assert worst_deviation(rule) < 5


def test_a_residual_that_ignores_the_draft_shows_in_the_frequencies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "rheocheck.reference.verification.residual_after_probe",
        lambda residual, probe_law: residual,
    )
    assert worst_deviation("rheo") > 5


def test_ties_of_siblings_excuse_no_difference_but_ties_of_other_laws_do() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=2)
    same = replay_round(
        constant(law_of(1, 1, 1)), constant(law_of(1, 1, 1)), config, *uniforms(0, config)
    )
    ties = [margin for margin in same.margins() if margin.other and margin.gap == 0]
    assert ties
    assert all(margin.same_floats for margin in ties)
    assert not [margin for margin in same.margins_within(Fraction(0)) if margin.other]

    other = law_of(2, 1, 1, 0), law_of(2, 2, 0, 0)
    mixed = replay_round(
        constant(law_of(1, 1, 1, 1)),
        lambda path: other[len(path) % 2],
        config,
        *uniforms(0, config),
    )
    crossed = [m for m in mixed.margins() if m.decision == "survival" and m.gap == 0]
    assert crossed


def test_a_proxy_at_the_edge_of_the_tail_mass_is_no_sure_tie() -> None:
    """ranking of the top = mass of the tail: a float sum may come out below it."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1)
    found = replay_round(
        constant(law_of(1, 1, 1)), constant(law_of(2, 1, 1)), config, *uniforms(0, config)
    )
    (tie,) = [margin for margin in found.margins() if margin.decision == "survival"]
    assert (tie.gap, tie.same_floats) == (Fraction(0), False)
    assert tie in found.margins_within(Fraction(0))


@given(seed=st.integers(0, 10**6), config=configs(4, 8, 3))
def test_every_margin_is_a_distance(seed: int, config: SpeculationConfig) -> None:
    for margin in replayed(seed, config).margins():
        assert 0 <= margin.gap <= 1
        assert (margin.other is None) == (margin.decision in ("probe", "accept", "final"))


def test_a_decision_changes_when_its_uniform_moves_past_the_margin() -> None:
    config = SpeculationConfig(top_k=1, num_top=0, budget=1, depth=1)
    generator = random.Random(0)
    for _ in range(50):
        target, draft = random_model(generator.random(), 4), random_model(generator.random(), 4)
        probe = Fraction(generator.randrange(64), 64)
        base = replay_round(target, draft, config, [[probe]], [[[HALF]]], HALF)
        (margin,) = [m for m in base.margins() if m.decision == "probe"]
        moved = [
            replay_round(target, draft, config, [[probe + step]], [[[HALF]]], HALF)
            for step in (margin.gap, -margin.gap - Fraction(1, 10**6))
            if 0 <= probe + step < 1
        ]
        tokens = {done.round.tree.survivors[0].token for done in moved}
        if margin.gap < 1:
            assert tokens - {base.round.tree.survivors[0].token}
