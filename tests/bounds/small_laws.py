"""Strategies: exact laws on a few tokens, zeros and ties common."""

from fractions import Fraction

from hypothesis import strategies as st

Law = tuple[Fraction, ...]


def law_from(weights: list[int]) -> Law:
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def laws(vocab: int, largest: int = 5) -> st.SearchStrategy[Law]:
    weights = st.lists(st.integers(0, largest), min_size=vocab, max_size=vocab)
    return weights.filter(any).map(law_from)


def pairs(max_vocab: int = 5) -> st.SearchStrategy[tuple[Law, Law]]:
    """Target and draft on one vocabulary."""
    return st.integers(1, max_vocab).flatmap(lambda vocab: st.tuples(laws(vocab), laws(vocab)))


def triples(max_vocab: int = 5) -> st.SearchStrategy[tuple[Law, Law, Law]]:
    """Target, ranking law and tempered draft on one vocabulary."""
    return st.integers(1, max_vocab).flatmap(
        lambda vocab: st.tuples(laws(vocab), laws(vocab), laws(vocab, 2))
    )


def floats(law: Law) -> list[float]:
    return [float(mass) for mass in law]
