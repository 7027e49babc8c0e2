"""Children of one node: deterministic top tokens, one random probe, deterministic fillers.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, dual-identity expansion. Their target, draft
and restricted draft laws are `target`, `draft` and `probe_law` here; the law that scores is
`ranking`.
"""

from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from rheocheck.config import SpeculationConfig
from rheocheck.reference.laws import ONE, ZERO, Law, exact_sum, normalised, truncate


class Role(IntEnum):
    """Why a node is in the tree."""

    TOP = 0
    PROBE = 1
    FILLER = 2


@dataclass(frozen=True, slots=True)
class Child:
    """One child of an expanded node.

    Attributes:
      token: Its token id.
      slot: Its place among its siblings, from 0.
      role: Top, probe or filler.
      factor: What it multiplies its parent's score by, in (0, 1].
    """

    token: int
    slot: int
    role: Role
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Expansion:
    """What is known of a node's children before its probe is drawn.

    Attributes:
      tokens: [rank] support in rank order: by (ranking descending, token id ascending).
      ranking: [rank] ranking law on the support: positive, sums to 1.
      num_top: Number of deterministic top children: the first tokens in rank order.
      num_fillers: Most fillers that may follow the probe.
      probe_law: [rank - num_top] law of the probe on the tail, in rank order, sums to 1; empty
        where there is no probe.
      proxy_score: The probe's factor, whatever token it turns out to be; 0 where there is no probe.
      tail_mass: Ranking mass of the tail, summed over the tail.
    """

    tokens: tuple[int, ...]
    ranking: Law
    num_top: int
    num_fillers: int
    probe_law: Law
    proxy_score: Fraction
    tail_mass: Fraction

    @property
    def tail(self) -> tuple[int, ...]:
        """[rank - num_top] tokens below the top, in rank order; the probe is one of them."""
        return self.tokens[self.num_top :]


def expand(ranking: Law, draft: Law, config: SpeculationConfig) -> Expansion:
    """Expand one node up to, and without, the draw of its probe.

    With num_top >= top_k, or no token below the top, there is neither probe nor filler. Where the
    tempered draft has no mass on the tail, the probe is its first token for sure.

    Args:
      ranking: [vocab] law that orders and scores, before truncation.
      draft: [vocab] law that the probe is drawn from, before truncation.
      config: top_k, num_top and support_size are used.

    Returns:
      The expansion.
    """
    support = truncate(ranking, draft, config.support_size)
    num_top = min(config.num_top, config.top_k, len(support.tokens))
    tail_ranking = support.ranking[num_top:]
    if config.num_top >= config.top_k or not tail_ranking:
        return Expansion(support.tokens, support.ranking, num_top, 0, (), ZERO, ZERO)
    tail_mass = exact_sum(tail_ranking)
    return Expansion(
        tokens=support.tokens,
        ranking=support.ranking,
        num_top=num_top,
        num_fillers=config.top_k - num_top - 1,
        probe_law=tail_law(support.draft[num_top:]),
        proxy_score=proxy_score(support.ranking, num_top, tail_mass),
        tail_mass=tail_mass,
    )


def tail_law(draft: Law) -> Law:
    """Law of the probe: the tempered draft on the tail, renormalised.

    Args:
      draft: [tail] tempered draft on the tail in rank order; not normalised, may be all zero.

    Returns:
      [tail] probabilities; a point mass on the first token where `draft` is all zero.
    """
    if not any(draft):
        return (ONE,) + (ZERO,) * (len(draft) - 1)
    return normalised(draft)


def proxy_score(ranking: Law, num_top: int, tail_mass: Fraction) -> Fraction:
    """Factor of the probe: the same for every token that it may turn out to be.

    Args:
      ranking: [rank] ranking law in rank order.
      num_top: Number of top tokens.
      tail_mass: Mass of `ranking` below them, positive.

    Returns:
      min(ranking of the last top token, tail_mass), or the largest ranking where there is no top.
      Never less than the ranking of any tail token, so no filler outranks its sibling probe.
    """
    return ranking[0] if num_top == 0 else min(ranking[num_top - 1], tail_mass)


def children(expansion: Expansion, probe_index: int | None) -> list[Child]:
    """Children of an expanded node, given its probe.

    Args:
      expansion: The node's expansion.
      probe_index: Place of the drawn token in the tail; None where there is no probe.

    Returns:
      [slot] children: top, probe, fillers (the most probable tail tokens other than the probe).
      Their tokens differ; there are fewer than top_k where the support runs out.
    """
    found = [
        Child(token, slot, Role.TOP, factor)
        for slot, (token, factor) in enumerate(
            zip(expansion.tokens[: expansion.num_top], expansion.ranking, strict=False)
        )
    ]
    if probe_index is None:
        return found
    tail = list(zip(expansion.tail, expansion.ranking[expansion.num_top :], strict=True))
    probe, _ = tail.pop(probe_index)
    found.append(Child(probe, expansion.num_top, Role.PROBE, expansion.proxy_score))
    for slot, (token, factor) in enumerate(tail[: expansion.num_fillers], len(found)):
        found.append(Child(token, slot, Role.FILLER, factor))
    return found
