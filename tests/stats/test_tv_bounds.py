"""Upper bounds on total variation: coverage by enumeration, constants, equivalence, errors."""

import math
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.tv_bounds import (
    BoundMethod,
    ball_radius,
    equivalence_p,
    mean_absolute_walk,
    upper_bound,
)

METHODS: tuple[BoundMethod, ...] = ("convexity", "weissman", "mcdiarmid", "half-norm")
BALLS: tuple[Literal["weissman", "mcdiarmid", "half-norm"], ...] = (
    "weissman",
    "mcdiarmid",
    "half-norm",
)
OUTCOMES = np.array([row for row in product(range(11), repeat=3) if sum(row) == 10])
LAWS = [(1.0, 0.0, 0.0), (0.98, 0.01, 0.01), (0.6, 0.3, 0.1), (1 / 3, 1 / 3, 1 / 3)]


def distance(first: Any, second: Any) -> float:
    return 0.5 * float(np.abs(np.asarray(first) - np.asarray(second)).sum())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alpha", [0.5, 0.1])
@pytest.mark.parametrize("truth", LAWS)
def test_coverage_is_at_least_nominal_over_all_outcomes(
    method: BoundMethod, alpha: float, truth: Any
) -> None:
    """10 draws on three cells, every outcome weighed by its probability: no simulation."""
    weight = stats.multinomial.pmf(OUTCOMES, 10, truth)
    for law in LAWS:
        bounds = np.array([upper_bound(row, law, alpha, method).value for row in OUTCOMES])
        assert weight[bounds < distance(truth, law) - 1e-12].sum() <= alpha


def test_a_bound_without_its_radius_is_caught() -> None:
    """The enumeration has teeth: the plug-in distance alone misses more often than one in ten."""
    truth, law = (0.6, 0.3, 0.1), (1.0, 0.0, 0.0)
    weight = stats.multinomial.pmf(OUTCOMES, 10, truth)
    plug_in = np.array([upper_bound(row, law, 0.1).plug_in for row in OUTCOMES])
    assert weight[plug_in < distance(truth, law) - 1e-12].sum() > 0.1


@pytest.mark.parametrize("truth", LAWS)
def test_the_mean_distance_is_at_most_the_mean_half_norm_term(truth: Any) -> None:
    """Symmetrisation with factor one on E|S|, by enumeration."""
    weight = stats.multinomial.pmf(OUTCOMES, 10, truth)
    mean = sum(w * distance(row / 10, truth) for w, row in zip(weight, OUTCOMES, strict=True))
    half = sum(
        w * float(mean_absolute_walk(row).sum()) / 10
        for w, row in zip(weight, OUTCOMES, strict=True)
    )
    assert mean <= half + 1e-12


def test_a_half_norm_with_half_the_factor_is_caught() -> None:
    """Ten draws, all different, of 10,000 flat cells: both sides are 1, so nothing can be cut."""
    counts = np.zeros(10_000)
    counts[:10] = 1
    assert distance(counts / 10, np.full(10_000, 1e-4)) == pytest.approx(1.0, abs=2e-3)
    assert float(mean_absolute_walk(counts).sum()) / 10 == pytest.approx(1.0)


def test_absolute_walk_equals_enumeration_and_grows_by_at_most_one() -> None:
    for steps in range(12):
        signs = np.array(list(product((-1, 1), repeat=steps))).reshape(2**steps, steps)
        assert mean_absolute_walk(steps) == pytest.approx(np.abs(signs.sum(axis=1)).mean())
    walk = mean_absolute_walk(np.arange(3000))
    growth = np.diff(walk)
    assert growth.min() >= -1e-9 and growth.max() <= 1.0 + 1e-9
    assert (walk <= np.sqrt(np.arange(3000)) + 1e-9).all()


def test_weissman_by_hand() -> None:
    assert ball_radius([50, 50], 0.05, "weissman") == pytest.approx(
        math.sqrt(math.log(2 / 0.05) / 200)
    )


def test_a_large_vocabulary_does_not_overflow() -> None:
    counts = np.zeros(128_000)
    counts[0] = 10**6
    assert ball_radius(counts, 0.01, "weissman") == pytest.approx(
        math.sqrt((128_000 * math.log(2) + math.log(100)) / 2e6)
    )
    assert ball_radius(counts, 0.01, "half-norm") < 0.005


@pytest.mark.parametrize("method", BALLS)
def test_convexity_is_never_the_larger(method: BoundMethod) -> None:
    rng = np.random.default_rng(2)
    for vocab, num_samples in ((2, 5), (9, 100), (500, 300)):
        law = rng.dirichlet(np.full(vocab, 0.5))
        counts = rng.multinomial(num_samples, law)
        least = upper_bound(counts, law, 0.01).value
        assert least <= upper_bound(counts, law, 0.01, method).value


def test_balls_cover_a_skewed_law_on_a_thousand_cells() -> None:
    """At alpha 0.5 over 200 replays; 150 misses have probability below 1e-12 at nominal rate."""
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.full(1000, 0.05))
    samples = rng.multinomial(400, law, size=200)
    for method in BALLS:
        misses = sum(distance(row / 400, law) > ball_radius(row, 0.5, method) for row in samples)
        assert misses < 150


def test_equivalence_is_the_bound_turned_round() -> None:
    counts, law = [5050, 4950], [0.5, 0.5]
    for alpha in (0.3, 1e-3):
        bound = upper_bound(counts, law, alpha).value
        assert equivalence_p(counts, law, bound) == pytest.approx(alpha)
    assert equivalence_p(counts, law, 0.005) == pytest.approx(1.0)
    assert equivalence_p(counts, law, 0.001) == 1.0


def test_equivalence_is_valid_at_its_boundary() -> None:
    """Truth exactly at delta: P(p <= alpha) <= alpha over all outcomes of 10 draws."""
    truth, law = np.array([0.6, 0.3, 0.1]), np.array([0.4, 0.4, 0.2])
    weight = stats.multinomial.pmf(OUTCOMES, 10, truth)
    p_values = np.array([equivalence_p(row, law, distance(truth, law)) for row in OUTCOMES])
    for alpha in (0.05, 0.3, 0.6):
        assert weight[p_values <= alpha].sum() <= alpha


def test_nothing_drawn_bounds_nothing_and_one_outcome_is_known() -> None:
    assert upper_bound([0, 0], [0.5, 0.5], 0.1).value == 1.0
    assert equivalence_p([0, 0], [0.5, 0.5], 0.1) == 1.0
    assert ball_radius([7], 0.1, "weissman") == 0.0
    assert ball_radius([0, 0], 0.1) == 1.0


def test_bad_input_is_named() -> None:
    with pytest.raises(LawError, match=r"sums to 0\.9"):
        upper_bound([1, 1], [0.5, 0.4], 0.1)
    with pytest.raises(InputError, match="alpha = 1"):
        upper_bound([1, 1], [0.5, 0.5], 1.0)
    with pytest.raises(InputError, match="alpha = nan"):
        ball_radius([1, 1], math.nan)
    with pytest.raises(InputError, match="method = 'guess'"):
        upper_bound([1, 1], [0.5, 0.5], 0.1, "guess")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="delta = 0"):
        equivalence_p([1, 1], [0.5, 0.5], 0.0)
    with pytest.raises(InputError, match=r"counts\[0\] = nan"):
        ball_radius([math.nan, 1], 0.1)
