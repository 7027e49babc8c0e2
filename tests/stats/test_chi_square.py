"""Chi-square tests: pooling, calibration by simulation, power against planted deviations."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.chi_square import bucket_chi_square, pool_cells
from rheocheck.stats.multinomial import pearson


def draw(laws: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """[contexts] one token from each law."""
    above = rng.random(len(laws))[:, None] > laws.cumsum(axis=1)
    return np.asarray(above.sum(axis=1).clip(max=laws.shape[1] - 1), dtype=np.int64)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=12))
@example([0.0, 0.0])
@example([5.0, 0.0])
@example([5.0, 5.0, 1.0])
@settings(deadline=None)
def test_pooling_drops_no_mass_and_leaves_no_small_cell(expected: list[float]) -> None:
    cell = pool_cells(expected)
    pooled = np.bincount(cell, expected)
    assert pooled.sum() == pytest.approx(sum(expected))
    assert len(pooled) == 1 or pooled.min() >= 5.0


def test_small_cells_share_the_last_cell() -> None:
    assert pool_cells([9.0, 3.0, 20.0, 4.0]).tolist() == [0, 2, 1, 2]


def test_a_shared_cell_that_is_still_small_takes_the_smallest_large_one() -> None:
    assert pool_cells([9.0, 3.0, 20.0]).tolist() == [1, 1, 0]


def test_equal_contexts_bring_back_pearson() -> None:
    law = np.array([0.2, 0.3, 0.5])
    counts = np.array([50, 90, 160])
    found = bucket_chi_square(counts, np.tile(law, (300, 1)))
    known = pearson(counts, law, np.random.default_rng(0))
    assert found.statistic == pytest.approx(known.statistic)
    assert found.df == known.df
    assert found.p_value == pytest.approx(known.p_value, rel=0.05)


@pytest.mark.parametrize("concentration", [0.05, 1.0])
def test_unlike_contexts_give_uniform_p_values(concentration: float) -> None:
    """400 null replays: Kolmogorov-Smirnov against uniform at level 1e-6 (distance 0.134)."""
    rng = np.random.default_rng(5)
    laws = rng.dirichlet(np.full(20, concentration), size=300)
    p_values = [
        bucket_chi_square(np.bincount(draw(laws, rng), minlength=20), laws).p_value
        for _ in range(400)
    ]
    assert stats.kstest(p_values, "uniform").statistic < 0.134


def test_the_second_moment_is_exact() -> None:
    """The scaled law's variance equals the simulated one: 4,000 replays, within 12 %."""
    rng = np.random.default_rng(6)
    laws = rng.dirichlet(np.full(12, 0.03), size=120)
    results = [
        bucket_chi_square(np.bincount(draw(laws, rng), minlength=12), laws) for _ in range(4000)
    ]
    first = results[0]
    scale = _implied_scale(first.statistic, first.df, first.p_value)
    assert np.var([r.statistic for r in results]) == pytest.approx(2 * first.df * scale, rel=0.12)
    assert np.mean([r.statistic for r in results]) == pytest.approx(first.df, rel=0.05)


def _implied_scale(statistic: float, df: int, p_value: float) -> float:
    grid = np.linspace(0.3, 3.0, 27_001)
    return float(grid[np.argmin(np.abs(stats.chi2.sf(statistic / grid, df / grid) - p_value))])


def test_pearson_with_unlike_contexts_is_caught() -> None:
    """The calibration has teeth: diag(expected) as covariance gives p-values far from uniform."""
    rng = np.random.default_rng(5)
    laws = rng.dirichlet(np.full(20, 0.05), size=300)
    p_values = [
        pearson(np.bincount(draw(laws, rng), minlength=20), laws.mean(axis=0), rng).p_value
        for _ in range(100)
    ]
    assert stats.kstest(p_values, "uniform").statistic > 0.5


def test_draws_from_other_laws_are_rejected() -> None:
    """2,000 contexts at total variation 0.25: noncentrality over 100, power above 1 - 1e-6."""
    rng = np.random.default_rng(8)
    laws = rng.dirichlet(np.full(10, 0.3), size=2000)
    wrong = 0.7 * laws + 0.3 * np.roll(np.eye(10)[0], 3)
    found = bucket_chi_square(np.bincount(draw(wrong, rng), minlength=10), laws)
    assert found.p_value < 1e-6


def test_a_cell_that_no_context_can_reach_has_p_value_zero() -> None:
    assert bucket_chi_square([6, 1], np.tile([1.0, 0.0], (7, 1))).p_value == 0.0


def test_counts_that_are_not_one_draw_a_context_are_refused() -> None:
    with pytest.raises(InputError, match="observed sums to 3: one draw a context, 2"):
        bucket_chi_square([1, 2], np.tile([0.5, 0.5], (2, 1)))
    with pytest.raises(LawError, match=r"probabilities, row 1 sums to 1\.1"):
        bucket_chi_square([1, 1], np.array([[0.5, 0.5], [0.5, 0.6]]))
    with pytest.raises(InputError, match=r"expected\[1\] = nan"):
        pool_cells([1.0, np.nan])


def test_one_context_tests_nothing_it_cannot() -> None:
    found = bucket_chi_square([1, 0], np.array([[0.5, 0.5]]))
    assert (found.df, found.p_value) == (0, 1.0)


def test_no_contexts_and_certain_contexts_test_nothing() -> None:
    assert bucket_chi_square([0, 0], np.zeros((0, 2))).p_value == 1.0
    assert bucket_chi_square([7, 0], np.tile([1.0, 0.0], (7, 1))).df == 0
