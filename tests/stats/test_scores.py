"""Directed scores: exact moments, an e-value that is one, power in the direction they point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rheocheck.stats.scores import (
    NO_SCORES,
    TILTS,
    draft_score,
    off_support,
    score_moments,
    score_sums,
    surprisal,
)


def draw(laws: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    above = rng.random(len(laws))[:, None] > laws.cumsum(axis=1)
    return np.asarray(above.sum(axis=1).clip(max=laws.shape[1] - 1), dtype=np.int64)


def test_moments_by_hand() -> None:
    law, score = np.array([[0.25, 0.75]]), np.array([[4.0, 0.0]])
    sums = score_sums(law, score, np.array([0]))
    assert sums.deviation == pytest.approx(3.0)
    assert sums.variance == pytest.approx(3.0)
    direct = np.log(0.25 * np.exp(TILTS * 3.0) + 0.75 * np.exp(-TILTS * 1.0))
    assert sums.cumulant == pytest.approx(direct)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_the_e_value_has_mean_exactly_one(seed: int) -> None:
    """Summed over all outcomes of three contexts, exp(log_e) weighted by probability is 1."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(3, 0.7), size=3)
    score = rng.normal(size=(3, 3))
    mean = 0.0
    for outcome in np.ndindex(3, 3, 3):
        token = np.array(outcome)
        probability = float(np.prod(law[np.arange(3), token]))
        mean += probability * float(np.exp(score_sums(law, score, token).log_e))
    assert mean == pytest.approx(1.0, rel=1e-9)


def test_sums_add_up_over_parts() -> None:
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.full(5, 0.5), size=40)
    token = draw(law, rng)
    whole = score_sums(law, surprisal(law), token)
    parts = NO_SCORES
    for rows in (slice(0, 13), slice(13, 40)):
        parts = parts + score_sums(law[rows], surprisal(law)[rows], token[rows])
    assert parts.z == pytest.approx(whole.z)
    assert parts.log_e == pytest.approx(whole.log_e)


def test_null_draws_are_quiet() -> None:
    """5,000 contexts at level 1e-6; the e-value's p-value is valid, not approximate."""
    rng = np.random.default_rng(1)
    target, draft = rng.dirichlet(np.full((20), 0.3), size=(2, 5000))
    token = draw(target, rng)
    for score in (surprisal(target), draft_score(target, draft)):
        sums = score_sums(target, score, token)
        assert abs(sums.z) < 5
        assert sums.p_value > 1e-6


def test_a_wrong_temperature_is_seen_by_surprisal() -> None:
    """5,000 contexts drawn at temperature 1.25 instead of 1: z of about 10 and more."""
    rng = np.random.default_rng(2)
    law = rng.dirichlet(np.full(20, 0.5), size=5000)
    hot = law**0.8 / (law**0.8).sum(axis=1, keepdims=True)
    sums = score_sums(law, surprisal(law), draw(hot, rng))
    assert sums.z > 7
    assert sums.p_value < 1e-6


def test_draft_mass_is_seen_by_the_draft_score() -> None:
    """A tenth of the draft mixed in, 5,000 contexts."""
    rng = np.random.default_rng(3)
    target, draft = rng.dirichlet(np.full(20, 0.5), size=(2, 5000))
    token = draw(0.9 * target + 0.1 * draft, rng)
    assert score_sums(target, draft_score(target, draft), token).p_value < 1e-6


def test_the_score_of_a_context_without_draft_is_zero() -> None:
    target = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])
    draft = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    score = draft_score(target, draft)
    assert score[0].tolist() == [0.0, 0.0]
    assert score[1].tolist() == pytest.approx([np.log(2.0), -3.0])
    assert score[2].tolist() == [0.0, -3.0]


def test_tokens_outside_the_support_are_found_and_left_out_of_the_sums() -> None:
    law = np.array([[0.0, 1.0], [0.5, 0.5]])
    token = np.array([0, 0])
    assert off_support(law, token).tolist() == [0]
    assert score_sums(law, surprisal(law), token).num_samples == 1


def test_no_contexts_are_no_evidence() -> None:
    assert NO_SCORES.z == 0.0
    assert NO_SCORES.p_value == 1.0


@pytest.mark.parametrize("extreme", [-3.0, 5.0])
def test_tokens_of_one_score_count_as_one(extreme: float) -> None:
    """Moments of a clipped score on 300 tokens are those of the few that are not clipped."""
    rng = np.random.default_rng(1)
    laws = rng.dirichlet(np.full(300, 0.3), size=4)
    laws[0, :200] = 0.0
    laws /= laws.sum(axis=1, keepdims=True)
    score = np.full(laws.shape, extreme)
    for row, count in enumerate((0, 1, 7, 90)):
        score[row, rng.choice(300, count, replace=False)] = rng.uniform(-2.0, 4.0, count)
    mean, variance, cumulant = score_moments(laws, score)
    by_hand = (laws * score).sum(axis=1)
    centred = score - by_hand[:, None]
    assert mean == pytest.approx(by_hand, abs=1e-14)
    assert variance == pytest.approx((laws * centred**2).sum(axis=1), abs=1e-13)
    for index, tilt in enumerate(TILTS):
        expected = np.log((laws * np.exp(tilt * centred)).sum(axis=1))
        assert cumulant[:, index] == pytest.approx(expected, abs=1e-13)
