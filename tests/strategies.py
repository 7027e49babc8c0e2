"""Hypothesis strategies: small exact laws, schemes, and models that look at their path."""

import random
from collections.abc import Callable
from fractions import Fraction

from hypothesis import strategies as st

from rheocheck.config import RULES, SpeculationConfig
from rheocheck.reference.laws import Law, Path


def law_of(*weights: int) -> Law:
    """The law proportional to integer weights."""
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def constant(law: Law) -> Callable[[Path], Law]:
    """The model that gives one law at every path."""
    return lambda path: law


def random_law(generator: random.Random, vocab: int, highest: int = 3) -> Law:
    """A law from integer weights of 0..highest: zeros and ties are common."""
    weights = [generator.randint(0, highest) for _ in range(vocab)]
    if not any(weights):
        weights[generator.randrange(vocab)] = 1
    return law_of(*weights)


def random_model(seed: object, vocab: int, highest: int = 3) -> Callable[[Path], Law]:
    """A model with a law of its own at every path."""
    return lambda path: random_law(random.Random(f"{seed} {path}"), vocab, highest)


def random_pair(seed: object, vocab: int, highest: int = 3) -> Callable[[Path], tuple[Law, Law]]:
    """A draft with independent ranking and tempered laws at every path."""
    ranking, draft = (
        random_model((seed, 0), vocab, highest),
        random_model((seed, 1), vocab, highest),
    )
    return lambda path: (ranking(path), draft(path))


@st.composite
def pmfs(draw: st.DrawFn, vocab: int) -> Law:
    """Exact laws on `vocab` tokens, zeros common; shrinks to a point mass."""
    weights = draw(st.lists(st.integers(0, 6), min_size=vocab, max_size=vocab).filter(any))
    return law_of(*weights)


def target_and_draft(max_vocab: int = 4) -> st.SearchStrategy[tuple[Law, Law]]:
    """Pairs of laws on one vocabulary; small enough for every test to enumerate."""
    return st.integers(1, max_vocab).flatmap(lambda vocab: st.tuples(pmfs(vocab), pmfs(vocab)))


@st.composite
def configs(
    draw: st.DrawFn, max_top_k: int = 3, max_budget: int = 5, max_depth: int = 2
) -> SpeculationConfig:
    """Schemes with small trees; shrinks to plain target sampling."""
    top_k = draw(st.integers(1, max_top_k))
    return SpeculationConfig(
        budget=draw(st.integers(0, max_budget)),
        depth=draw(st.integers(0, max_depth)),
        top_k=top_k,
        num_top=draw(st.integers(0, top_k)),
        support_size=draw(st.sampled_from((128, 1, 2, 3))),
        rule=draw(st.sampled_from(RULES)),
    )
