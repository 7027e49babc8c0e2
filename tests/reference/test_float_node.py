"""Models of rounded verification: exact where nothing rounds, close to the ideal, never hidden."""

import random
from fractions import Fraction

import numpy as np
import pytest

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference.choices import Choose
from rheocheck.reference.defect import total_variation
from rheocheck.reference.draws import OracleDraws
from rheocheck.reference.float_law import exact_distance, read_floats
from rheocheck.reference.float_node import (
    BFLOAT16,
    FLOAT32,
    FLOAT64,
    Arithmetic,
    FloatDraws,
    FloatNode,
    float_node,
)
from rheocheck.reference.laws import Law, Path
from rheocheck.reference.oracle import exact_law
from rheocheck.reference.sampler import sample_round

# A distance that one rounding of each of a few probabilities can cause, as a multiple of the unit.
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}


def a_node(num_fillers: int = 1) -> FloatNode:
    """Dyadic masses: no operation of any arithmetic rounds, but for the divisions."""
    return FloatNode(
        target=np.array([4, 2, 1, 1]) / 8,
        top=(0,),
        tail=(1, 2, 3),
        probe_law=np.array([1, 2, 1]) / 4,
        num_fillers=num_fillers,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("arithmetic", [FLOAT64, FLOAT32, BFLOAT16])
@pytest.mark.parametrize("num_fillers", [0, 1, 2])
def test_a_node_is_its_target_up_to_rounding(
    rule: Rule, arithmetic: Arithmetic, num_fillers: int
) -> None:
    node = a_node(num_fillers)
    law = float_node(node, rule, arithmetic)
    assert law.total == 1
    # At most eight thresholds and draws, each rounded twice.
    assert exact_distance(law, read_floats(node.target)) <= 16 * Fraction(ROUNDING[arithmetic.name])


def test_a_node_without_probe_is_its_target_up_to_rounding() -> None:
    node = FloatNode(np.array([0.5, 0.25, 0.25]), (1, 0), (), np.array([]), 0)
    for rule in RULES:
        assert exact_distance(float_node(node, rule), read_floats(node.target)) < Fraction(
            1, 10**15
        )


def test_equal_target_and_probe_law_never_reject() -> None:
    node = FloatNode(np.array([0.25, 0.75]), (), (1, 0), np.array([0.75, 0.25]), 1)
    assert exact_distance(float_node(node, "rheo"), read_floats(node.target)) == 0


def test_bfloat16_is_far_from_the_ideal() -> None:
    """Rounded laws and thresholds shift masses by about 2^-8; float64 by about 2^-53."""
    generator = np.random.default_rng(0)
    target = generator.dirichlet(np.ones(8))
    probe = generator.dirichlet(np.ones(7))
    right = FloatNode(target, (0,), tuple(range(1, 8)), probe, 2)
    coarse = FloatNode(
        BFLOAT16.rounded(target), (0,), tuple(range(1, 8)), BFLOAT16.rounded(probe), 2
    )
    ideal = read_floats(target)
    assert exact_distance(float_node(right, "rheo"), ideal) < Fraction(1, 10**14)
    assert exact_distance(float_node(coarse, "rheo", BFLOAT16), ideal) > Fraction(1, 10**4)


def test_lengths_and_masses_are_checked() -> None:
    with pytest.raises(InputError, match="one each"):
        float_node(FloatNode(np.ones(1), (), (0,), np.ones(2), 0), "rheo")
    with pytest.raises(InputError, match="no mass"):
        float_node(FloatNode(np.zeros(2), (), (0,), np.ones(1), 0), "rheo")


@pytest.mark.parametrize("rule", ["rheo", "rrsw"])
def test_a_full_vocabulary_is_enumerated(rule: Rule) -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=128_256) * 2.5
    draft = np.exp(0.9 * logits + 0.8 * generator.normal(size=logits.size))
    order = np.argsort(-draft)[:128]
    target = np.exp(logits - logits.max())
    target /= target.sum()
    probe_law = draft[order[1:]] / draft[order[1:]].sum()
    node = FloatNode(target, (int(order[0]),), tuple(order[1:].tolist()), probe_law, 8)
    law = float_node(node, rule)
    assert law.total == 1
    # Most of it is the running sum of 128,256 rounded terms.
    assert 0 < exact_distance(law, read_floats(target)) < Fraction(1, 10**10)


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 0.0])
    expected = [1.0, 1.0, 1 + 2.0**-6, 1 + 2.0**-7, 0.0]
    assert BFLOAT16.rounded(values).tolist() == expected


def model(name: str, vocab: int = 3) -> "dict[Path, Law]":
    """Laws with thirds and sevenths, so that thresholds do round."""

    class Laws(dict[Path, Law]):
        def __missing__(self, path: Path) -> Law:
            generator = random.Random(f"{name}{path}")
            weights = [generator.randint(1, 5) for _ in range(vocab)]
            return tuple(Fraction(weight, sum(weights)) for weight in weights)

    return Laws()


@pytest.mark.parametrize("arithmetic", [FLOAT64, FLOAT32, BFLOAT16])
def test_a_whole_tree_is_lossless_up_to_rounding(arithmetic: Arithmetic) -> None:
    target, draft = model("target"), model("draft")
    config = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2, support_size=3)

    def rounded(choose: Choose) -> Path:
        draws = FloatDraws(choose, arithmetic)
        return sample_round(target.__getitem__, draft.__getitem__, config, draws).emission

    def exact(choose: Choose) -> Path:
        draws = OracleDraws(choose)
        return sample_round(target.__getitem__, draft.__getitem__, config, draws).emission

    assert total_variation(exact_law(exact), target.__getitem__, 3) == 0
    law = exact_law(rounded)
    assert sum(law.values()) == 1
    distance = total_variation(law, target.__getitem__, 3)
    # Each emission is a product of at most eight rounded factors.
    assert 0 < distance < 16 * Fraction(ROUNDING[arithmetic.name])
