"""Several probes, adaptive top children, merged probes in torch against the exact twin."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rheocheck.audit.differential import differences
from rheocheck.audit.differential_instances import LARGEST_UNIFORM, Batch, make_batch
from rheocheck.config import SpeculationConfig
from rheocheck.gpu import node_law, probes
from rheocheck.gpu.randomness import round_uniforms

OPTIONS: tuple[dict[str, Any], ...] = (
    {"num_probes": 2},
    {"num_probes": 3},
    {"top_thresholds": (0.25, 0.5, 0.75)},
    {"top_thresholds": (0.21, 0.4)},
    {"merged": True},
    {"num_probes": 2, "top_thresholds": (0.375,)},
    {"merged": True, "top_thresholds": (0.5,)},
)


def batch_with(options: dict[str, Any], seed: int, number: int, family: Any = "small") -> Batch:
    """An instance of the differential stage under a scheme with options."""
    batch = make_batch(seed, family, number)
    config = SpeculationConfig(**{**batch.config.model_dump(), **options})
    rng = np.random.default_rng([seed, number, len(str(options))])
    shape = (len(batch.vocab), config.depth, config.top_k * config.num_probes)
    uniform, edge = rng.random(shape), rng.random(shape)
    uniform = np.where(edge < 0.1, 0.0, np.where(edge > 0.9, LARGEST_UNIFORM, uniform))
    return replace(batch, config=config, probe=uniform)


def count(options: dict[str, Any], seed: int, batches: int, family: Any = "small") -> int:
    """Rounds that differ within rounding; any other difference fails."""
    excused = 0
    for number in range(batches):
        batch = batch_with(options, seed, number, family)
        for row, difference in differences(batch, len(batch.vocab)):
            assert difference.is_explained, (batch.config, number, row, difference.text)
            excused += 1
    return excused


@pytest.mark.parametrize("options", OPTIONS)
def test_torch_decides_as_the_exact_twin(options: dict[str, Any]) -> None:
    assert count(options, 0, 20) <= 640 // 50


@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS)
def test_torch_decides_as_the_exact_twin_on_many_rounds(options: dict[str, Any]) -> None:
    assert count(options, 1, 400) <= 12800 // 50
    assert count(options, 1, 10, "large") <= 320 // 50


def first_law_for_all(original: Callable[..., Any]) -> Callable[..., Any]:
    """Every probe is tested against the first one's law: each test begins with that law anew."""

    def faulty(mass: Any, rest: Any, law: Any, place: Any, valid: Any, is_probe: Any) -> Any:
        kept, tests = mass, []
        for test in range(place.shape[1]):
            part = slice(test, test + 1)
            accept, left = original(
                kept, rest, law, place[:, part], valid[:, part], is_probe[:, part]
            )
            tests.append(accept)
            total = left.sum(1, keepdim=True) + rest.unsqueeze(1)
            kept = left / torch.where(total > 0, total, 1.0)
        return torch.cat(tests, 1), kept

    return faulty


def merged_mass_left_out(original: Callable[..., Any]) -> Callable[..., Any]:
    def faulty(law: Any, num_top: Any, tail: Any, config: Any) -> Any:
        _, top, left = original(law, num_top, tail, config)
        kept = torch.where(left, law, 0.0)
        total = kept.sum(-1, keepdim=True)
        return kept / torch.where(total > 0, total, 1.0), top, left

    return faulty


def one_top_too_many(original: Callable[..., Any]) -> Callable[..., Any]:
    def faulty(log_ranking: Any, inside: Any, config: Any) -> Any:
        return original(log_ranking + 0.01, inside, config)

    return faulty


@pytest.mark.parametrize(
    ("module", "name", "plant", "options"),
    [
        (node_law, "tests_in_order", first_law_for_all, {"num_probes": 3}),
        (probes, "merged_probe", merged_mass_left_out, {"merged": True}),
        (probes, "split_support", one_top_too_many, {"top_thresholds": (0.25, 0.5, 0.75)}),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, plant: Any, options: dict[str, Any]
) -> None:
    from rheocheck.gpu import expansion

    patched = plant(getattr(module, name))
    for place in (module, expansion):
        if hasattr(place, name):
            monkeypatch.setattr(place, name, patched)
    with pytest.raises(AssertionError):
        count(options, 0, 20)


def test_uniforms_of_several_probes_differ() -> None:
    config = SpeculationConfig(top_k=3, num_top=1, budget=5, depth=2, num_probes=2)
    draws = round_uniforms(3, torch.arange(2), torch.zeros(2, dtype=torch.int64), config)
    assert draws.probe.shape == (2, 2, 6)
    values = torch.cat([draws.probe.flatten(), draws.accept.flatten(), draws.final])
    assert len(set(values.tolist())) == len(values)
