"""Pairs of neighbouring emitted tokens: do successive draws share randomness?"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.drawn_tokens import Drawn, Values
from rheocheck.audit.token_tests import chi_square_limit
from rheocheck.stats.serial_pairs import SerialPairs, following_pairs


@dataclass(slots=True)
class Pairs:
    """Lag-1 pairs of PIT values along each request.

    A token has a successor unless it ended its text, and its place in a round is chosen by
    acceptance: so what comes first in a pair need not be uniform, and the test is that of
    `following_pairs`.

    Attributes:
      name: In the report.
      across_rounds: Only pairs of a round's last token with the first one of the next round.
    """

    name: str = "pairs"
    across_rounds: bool = False
    needs_draft: bool = False
    values: list[Values] = field(default_factory=list)
    places: list[NDArray[np.int64]] = field(default_factory=list)
    effect: str = "total variation of a pair from independence, spread evenly over 100 cells"

    def observe(self, drawn: Drawn) -> None:
        """Add PIT values, ordered by draft/target where there is a draft."""
        has_draft = drawn.laws.draft is not None
        self.values.append(drawn.pit_by_draft if has_draft else drawn.pit_by_target)
        self.places.append(drawn.place)

    def merge(self, later: "Pairs") -> None:
        """Append the values."""
        self.values += later.values
        self.places += later.places

    @property
    def p_value(self) -> float:
        """Of independence; 1 below 500 pairs."""
        return self.test().p_value

    @property
    def shown(self) -> float:
        """Mean product of the pairs' normal scores."""
        return self.test().correlation

    def test(self) -> SerialPairs:
        """The test, requests as sequences."""
        if not sum(len(part) for part in self.values):
            return following_pairs(np.zeros(0), np.zeros(0))
        place = np.concatenate(self.places)
        order = np.lexsort(place.T[::-1])
        place = place[order]
        values, same = np.concatenate(self.values)[order], _same_request(place)
        if self.across_rounds:
            # The very next round: a trace may lack some.
            same &= (np.diff(place[:, 2]) == 1) & (place[1:, 3] == 0)
        second = np.flatnonzero(same) + 1
        return following_pairs(values[second - 1], values[second])

    def detectable(self, level: float) -> float | None:
        """Of the chi-square over the pairs."""
        found = self.test()
        return chi_square_limit(found.num_pairs, found.df, level)

    def power_of(self, drawn: Drawn, fault: Values) -> None:
        """Faults of single tokens leave pairs independent."""


def _same_request(place: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[emitted - 1] whether a token belongs to the request of the one before it."""
    return np.asarray((place[1:, :2] == place[:-1, :2]).all(axis=1))
