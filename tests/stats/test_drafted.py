"""Statistics from drafted tokens alone equal the dense ones, wherever the draft has mass."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rheocheck.stats import drafted as module
from rheocheck.stats.cells import ROLES, cell_law, role_cell
from rheocheck.stats.drafted import (
    Drafted,
    above_target_terms,
    draft_score_terms,
    pit_by_draft,
    roles,
)
from rheocheck.stats.pit import draft_target_order, randomised_pit
from rheocheck.stats.scores import ScoreTerms, above_target, draft_score, score_terms

Array = NDArray[np.float64]


def contexts(seed: int, vocab: int) -> tuple[Array, Array, NDArray[np.int64], Array]:
    """Laws with zeros and ties, drafts of any support or none, tokens with and without mass."""
    rng = np.random.default_rng(seed)
    count = 30
    target: Array = rng.integers(0, 4, (count, vocab)).astype(np.float64)
    target[np.arange(count), rng.integers(0, vocab, count)] += 1.0
    draft = np.where(rng.random((count, vocab)) < 0.4, rng.integers(0, 4, (count, vocab)), 0.0)
    target /= target.sum(axis=1, keepdims=True)
    draft /= np.maximum(draft.sum(axis=1, keepdims=True), 1.0)
    draft[::7] = 0.0
    draft[1::7] = target[1::7]
    return target, draft, rng.integers(0, vocab, count), rng.random(count)


def same_terms(found: ScoreTerms, wanted: ScoreTerms) -> None:
    assert found.deviation == pytest.approx(wanted.deviation, abs=1e-12)
    assert found.variance == pytest.approx(wanted.variance, abs=1e-12)
    assert found.cumulant == pytest.approx(wanted.cumulant, abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5, 40]))
@settings(max_examples=60, deadline=None)
def test_they_are_the_dense_statistics(seed: int, vocab: int) -> None:
    target, draft, token, uniform = contexts(seed, vocab)
    found = Drafted.of(target, draft, token)
    same_terms(draft_score_terms(found), score_terms(target, draft_score(target, draft), token))
    same_terms(above_target_terms(found), score_terms(target, above_target(target, draft), token))
    order = draft_target_order(target, draft)
    dense = randomised_pit(target, token, uniform, order)
    assert pit_by_draft(found, target, token, uniform) == pytest.approx(dense, abs=1e-12)
    for num_top, num_candidates in ((0, 0), (1, 4), (3, 2), (60, 60)):
        cell, law = roles(found, num_top, num_candidates)
        table = role_cell(draft, num_top, num_candidates)
        assert (cell == table[np.arange(len(token)), token]).all()
        assert law == pytest.approx(cell_law(target, table, len(ROLES)), abs=1e-12)


def test_no_contexts_and_no_draft_at_all() -> None:
    for count in (0, 3):
        target, draft = np.full((count, 4), 0.25), np.zeros((count, 4))
        token = np.arange(count)
        found = Drafted.of(target, draft, token)
        assert draft_score_terms(found).total().num_samples == count
        assert (draft_score_terms(found).deviation == 0).all()
        cell, law = roles(found, 1, 4)
        assert (cell == 3).all() and (law[:, 3] == 1).all()
        uniform = np.full(count, 0.5)
        wanted = (token + 0.5) / 4
        assert pit_by_draft(found, target, token, uniform) == pytest.approx(wanted)


def test_a_lost_rest_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison has teeth: the mass that the draft does not cover is left out."""
    right = module.Drafted.of

    def without_rest(target: Array, draft: Array, drawn: NDArray[np.int64]) -> Drafted:
        found = right(target, draft, drawn)
        found.rest[:] = 0.0
        return found

    monkeypatch.setattr(module.Drafted, "of", without_rest)
    with pytest.raises(AssertionError):
        test_they_are_the_dense_statistics.hypothesis.inner_test(3, 40)  # type: ignore[attr-defined]
