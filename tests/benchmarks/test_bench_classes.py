"""The benchmark's yardsticks compute what the engine computes; speed is not tested here."""

import pytest

from rheocheck.config import Rule, SpeculationConfig
from rheocheck.reference.round_law import round_law
from tests.benchmarks.baseline_classes import Baseline, TelescopedBaseline
from tests.benchmarks.bench_classes import models


@pytest.mark.parametrize("kind", [Baseline, TelescopedBaseline])
@pytest.mark.parametrize("rule", ["rheo", "rrsw", "onehot"])
@pytest.mark.parametrize(
    "shape", [(4, 2, 1, 4, 3), (5, 3, 0, 5, 2), (3, 2, 2, 3, 2), (3, 1, 0, 0, 1)]
)
def test_baselines_and_engine_agree(
    kind: type[Baseline], rule: Rule, shape: tuple[int, int, int, int, int]
) -> None:
    vocab, top_k, num_top, budget, depth = shape
    config = SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=vocab, rule=rule
    )
    target, draft = models(vocab, seed=3)
    law = round_law(target, draft, config)
    baseline = kind(target, draft, config)
    assert baseline.emissions == law.emissions
    assert baseline.num_classes == law.num_classes
