"""Sign cells of one node: where every comparison the scheme makes has a fixed outcome.

One node meets these comparisons: the order of the ranking law (ties and zeros included), the sides
of min(ranking of the last top token, tail mass), and at each tail token the sign of target minus
probe law, plus which masses are zero. A cell fixes them all. On a cell the law of a round, and so
its lossless defect, is one rational function of the laws.

Cells are taken up to the tokens' names: a token is its rank. `cell_points` draws points of a cell.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.config import SpeculationConfig
from rheocheck.reference.laws import Law

# Target against probe law at one tail token. The last two have probe law 0.
BELOW, BELOW_ZERO, EQUAL, ABOVE, BOTH_ZERO, NEW = "-", "z", "=", "+", "0", "n"
POSITIVE, ZERO = "p", "0"
DONORS, RECIPIENTS = frozenset((BELOW, BELOW_ZERO)), frozenset((ABOVE, NEW))
DRAWN = frozenset((BELOW, BELOW_ZERO, EQUAL, ABOVE))


@dataclass(frozen=True, slots=True)
class NodeCell:
    """One cell, tokens named by rank.

    Attributes:
      groups: Sizes of the groups of tied tokens of positive ranking, best group first.
      num_unranked: Tokens of ranking 0; they come last.
      num_top: Deterministic children that exist: the first tokens in rank order.
      side: Sign of (ranking of the last top token) - (tail mass); None without top or tail.
      fallback: The draft has no mass on the tail, so that the probe is the first tail token.
      top: [num_top] POSITIVE or ZERO: the target's mass on each top token.
      tail: [tail] target against probe law, one of BELOW (0 < target < probe law), BELOW_ZERO
        (target 0), EQUAL, ABOVE, BOTH_ZERO, NEW (probe law 0, target positive); empty where the
        node has no probe.
      outside: [rest] POSITIVE or ZERO: the target's mass on each token neither top nor tail.
      reduced: The signs compare the target once the top tokens are taken out and the rest is
        renormalised (recursive rejection in slot order), not the target itself.
    """

    groups: tuple[int, ...]
    num_unranked: int
    num_top: int
    side: int | None
    fallback: bool
    top: str
    tail: str
    outside: str
    reduced: bool

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return sum(self.groups) + self.num_unranked

    @property
    def exhausted(self) -> bool:
        """With `reduced`: the top tokens hold all of the target, so no test goes beyond them."""
        rest = self.tail + self.outside
        return self.reduced and not any(mark not in (BELOW_ZERO, BOTH_ZERO) for mark in rest)

    def describe(self) -> str:
        """One line for people."""
        names = [f"x{rank + 1}" for rank in range(self.vocab)]
        ends = list(itertools.accumulate(self.groups, initial=0))
        order = ["=".join(names[start:end]) for start, end in itertools.pairwise(ends)]
        zero = "=".join([*names[ends[-1] :], "0"])
        parts = [f"ranking {' > '.join([*order, zero])}"]
        if self.side is not None:
            parts.append(f"x{self.num_top} {'<=>'[self.side + 1]} tail mass")
        parts.append(f"target: top {self.top or 'none'}, tail {self.tail or 'none'}")
        parts.append(f"outside {self.outside or 'none'}")
        if self.fallback:
            parts.append("draft without mass on the tail")
        return ", ".join(parts)


def node_cells(vocab: int, config: SpeculationConfig, zeros: bool) -> Iterator[NodeCell]:
    """All cells of a node under one scheme.

    Args:
      vocab: Number of tokens, at least 1.
      config: top_k, num_top, support_size and rule are used.
      zeros: False leaves out the cells where a mass of some law is zero.

    Yields:
      Every cell once; none is empty.
    """
    for groups, num_unranked in ranking_orders(vocab, zeros):
        num_top, num_tail = split_support(sum(groups), config)
        num_outside = vocab - num_top - num_tail
        marks = "0p" if zeros else "p"
        tail_marks = "-z=+0n" if zeros else "-=+"
        for side in _sides(groups, num_top, num_tail):
            for top, tail, outside in itertools.product(
                itertools.product(marks, repeat=num_top),
                itertools.product(tail_marks, repeat=num_tail),
                itertools.product(marks, repeat=num_outside),
            ):
                for fallback in (False, True) if zeros and num_tail else (False,):
                    cell = NodeCell(
                        groups, num_unranked, num_top, side, fallback, "".join(top),
                        "".join(tail), "".join(outside), config.rule == "rrsw",
                    )  # fmt: skip
                    if is_feasible(cell):
                        yield cell


def ranking_orders(vocab: int, zeros: bool) -> Iterator[tuple[tuple[int, ...], int]]:
    """Weak orders of the ranking law up to the tokens' names.

    Args:
      vocab: Number of tokens.
      zeros: Whether tokens of ranking 0 are allowed.

    Yields:
      Sizes of the tied groups, best first, and the number of tokens of ranking 0.
    """
    for num_ranked in range(1 if zeros else vocab, vocab + 1):
        for cuts in itertools.product((False, True), repeat=num_ranked - 1):
            sizes = [1]
            for cut in cuts:
                if cut:
                    sizes.append(1)
                else:
                    sizes[-1] += 1
            yield tuple(sizes), vocab - num_ranked


def is_feasible(cell: NodeCell) -> bool:
    """Whether any laws lie in the cell: what the target lacks at some tokens it has at others."""
    if not cell.tail:
        return POSITIVE in cell.top + cell.outside
    drawn = [mark in DRAWN for mark in cell.tail]
    if cell.fallback:
        if not drawn[0] or any(drawn[1:]) or cell.num_top + len(cell.outside) == 0:
            return False
    elif not any(drawn):
        return False
    gives = any(mark in DONORS for mark in cell.tail)
    takes = any(mark in RECIPIENTS for mark in cell.tail) or POSITIVE in cell.outside
    if cell.reduced:
        return POSITIVE in cell.top if cell.exhausted else gives == takes
    return gives == (takes or POSITIVE in cell.top)


def random_cell(
    vocab: int,
    config: SpeculationConfig,
    ranking_generator: random.Random,
    generator: random.Random,
    zeros: bool = True,
) -> NodeCell:
    """Draw a cell: its ranking part from one generator, its signs from another.

    Args:
      vocab: Number of tokens.
      config: As in `node_cells`.
      ranking_generator: Draws the order and the side.
      generator: Draws the signs and zeros, until they are feasible.
      zeros: As in `node_cells`; half of the signs come without zeros even if True.

    Returns:
      A cell that is not empty. Every cell has positive probability.
    """
    num_ranked = vocab
    if zeros and ranking_generator.random() < 0.25:
        num_ranked = ranking_generator.randint(1, vocab)
    sizes = [1]
    for _ in range(num_ranked - 1):
        if ranking_generator.random() < 0.6:
            sizes.append(1)
        else:
            sizes[-1] += 1
    groups = tuple(sizes)
    num_top, num_tail = split_support(num_ranked, config)
    side = ranking_generator.choice(_sides(groups, num_top, num_tail))
    while True:
        with_zeros = zeros and generator.random() < 0.5
        marks, tail_marks = ("0pp", "--z==++0n") if with_zeros else ("p", "-=+")
        cell = NodeCell(
            groups,
            vocab - num_ranked,
            num_top,
            side,
            bool(num_tail) and with_zeros and generator.random() < 0.1,
            "".join(generator.choices(marks, k=num_top)),
            "".join(generator.choices(tail_marks, k=num_tail)),
            "".join(generator.choices(marks, k=vocab - num_top - num_tail)),
            config.rule == "rrsw",
        )
        if is_feasible(cell):
            return cell


def cell_of(target: Law, ranking: Law, draft: Law, config: SpeculationConfig) -> NodeCell:
    """The cell that given laws lie in.

    Args:
      target: [vocab] target law.
      ranking: [vocab] law that orders and scores.
      draft: [vocab] law that the probe is drawn from.
      config: As in `node_cells`.

    Returns:
      Their cell.
    """
    order = sorted(range(len(ranking)), key=lambda token: (-ranking[token], token))
    ranked = [token for token in order if ranking[token] > 0]
    groups = tuple(len(list(tied)) for _, tied in itertools.groupby(ranked, ranking.__getitem__))
    num_top, num_tail = split_support(len(ranked), config)
    top, tail = order[:num_top], order[num_top : num_top + num_tail]
    outside = order[num_top + num_tail :]
    side = None
    if top and tail:
        difference = ranking[top[-1]] - sum(ranking[token] for token in tail)
        side = (difference > 0) - (difference < 0)
    drawn = sum(draft[token] for token in tail)
    probe_law = [draft[token] / drawn for token in tail] if drawn else [Fraction(1)]
    probe_law += [Fraction(0)] * (num_tail - len(probe_law))
    reduced = config.rule == "rrsw"
    left = 1 - sum(target[token] for token in top) if reduced else Fraction(1)
    kept = [target[token] / left if left else Fraction(0) for token in tail]
    return NodeCell(
        groups, len(order) - len(ranked), num_top, side, bool(tail) and not drawn,
        "".join(POSITIVE if target[token] else ZERO for token in top),
        "".join(_mark(*masses) for masses in zip(kept, probe_law[:num_tail], strict=True)),
        "".join(POSITIVE if target[token] else ZERO for token in outside), reduced,
    )  # fmt: skip


def split_support(num_ranked: int, config: SpeculationConfig) -> tuple[int, int]:
    """Numbers of top and of tail tokens; a node with num_top >= top_k has no probe and no tail."""
    num_support = min(num_ranked, config.support_size)
    if config.num_top >= config.top_k:
        return min(num_support, config.top_k), 0
    num_top = min(num_support, config.num_top)
    return num_top, num_support - num_top


def _sides(groups: Sequence[int], num_top: int, num_tail: int) -> tuple[int | None, ...]:
    """Signs that (ranking of the last top token) - (tail mass) can take."""
    if num_top == 0 or num_tail == 0:
        return (None,)
    tied = num_top not in itertools.accumulate(groups)
    if tied:  # with the first tail token
        return (0,) if num_tail == 1 else (-1,)
    return (1,) if num_tail == 1 else (-1, 0, 1)


def _mark(target: Fraction, probe_law: Fraction) -> str:
    if probe_law == 0:
        return NEW if target else BOTH_ZERO
    if target == probe_law:
        return EQUAL
    return ABOVE if target > probe_law else BELOW if target else BELOW_ZERO
