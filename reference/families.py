"""Families of small instances: the models and schemes that a certificate speaks of.

An instance is data: a scheme, a vocabulary, and the name of a recipe that makes the laws of any
path from a seed. So it can be sent to another process, and found again from its name.
"""

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.config import RULES, SpeculationConfig
from rheocheck.reference.edge_cases import EDGE_CASES
from rheocheck.reference.laws import Draft, Law, Path, Target

EDGE_GROUP = "named edge cases"
SEQUENCE_GROUP = "several rounds"
VOCABS = range(2, 6)
TOP_KS = range(1, 5)
BUDGETS = range(9)
DEPTHS = range(4)
# The quick sweep takes one cell of the grid in so many; coprime to every side of the grid.
QUICK_STRIDE = 17

DraftLaws: TypeAlias = Law | tuple[Law, Law]
Recipe: TypeAlias = Callable[[random.Random, int, int], tuple[Law, DraftLaws]]


@dataclass(frozen=True, slots=True)
class Instance:
    """One scheme on one pair of models.

    Attributes:
      group: What its laws have in common: a key of RECIPES, EDGE_GROUP or SEQUENCE_GROUP.
      recipe: Key of RECIPES, or of EDGE_CASES in the edge group.
      vocab: Number of tokens.
      config: The scheme.
      seed: What the laws are made from, with the path.
      num_tokens: Tokens of the law over several rounds; 0 for the law of one round.
    """

    group: str
    recipe: str
    vocab: int
    config: SpeculationConfig
    seed: str
    num_tokens: int = 0

    @property
    def name(self) -> str:
        """A line that identifies the instance."""
        config = self.config
        return (
            f"{self.recipe}: V={self.vocab} top_k={config.top_k} num_top={config.num_top} "
            f"budget={config.budget} depth={config.depth} support_size={config.support_size} "
            f"rule={config.rule}"
            + (f" num_tokens={self.num_tokens}" if self.num_tokens else "")
            + f" seed={self.seed}"
        )

    def models(self) -> tuple[Target, Draft]:
        """The target and the draft, as callables that remember what they returned."""
        if self.group == EDGE_GROUP:
            return EDGE_CASES[self.recipe].models()

        @functools.cache
        def laws(path: Path) -> tuple[Law, DraftLaws]:
            generator = random.Random(f"{self.seed} {path}")
            return RECIPES[self.recipe](generator, self.vocab, self.config.num_top)

        if self.recipe == "same law at every path":
            return lambda path: laws(())[0], lambda path: laws(())[1]
        return lambda path: laws(path)[0], lambda path: laws(path)[1]


def family(quick: bool = False, seed: int = 0) -> list[Instance]:
    """All instances of the sweep.

    The grid is every recipe with every top_k of 1..4, num_top of 0..top_k, budget of 0..8 and depth
    of 0..3; each cell gets a vocabulary of 2..5 and a support size up to it by the seed, and every
    rule. The named edge cases and a few laws of several rounds follow.

    Args:
      quick: Take one cell of the grid in QUICK_STRIDE.
      seed: Changes vocabularies, support sizes and laws.

    Returns:
      The instances; the same for the same arguments.
    """
    cells = list(_cells(seed))
    if quick:
        cells = cells[::QUICK_STRIDE]
    return [*itertools.chain(*map(_with_each_rule, cells)), *edge_instances(), *_sequences(seed)]


def edge_instances() -> list[Instance]:
    """Every named edge case with every rule."""
    return [
        instance
        for name, case in EDGE_CASES.items()
        for instance in _with_each_rule(
            Instance(EDGE_GROUP, name, case.vocab, case.config, "fixed")
        )
    ]


def _cells(seed: int) -> Iterator[Instance]:
    """The grid, with one rule."""
    schemes = [(top_k, num_top) for top_k in TOP_KS for num_top in range(top_k + 1)]
    for recipe, (top_k, num_top), budget, depth in itertools.product(
        RECIPES, schemes, BUDGETS, DEPTHS
    ):
        text = f"{seed}/{top_k}/{num_top}/{budget}/{depth}"
        generator = random.Random(f"{recipe} {text}")
        vocab = generator.choice(VOCABS)
        cut = generator.randrange(1, vocab + 1)
        config = SpeculationConfig(
            top_k=top_k,
            num_top=num_top,
            budget=budget,
            depth=depth,
            support_size=generator.choice((cut, vocab)),
        )
        yield Instance(recipe, recipe, vocab, config, text)


def _sequences(seed: int) -> list[Instance]:
    """Laws of several rounds, with targets that look at their whole history."""
    schemes = [(2, 1, 3, 2), (2, 0, 2, 2), (3, 1, 3, 1), (1, 0, 2, 2)]
    return [
        instance
        for number, (recipe, (top_k, num_top, budget, depth)) in enumerate(
            itertools.product(("zeros", "two laws"), schemes)
        )
        for instance in _with_each_rule(
            Instance(
                SEQUENCE_GROUP,
                recipe,
                2 + number % 2,
                SpeculationConfig(top_k=top_k, num_top=num_top, budget=budget, depth=depth),
                f"{seed}/sequence/{number}",
                num_tokens=4,
            )
        )
    ]


def _with_each_rule(instance: Instance) -> list[Instance]:
    return [
        replace(instance, config=instance.config.model_copy(update={"rule": rule}))
        for rule in RULES
    ]


def law_of(weights: list[int]) -> Law:
    """[vocab] law proportional to integer weights, which are not all zero."""
    total = sum(weights)
    return tuple(Fraction(weight, total) for weight in weights)


def random_law(generator: random.Random, vocab: int, lowest: int, highest: int) -> Law:
    """[vocab] law from integer weights in lowest..highest; a negative weight counts as 0.

    A point mass on a random token if all weights come out zero.
    """
    weights = [max(0, generator.randint(lowest, highest)) for _ in range(vocab)]
    if not any(weights):
        weights[generator.randrange(vocab)] = 1
    return law_of(weights)


def point_mass(token: int, vocab: int) -> Law:
    """[vocab] law that always gives `token`."""
    return law_of([int(index == token) for index in range(vocab)])


def _positive(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    """No zeros; the draft is peaked half of the time, which makes deep trees."""
    target, flat = random_law(generator, vocab, 1, 7), random_law(generator, vocab, 1, 7)
    peaked = law_of([4 ** generator.randrange(4) for _ in range(vocab)])
    return target, peaked if generator.random() < 0.5 else flat


def _zeros(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    return random_law(generator, vocab, -3, 4), random_law(generator, vocab, 0, 3)


def _ties(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    return random_law(generator, vocab, 0, 2), random_law(generator, vocab, 1, 2)


def _all_tied(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    return random_law(generator, vocab, 0, 4), law_of([1] * vocab)


def _point_masses(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    sharp = point_mass(generator.randrange(vocab), vocab)
    blunt = random_law(generator, vocab, 0, 3)
    return (sharp, blunt) if generator.random() < 0.5 else (blunt, sharp)


def _disjoint(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    owner = [generator.randrange(2) for _ in range(vocab)]
    owner[generator.randrange(vocab)] = 0
    if 1 not in owner:
        owner[owner.index(0)] = 1
    if 0 not in owner:
        owner[0] = 0
    weights = [generator.randint(1, 5) for _ in range(vocab)]
    target = [weight * (side == 0) for weight, side in zip(weights, owner, strict=True)]
    draft = [weight * (side == 1) for weight, side in zip(weights, owner, strict=True)]
    return law_of(target), law_of(draft)


def _equal(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    law = random_law(generator, vocab, 0, 4)
    return law, law


def _target_is_probe_law(
    generator: random.Random, vocab: int, num_top: int
) -> tuple[Law, DraftLaws]:
    """The target is the draft without its top: the probe is never rejected."""
    weights = [generator.randint(1, 5) for _ in range(vocab)]
    tail = weights.copy()
    for token in sorted(range(vocab), key=lambda token: -weights[token])[:num_top]:
        tail[token] = 0
    return law_of(tail if any(tail) else weights), law_of(weights)


def _two_laws(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    ranking = random_law(generator, vocab, 0, 4)
    return random_law(generator, vocab, 0, 4), (ranking, random_law(generator, vocab, 0, 4))


def _reversed(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    weights = sorted(generator.sample(range(1, 9), vocab))
    return random_law(generator, vocab, 0, 4), (law_of(weights), law_of(weights[::-1]))


def _tempered(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    """Temperature 1/2 or 1/3: the weights' powers."""
    weights = [generator.randint(1, 4) for _ in range(vocab)]
    power = generator.choice((2, 3))
    return (
        random_law(generator, vocab, 0, 4),
        (law_of(weights), law_of([weight**power for weight in weights])),
    )


def _cold(generator: random.Random, vocab: int, num_top: int) -> tuple[Law, DraftLaws]:
    """Temperature towards 0: the tempered draft is a point mass, so the tail may have no mass."""
    ranking = random_law(generator, vocab, 1, 4)
    return random_law(generator, vocab, 0, 4), (
        ranking,
        point_mass(ranking.index(max(ranking)), vocab),
    )


RECIPES: dict[str, Recipe] = {
    "positive": _positive,
    "zeros": _zeros,
    "ties": _ties,
    "all tied": _all_tied,
    "point masses": _point_masses,
    "disjoint supports": _disjoint,
    "target equals draft": _equal,
    "target equals probe law": _target_is_probe_law,
    "two laws": _two_laws,
    "two laws, reversed": _reversed,
    "tempered draft": _tempered,
    "cold draft": _cold,
    "same law at every path": _ties,
}


__all__: list[Any] = [
    "EDGE_GROUP",
    "RECIPES",
    "SEQUENCE_GROUP",
    "Instance",
    "edge_instances",
    "family",
    "law_of",
    "point_mass",
    "random_law",
]
