"""The torch path's implemented law, exactly: whole small trees and one full-size node."""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.audit.float_round import torch_node_law, torch_round_law
from rheocheck.config import RULES, Rule, SamplingConfig, SpeculationConfig
from rheocheck.errors import BackendError, BudgetExceededError
from rheocheck.gpu import node_law
from rheocheck.gpu.processing import target_law
from rheocheck.reference.defect import total_variation
from rheocheck.reference.exact_softmax import softmax_weights
from rheocheck.reference.float_law import exact_distance, read_floats
from rheocheck.reference.laws import Law, Path

SAMPLING = SamplingConfig(temperature=0.7)
# Every probability of a small round is a few roundings away from the ideal.
TOLERANCE = Fraction(64, 2**53)


class Logits:
    """Random float32 logits by path; every third token is impossible where asked for."""

    def __init__(self, name: str, vocab: int, holes: bool = False) -> None:
        self.name, self.vocab, self.holes = name, vocab, holes

    def __call__(self, path: Path) -> Tensor:
        generator = random.Random(f"{self.name}{path}")
        values = torch.tensor([generator.gauss(0, 1.5) for _ in range(self.vocab)])
        if self.holes:
            values[2::3] = -torch.inf
        return values


def ideal(logits: Logits, path: Path) -> Law:
    """The law that verification is given, read exactly and normalised exactly."""
    masses = read_floats(target_law(logits(path), SAMPLING).numpy()).numerators
    return tuple(Fraction(mass, sum(masses)) for mass in masses)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("num_top", "budget", "holes"), [(1, 3, False), (0, 2, True)])
def test_a_small_round_is_lossless_up_to_rounding(
    rule: Rule, num_top: int, budget: int, holes: bool
) -> None:
    config = SpeculationConfig(
        top_k=2, num_top=num_top, budget=budget, depth=2, support_size=3, rule=rule
    )
    target, draft = Logits("target", 3, holes), Logits("draft", 3)
    law = torch_round_law(target, draft, config, SAMPLING)
    assert sum(law.values()) == 1
    # All probabilities are over a power of two: nothing was rounded on the way here.
    assert all((mass.denominator & (mass.denominator - 1)) == 0 for mass in law.values())
    distance = total_variation(law, lambda path: ideal(target, path), 3)
    assert 0 < distance < TOLERANCE


def test_a_round_without_tree_draws_from_the_target() -> None:
    target = Logits("target", 3)
    for budget, depth in ((0, 1), (2, 0)):
        config = SpeculationConfig(top_k=2, budget=budget, depth=depth)
        law = torch_round_law(target, Logits("draft", 3), config, SAMPLING)
        assert set(law) == {(0,), (1,), (2,)}
        assert total_variation(law, lambda path: ideal(target, path), 1) < TOLERANCE


def test_the_enumeration_is_bounded() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2, support_size=3)
    with pytest.raises(BudgetExceededError, match="max_paths = 5"):
        torch_round_law(Logits("t", 3), Logits("d", 3), config, SAMPLING, max_paths=5)


def test_a_biased_accept_test_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification that accepts as if thresholds were larger does not emit what was chosen."""
    monkeypatch.setattr(
        "rheocheck.gpu.verification.accept_tests",
        lambda uniform, acceptance: uniform < acceptance * 0 + 1,
    )
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1, support_size=3)
    with pytest.raises(BackendError, match="chosen to emit"):
        torch_round_law(Logits("target", 3), Logits("draft", 3), config, SAMPLING)


def test_a_wrong_threshold_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides read the thresholds from one function: a wrong one makes the exact law lossy."""
    right = node_law.node_acceptance

    def lenient(*arguments: Any) -> node_law.NodeLaw:
        law = right(*arguments)
        return replace(law, acceptance=(law.acceptance * 1.02).clamp_max(1))

    monkeypatch.setattr(node_law, "node_acceptance", lenient)
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1, support_size=3)
    target = Logits("target", 3)
    law = torch_round_law(target, Logits("draft", 3), config, SAMPLING)
    assert total_variation(law, lambda path: ideal(target, path), 2) > Fraction(1, 10**4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheme", [(3, 1, 8), (3, 0, 4), (2, 2, 8), (1, 0, 1)])
def test_a_node_is_lossless_up_to_rounding(rule: Rule, scheme: tuple[int, int, int]) -> None:
    top_k, num_top, support_size = scheme
    config = SpeculationConfig(
        top_k=top_k, num_top=num_top, support_size=support_size, rule=rule, budget=3, depth=1
    )
    logits = Logits("target", 8, holes=True)(())
    target = target_law(logits, SAMPLING)
    law = torch_node_law(logits.double(), Logits("draft", 8)(()), config, 0.7)
    assert law.total == 1
    assert exact_distance(law, read_floats(target.numpy())) < TOLERANCE


def test_a_pair_of_draft_laws_and_a_cold_draft() -> None:
    config = SpeculationConfig(top_k=3, num_top=1, support_size=8, budget=3, depth=1)
    logits = Logits("target", 8)(()).double()
    pair = (Logits("ranking", 8)(()), Logits("draft", 8)(()))
    for temperature in (0.0, 1.0):
        target = target_law(logits, SamplingConfig(temperature=temperature))
        law = torch_node_law(logits, pair, config, temperature)
        assert exact_distance(law, read_floats(target.numpy())) < TOLERANCE


def full_size_distance(spread: float, temperature: float, rule: Rule = "rheo") -> Fraction:
    """Exact distance of the law at one node of 128,256 float32 logits from the ideal one."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(128_256, generator=generator) * spread
    draft = 0.9 * logits + 0.8 * torch.randn(128_256, generator=generator)
    law = torch_node_law(logits, draft, SpeculationConfig(rule=rule), temperature)
    assert law.total == 1
    # The division rounds in float64, 2^-29 of what float32 would.
    return exact_distance(law, softmax_weights(logits.double().numpy() / temperature))


def test_a_full_size_node() -> None:
    """Float32 logits, the default scheme: within the promised 1e-7 of the ideal."""
    assert 0 < full_size_distance(2.5, 0.7) < Fraction(1, 10**7)


@pytest.mark.nightly
@pytest.mark.parametrize("spread", [0.1, 1.0, 2.5, 4.0, 10.0])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("rule", ["rheo", "rrsw"])
def test_full_size_nodes(spread: float, temperature: float, rule: Rule) -> None:
    assert full_size_distance(spread, temperature, rule) < Fraction(1, 10**7)
