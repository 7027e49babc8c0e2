"""Emitted tokens with what was known before each was drawn: what every statistic reads."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.token_cells import rank_buckets
from rheocheck.stats.drafted import Drafted, pit_by_draft
from rheocheck.stats.pit import draft_target_order, randomised_pit, target_order
from rheocheck.stats.wide import WIDE, ranks
from rheocheck.traces.laws import Laws

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Emitted tokens and what was known before each was drawn.

    Attributes:
      laws: At the tokens, with the tokens' columns.
      uniform: [emitted] independent uniforms for the PIT.
      place: [emitted, 4] run, request, round, place in the round: the order of the sequences.
      num_top: Deterministic children of a node.
      num_candidates: All children of a node.
    """

    laws: Laws
    uniform: Values
    place: NDArray[np.int64]
    num_top: int
    num_candidates: int

    @property
    def draft(self) -> Values:
        """[emitted, columns] the draft's laws, which must be there."""
        assert self.laws.draft is not None
        return self.laws.draft

    def by_draft(self) -> Values:
        """[emitted, columns] sort key draft/target."""
        return draft_target_order(self.laws.null, self.draft)

    def by_target(self) -> Values:
        """[emitted, columns] sort key of descending target."""
        return target_order(self.laws.null)

    @cached_property
    def drafted(self) -> Drafted:
        """The draft's laws where they have mass."""
        return Drafted.of(self.laws.null, self.draft, self.laws.column)

    @cached_property
    def ranks(self) -> tuple[NDArray[np.int64], Values]:
        """`rank_buckets` of the tokens."""
        is_wide = self.laws.ids is None and self.laws.null.shape[1] > WIDE
        return rank_buckets(self.laws, self._wide_ranks[0] if is_wide else None)

    @cached_property
    def _wide_ranks(self) -> tuple[NDArray[np.int64], Values]:
        return ranks(self.laws.null, self.laws.column)

    @cached_property
    def pit_by_draft(self) -> Values:
        """[emitted] randomised PIT values, columns in ascending order of draft/target."""
        return pit_by_draft(self.drafted, self.laws.null, self.laws.column, self.uniform)

    @cached_property
    def pit_by_target(self) -> Values:
        """[emitted] randomised PIT values, columns in descending order of target."""
        law, column = self.laws.null, self.laws.column
        if law.shape[1] <= WIDE:
            return np.asarray(randomised_pit(law, column, self.uniform, self.by_target()))
        own = law[np.arange(len(column)), column]
        return np.clip(self._wide_ranks[1] + self.uniform * own, 0.0, 1.0)
