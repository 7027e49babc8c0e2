"""The statistics of emitted tokens, of runs and of traces alike, each fed batch by batch.

By the chain rule each emitted token, given all before it and given that its place is reached, is a
draw from its law; so every token of every round counts. What must not be conditioned on is whether
it was accepted. Adding a statistic is one line in `statistics`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.drawn_tokens import Drawn, Values
from rheocheck.audit.token_cells import RANK_NAMES
from rheocheck.audit.token_pairs import Pairs
from rheocheck.audit.token_power import FaultPower
from rheocheck.audit.token_tests import Buckets, Pit, Score, Tokens
from rheocheck.stats.cells import ROLES, rank_cell, role_cell
from rheocheck.stats.drafted import above_target_terms, draft_score_terms, roles
from rheocheck.stats.scores import (
    ScoreTerms,
    above_target,
    draft_score,
    score_terms,
    surprisal,
)
from rheocheck.stats.wide import WIDE, surprisal_terms


class Statistic(Protocol):
    """One test of the emitted tokens.

    Attributes:
      name: In the report.
      needs_draft: It reads the draft's laws.
      effect: What `detectable` measures.
    """

    name: str
    needs_draft: bool
    effect: str

    def observe(self, drawn: Drawn) -> None:
        """Take in emitted tokens."""

    def merge(self, later: Any) -> None:
        """Take in what the same statistic saw of later tokens."""

    @property
    def p_value(self) -> float:
        """Of all tokens so far."""
        ...

    @property
    def shown(self) -> float:
        """A number for people: z, a distance, or a chi-square statistic."""
        ...

    def detectable(self, level: float) -> float | None:
        """Smallest effect found with power 0.95 at these tokens; None where none would be."""
        ...

    def power_of(self, drawn: Drawn, fault: Values) -> FaultPower | None:
        """What its power against a fault follows from; None where faults of one token do not show.

        Args:
          drawn: Pilot contexts, with complete laws; their tokens are not looked at.
          fault: [contexts, vocab] laws that the faulty sampler emits there.
        """
        ...


def statistics(has_draft: bool = True) -> list[Statistic]:
    """All statistics that the laws at hand allow, fresh."""
    every: list[Statistic] = [
        Score("surprisal", _surprisal, _surprisal_terms),
        Score("draft score", _draft_score, _draft_score_terms, True),
        Score("above target", _above_target, _above_target_terms, True),
        Pit("PIT by draft/target", _pit_by_draft, Drawn.by_draft, True),
        Pit("PIT by target", _pit_by_target, Drawn.by_target),
        Buckets("ranks", RANK_NAMES, _ranks, _rank_table),
        Buckets("roles", ROLES, _roles, _role_table, True),
        Tokens(),
        Pairs(),
        Pairs("pairs across rounds", across_rounds=True),
    ]
    return [statistic for statistic in every if has_draft or not statistic.needs_draft]


def merged(parts: Sequence[Sequence[Statistic]], has_draft: bool = True) -> list[Statistic]:
    """Fresh statistics that have seen what those of all parts saw, in their order."""
    whole = statistics(has_draft)
    for part in parts:
        for statistic, found in zip(whole, part, strict=True):
            statistic.merge(found)
    return whole


def _surprisal(drawn: Drawn) -> Values:
    return surprisal(drawn.laws.null)


def _draft_score(drawn: Drawn) -> Values:
    return draft_score(drawn.laws.null, drawn.draft)


def _above_target(drawn: Drawn) -> Values:
    return above_target(drawn.laws.null, drawn.draft)


def _surprisal_terms(drawn: Drawn) -> ScoreTerms:
    law, column = drawn.laws.null, drawn.laws.column
    if law.shape[1] > WIDE:
        return surprisal_terms(law, column)
    return score_terms(law, surprisal(law), column)


def _draft_score_terms(drawn: Drawn) -> ScoreTerms:
    return draft_score_terms(drawn.drafted)


def _above_target_terms(drawn: Drawn) -> ScoreTerms:
    return above_target_terms(drawn.drafted)


def _pit_by_draft(drawn: Drawn) -> Values:
    return drawn.pit_by_draft


def _pit_by_target(drawn: Drawn) -> Values:
    return drawn.pit_by_target


def _ranks(drawn: Drawn) -> tuple[NDArray[np.int64], Values]:
    return drawn.ranks


def _rank_table(drawn: Drawn) -> NDArray[np.int64]:
    return rank_cell(drawn.laws.null)


def _role_table(drawn: Drawn) -> NDArray[np.int64]:
    return role_cell(drawn.draft, drawn.num_top, drawn.num_candidates)


def _roles(drawn: Drawn) -> tuple[NDArray[np.int64], Values]:
    return roles(drawn.drafted, drawn.num_top, drawn.num_candidates)
