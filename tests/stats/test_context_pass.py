"""The single pass agrees with the dense statistics, and its cumulants never fall below theirs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rheocheck.errors import InputError
from rheocheck.stats.cells import RANK_STARTS, cell_law, rank_cell
from rheocheck.stats.context_pass import ContextPass, ContextStatistics
from rheocheck.stats.mutants import truncated
from rheocheck.stats.pit import draft_target_order, randomised_pit
from rheocheck.stats.scores import above_target, draft_score, score_terms, surprisal

Array = NDArray[np.float64]


def both(
    logits: NDArray[np.float32], draft: Array, token: int, uniform: float
) -> tuple[ContextStatistics, Array, list[Array], list[Array], list[Array]]:
    """The pass, the law, and dense deviations, variances and cumulants."""
    support = np.flatnonzero(draft)
    found = ContextPass(len(logits)).observe(logits, support, draft[support], token, uniform)
    power = np.exp(logits - logits.max()).astype(np.float64)
    law = (power / power.sum())[None, :]
    scores = (surprisal(law), draft_score(law, draft[None, :]), above_target(law, draft[None, :]))
    terms = [score_terms(law, score, np.array([token])) for score in scores]
    return (
        found,
        law,
        [term.deviation for term in terms],
        [term.variance for term in terms],
        [term.cumulant for term in terms],
    )


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 3, 40, 1500]),
    st.sampled_from([0.0, 0.5, 3.0, 9.0]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_pass_is_the_dense_statistics(
    seed: int, vocab: int, spread: float, masked: bool
) -> None:
    rng = np.random.default_rng(seed)
    # Rounded logits tie.
    logits = np.round(rng.normal(0, spread, vocab), 1).astype(np.float32)
    if masked and vocab > 2:
        logits[rng.permutation(vocab)[: vocab // 3]] = -np.inf
    draft = np.exp(0.8 * np.nan_to_num(logits, neginf=-3.0) + rng.normal(0, 1, vocab))
    draft = truncated(draft / draft.sum(), 20) if seed % 5 else np.zeros(vocab)
    power = np.exp(logits - logits.max()).astype(np.float64)
    token = int(rng.choice(vocab, p=power / power.sum()))
    uniform = float(rng.random())
    found, law, deviation, variance, cumulant = both(logits, draft, token, uniform)
    for index in range(3):
        assert found.deviation[index] == pytest.approx(deviation[index][0], abs=2e-6)
        assert found.variance[index] == pytest.approx(variance[index][0], rel=1e-5, abs=1e-9)
    assert found.cumulant[1:] == pytest.approx(np.concatenate(cumulant[1:]), rel=1e-5, abs=1e-9)
    surplus = found.cumulant[0] - cumulant[0][0]
    assert (surplus >= -1e-6 * (1 + cumulant[0][0])).all()
    assert (surplus <= 1e-3 + 0.002 * cumulant[0][0]).all()
    row = np.array([token])
    at = np.array([uniform])
    by_draft = randomised_pit(law, row, at, draft_target_order(law, draft[None, :]))
    assert found.pit_by_draft == pytest.approx(by_draft[0], abs=1e-6)
    by_target = randomised_pit(law, row, at, -law)
    assert found.pit_by_target == pytest.approx(by_target[0], abs=1e-6)
    assert found.probability == pytest.approx(law[0, token])
    assert found.above_mass == pytest.approx(float(law[0][draft > law[0]].sum()), abs=1e-9)
    assert found.above == bool(draft[token] > law[0, token])
    assert found.accept_rate == pytest.approx(float(np.minimum(law[0], draft).sum()), abs=1e-9)
    dense = cell_law(law, rank_cell(law), len(RANK_STARTS))[0]
    if law[0].min() > np.exp(-12) * 1.001:
        assert found.rank_law == pytest.approx(dense, abs=1e-9)
        assert found.rank_cell == rank_cell(law)[0, token]
    assert found.rank_law.sum() == pytest.approx(1.0)


def test_cumulants_of_one_bin_by_hand() -> None:
    """Two tokens of surprisal ln 2: no variance, and the bound's excess is that of one bin."""
    found = ContextPass(2).observe(
        np.zeros(2, np.float32), np.zeros(0, np.int64), np.zeros(0), 0, 0.5
    )
    assert found.deviation == pytest.approx(np.zeros(3), abs=1e-12)
    assert found.variance == pytest.approx(np.zeros(3), abs=1e-12)
    assert 0 <= found.cumulant[0].max() <= 0.89**2 / 2048
    assert (found.cumulant[1:] == 0).all()


def test_a_long_head_is_ranked_and_binned_in_parts() -> None:
    """9,000 tokens within the clip: more than a chunk, and preselected before they are ranked."""
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 0.5, 9000).astype(np.float32)
    for token in (int(logits.argmax()), 17, 8999):
        found, law, deviation, variance, cumulant = both(logits, np.zeros(9000), token, 0.3)
        assert found.deviation[0] == pytest.approx(deviation[0][0], abs=1e-6)
        assert found.variance[0] == pytest.approx(variance[0][0], rel=1e-6)
        assert found.cumulant[0] == pytest.approx(cumulant[0][0], rel=5e-3, abs=1e-9)
        cell = rank_cell(law)
        assert found.rank_cell == cell[0, token]
        assert found.rank_law == pytest.approx(cell_law(law, cell, 6)[0], abs=1e-9)


def test_sums_over_the_vocabulary() -> None:
    rng = np.random.default_rng(0)
    whole = ContextPass(50)
    laws, tokens = [], []
    for _ in range(70):
        logits = rng.normal(0, 3, 50).astype(np.float32)
        power = np.exp(logits - logits.max()).astype(np.float64)
        laws.append(power / power.sum())
        tokens.append(int(rng.integers(50)))
        whole.observe(logits, np.array([3]), np.array([1.0]), tokens[-1], 0.5)
    assert whole.expected == pytest.approx(np.sum(laws, axis=0), rel=1e-5)
    assert whole.squares == pytest.approx((np.array(laws) ** 2).sum(axis=0), abs=1e-8)
    assert (whole.counts == np.bincount(tokens, minlength=50)).all()


def test_a_masked_token_has_no_probability() -> None:
    logits = np.array([0.0, -np.inf], np.float32)
    found = ContextPass(2).observe(logits, np.array([1]), np.array([1.0]), 1, 0.5)
    assert found.probability == 0.0
    assert np.isfinite(found.deviation).all() and np.isfinite(found.cumulant).all()


def test_the_work_space_is_no_memory() -> None:
    """A context's statistics do not depend on those before it."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(0, 4, (2, 300)).astype(np.float32)
    whole, support, draft = ContextPass(300), np.arange(5), np.full(5, 0.2)
    whole.observe(first, support, draft, 7, 0.1)
    after = whole.observe(second, support, draft, 3, 0.4)
    alone = ContextPass(300).observe(second, support, draft, 3, 0.4)
    assert (after.cumulant == alone.cumulant).all() and after.pit_by_target == alone.pit_by_target


def test_bad_input_is_named() -> None:
    ok, none, empty = np.zeros(3, np.float32), np.zeros(0, np.int64), np.zeros(0)
    cases = [
        ((np.array([0, np.nan], np.float32), none, empty, 0, 0.5), "largest logit is nan"),
        ((np.array([0, np.inf], np.float32), none, empty, 0, 0.5), "largest logit is inf"),
        ((np.full(2, -np.inf, np.float32), none, empty, 0, 0.5), "largest logit is -inf"),
        ((np.zeros((1, 2), np.float32), none, empty, 0, 0.5), "logits has shape"),
        ((ok, np.array([3]), np.array([1.0]), 0, 0.5), "support: every token"),
        ((ok, np.array([1]), np.array([0.5]), 0, 0.5), "sum to 1"),
        ((ok, np.array([1, 2]), np.array([1.0, 0.0]), 0, 0.5), "positive"),
        ((ok, np.array([1]), empty, 0, 0.5), "equal ones"),
        ((ok, none, empty, 3, 0.5), "token = 3"),
        ((ok, none, empty, 0, 1.5), "uniform = 1.5"),
    ]
    for arguments, text in cases:
        with pytest.raises(InputError, match=text):
            ContextPass(len(arguments[0])).observe(*arguments)
