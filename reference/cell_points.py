"""Random rational points of a sign cell.

A cell is written as the image of a box: every coordinate is a free positive integer, none is
rejected. `sample_laws` draws the coordinates from {1..2^bits}, so Schwartz and Zippel apply with
the whole box: a rational function whose numerator has degree d and is not identically zero on the
cell vanishes at the drawn point with probability at most d / 2^bits. Over positive reals the same
map reaches every point of the cell, so a function that is zero on the box is zero on all of it.

Tokens are named at random, in an order that agrees with the tie rule (equal ranking: smaller id
first).

Source: Schwartz (1980), Fast probabilistic algorithms for verification of polynomial identities,
J. ACM 27; Zippel (1979), Probabilistic algorithms for sparse polynomials.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.reference.cells import (
    BELOW,
    BELOW_ZERO,
    DRAWN,
    POSITIVE,
    RECIPIENTS,
    NodeCell,
)
from rheocheck.reference.laws import Law

# An entry of a law is a quotient of polynomials in the coordinates; neither degree is larger.
ENTRY_DEGREE = 4


@dataclass(frozen=True, slots=True)
class NodeLaws:
    """The laws of one node at one point of a cell.

    Attributes:
      target: [vocab] target law, in token-id order.
      ranking: [vocab] law that orders and scores.
      draft: [vocab] law that the probe is drawn from, before it is restricted to the tail.
    """

    target: Law
    ranking: Law
    draft: Law


def sample_laws(
    cell: NodeCell,
    ranking_generator: random.Random,
    generator: random.Random,
    bits: int = 32,
    ranking_bits: int | None = None,
) -> NodeLaws:
    """Draw a random rational point of a cell, and names for its tokens.

    Args:
      cell: A feasible cell.
      ranking_generator: Draws the ranking law's coordinates.
      generator: Draws the names and the coordinates of the target and the draft.
      bits: Coordinates are uniform on {1..2^bits}.
      ranking_bits: The same for the ranking law; None for `bits`. Few bits make ties between
        products of several nodes common.

    Returns:
      Three laws. Token ids are a random permutation of the ranks that puts the smaller id first
      within a tied group.
    """
    ranking = _ranking_weights(cell, ranking_generator, ranking_bits or bits)
    draft, probe_law = _draft_weights(cell, generator, bits)
    target = _target_law(cell, probe_law, generator, bits)
    order = _token_names(cell, generator)
    return NodeLaws(*(_renamed(_normalised(law), order) for law in (target, ranking, draft)))


def _ranking_weights(cell: NodeCell, generator: random.Random, bits: int) -> list[Fraction]:
    """[rank] weights of the ranking law: each group is the next one plus a positive step."""
    num_tail = len(cell.tail)
    weights = [Fraction(0)] * cell.num_unranked
    for start, size in reversed(list(zip(_starts(cell.groups), cell.groups, strict=True))):
        below = weights[0] if weights else Fraction(0)
        step = Fraction(_coordinate(generator, bits))
        if cell.side is not None and start + size == cell.num_top:
            # The last group of the top: its weight relative to the tail mass is what `side` says.
            tail_mass = sum(weights[:num_tail], Fraction(0))
            if cell.side < 0:
                step = (tail_mass - below) * step / (2**bits + 1)
            elif cell.side == 0:
                step = tail_mass - below
            else:
                step += tail_mass - below
        weights = [below + step] * size + weights
    return weights


def _draft_weights(
    cell: NodeCell, generator: random.Random, bits: int
) -> tuple[list[Fraction], list[Fraction]]:
    """[rank] weights of the draft, and [tail] the probe law that they lead to."""
    rest = cell.vocab - len(cell.tail)
    tail = [
        Fraction(_coordinate(generator, bits) if mark in DRAWN and not cell.fallback else 0)
        for mark in cell.tail
    ]
    # Where the draft is not used its zeros are free, as long as some mass is left.
    others = [
        Fraction(_coordinate(generator, bits) if generator.random() < 0.75 else 0)
        for _ in range(rest)
    ]
    if not any(tail) and not any(others):
        others[0] = Fraction(_coordinate(generator, bits))
    if cell.fallback:
        probe_law = [Fraction(int(index == 0)) for index in range(len(tail))]
    else:
        mass = sum(tail, Fraction(0))
        probe_law = [weight / mass for weight in tail]
    return others[: cell.num_top] + tail + others[cell.num_top :], probe_law


def _target_law(
    cell: NodeCell, probe_law: list[Fraction], generator: random.Random, bits: int
) -> list[Fraction]:
    """[rank] target law: the probe law, with mass moved from donors to recipients."""

    def draw(positive: bool) -> Fraction:
        return Fraction(_coordinate(generator, bits) if positive else 0)

    top = [draw(mark == POSITIVE) for mark in cell.top]
    outside = [draw(mark == POSITIVE) for mark in cell.outside]
    if not cell.tail:
        return top + outside
    tail, gains = [], []
    for mark, mass in zip(cell.tail, probe_law, strict=True):
        share = Fraction(_coordinate(generator, bits), 2**bits + 1)
        tail.append(mass * share if mark == BELOW else Fraction(0) if mark == BELOW_ZERO else mass)
        gains.append(draw(mark in RECIPIENTS))
    missing = 1 - sum(tail, Fraction(0))
    takers = gains + outside + ([] if cell.reduced else top)
    unit = missing / sum(takers, Fraction(0)) if any(takers) else Fraction(0)
    tail = [mass + unit * gain for mass, gain in zip(tail, gains, strict=True)]
    outside = [unit * gain for gain in outside]
    if not cell.reduced:
        return [unit * gain for gain in top] + tail + outside
    if cell.exhausted:
        return top + [Fraction(0)] * (len(tail) + len(outside))
    left = Fraction(_coordinate(generator, bits))
    return top + [left * mass for mass in tail + outside]


def _token_names(cell: NodeCell, generator: random.Random) -> list[int]:
    """[rank] token id; ascending within a tied group, as the tie rule has it."""
    order = list(range(cell.vocab))
    generator.shuffle(order)
    groups = (*cell.groups, cell.num_unranked)
    for start, size in zip(_starts(groups), groups, strict=True):
        order[start : start + size] = sorted(order[start : start + size])
    return order


def _starts(groups: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(groups)][:-1]


def _coordinate(generator: random.Random, bits: int) -> int:
    return generator.getrandbits(bits) + 1


def _normalised(weights: Sequence[Fraction]) -> Law:
    total = sum(weights, Fraction(0))
    return tuple(weight / total for weight in weights)


def _renamed(law: Law, order: Sequence[int]) -> Law:
    named = [Fraction(0)] * len(law)
    for rank, token in enumerate(order):
        named[token] = law[rank]
    return tuple(named)
