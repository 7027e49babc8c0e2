"""Statistics of a trace's emitted tokens, each fed batch by batch; adding one is one line below.

By the chain rule each emitted token, given all before it and given that its place is reached, is a
draw from its law; so every token of every round counts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.findings import LOSSY_LEVEL
from rheocheck.stats.cells import RANK_STARTS
from rheocheck.stats.chi_square import bucket_chi_square
from rheocheck.stats.pit import draft_target_order, randomised_pit, uniformity
from rheocheck.stats.scores import (
    NO_SCORES,
    ScoreSums,
    above_target,
    draft_score,
    score_sums,
    surprisal,
)
from rheocheck.stats.token_calibration import TokenCalibration, token_calibration
from rheocheck.traces.laws import Laws
from rheocheck.traces.reader import Batch

RANK_NAMES = ("1", "2", "3-5", "6-20", "21-100", "101 and more, or not listed")

Values = NDArray[np.float64]


class Statistic(Protocol):
    """One test of the emitted tokens.

    Attributes:
      name: In the report.
      needs_draft: It reads the draft's laws.
    """

    name: str
    needs_draft: bool

    def observe(self, laws: Laws, uniform: Values) -> None:
        """Take in emitted tokens: their laws and an independent uniform each."""

    @property
    def p_value(self) -> float:
        """Of all tokens so far."""
        ...

    @property
    def shown(self) -> float:
        """A number for people: z, or a distance."""
        ...


def statistics(has_draft: bool) -> list[Statistic]:
    """All statistics that the laws at hand allow, fresh."""
    every: list[Statistic] = [
        Score("surprisal", lambda laws: surprisal(laws.null)),
        Score("draft score", lambda laws: draft_score(laws.null, _draft(laws)), needs_draft=True),
        Score("above target", lambda laws: above_target(laws.null, _draft(laws)), needs_draft=True),
        Pit("PIT by draft/target", lambda laws: draft_target_order(laws.null, _draft(laws)), True),
        Pit("PIT by target", lambda laws: -laws.null),
        Ranks(),
        Tokens(),
    ]
    return [statistic for statistic in every if has_draft or not statistic.needs_draft]


@dataclass(slots=True)
class Score:
    """A score of the token, summed: see `rheocheck.stats.scores`."""

    name: str
    score: Callable[[Laws], Values]
    needs_draft: bool = False
    sums: ScoreSums = NO_SCORES

    def observe(self, laws: Laws, uniform: Values) -> None:
        """Add the tokens' scores."""
        self.sums += score_sums(laws.null, self.score(laws), laws.column)

    @property
    def p_value(self) -> float:
        """By the e-value, valid at any number of tokens."""
        return self.sums.p_value

    @property
    def shown(self) -> float:
        """The z value."""
        return self.sums.z


@dataclass(slots=True)
class Pit:
    """Randomised PIT with columns in the order of a key."""

    name: str
    order: Callable[[Laws], Values]
    needs_draft: bool = False
    values: list[Values] = field(default_factory=list)

    def observe(self, laws: Laws, uniform: Values) -> None:
        """Add the tokens' PIT values."""
        self.values.append(
            randomised_pit(laws.null, laws.column, uniform, self.order(laws)).astype(np.float64)
        )

    @property
    def p_value(self) -> float:
        """Of uniformity."""
        return uniformity(self._all()).p_value

    @property
    def shown(self) -> float:
        """The Kolmogorov-Smirnov distance."""
        return uniformity(self._all()).ks

    def _all(self) -> Values:
        return np.concatenate(self.values) if self.values else np.zeros(0)


@dataclass(slots=True)
class Ranks:
    """Chi-square of the token's rank under its law."""

    name: str = "ranks"
    needs_draft: bool = False
    counts: Values = field(default_factory=lambda: np.zeros(len(RANK_STARTS)))
    laws: list[Values] = field(default_factory=list)

    def observe(self, laws: Laws, uniform: Values) -> None:
        """Add the tokens' ranks."""
        bucket, law = rank_buckets(laws)
        self.counts = self.counts + np.bincount(bucket, minlength=len(RANK_STARTS))
        self.laws.append(law)

    @property
    def p_value(self) -> float:
        """Of the chi-square test with the contexts' exact covariance."""
        return self._test()[1]

    @property
    def shown(self) -> float:
        """The chi-square statistic."""
        return self._test()[0]

    def _test(self) -> tuple[float, float]:
        if not self.laws:
            return 0.0, 1.0
        found = bucket_chi_square(self.counts, np.concatenate(self.laws))
        return found.statistic, found.p_value


@dataclass(slots=True)
class Tokens:
    """Calibration of every token by itself; tokens that are not listed do not count."""

    name: str = "tokens"
    needs_draft: bool = False
    # counts, expected counts, sums of squared probabilities
    sums: Values = field(default_factory=lambda: np.zeros((3, 0)))

    def observe(self, laws: Laws, uniform: Values) -> None:
        """Add the tokens and their laws."""
        if laws.ids is None:
            found = np.bincount(laws.column, minlength=laws.null.shape[1])
            self._add(np.stack([found, laws.null.sum(axis=0), (laws.null**2).sum(axis=0)]))
            return
        there, rows = laws.ids >= 0, np.arange(len(laws.column))
        drawn = laws.ids[rows, laws.column]
        mass, ids = laws.null[there], laws.ids[there]
        size = int(ids.max(initial=-1)) + 1
        counts = np.bincount(drawn[drawn >= 0], minlength=size)
        expected, squares = (np.bincount(ids, mass**power, minlength=size) for power in (1, 2))
        self._add(np.stack([counts, expected, squares]))

    @property
    def p_value(self) -> float:
        """Of all tokens, corrected for their number."""
        return self._test().p_value

    @property
    def shown(self) -> float:
        """The z value that is furthest out."""
        return self._test().z

    def _test(self) -> TokenCalibration:
        counts, expected, squares = self.sums
        return token_calibration(counts, expected, squares, LOSSY_LEVEL)

    def _add(self, more: Values) -> None:
        width = max(self.sums.shape[1], more.shape[1])
        sums = np.zeros((3, width))
        for part in (self.sums, more):
            sums[:, : part.shape[1]] += part
        self.sums = sums


def rank_buckets(laws: Laws) -> tuple[NDArray[np.int64], Values]:
    """Rank bucket of each token, and the buckets' law at its place.

    Ranks go by (mass descending, column ascending) over the listed tokens; the column of the rest
    belongs to the last bucket.

    Returns:
      [emitted] index into `RANK_NAMES`; [emitted, buckets], rows sum to 1.
    """
    law, column = laws.null, laws.column
    body = law if laws.ids is None else law[:, :-1]
    num_columns = body.shape[1]
    is_rest = column >= num_columns
    rows = np.arange(len(column))
    own = law[rows, column][:, None]
    before = (body > own) | ((body == own) & (np.arange(num_columns) < column[:, None]))
    rank = np.where(is_rest, RANK_STARTS[-1], before.sum(axis=1) + 1)
    kept = min(num_columns, RANK_STARTS[-1] - 1)
    # Only the largest hundred need an order.
    top = -np.sort(np.partition(-body, kept - 1, axis=1)[:, :kept], axis=1) if kept else body
    padded = np.zeros((len(column), RANK_STARTS[-1] - 1))
    padded[:, :kept] = top
    sums = np.add.reduceat(padded, np.array(RANK_STARTS[:-1]) - 1, axis=1)
    last = np.maximum(law.sum(axis=1) - sums.sum(axis=1), 0.0)
    bucket = np.searchsorted(np.array(RANK_STARTS), rank, side="right") - 1
    # A law of at most a hundred listed tokens has nothing in the last bucket but rounding.
    empty = (num_columns < RANK_STARTS[-1]) & ((laws.ids is None) | (law[:, -1] == 0))
    return bucket, np.column_stack([sums, np.where(empty & (bucket < len(sums[0])), 0.0, last)])


def batch_uniforms(seed: int, batch: Batch) -> Values:
    """[emitted] uniforms for the PIT, keyed by the seed and the number of the first record."""
    return np.random.default_rng([seed, batch.first_record]).random(len(batch.token))


def _draft(laws: Laws) -> Values:
    assert laws.draft is not None
    return laws.draft
