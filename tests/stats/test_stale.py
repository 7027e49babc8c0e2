"""The shift detector: e-values of mean 1 by enumeration, shifts found, none invented."""

import math
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from rheocheck.errors import InputError, LawError
from rheocheck.stats.stale import detect_shift

VOCAB = 60


def chain(
    rng: np.random.Generator, num_rows: int, concentration: float = 0.1
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A text of a Markov source: [rows + 1, vocab] laws and [rows + 1] tokens."""
    matrix = rng.dirichlet(np.full(VOCAB, concentration), size=VOCAB)
    laws, tokens, previous = [], [], 0
    for _ in range(num_rows):
        law = matrix[previous]
        previous = int(rng.choice(VOCAB, p=law))
        laws.append(law)
        tokens.append(previous)
    return np.array(laws), np.array(tokens)


def test_laws_in_place_are_found_in_place() -> None:
    laws, token = chain(np.random.default_rng(1), 200)
    found = detect_shift(laws, token)
    assert (found.found, found.stale) == (0, False)
    assert found.p_value() > 0.1
    assert "their own tokens" in found.describe()


@pytest.mark.parametrize(("shift", "words"), [(1, "stale by one row"), (-1, "early by one row")])
def test_laws_shifted_by_one_are_called_by_name(shift: int, words: str) -> None:
    laws, token = chain(np.random.default_rng(2), 200)
    found = detect_shift(np.roll(laws, shift, axis=0), token)
    assert (found.found, found.stale) == (shift, True)
    assert found.p_value(0) < 1e-9 and found.p_value(shift) > 0.01
    assert words in found.describe()
    assert found.log_likelihood[shift] > found.log_likelihood[0]


def test_a_shift_of_two_is_found_when_asked_for() -> None:
    laws, token = chain(np.random.default_rng(3), 200)
    shifted = np.roll(laws, 2, axis=0)
    assert detect_shift(shifted, token).remaining == ()
    assert detect_shift(shifted, token, max_shift=2).found == 2


def history_law(history: tuple[int, ...]) -> NDArray[np.float64]:
    """A law on three tokens that depends on all tokens before, one of them likely."""
    weights = np.array([1.0, 2.0, 5.0])
    return np.roll(weights, sum((i + 1) * t for i, t in enumerate(history))) / 8.0


def mean_evidence(texts: Iterable[tuple[int, ...]], shift: int) -> float:
    """Mean of E_k over texts, weighed by their probability, whose laws stand `shift` rows off."""
    mean = 0.0
    for text in texts:
        laws = np.array([history_law(text[:t]) for t in range(len(text))])
        weight = float(np.prod(laws[np.arange(len(text)), list(text)]))
        # Rolled rows at the far end are never read.
        found = detect_shift(np.roll(laws, shift, axis=0), np.array(text))
        mean += weight * math.exp(found.log_e[shift])
    return mean


@pytest.mark.parametrize("shift", [-1, 0])
def test_evidence_against_the_truth_has_mean_one(shift: int) -> None:
    """Every text of five tokens: E_k is an e-value under H_k."""
    assert mean_evidence(product(range(3), repeat=5), shift) == pytest.approx(1.0, rel=1e-9)


def ended_texts(length: int) -> Iterator[tuple[int, ...]]:
    """Every text that ends at its first 0, or at the limit."""
    for size in range(1, length + 1):
        for body in product((1, 2), repeat=size - 1):
            yield (*body, 0)
            if size == length:
                yield from ((*body, 1), (*body, 2))


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_texts_that_end_at_a_token_of_theirs_are_not_tilted(shift: int) -> None:
    """Leaving out the last token of a text would leave out every end-of-text token."""
    mean = mean_evidence(ended_texts(5), shift)
    assert mean <= 1.0 + 1e-9
    assert mean == pytest.approx(1.0, rel=1e-9) or shift == 1


def test_evidence_against_a_wrong_shift_has_a_larger_mean() -> None:
    """The enumeration has teeth: aligned laws tested one row off do not give mean 1."""
    mean = 0.0
    for text in product(range(3), repeat=5):
        laws = np.array([history_law(text[:t]) for t in range(5)])
        weight = float(np.prod(laws[np.arange(5), list(text)]))
        mean += weight * math.exp(detect_shift(laws, np.array(text)).log_e[-1])
    assert mean > 1.1


def test_laws_in_place_are_seldom_called_stale() -> None:
    """At alpha 0.2, 300 texts of 30 rows: 105 or more false claims have probability below 1e-9."""
    rng = np.random.default_rng(4)
    false = sum(detect_shift(*chain(rng, 30, 1.0), alpha=0.2).stale for _ in range(300))
    assert false < 105


def test_rows_that_are_all_alike_cannot_be_placed() -> None:
    rng = np.random.default_rng(5)
    law = rng.dirichlet(np.full(VOCAB, 0.3))
    found = detect_shift(np.tile(law, (300, 1)), rng.choice(VOCAB, 300, p=law))
    assert found.remaining == (-1, 0, 1) and found.found is None and not found.stale
    assert "too alike" in found.describe()


def test_tokens_that_fit_nowhere_are_not_called_stale() -> None:
    rng = np.random.default_rng(6)
    laws, token = chain(rng, 300)
    found = detect_shift(laws, rng.permutation(token))
    assert found.remaining == () and not found.stale
    assert found.describe() == "the tokens fit the laws at no shift"


def test_no_law_is_carried_over_to_another_text() -> None:
    """Two texts of two rows have one row with a law at each shift; one text of four has three."""
    laws, token = chain(np.random.default_rng(7), 4)
    apart = detect_shift(laws, token, np.array([0, 0, 1, 1]))
    assert apart.num_rows == 4 and apart.num_compared == {-1: 2, 0: 4, 1: 2}
    assert detect_shift(laws, token).num_compared == {-1: 3, 0: 4, 1: 3}


def test_an_impossible_token_refutes_at_once() -> None:
    laws = np.array([[0.5, 0.5, 0.0]] * 3)
    found = detect_shift(laws, np.array([0, 2, 1]))
    assert found.log_e == {-1: math.inf, 0: math.inf, 1: math.inf}
    assert detect_shift(laws, np.array([2, 0, 1])).log_e[-1] < math.inf
    assert found.p_value() == 0.0


@pytest.mark.parametrize("num_rows", [0, 1, 2])
def test_too_few_rows_refute_nothing(num_rows: int) -> None:
    laws, token = np.full((num_rows, 4), 0.25), np.zeros(num_rows, dtype=np.int64)
    found = detect_shift(laws, token)
    assert found.p_value() == 1.0 and found.remaining == (-1, 0, 1)


def test_bad_input_is_named() -> None:
    laws, token = np.full((3, 4), 0.25), np.zeros(3, dtype=np.int64)
    with pytest.raises(LawError, match=r"laws, row 0 sums to 0\.5"):
        detect_shift(laws / 2, token)
    with pytest.raises(InputError, match=r"token\[2\] = 4"):
        detect_shift(laws, np.array([0, 1, 4]))
    with pytest.raises(InputError, match="max_shift = 0"):
        detect_shift(laws, token, max_shift=0)
    with pytest.raises(InputError, match="must be consecutive"):
        detect_shift(laws, token, np.array([0, 1, 0]))
    with pytest.raises(InputError, match="sequence has shape"):
        detect_shift(laws, token, np.array([0, 1]))
    with pytest.raises(InputError, match="shift = 3"):
        detect_shift(laws, token).p_value(3)
