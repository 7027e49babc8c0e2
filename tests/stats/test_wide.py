"""Row by row as all at once; binned cumulants are never below the exact ones, and close."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rheocheck.stats import surprisal_bins, wide
from rheocheck.stats.pit import randomised_pit
from rheocheck.stats.scores import score_terms, surprisal
from rheocheck.stats.surprisal_bins import binned_terms

Array = NDArray[np.float64]


def laws(seed: int, vocab: int, spread: float, masked: bool) -> tuple[Array, NDArray[np.int64]]:
    """Six laws with ties, and a token of each; one token has no mass where some are masked."""
    rng = np.random.default_rng(seed)
    # Rounded logits tie.
    logits = np.round(rng.normal(0, spread, (6, vocab)), 1)
    if masked and vocab > 2:
        logits[:, rng.permutation(vocab)[: vocab // 3]] = -np.inf
    law = np.exp(logits - logits.max(axis=1, keepdims=True))
    law /= law.sum(axis=1, keepdims=True)
    drawn = np.array([rng.choice(vocab, p=row) for row in law])
    drawn[0] = int(law[0].argmin())
    return law, drawn


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 3, 40, 700]),
    st.sampled_from([0.0, 0.5, 3.0, 9.0]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rows_are_the_dense_statistics(seed: int, vocab: int, spread: float, masked: bool) -> None:
    law, drawn = laws(seed, vocab, spread, masked)
    rank, before = wide.ranks(law, drawn)
    order = np.argsort(-law, axis=1, kind="stable")
    assert (order[np.arange(6), rank] == drawn).all()
    assert before == pytest.approx(randomised_pit(law, drawn, np.zeros(6), -law), abs=1e-12)
    for count in {1, min(3, vocab), vocab}:
        top = wide.largest(law, count)
        assert (top == np.take_along_axis(law, order, axis=1)[:, :count]).all()
    found, wanted = wide.surprisal_terms(law, drawn), score_terms(law, surprisal(law), drawn)
    assert found.deviation == pytest.approx(wanted.deviation, abs=1e-9)
    assert found.variance == pytest.approx(wanted.variance, rel=1e-9, abs=1e-9)
    surplus = found.cumulant - wanted.cumulant
    assert (surplus >= -1e-12).all()
    assert (surplus <= 0.89**2 / 2048 + 0.002 * wanted.cumulant).all()


def test_the_largest_of_many_are_found_in_a_part_of_them() -> None:
    rng = np.random.default_rng(0)
    for law in (rng.random((2, 9000)), np.full((2, 9000), 1 / 9000), np.eye(9000)[:2]):
        assert (wide.largest(law, 100) == -np.sort(-law, axis=1)[:, :100]).all()


def test_a_long_head_is_binned_in_parts() -> None:
    """9,000 tokens within the clip are more than a chunk."""
    law, drawn = laws(2, 9000, 0.5, masked=False)
    found, wanted = wide.surprisal_terms(law, drawn), score_terms(law, surprisal(law), drawn)
    assert found.deviation == pytest.approx(wanted.deviation, abs=1e-9)
    assert (found.cumulant >= wanted.cumulant - 1e-12).all()
    assert found.cumulant == pytest.approx(wanted.cumulant, rel=5e-3, abs=1e-9)


def test_cumulants_of_one_bin_by_hand() -> None:
    """Two tokens of surprisal ln 2: no variance, and the bound's excess is that of one bin."""
    deviation, variance, cumulant = binned_terms(
        np.full(2, 0.5), np.full(2, np.log(2.0)), float(np.log(2.0))
    )
    assert deviation == pytest.approx(0.0, abs=1e-12)
    assert variance == pytest.approx(0.0, abs=1e-12)
    assert 0 <= cumulant.max() <= 0.89**2 / 2048


def test_mass_on_lower_edges_alone_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has teeth: without the split a bin's mass moves down, and so do cumulants."""
    edges = surprisal_bins._EDGE_POWERS
    monkeypatch.setattr(
        surprisal_bins, "_EDGE_POWERS", np.concatenate([edges[:1], edges[:-1]], axis=0)
    )
    with pytest.raises(AssertionError):
        test_rows_are_the_dense_statistics.hypothesis.inner_test(1, 700, 3.0, False)  # type: ignore[attr-defined]
