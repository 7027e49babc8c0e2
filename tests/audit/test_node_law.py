"""White box on random nodes: exact for the right code, wrong for each planted fault."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.audit.node_law import check_node
from rheocheck.config import Rule, SpeculationConfig
from rheocheck.gpu import node_law, tree
from tests.audit.node_cases import random_node

CONFIGS = st.builds(
    SpeculationConfig,
    top_k=st.integers(1, 5),
    num_top=st.integers(0, 5),
    budget=st.integers(0, 6),
    depth=st.just(1),
    support_size=st.integers(1, 9),
    rule=st.sampled_from(get_args(Rule)),
)
CONFIG = SpeculationConfig(top_k=4, num_top=1, budget=4, depth=1, support_size=8)


@given(st.integers(0, 2**32 - 1), CONFIGS, st.sampled_from([1.0, 0.7, 0.05, 3.0]))
@settings(max_examples=120, deadline=None)
def test_every_node_of_the_scheme_has_the_targets_law(
    seed: int, config: SpeculationConfig, temperature: float
) -> None:
    node, token_ids = random_node(seed, config, temperature)
    finding = check_node(node, config, temperature, token_ids)
    assert finding.total_variation < 1e-12
    assert finding.misdrawn is None
    assert not finding.is_violation


def test_all_outcomes_of_the_probe_are_enumerated() -> None:
    node, token_ids = random_node(0, CONFIG)
    assert node.probe_survived
    assert check_node(node, CONFIG, 1.0, token_ids).num_outcomes == 8 - CONFIG.num_top


def test_a_node_whose_probe_was_cut_has_one_outcome() -> None:
    config = CONFIG.model_copy(update={"budget": 1})
    node, token_ids = random_node(0, config)
    assert not node.probe_survived
    assert check_node(node, config, 1.0, token_ids).num_outcomes == 1


def test_a_target_that_is_a_point_mass_off_the_draft_is_reached_exactly() -> None:
    node, token_ids = random_node(3, CONFIG)
    outside = next(token for token in range(12) if token not in token_ids.tolist())
    law = torch.eye(12, dtype=torch.float64)[outside]
    node = replace(node, target_logits=law.log(), target_law=law)
    assert check_node(node, CONFIG, 1.0, token_ids).total_variation < 1e-15


def worst(config: SpeculationConfig = CONFIG, temperature: float = 0.7) -> float:
    """Largest distance over 30 random nodes."""
    cases = [random_node(seed, config, temperature) for seed in range(30)]
    return max(check_node(node, config, temperature, ids).total_variation for node, ids in cases)


def test_a_residual_that_is_the_target_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = node_law.node_acceptance

    def wrong(mass: torch.Tensor, *given: Any) -> node_law.NodeLaw:
        law = right(mass, *given)
        return replace(law, residual=mass, scale=torch.ones_like(law.scale))

    monkeypatch.setattr(node_law, "node_acceptance", wrong)
    assert worst() > 0.01


def test_a_lenient_accept_test_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part in a hundred thousand too much: ten times the tolerance, found without sampling."""
    right = node_law.node_acceptance

    def wrong(*given: Any) -> node_law.NodeLaw:
        law = right(*given)
        return replace(law, acceptance=(law.acceptance * 1.0001).clamp_max(1.0))

    monkeypatch.setattr(node_law, "node_acceptance", wrong)
    assert worst() > 1e-6


def test_a_ratio_that_ignores_the_temperature_is_seen() -> None:
    cases = [random_node(seed, CONFIG, 0.7) for seed in range(20)]
    at_one = [random_node(seed, CONFIG, 1.0)[0].probe_law for seed in range(20)]
    found = [
        check_node(replace(node, probe_law=law), CONFIG, 0.7, ids).total_variation
        for (node, ids), law in zip(cases, at_one, strict=True)
    ]
    assert max(found) > 0.01


def test_a_probe_that_is_not_drawn_by_its_law_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing at another temperature than the ratio's is caught by the ends of the intervals."""
    node, token_ids = random_node(1, CONFIG, 0.7)
    right = tree.grow

    def wrong(drafter: Any, uniforms: Any, config: Any, temperature: float, **more: Any) -> Any:
        return right(drafter, uniforms, config, 1.0, **more)

    monkeypatch.setattr(tree, "grow", wrong)
    finding = check_node(node, CONFIG, 0.7, token_ids)
    assert finding.misdrawn is not None
    assert finding.is_violation


def test_the_witness_names_the_worst_token() -> None:
    node, token_ids = random_node(1, CONFIG)
    law = check_node(node, CONFIG, 1.0, token_ids)
    assert law.got == pytest.approx(law.wanted)
    wrong = replace(node, probe_law=node.probe_law.flip(0))
    finding = check_node(wrong, CONFIG, 1.0, token_ids)
    assert abs(finding.got - finding.wanted) > 1e-3
    assert finding.wanted == pytest.approx(float(node.target_law[finding.token]))


def test_a_law_that_is_not_a_number_is_a_violation() -> None:
    node, token_ids = random_node(1, CONFIG)
    bad = replace(node, probe_law=node.probe_law * float("nan"))
    assert check_node(bad, CONFIG, 1.0, token_ids).is_violation
