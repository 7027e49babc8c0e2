"""Where probe-first verification beats recursive rejection, and where it does not.

One node without fillers (top_k = num_top + 1), any laws. With t = 1 - target(top),

    rheo = target(top) + sum over the tail of min(target, probe_law)
    rrsw = target(top) + sum over the tail of min(target, t * probe_law)

and t * min(a, b) <= min(a, t b) <= min(a, b) for t <= 1, so

    0 <= rheo - rrsw <= (1 - t) * sum min(target, probe_law) <= t (1 - t) <= 1/4,

the last but one because the tail has target mass t. Equality throughout: target (1/2, 1/2, 0) and
draft (1/2, 1/4, 1/4). Without top tokens (num_top = 0) the two rules are the same for any top_k.

One node with fillers: neither dominates. A rejected probe leaves the residual of probe_law, and its
fillers are worth what that residual gives them; recursive rejection has removed the top's mass
first and can leave all of the residual on the fillers. `search_node` finds the smallest instance.

Trees are in `dominance_trees`.

Source: the claim under study is that of Hu, Weng and Zhang (2026), arXiv:2609.21827.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rheocheck.bounds.laws import NodeLaws
from rheocheck.bounds.node import NODE_RULES, NodeRule, lay_out, layout_acceptance, node_acceptance
from rheocheck.errors import InputError

# Two node values with laws of denominator d are rationals whose difference has a denominator of at
# most d**6: numerators of probe_law and target share d * z with z <= d, and each rule divides once
# by a residual of that lattice. So floats with errors below 1e-12 decide which is larger.
LARGEST_DENOMINATOR = 30
SCREEN = 1e-10
MOST_PAIRS = 300_000


@dataclass(frozen=True, slots=True)
class NodeWitness:
    """One node at which one rule beats another.

    Attributes:
      target: [vocab] target law.
      draft: [vocab] draft law, in rank order.
      top_k: Children.
      num_top: Top children.
      acceptance: Acceptance of every rule.
    """

    target: tuple[Fraction, ...]
    draft: tuple[Fraction, ...]
    top_k: int
    num_top: int
    acceptance: dict[NodeRule, Fraction]


@dataclass(frozen=True, slots=True)
class NodeSearch:
    """What a search over all pairs of laws found.

    Attributes:
      witness: The instance with the least common denominator, of those the one with the largest
        gap; None if there is none.
      denominator: Its common denominator, or the largest one searched.
      num_pairs: Pairs of laws examined, all denominators together.
    """

    witness: NodeWitness | None
    denominator: int
    num_pairs: int


def search_node(
    vocab: int,
    top_k: int,
    num_top: int,
    max_denominator: int,
    better: NodeRule = "rrsw",
    worse: NodeRule = "rheo",
) -> NodeSearch:
    """Smallest pair of laws at which `better` accepts more often than `worse`.

    All pairs are examined, by common denominator of both laws: none is missed. The draft is taken
    in rank order, which loses nothing but the names of tokens.

    Args:
      vocab: Tokens.
      top_k: Children.
      num_top: Top children.
      max_denominator: Largest common denominator to try, at most 30.
      better: Rule that is to win.
      worse: Rule that is to lose.

    Returns:
      The witness, its values in rationals.

    Raises:
      InputError: A denominator out of range, or too many pairs of laws.
    """
    check_denominator(max_denominator, vocab)
    num_pairs = 0
    for denominator in range(1, max_denominator + 1):
        laws, pairs = all_pairs(vocab, denominator)
        num_pairs += len(laws.target)
        layout = lay_out(laws, top_k, num_top, vocab)
        gap = layout_acceptance(laws, layout, better) - layout_acceptance(laws, layout, worse)
        best = int(np.argmax(gap))
        if gap[best] > SCREEN:
            target, draft = pairs[best]
            witness = _node_witness(target, draft, denominator, top_k, num_top)
            assert witness.acceptance[better] > witness.acceptance[worse]
            return NodeSearch(witness, denominator, num_pairs)
    return NodeSearch(None, max_denominator, num_pairs)


@dataclass(frozen=True, slots=True)
class NoFillerCheck:
    """Both inequalities of the module's text on all pairs of laws with a common denominator.

    Attributes:
      holds: Whether 0 <= rheo - rrsw <= t (1 - t) everywhere.
      num_pairs: Pairs of laws examined.
      largest_gap: Largest rheo - rrsw seen.
    """

    holds: bool
    num_pairs: int
    largest_gap: float


def check_no_fillers(vocab: int, num_top: int, max_denominator: int) -> NoFillerCheck:
    """Examine all pairs of laws at one node without fillers.

    Args:
      vocab: Tokens.
      num_top: Top children; one probe follows.
      max_denominator: Largest common denominator, at most 30.

    Raises:
      InputError: A denominator out of range, or too many pairs of laws.
    """
    check_denominator(max_denominator, vocab)
    holds, num_pairs, largest = True, 0, 0.0
    for denominator in range(1, max_denominator + 1):
        laws, _ = all_pairs(vocab, denominator)
        layout = lay_out(laws, num_top + 1, num_top, vocab)
        gap = layout_acceptance(laws, layout, "rheo") - layout_acceptance(laws, layout, "rrsw")
        top = layout.target[..., :num_top].sum(axis=-1)
        holds = bool(holds and (gap > -SCREEN).all() and (gap <= top * (1 - top) + SCREEN).all())
        num_pairs += len(gap)
        largest = max(largest, float(gap.max()))
    return NoFillerCheck(holds, num_pairs, largest)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All tuples of `parts` integers >= 0 with a given sum, the first entry falling first."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def check_denominator(max_denominator: int, vocab: int) -> None:
    """Refuse denominators at which floats or memory would not do.

    Raises:
      InputError: Out of range, or more than MOST_PAIRS pairs of laws.
    """
    if not 1 <= max_denominator <= LARGEST_DENOMINATOR:
        raise InputError(
            f"max_denominator = {max_denominator}; required: 1 to {LARGEST_DENOMINATOR}, where "
            f"floats still tell two values apart"
        )
    # An unordered law has at most vocab! orders, so this counts the pairs from below.
    laws = math.comb(max_denominator + vocab - 1, vocab - 1)
    if laws**2 > MOST_PAIRS * math.factorial(vocab):
        raise InputError(
            f"max_denominator = {max_denominator} gives more than {MOST_PAIRS:,} pairs of laws on "
            f"{vocab} tokens; required: a smaller denominator"
        )


def all_pairs(
    vocab: int, denominator: int
) -> tuple[NodeLaws, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """[pair, vocab] laws and their weights: every target with every draft in rank order."""
    targets = list(compositions(denominator, vocab))
    drafts = [law for law in targets if list(law) == sorted(law, reverse=True)]
    pairs = [(target, draft) for draft in drafts for target in targets]
    weights = np.array(pairs, dtype=np.float64) / denominator
    draft = weights[:, 1]
    return NodeLaws(weights[:, 0], draft, draft), pairs


def _node_witness(
    target: tuple[int, ...], draft: tuple[int, ...], denominator: int, top_k: int, num_top: int
) -> NodeWitness:
    laws = [tuple(Fraction(weight, denominator) for weight in law) for law in (target, draft)]
    values: dict[NodeRule, Fraction] = {
        rule: Fraction(node_acceptance(laws[0], laws[1], top_k, num_top, len(target), rule))
        for rule in NODE_RULES
    }
    return NodeWitness(laws[0], laws[1], top_k, num_top, values)
