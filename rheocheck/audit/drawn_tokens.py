"""Emitted tokens with what was known before each was drawn: what every statistic reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.pit import draft_target_order, randomised_pit, target_order
from rheocheck.traces.laws import Laws

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
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

    def pit(self, order: Values) -> Values:
        """[emitted] randomised PIT values with columns in ascending order of a key."""
        laws = self.laws
        return randomised_pit(laws.null, laws.column, self.uniform, order).astype(np.float64)
