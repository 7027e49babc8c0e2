"""Lower bounds with a witness set: exact coverage, hostile rates, power, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.witness import (
    best_tilt,
    clopper_pearson_lower,
    clopper_pearson_upper,
    lower_bound,
    lower_bound_over_contexts,
    mean_rate_lower,
    sequential_rate_lower,
    witness_set,
)


def hits_law(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Law of the number of independent events that happen, by convolution."""
    law = np.ones(1)
    for rate in rates:
        law = np.convolve(law, [1.0 - rate, rate])
    return law


def miss_rate(bounds: list[float], rates: NDArray[np.float64]) -> float:
    return float(hits_law(rates)[np.array(bounds) > rates.mean() + 1e-12].sum())


def test_clopper_pearson_equals_scipy() -> None:
    for hits, draws in ((0, 7), (3, 7), (7, 7), (40, 900)):
        known = stats.binomtest(hits, draws).proportion_ci(0.9, method="exact")
        assert clopper_pearson_lower(hits, draws, 0.05) == pytest.approx(known.low)
        assert clopper_pearson_upper(hits, draws, 0.05) == pytest.approx(known.high)


@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=12),
    st.sampled_from([0.01, 0.1, 0.3]),
)
@settings(max_examples=150, deadline=None)
def test_the_mean_rate_is_covered_whatever_the_rates(rates: list[float], alpha: float) -> None:
    bounds = [mean_rate_lower(hits, len(rates), alpha) for hits in range(len(rates) + 1)]
    assert miss_rate(bounds, np.array(rates)) <= alpha * (1 + 1e-9)


def test_clopper_pearson_alone_fails_where_one_context_carries_the_mean() -> None:
    """One event of probability 0.353 among 20 at alpha 0.3: why the second term is there."""
    rates = np.zeros(20)
    rates[0] = 0.353
    plain = [clopper_pearson_lower(hits, 20, 0.3) for hits in range(21)]
    assert miss_rate(plain, rates) > 0.35
    assert miss_rate([mean_rate_lower(hits, 20, 0.3) for hits in range(21)], rates) <= 0.3


def test_a_witness_of_a_known_fault_is_its_set() -> None:
    """Token 2 gains 10 % that token 0 loses; 4,000 draws a half."""
    rng = np.random.default_rng(1)
    law, wrong = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.3])
    halves = rng.multinomial(4000, wrong, size=2)
    found = lower_bound(halves[0], halves[1], law, 1e-6)
    assert found.members[2] and not found.members[0]
    assert 0.06 < found.lower_bound < 0.1


def test_a_large_vocabulary_costs_nothing() -> None:
    """5 % of the mass moves onto draws from a cold corner of 32,000 tokens; 20,000 draws a half."""
    rng = np.random.default_rng(2)
    law = rng.dirichlet(np.full(32_000, 0.02))
    wrong = 0.95 * law
    wrong[rng.choice(32_000, 50, replace=False)] += 0.05 / 50
    halves = rng.multinomial(20_000, wrong, size=2)
    truth = 0.5 * np.abs(law - wrong).sum()
    assert 0.7 * truth < lower_bound(halves[0], halves[1], law, 1e-6).lower_bound <= truth


def test_nothing_is_shown_under_the_null() -> None:
    """At alpha 0.2, 400 replays on 200 cells; 130 false ones have probability below 1e-8."""
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.full(200, 0.1))
    halves = rng.multinomial(300, law, size=(400, 2))
    shown = sum(lower_bound(first, other, law, 0.2).lower_bound > 0 for first, other in halves)
    assert shown < 130


def test_measuring_on_the_half_that_chose_is_caught() -> None:
    """The replay has teeth: without the split most null runs show a distance.

    At the nominal 0.2 more than 32 of 50 would have probability below 1e-11.
    """
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.full(200, 0.1))
    samples = rng.multinomial(300, law, size=50)
    assert sum(lower_bound(row, row, law, 0.2).lower_bound > 0 for row in samples) > 32


def draw(laws: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    above = rng.random(len(laws))[:, None] > laws.cumsum(axis=1)
    return np.asarray(above.sum(axis=1).clip(max=laws.shape[1] - 1), dtype=np.int64)


def test_contexts_that_resample_from_the_draft_show_their_distance() -> None:
    rng = np.random.default_rng(4)
    target = rng.dirichlet(np.full(12, 0.5), size=6000)
    draft = rng.dirichlet(np.full(12, 0.5), size=6000)
    wrong = 0.8 * target + 0.2 * draft
    truth = 0.5 * np.abs(wrong - target).sum(axis=1).mean()
    scores = np.log(draft + 1e-9) - np.log(target + 1e-9)
    found = lower_bound_over_contexts(target, scores, draw(wrong, rng), 1e-6)
    assert 0.5 * truth < found.lower_bound < truth
    null = lower_bound_over_contexts(target, scores, draw(target, rng), 1e-6)
    assert null.lower_bound == 0.0


def test_unlike_contexts_are_covered() -> None:
    """At alpha 0.3, 300 replays of 60 contexts: 150 misses have probability below 1e-12."""
    rng = np.random.default_rng(5)
    target = rng.dirichlet(np.full(8, 0.2), size=60)
    wrong = rng.dirichlet(np.full(8, 0.2), size=60)
    truth = 0.5 * np.abs(wrong - target)[1::2].sum(axis=1).mean()
    scores = wrong - target
    misses = sum(
        lower_bound_over_contexts(target, scores, draw(wrong, rng), 0.3).lower_bound > truth
        for _ in range(300)
    )
    assert misses < 150


def test_too_little_to_split_shows_nothing() -> None:
    one = np.array([[0.5, 0.5]])
    for laws in (one[:0], one):
        found = lower_bound_over_contexts(laws, laws, np.zeros(len(laws), np.int64), 0.1)
        assert (found.lower_bound, found.num_samples) == (0.0, 0)
    assert lower_bound([0, 0], [0, 0], [0.5, 0.5], 0.1).lower_bound == 0.0
    assert not witness_set([5], [1.0], 0.1).any()


def test_bad_input_is_named() -> None:
    laws, token = np.array([[0.5, 0.5]] * 2), np.array([0, 1])
    with pytest.raises(InputError, match="hits = 3"):
        clopper_pearson_lower(3, 2, 0.1)
    with pytest.raises(InputError, match=r"token\[1\] = 2"):
        lower_bound_over_contexts(laws, laws, np.array([0, 2]), 0.1)
    with pytest.raises(InputError, match="scores has shape"):
        lower_bound_over_contexts(laws, laws * np.nan, token, 0.1)
    with pytest.raises(LawError, match="laws, row 0 sums to 2"):
        lower_bound_over_contexts(2 * laws, laws, token, 0.1)
    with pytest.raises(InputError, match="measured_on has shape"):
        lower_bound([1, 1], [1, 1, 1], [0.5, 0.5], 0.1)


def test_the_sequential_bound_misses_as_seldom_as_it_says_where_rates_follow_the_past() -> None:
    """Exact: an event makes the next one more likely; all 2^12 histories are enumerated."""
    steps, alpha = 12, 0.05
    for tilt in (0.2, 1.0, 3.0):
        missed = 0.0
        for history in range(2**steps):
            chance, total, hits, before = 1.0, 0.0, 0, 0
            for step in range(steps):
                rate = 0.8 if before else 0.1
                before = history >> step & 1
                chance *= rate if before else 1.0 - rate
                total, hits = total + rate, hits + before
            bound = sequential_rate_lower(hits, steps, tilt, alpha)
            missed += chance * (bound > total / steps + 1e-12)
        assert missed <= alpha


def test_the_sequential_bound_is_near_the_exact_one_for_independent_draws() -> None:
    tilt = best_tilt(0.3, 10_000, 1e-6)
    found = sequential_rate_lower(3000, 10_000, tilt, 1e-6)
    assert clopper_pearson_lower(3000, 10_000, 1e-6) - 0.004 < found < 0.3


def test_the_sequential_bound_at_its_edges() -> None:
    assert sequential_rate_lower(0, 0, 1.0, 1e-6) == 0.0
    assert sequential_rate_lower(0, 50, 1.0, 1e-6) == 0.0
    assert 0.5 < sequential_rate_lower(100, 100, best_tilt(1.0, 100, 1e-6), 1e-6) <= 1.0
    assert best_tilt(0.0, 0, 1e-6) > 0.0
    for hits, tilt, text in ((4, 1.0, "hits = 4"), (1, 0.0, "tilt = 0.0"), (1, np.inf, "tilt")):
        with pytest.raises(InputError, match=text):
            sequential_rate_lower(hits, 3, tilt, 1e-6)
