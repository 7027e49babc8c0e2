"""Randomised PIT: uniform under the null, not under planted deviations, edges."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.pit import (
    draft_target_order,
    ecdf_band,
    randomised_pit,
    target_order,
    uniformity,
)


def draw(laws: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    above = rng.random(len(laws))[:, None] > laws.cumsum(axis=1)
    return np.asarray(above.sum(axis=1).clip(max=laws.shape[1] - 1), dtype=np.int64)


def test_pit_by_hand() -> None:
    law = np.array([[0.2, 0.5, 0.3]] * 3)
    token, uniform = np.array([0, 1, 2]), np.array([0.5, 0.0, 1.0])
    assert randomised_pit(law, token, uniform) == pytest.approx([0.1, 0.2, 1.0])


def test_an_order_sorts_the_tokens_and_ties_go_by_token() -> None:
    law = np.array([[0.2, 0.5, 0.3]] * 3)
    order = np.array([[1.0, 0.0, 1.0]] * 3)
    pit = randomised_pit(law, np.array([0, 1, 2]), np.zeros(3), order)
    assert pit == pytest.approx([0.5, 0.0, 0.7])


def test_null_values_are_uniform_in_any_order() -> None:
    """20,000 draws, level 1e-9 a test; the seed is fixed."""
    rng = np.random.default_rng(2)
    target = rng.dirichlet(np.full(16, 0.3), size=20_000)
    draft = rng.dirichlet(np.full(16, 0.3), size=20_000)
    token = draw(target, rng)
    for order in (None, target, draft_target_order(target, draft)):
        pit = randomised_pit(target, token, rng.random(20_000), order)
        assert uniformity(pit).p_value > 1e-9


def test_the_ratio_order_sees_draft_mass_that_the_token_order_misses() -> None:
    """Two per cent of the draft mixed in, 20,000 contexts."""
    rng = np.random.default_rng(3)
    target = rng.dirichlet(np.full(64, 0.5), size=20_000)
    draft = rng.dirichlet(np.full(64, 0.5), size=20_000)
    token = draw(0.9 * target + 0.1 * draft, rng)
    uniform = rng.random(20_000)
    order = draft_target_order(target, draft)
    assert uniformity(randomised_pit(target, token, uniform, order)).p_value < 1e-9
    assert uniformity(randomised_pit(target, token, uniform)).p_value > 1e-6


def test_p_values_are_uniform_under_the_null() -> None:
    """500 replays of 200 uniforms; distance 0.12 has probability 1e-6.

    The reported p-value is Bonferroni over three tests, so its parts are compared.
    """
    rng = np.random.default_rng(4)
    results = [uniformity(rng.random(200)) for _ in range(500)]
    for p_values in (
        [r.ks_p for r in results],
        [r.chi_square_p or 0.0 for r in results],
        [r.anderson_darling_p for r in results],
    ):
        assert stats.kstest(p_values, "uniform").statistic < 0.12


def test_few_values_use_only_the_exact_test() -> None:
    found = uniformity([0.5] * 10)
    assert found.chi_square is None
    assert found.p_value == found.ks_p


def test_no_values_test_nothing() -> None:
    assert uniformity([]).p_value == 1.0


def test_tokens_without_target_mass_come_last() -> None:
    order = draft_target_order(np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]]))
    assert order.tolist() == [[np.inf, 1.0]]


def test_the_band_holds_everywhere_at_once() -> None:
    """At alpha 0.1, 300 replays: 55 or more escapes have probability below 1e-6."""
    rng = np.random.default_rng(5)
    band = ecdf_band(100, 0.1)
    escapes = sum(stats.kstest(rng.random(100), "uniform").statistic > band for _ in range(300))
    assert escapes <= 55


def test_the_target_order_puts_the_likeliest_token_first_and_sees_a_wrong_temperature() -> None:
    """20,000 contexts drawn at temperature 1.25: the likeliest tokens come too rarely."""
    assert target_order(np.array([[0.2, 0.5, 0.3]])).argsort().tolist() == [[1, 2, 0]]
    rng = np.random.default_rng(6)
    target = rng.dirichlet(np.full(64, 0.5), size=20_000)
    hot = target**0.8
    token = draw(hot / hot.sum(axis=1, keepdims=True), rng)
    uniform = rng.random(20_000)
    fit = uniformity(randomised_pit(target, token, uniform, target_order(target)))
    assert fit.p_value < 1e-9
    assert uniformity(randomised_pit(target, token, uniform)).p_value > 1e-6


def test_the_combined_p_value_is_bonferroni_over_three() -> None:
    fit = uniformity(np.random.default_rng(7).random(500))
    smallest = min(fit.ks_p, fit.chi_square_p or 1.0, fit.anderson_darling_p)
    assert fit.p_value == min(1.0, 3 * smallest)


def test_no_draws_give_no_values() -> None:
    assert randomised_pit(np.zeros((0, 3)), np.zeros(0, np.int64), np.zeros(0)).size == 0


def test_bad_draws_are_named() -> None:
    law, token, uniform = np.array([[0.5, 0.5]] * 2), np.array([0, 1]), np.array([0.1, 0.2])
    with pytest.raises(InputError, match=r"token\[1\] = 2: must lie in 0\.\.1"):
        randomised_pit(law, np.array([0, 2]), uniform)
    with pytest.raises(InputError, match=r"token\[0\] = -1"):
        randomised_pit(law, np.array([-1, 0]), uniform)
    with pytest.raises(LawError, match=r"law, row 1 sums to 0\.9"):
        randomised_pit(np.array([[0.5, 0.5], [0.5, 0.4]]), token, uniform)
    with pytest.raises(LawError, match="law, row 0, outcome 1 = nan"):
        randomised_pit(np.array([[0.5, np.nan], [0.5, 0.5]]), token, uniform)
    with pytest.raises(InputError, match=r"uniform\[1\] = nan"):
        randomised_pit(law, token, np.array([0.1, np.nan]))
    with pytest.raises(InputError, match="order has shape"):
        randomised_pit(law, token, uniform, np.full((2, 2), np.nan))
    with pytest.raises(InputError, match="draft, row 1"):
        draft_target_order(law, np.array([[0.5, 0.5], [np.nan, 1.0]]))
    with pytest.raises(InputError, match=r"values\[0\] = 1.5"):
        uniformity([1.5])
    with pytest.raises(InputError, match="num_samples = 0"):
        ecdf_band(0, 0.1)
