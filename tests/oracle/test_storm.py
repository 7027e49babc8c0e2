"""An outside judge: the model checker Storm computes the same laws, as fractions.

Needs `pip install "rheocheck[oracle]"`. Each instance's choice tree is written as an explicit
Markov chain; Storm's exact engine solves it, with code and arithmetic that are not ours.
"""

import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.reference.choices import Choose
from rheocheck.reference.defect import lossless_defect
from rheocheck.reference.draws import OracleDraws
from rheocheck.reference.markov import MarkovChain, choice_chain, to_drn
from rheocheck.reference.oracle import exact_law
from rheocheck.reference.round_law import round_law
from rheocheck.reference.sampler import sample_round

pytestmark = pytest.mark.nightly
stormpy = pytest.importorskip("stormpy", reason="the extra [oracle] is not installed")

Law = tuple[Fraction, ...]


def storm_law(chain: MarkovChain, folder: Path) -> dict[Any, Fraction]:
    """Probability of each outcome, by Storm's exact engine."""
    path = folder / "chain.drn"
    path.write_text(to_drn(chain), encoding="utf-8")
    chain_in_storm = stormpy.build_model_from_drn[stormpy.Rational](str(path))
    assert chain_in_storm.nr_states == chain.num_states
    law = {}
    for number, outcome in enumerate(chain.outcomes):
        query = stormpy.parse_properties(f'P=? [F "outcome{number}"]')[0]
        value = stormpy.model_checking(chain_in_storm, query).get_value(0)
        law[outcome] = Fraction(str(value))
    return law


def models(
    seed: int, vocab: int, lowest: int
) -> tuple[Callable[[tuple[int, ...]], Law], Callable[[tuple[int, ...]], Law]]:
    """Random laws at every path; `lowest` = 0 makes zeros."""

    def law(name: str, path: tuple[int, ...]) -> Law:
        generator = random.Random(f"{seed} {name} {path}")
        weights = [generator.randint(lowest, 6) for _ in range(vocab)]
        weights[generator.randrange(vocab)] += 1
        return tuple(Fraction(weight, sum(weights)) for weight in weights)

    return lambda path: law("target", path), lambda path: law("draft", path)


# vocab, top_k, num_top, budget, depth, support_size, smallest weight
SHAPES = [
    (2, 2, 0, 2, 2, 2, 1),
    (3, 2, 1, 3, 2, 3, 1),
    (3, 2, 0, 3, 2, 3, 0),
    (3, 3, 1, 4, 2, 2, 0),
    (4, 2, 1, 2, 1, 4, 1),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_storm_computes_the_same_law_of_a_round(
    shape: tuple[int, ...], rule: Rule, tmp_path: Path
) -> None:
    vocab, top_k, num_top, budget, depth, support_size, lowest = shape
    config = SpeculationConfig(
        top_k=top_k,
        num_top=num_top,
        budget=budget,
        depth=depth,
        support_size=support_size,
        rule=rule,
    )
    target, draft = models(sum(shape), vocab, lowest)

    def program(choose: Choose) -> tuple[int, ...]:
        return sample_round(target, draft, config, OracleDraws(choose)).emission

    chain = choice_chain(program)
    law = storm_law(chain, tmp_path)
    assert law == exact_law(program)
    assert law == dict(round_law(target, draft, config, "classes").emissions)
    assert lossless_defect(law, target) == 0


def test_storm_sees_a_lossy_sampler(tmp_path: Path) -> None:
    """Resampling from the target itself after a rejection gives (5/12, 7/12) for (1/2, 1/2)."""
    target, draft = (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 3), Fraction(2, 3))

    def program(choose: Choose) -> tuple[int, ...]:
        token = choose.categorical(draft)
        if choose.bernoulli(min(Fraction(1), target[token] / draft[token])):
            return (token,)
        return (choose.categorical(target),)

    law = storm_law(choice_chain(program), tmp_path)
    assert law == exact_law(program)
    assert law == {(0,): Fraction(5, 12), (1,): Fraction(7, 12)}
    assert lossless_defect(law, lambda path: target) > 0
