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
    target = _target_weights(cell, probe_law, generator, bits)
    order = _token_names(cell, generator)
    return NodeLaws(*(_named(weights, order) for weights in (target, ranking, draft)))


def sample_law(vocab: int, generator: random.Random, bits: int = 32) -> Law:
    """Draw a law with every token positive, for a node where nothing is compared.

    Args:
      vocab: Number of tokens.
      generator: Draws the coordinates.
      bits: They are uniform on {1..2^bits}.

    Returns:
      [vocab] law.
    """
    return _named([_coordinate(generator, bits) for _ in range(vocab)], range(vocab))


def _ranking_weights(cell: NodeCell, generator: random.Random, bits: int) -> list[int]:
    """[rank] weights of the ranking law: each group is the next one plus a positive step."""
    num_tail = len(cell.tail)
    weights = [0] * cell.num_unranked
    for start, size in reversed(list(zip(_starts(cell.groups), cell.groups, strict=True))):
        step = _coordinate(generator, bits)
        if cell.side is not None and start + size == cell.num_top:
            # The last group of the top: its weight relative to the tail mass is what `side` says.
            gap = sum(weights[1:num_tail])  # tail mass minus the weight below
            if cell.side < 0:
                weights = [weight * (2**bits + 1) for weight in weights]
                step *= gap
            else:
                step = gap + step * cell.side
        below = weights[0] if weights else 0
        weights = [below + step] * size + weights
    return weights


def _draft_weights(
    cell: NodeCell, generator: random.Random, bits: int
) -> tuple[list[int], list[int]]:
    """[rank] weights of the draft, and [tail] weights of the probe law that they lead to."""
    tail = [
        _coordinate(generator, bits) if mark in DRAWN and not cell.fallback else 0
        for mark in cell.tail
    ]
    # Where the draft is not used its zeros are free, as long as some mass is left.
    others = [
        _coordinate(generator, bits) if generator.random() < 0.75 else 0
        for _ in range(cell.vocab - len(tail))
    ]
    if not any(tail) and not any(others):
        others[0] = _coordinate(generator, bits)
    probe_law = [1] + [0] * (len(tail) - 1) if cell.fallback else tail
    return others[: cell.num_top] + tail + others[cell.num_top :], probe_law


def _target_weights(
    cell: NodeCell, probe_law: list[int], generator: random.Random, bits: int
) -> list[int]:
    """[rank] weights of the target: the probe law, with mass moved from donors to recipients."""

    def draw(positive: bool) -> int:
        return _coordinate(generator, bits) if positive else 0

    top = [draw(mark == POSITIVE) for mark in cell.top]
    outside = [draw(mark == POSITIVE) for mark in cell.outside]
    if not cell.tail:
        return top + outside
    if cell.exhausted:
        return top + [0] * (len(cell.tail) + len(outside))
    kept, gains = [], []
    for mark, weight in zip(cell.tail, probe_law, strict=True):
        whole = 2**bits + 1
        share = _coordinate(generator, bits) if mark == BELOW else whole * (mark != BELOW_ZERO)
        kept.append(weight * share)
        gains.append(draw(mark in RECIPIENTS))
    missing = sum(probe_law) * (2**bits + 1) - sum(kept)
    takers = sum(gains) + sum(outside) + (0 if cell.reduced else sum(top))
    unit = takers or 1  # without recipients nothing is missing
    tail = [unit * mass + missing * gain for mass, gain in zip(kept, gains, strict=True)]
    rest = tail + [missing * gain for gain in outside]
    if not cell.reduced:
        return [missing * gain for gain in top] + rest
    # The tail and what lies outside share what the top tokens leave.
    left = _coordinate(generator, bits)
    return [gain * sum(rest) for gain in top] + [left * mass for mass in rest]


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


def _named(weights: Sequence[int], order: Sequence[int]) -> Law:
    """The law of weights in rank order, normalised and in token-id order."""
    total = sum(weights)
    named = [Fraction(0)] * len(weights)
    for rank, token in enumerate(order):
        named[token] = Fraction(weights[rank], total)
    return tuple(named)
