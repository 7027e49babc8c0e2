"""Growth, E[tau] and verification given a tree, against the reference's enumeration."""

import random
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from rheocheck.bounds.families import Family
from rheocheck.bounds.growth import all_trees, sample_tree
from rheocheck.bounds.tally import estimate, estimates, tally_tree, total_tally
from rheocheck.bounds.tree import (
    TargetModel,
    child_tests,
    expected_accepted,
    expected_by_rule,
    tree_acceptance,
)
from rheocheck.bounds.tree_sweep import TreeSweep, random_model, tree_frequency, tree_sweep
from rheocheck.config import RULES, SpeculationConfig
from rheocheck.errors import ConfigError, InputError
from rheocheck.reference import Role, round_law
from tests.bounds.small_laws import Law, floats, law_from


def random_law(name: str, vocab: int, largest: int = 4) -> Law:
    draw = random.Random(name)
    weights = [draw.randint(0, largest) for _ in range(vocab)]
    weights[draw.randrange(vocab)] += 1
    return law_from(weights)


def random_case(number: int) -> tuple[TargetModel, Any, dict[str, Any]]:
    draw = random.Random(number)
    vocab = draw.randint(1, 4)
    target = cache(lambda path: random_law(f"{number} target {path}", vocab))
    draft = cache(
        lambda path: (
            random_law(f"{number} ranking {path}", vocab),
            random_law(f"{number} draft {path}", vocab, 1),
        )
    )
    counts = {
        "top_k": draw.randint(1, 4), "num_top": draw.randint(0, 4), "budget": draw.randint(0, 7),
        "depth": draw.randint(0, 3), "support_size": draw.randint(1, 5),
    }  # fmt: skip
    return target, draft, counts


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_expected_accepted_is_that_of_the_reference(first: int) -> None:
    for number in range(first, first + 20):
        target, draft, counts = random_case(number)
        config = SpeculationConfig(**counts)
        assert sum(tree.probability for tree in all_trees(draft, config)) == 1
        found = expected_by_rule(target, draft, config)
        for rule in RULES:
            scheme = SpeculationConfig(**counts, rule=rule)
            assert found[rule] == round_law(target, draft, scheme).expected_accepted


def test_floats_integrate_to_the_rational_value() -> None:
    for number in range(20):
        target, draft, counts = random_case(number)
        config = SpeculationConfig(**counts)
        exact = expected_by_rule(target, draft, config)
        rounded = expected_by_rule(
            lambda path, target=target: floats(target(path)),  # type: ignore[misc]
            lambda path, draft=draft: tuple(map(floats, draft(path))),  # type: ignore[misc]
            config,
        )
        for rule in RULES:
            assert isinstance(exact[rule], Fraction)
            assert rounded[rule] == pytest.approx(float(exact[rule]), abs=1e-12)


def test_sampled_trees_average_to_the_enumerated_value() -> None:
    target, draft = random_model(Family("zipf-near", 1.0), 5, (3,))
    config = SpeculationConfig(top_k=3, num_top=1, budget=5, depth=2)
    exact = float(expected_accepted(target, draft, config))
    generator = np.random.default_rng(0)
    values = []
    for _ in range(400):
        tree = sample_tree(draft, config, generator)
        laws = [np.asarray(target(path)) for path in tree.paths()]
        values.append(tree_acceptance(tree, laws, "rheo").expected_accepted)
    # Five standard errors: a false alarm once in two million seeds, and the seed is fixed.
    assert abs(np.mean(values) - exact) < 5 * np.std(values) / np.sqrt(len(values)) + 1e-12


def test_tests_of_one_node_by_hand() -> None:
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1)
    draft = (half, quarter, quarter)
    target = np.array([half, half, Fraction(0)], dtype=object)
    accepted = {}
    for tree in all_trees(lambda path: draft, config):
        for rule in RULES:
            tests = child_tests(target, tree.token, tree.role, tree.expansions[0], rule)
            accepted[tree.token[1], rule] = (tests.accepted, tests.tested)
    # Probe 1: sure under rheo, so the top is never tested; under rrsw the top comes first.
    assert accepted[1, "rheo"] == ([0, 1], [0, 1])
    assert accepted[1, "rrsw"] == ([half, half], [1, half])
    assert accepted[2, "rheo"] == ([1, 0], [1, 1])
    assert accepted[2, "rrsw"] == ([half, 0], [1, half])
    assert accepted[2, "onehot"] == ([half, 0], [1, half])


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match="rule = 'best'; required: one of rheo, rrsw, onehot"):
        child_tests(np.array([1.0]), [0], [Role.TOP], None, "best")  # type: ignore[arg-type]


def test_a_rule_that_ignores_the_tree_would_be_seen() -> None:
    """The comparison has teeth: node-level acceptance of the wrong rule changes E[tau]."""
    target, draft = (law_from([1, 1, 0]), law_from([2, 1, 1]))
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1)
    found = expected_by_rule(lambda path: target, lambda path: draft, config)
    assert (found["rheo"], found["rrsw"], found["onehot"]) == (1, Fraction(3, 4), Fraction(3, 4))


def test_temperature_zero_without_top_is_the_plain_top_k_tree() -> None:
    """m = 0: the probe is the first token with its own score, so even E[tau] is Top-K's."""
    differs = 0
    for number in range(12):
        plain = SpeculationConfig(top_k=3, num_top=3, budget=5, depth=3, rule="onehot")
        target, draft = random_model(Family("zipf-near", 1.0), 6, (number,), 0.0)
        greedy = expected_accepted(target, draft, plain)
        none = SpeculationConfig(top_k=3, num_top=0, budget=5, depth=3)
        one = SpeculationConfig(top_k=3, num_top=1, budget=5, depth=3)
        assert expected_accepted(target, draft, none) == pytest.approx(greedy, abs=1e-12)
        differs += abs(float(expected_accepted(target, draft, one)) - float(greedy)) > 1e-6
    # m = 1: the same candidates at a node, but the second token's score is the proxy.
    assert differs >= 3


def test_tallies_add_up_to_the_expected_number() -> None:
    target, draft = random_model(Family("dirichlet", 0.5), 12, (1,))
    config = SpeculationConfig(top_k=4, num_top=1, budget=12, depth=3)
    tree = sample_tree(draft, config, np.random.default_rng(1))
    laws = [np.asarray(target(path)) for path in tree.paths()]
    tally = tally_tree(tree, tree_acceptance(tree, laws, "rheo"))
    by_role = sum(tally[f"accepted_{role}"] for role in ("top", "probe", "filler"))
    by_layer = sum(tally.get(f"accepted_{layer}", 0.0) for layer in (1, 2, 3))
    assert by_role == pytest.approx(tally["accepted"])
    assert by_layer == pytest.approx(tally["accepted"])
    assert tally["reached_2"] == pytest.approx(tally["accepted_1"])
    assert all(tally[f"tested_{r}"] >= tally[f"accepted_{r}"] for r in ("top", "probe", "filler"))
    assert 0 < tally["probes_surviving"] <= tally["probes"]
    twice = total_tally([tally, tally])
    assert twice["accepted"] == pytest.approx(2 * tally["accepted"])
    report = estimates([tally, tally], 3)
    assert report["expected_accepted"].value == pytest.approx(tally["accepted"])
    assert report["expected_accepted"].standard_error == pytest.approx(0, abs=1e-12)


def test_a_ratio_has_the_delta_methods_interval() -> None:
    units = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 2.0}, {"a": 2.0, "b": 2.0}]
    found = estimate(units, "a", "b")
    # Deviations -1, 1, 0: error sqrt(2 * 3 / 2) / 6; Student's quantile with two degrees is 4.303.
    assert found.value == pytest.approx(1.0)
    assert found.standard_error == pytest.approx(3**0.5 / 6)
    assert found.high == pytest.approx(1 + 4.30265 * 3**0.5 / 6, rel=1e-5)
    assert estimate(units[:1], "a", "b").standard_error is None
    assert estimate(units, "a", "c").value is None


def test_an_interval_covers_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        rounds = generator.integers(1, 6, 25)
        units = [{"a": float(generator.poisson(2.0 * n)), "b": float(n)} for n in rounds]
        found = estimate(units, "a", "b")
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 2.0 <= found.high
    # 400 tries at 95 %: 360 is more than four standard deviations below 380.
    assert covered >= 360


def test_a_tree_sweep_sees_probes_fade_as_tops_grow() -> None:
    sweep = TreeSweep(top_ks=(5,), num_tops=(1, 3, 5), budgets=(14,), depths=(4,), vocab=20,
                      models_per_cell=12)  # fmt: skip
    rows = tree_sweep(sweep)
    survival = {row["num_top"]: row["probe_survival"] for row in rows if row["rule"] == "rheo"}
    assert survival[3] < survival[1]
    plain = [row for row in rows if row["num_top"] == 5]
    assert [row["rule"] for row in plain] == ["onehot"]
    assert plain[0]["probe_survival"] is None


def test_tree_settings_are_checked() -> None:
    with pytest.raises(InputError, match="budgets is empty; required: at least one value"):
        TreeSweep(budgets=())
    with pytest.raises(ConfigError, match="budget = -1"):
        TreeSweep(budgets=(-1,))
    with pytest.raises(ConfigError, match="models_per_cell = 0"):
        TreeSweep(models_per_cell=0)


def test_small_models_without_fillers_mostly_favour_rheo() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3)
    found = tree_frequency(Family("dirichlet", 0.3), config, 4, 60)
    assert found.rheo_wins > 0.9
    assert found.rheo_wins + found.rrsw_wins + found.equal == pytest.approx(1)
