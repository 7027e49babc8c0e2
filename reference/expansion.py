"""Children of one node: deterministic top tokens, one random probe, deterministic fillers.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, dual-identity expansion. Their target, draft
and restricted draft laws are `target`, `draft` and `probe_law` here; the law that scores is
`ranking`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from rheocheck.config import TOP_THRESHOLD_SLACK, SpeculationConfig
from rheocheck.reference.laws import (
    ONE,
    ZERO,
    Law,
    Support,
    exact_sum,
    normalised,
    truncate,
)


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
      num_probes: Number of probes, drawn one after the other; 0 where there is none.
      num_fillers: Most fillers that may follow the probes.
      probe_law: [rank - num_top] law of the first probe on the tail, in rank order, sums to 1;
        empty where there is no probe.
      proxy_score: The probe's factor, whatever token it turns out to be; 0 where there is no probe.
      tail_mass: Ranking mass of the tail, summed over the tail.
    """

    tokens: tuple[int, ...]
    ranking: Law
    num_top: int
    num_probes: int
    num_fillers: int
    probe_law: Law
    proxy_score: Fraction
    tail_mass: Fraction

    @property
    def tail(self) -> tuple[int, ...]:
        """[rank - num_top] tokens below the top, in rank order; the probe is one of them."""
        return self.tokens[self.num_top :]


def expand(ranking: Law, draft: Law, config: SpeculationConfig) -> Expansion:
    """Expand one node up to, and without, the draw of its probes.

    With num_top >= top_k, or no token below the top, there is neither probe nor filler. Where the
    tempered draft has no mass on the tail, the probe is its first token for sure.

    A merged expansion takes the top_k - 1 best tokens as top and adds what the tempered draft has
    on those below num_top to the first token after them: with all children surviving that is the
    law of the one candidate that the probe and the fillers leave open.

    Args:
      ranking: [vocab] law that orders and scores, before truncation.
      draft: [vocab] law that the probe is drawn from, before truncation.
      config: top_k, num_top, support_size, num_probes, top_thresholds and merged are used.

    Returns:
      The expansion.
    """
    support = truncate(ranking, draft, config.support_size)
    wanted = top_count(support.ranking, config)
    num_top = min(wanted, config.top_k, len(support.tokens))
    if wanted >= config.top_k or num_top == len(support.tokens):
        return _without_probe(support, num_top)
    weights = support.draft[num_top:]
    if config.merged:
        num_merged = config.top_k - num_top - 1
        if len(weights) <= num_merged:
            return _without_probe(support, len(support.tokens))
        weights = (exact_sum(weights[: num_merged + 1]), *weights[num_merged + 1 :])
        num_top += num_merged
    tail_mass = exact_sum(support.ranking[num_top:])
    num_probes = min(config.num_probes, config.top_k - num_top, len(weights))
    return Expansion(
        tokens=support.tokens,
        ranking=support.ranking,
        num_top=num_top,
        num_probes=num_probes,
        num_fillers=config.top_k - num_top - num_probes,
        probe_law=tail_law(weights),
        proxy_score=proxy_score(support.ranking, num_top, tail_mass),
        tail_mass=tail_mass,
    )


def top_count(ranking: Law, config: SpeculationConfig) -> int:
    """Top children that a node asks for; there are fewer where the support or top_k is smaller.

    Args:
      ranking: [rank] ranking law on the support.
      config: num_top and top_thresholds are used.

    Returns:
      num_top, and one more for each threshold that the collision probability of `ranking` reaches.
    """
    if not config.top_thresholds:
        return config.num_top
    collision = exact_sum([mass * mass for mass in ranking])
    reached = collision + Fraction(TOP_THRESHOLD_SLACK)
    return config.num_top + sum(
        Fraction(threshold) <= reached for threshold in config.top_thresholds
    )


def _without_probe(support: Support, num_top: int) -> Expansion:
    return Expansion(support.tokens, support.ranking, num_top, 0, 0, (), ZERO, ZERO)


def next_probe_law(probe_law: Law, taken: Sequence[int]) -> Law:
    """Law of a node's next probe, once others were drawn.

    Args:
      probe_law: [tail] law of the first probe.
      taken: Places in the tail of the probes drawn before it, fewer than the tail has.

    Returns:
      [tail] the first law without those places, renormalised; where nothing is left of it, the
      point mass on the first place not taken.
    """
    left = [ZERO if place in taken else mass for place, mass in enumerate(probe_law)]
    if not any(left):
        first = next(place for place in range(len(left)) if place not in taken)
        return tuple(ONE if place == first else ZERO for place in range(len(left)))
    return normalised(left)


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


def children(expansion: Expansion, *places: int | None) -> list[Child]:
    """Children of an expanded node, given its probes.

    Args:
      expansion: The node's expansion.
      places: Place in the tail of each drawn probe, in the order of the draws; None, or nothing,
        where there is no probe.

    Returns:
      [slot] children: top, probes, fillers (the most probable tail tokens that are no probe). Their
      tokens differ; there are fewer than top_k where the support runs out.
    """
    found = [
        Child(token, slot, Role.TOP, factor)
        for slot, (token, factor) in enumerate(
            zip(expansion.tokens[: expansion.num_top], expansion.ranking, strict=False)
        )
    ]
    drawn = [place for place in places if place is not None]
    tail = list(zip(expansion.tail, expansion.ranking[expansion.num_top :], strict=True))
    for place in drawn:
        found.append(Child(tail[place][0], len(found), Role.PROBE, expansion.proxy_score))
    rest = [item for place, item in enumerate(tail) if place not in drawn]
    for token, factor in rest[: expansion.num_fillers]:
        found.append(Child(token, len(found), Role.FILLER, factor))
    return found
