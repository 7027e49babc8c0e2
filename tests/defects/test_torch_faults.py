"""The differential stage must see every fault planted in the torch path, and none that is not."""

import pytest

from rheocheck.audit.differential import differential_stage
from rheocheck.certificate import Verdict
from tests.defects.torch_faults import FAULTS, Plant


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_each_planted_fault_is_lossy(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    result = differential_stage(rounds=640, seed=7, large_rounds=0)
    assert result.verdict is Verdict.LOSSY
    assert result.statistic is not None and result.statistic >= 1
    assert result.details["counterexamples"]


@pytest.mark.parametrize("seed", range(20))
def test_the_unfaulted_path_is_never_lossy(seed: int) -> None:
    result = differential_stage(rounds=128, seed=seed, large_rounds=2)
    assert result.verdict is Verdict.NO_EVIDENCE
    assert result.statistic == 0
