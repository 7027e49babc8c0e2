"""The instance-optimal statistic: by hand, valid p-values, power where Pearson's is blind."""

import numpy as np
import pytest

from rheocheck.errors import InputError
from rheocheck.stats.multinomial import pearson
from rheocheck.stats.valiant import trimmed_cells, valiant_test

RNG = np.random.default_rng


def test_cells_by_hand() -> None:
    """Tail of at most 0.02: the last two; the largest atom is cell 0."""
    law = np.array([0.2, 0.01, 0.6, 0.18, 0.01])
    assert trimmed_cells(law, 0.16).tolist() == [1, 3, 0, 2, 3]
    assert trimmed_cells(law, 0.08).tolist() == [1, 3, 0, 2, 4]


def test_statistic_by_hand() -> None:
    law, counts = [0.5, 0.25, 0.25], [2, 2, 0]
    found = valiant_test(counts, law, 0.01, RNG(0))
    # Two middle cells expect 1 each: ((2-1)^2 - 2) + ((0-1)^2 - 0) = 0.
    assert found.statistic == pytest.approx(0.0)
    counts = [0, 4, 0]
    found = valiant_test(counts, law, 0.01, RNG(0))
    assert found.statistic == pytest.approx(((4 - 1) ** 2 - 4 + 1) * 0.25 ** (-2 / 3))


def test_it_sees_what_the_faint_tail_hides_from_pearson() -> None:
    """Total variation 0.05 on common tokens, half of the mass on 5,000 rare ones, 6,000 draws."""
    rng = RNG(1)
    common = np.full(20, 0.025)
    rare = rng.dirichlet(np.full(5_000, 0.2)) * 0.5
    law = np.concatenate((common, rare))
    wrong = law.copy()
    wrong[:10] += 0.005
    wrong[10:20] -= 0.005
    counts = rng.multinomial(6_000, wrong)
    assert valiant_test(counts, law, 0.05, rng).p_value <= 2e-3
    unpooled = pearson(counts, law, rng, method="monte carlo", draws=499)
    assert unpooled.p_value > 0.01


def test_degenerate_laws_and_impossible_outcomes() -> None:
    assert valiant_test([3, 0], [1.0, 0.0], 0.1, RNG(0)).p_value == 1.0
    assert valiant_test([3, 1], [1.0, 0.0], 0.1, RNG(0)).p_value == 0.0
    assert valiant_test([0, 0], [0.5, 0.5], 0.1, RNG(0)).p_value == 1.0


def test_bad_settings_are_named() -> None:
    with pytest.raises(InputError, match="distance = 0"):
        valiant_test([1, 1], [0.5, 0.5], 0.0, RNG(0))
    with pytest.raises(InputError, match="draws = 0"):
        valiant_test([1, 1], [0.5, 0.5], 0.1, RNG(0), draws=0)
