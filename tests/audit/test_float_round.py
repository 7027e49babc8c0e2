"""The torch path's implemented law, exactly: whole small trees and one full-size node."""

import random
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from rheocheck.audit.float_round import torch_node_law, torch_round_law
from rheocheck.config import RULES, Rule, SamplingConfig, SpeculationConfig
from rheocheck.errors import BackendError, BudgetExceededError
from rheocheck.gpu.processing import target_law
from rheocheck.reference.float_law import exact_distance, read_floats
from rheocheck.reference.laws import Law, Path
from rheocheck.reference.round_law import total_variation

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
    from rheocheck.audit import float_round
    from rheocheck.gpu import verification

    right = verification.node_acceptance

    def lenient(*arguments: Tensor, **named: Tensor) -> verification.NodeLaw:
        law = right(*arguments, **named)  # type: ignore[arg-type]
        acceptance = (law.acceptance * 1.02).clamp_max(1)
        return verification.NodeLaw(law.order, acceptance, law.residual)

    monkeypatch.setattr(verification, "node_acceptance", lenient)
    monkeypatch.setattr(float_round, "node_acceptance", lenient)
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
    target = target_law(Logits("target", 8, holes=True)(()), SAMPLING)
    law = torch_node_law(target, Logits("draft", 8)(()), config, 0.7)
    assert law.total == 1
    assert exact_distance(law, read_floats(target.numpy())) < TOLERANCE


def test_a_pair_of_draft_laws_and_a_cold_draft() -> None:
    config = SpeculationConfig(top_k=3, num_top=1, support_size=8, budget=3, depth=1)
    target = target_law(Logits("target", 8)(()), SAMPLING)
    pair = (Logits("ranking", 8)(()), Logits("draft", 8)(()))
    for temperature in (0.0, 1.0):
        law = torch_node_law(target, pair, config, temperature)
        assert exact_distance(law, read_floats(target.numpy())) < TOLERANCE


def test_a_full_size_node() -> None:
    """The default scheme at 128,256 tokens; most of the distance is the running sum's."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(128_256, generator=generator, dtype=torch.float64) * 2.5
    draft = 0.9 * logits + 0.8 * torch.randn(128_256, generator=generator, dtype=torch.float64)
    target = target_law(logits, SamplingConfig())
    law = torch_node_law(target, draft, SpeculationConfig(), 1.0)
    assert law.total == 1
    assert 0 < exact_distance(law, read_floats(target.numpy())) < Fraction(1, 10**10)
