"""Wrong samplers: faults planted in the eager sampler, one at a time.

Each takes a MonkeyPatch and leaves the class enumerator alone, which shares no code with it.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import pytest

from rheocheck.config import SpeculationConfig
from rheocheck.reference import expansion, sampler, tree, verification
from rheocheck.reference.expansion import Child, Expansion, Role
from rheocheck.reference.laws import Law
from rheocheck.reference.tree import Node

Fault: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def _rescored(patch: pytest.MonkeyPatch, factor: Callable[[Expansion, int], Fraction]) -> None:
    """Score the probe by `factor` of its expansion and its place in the tail."""

    def children(found: Expansion, probe_index: int | None) -> list[Child]:
        siblings = expansion.children(found, probe_index)
        return [
            replace(child, factor=factor(found, probe_index))
            if child.role is Role.PROBE and probe_index is not None
            else child
            for child in siblings
        ]

    patch.setattr(tree, "children", children)


def probe_scored_by_its_own_probability(patch: pytest.MonkeyPatch) -> None:
    _rescored(patch, lambda found, place: found.ranking[found.num_top + place])


def probe_scored_by_its_conditional_probability(patch: pytest.MonkeyPatch) -> None:
    _rescored(patch, lambda found, place: found.probe_law[place])


def ties_broken_by_token_id(patch: pytest.MonkeyPatch) -> None:
    def order_key(scored: tuple[int, Node]) -> tuple[object, ...]:
        score, node = scored
        return (-score, node.key.layer, node.token, node.key)

    patch.setattr(tree, "order_key", order_key)


def fillers_verified_before_the_probe(patch: pytest.MonkeyPatch) -> None:
    ranks = {Role.FILLER: 0, Role.PROBE: 1, Role.TOP: 2}
    patch.setattr(
        verification,
        "order_of_tests",
        lambda candidates, rule: sorted(candidates, key=lambda node: ranks[node.role]),
    )


def residual_is_the_target(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verification, "residual_after_probe", lambda residual, probe_law: residual)


def ranking_law_used_for_the_probe_law(patch: pytest.MonkeyPatch) -> None:
    """Acceptance and residual read the untempered draft on its whole support."""

    def vocab_probe_law(found: Expansion | None, vocab: int) -> Law:
        law = [Fraction(0)] * vocab
        if found is not None:
            for token, mass in zip(found.tokens, found.ranking, strict=True):
                law[token] = mass
        return tuple(law)

    patch.setattr(verification, "vocab_probe_law", vocab_probe_law)


def verified_with_the_untruncated_law(patch: pytest.MonkeyPatch) -> None:
    """The probe is drawn from the truncated draft and verified with the whole one."""
    whole: dict[int, Law] = {}
    kept: list[Expansion] = []

    def expand(ranking: Law, draft: Law, config: SpeculationConfig) -> Expansion:
        found = expansion.expand(ranking, draft, config)
        top = set(found.tokens[: found.num_top])
        tail = [Fraction(0) if token in top else mass for token, mass in enumerate(draft)]
        whole[id(found)] = tuple(mass / sum(tail) if sum(tail) else mass for mass in tail)
        kept.append(found)  # an id is that of this object only while the object lives
        return found

    def vocab_probe_law(found: Expansion | None, vocab: int) -> Law:
        return whole[id(found)] if found is not None else (Fraction(0),) * vocab

    patch.setattr(sampler, "expand", expand)
    patch.setattr(verification, "vocab_probe_law", vocab_probe_law)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        probe_scored_by_its_own_probability,
        probe_scored_by_its_conditional_probability,
        ties_broken_by_token_id,
        fillers_verified_before_the_probe,
        residual_is_the_target,
        ranking_law_used_for_the_probe_law,
        verified_with_the_untruncated_law,
    )
}
