"""Kinds of tests of emitted tokens: scores, PIT, cells, single tokens.

Each can be fed batch by batch, joined with what the same test saw of later tokens, and asked what
it could have found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rheocheck.audit.drawn_tokens import Drawn, Values
from rheocheck.audit.findings import LOSSY_LEVEL
from rheocheck.audit.token_power import (
    BinPower,
    CellPower,
    FaultPower,
    ScorePower,
    TokenPower,
    count_bars,
)
from rheocheck.stats.cells import cell_law
from rheocheck.stats.chi_square import MIN_EXPECTED, GoodnessOfFit, bucket_chi_square
from rheocheck.stats.fault_power import e_value_bar, pit_noncentrality, score_shift
from rheocheck.stats.pit import NUM_BINS, uniformity
from rheocheck.stats.power import DEFAULT_POWER, chi_square_detectable
from rheocheck.stats.scores import NO_SCORES, ScoreSums, ScoreTerms
from rheocheck.stats.token_calibration import TokenCalibration, token_calibration
from rheocheck.traces.laws import Laws

# The uniformity test takes the smallest of three p-values, three times over.
THREE_TESTS = 3
# Columns of a batch of laws that are summed at a time.
_COLUMNS = 2048


@dataclass(slots=True)
class Score:
    """A score of the token, summed: see `rheocheck.stats.scores`.

    Attributes:
      name: In the report.
      score: [emitted, columns] scores; read for the power.
      terms: What the tokens add, from as few columns as that takes.
    """

    name: str
    score: Callable[[Drawn], Values]
    terms: Callable[[Drawn], ScoreTerms]
    needs_draft: bool = False
    sums: ScoreSums = NO_SCORES
    effect: str = "shift of the score's mean, a token"

    def observe(self, drawn: Drawn) -> None:
        """Add the tokens' scores."""
        self.sums += self.terms(drawn).total()

    def merge(self, later: "Score") -> None:
        """Add the sums."""
        self.sums += later.sums

    @property
    def p_value(self) -> float:
        """By the e-value, valid at any number of tokens."""
        return self.sums.p_value

    @property
    def shown(self) -> float:
        """The z value."""
        return self.sums.z

    def detectable(self, level: float) -> float | None:
        """Shift of the mean, in nats or in mass, upwards or downwards, whichever is larger."""
        return score_limit(self.sums, level)

    def power_of(self, drawn: Drawn, fault: Values) -> FaultPower:
        """From the score's moments under target and fault."""
        return ScorePower(score_shift(drawn.laws.null, fault, self.score(drawn)))


@dataclass(slots=True)
class Pit:
    """Randomised PIT with columns in the order of a key; KS, Anderson-Darling and 20 bins.

    Attributes:
      name: In the report.
      pit: [emitted] values.
      order: [emitted, columns] the key, ascending; read for the power.
    """

    name: str
    pit: Callable[[Drawn], Values]
    order: Callable[[Drawn], Values]
    needs_draft: bool = False
    values: list[Values] = field(default_factory=list)
    effect: str = "total variation spread evenly over 20 bins"

    def observe(self, drawn: Drawn) -> None:
        """Add the tokens' PIT values."""
        self.values.append(self.pit(drawn))

    def merge(self, later: "Pit") -> None:
        """Append the values."""
        self.values += later.values

    @property
    def p_value(self) -> float:
        """Of uniformity: Bonferroni over the three tests."""
        return uniformity(self.all_values()).p_value

    @property
    def shown(self) -> float:
        """The Kolmogorov-Smirnov distance."""
        return uniformity(self.all_values()).ks

    def all_values(self) -> Values:
        """[emitted] in the order they came in."""
        return np.concatenate(self.values) if self.values else np.zeros(0)

    def detectable(self, level: float) -> float | None:
        """Of the 20-bin chi-square alone, so an upper limit."""
        count = len(self.all_values())
        return chi_square_limit(count, NUM_BINS - 1, level / THREE_TESTS)

    def power_of(self, drawn: Drawn, fault: Values) -> FaultPower:
        """From the noncentrality of the 20 bins."""
        per_token = pit_noncentrality(drawn.laws.null, fault, self.order(drawn))
        return BinPower(per_token, NUM_BINS - 1, THREE_TESTS)


@dataclass(slots=True)
class Buckets:
    """Chi-square of the token's cell, with the contexts' exact covariance."""

    name: str
    cells: tuple[str, ...]
    cells_of: Callable[[Drawn], tuple[NDArray[np.int64], Values]]
    table_of: Callable[[Drawn], NDArray[np.int64]]
    needs_draft: bool = False
    found: list[NDArray[np.int64]] = field(default_factory=list)
    laws: list[Values] = field(default_factory=list)
    effect: str = "total variation over the cells, spread as badly as can be"

    def observe(self, drawn: Drawn) -> None:
        """Add the tokens' cells."""
        bucket, law = self.cells_of(drawn)
        self.found.append(bucket)
        self.laws.append(law)

    def merge(self, later: "Buckets") -> None:
        """Append the cells and their laws."""
        self.found += later.found
        self.laws += later.laws

    @property
    def counts(self) -> NDArray[np.int64]:
        """[cells] tokens in each."""
        found = np.concatenate(self.found) if self.found else np.zeros(0, dtype=np.int64)
        return np.bincount(found, minlength=len(self.cells))

    @property
    def law(self) -> Values:
        """[emitted, cells] law of the cell at each token."""
        return np.concatenate(self.laws) if self.laws else np.zeros((0, len(self.cells)))

    @property
    def p_value(self) -> float:
        """Of the chi-square test."""
        return self._test().p_value

    @property
    def shown(self) -> float:
        """The chi-square statistic; as large as a float where the impossible was drawn."""
        return min(self._test().statistic, 1e300)

    def detectable(self, level: float) -> float | None:
        """By the diagonal of the covariance, which is never below the covariance: a limit."""
        found = self._test()
        return chi_square_limit(found.num_samples, found.df, level)

    def power_of(self, drawn: Drawn, fault: Values) -> FaultPower:
        """From the cells' laws under target and fault, pooled as the test pools."""
        cell, count = self.table_of(drawn), len(self.cells)
        return CellPower(cell_law(drawn.laws.null, cell, count), cell_law(fault, cell, count))

    def _test(self) -> GoodnessOfFit:
        return bucket_chi_square(self.counts, self.law)


@dataclass(slots=True)
class Tokens:
    """Calibration of every token by itself; tokens that are not listed do not count.

    Attributes:
      sums: [2, 3, vocab] by parity of the request: counts, expected counts, sums of squared
        probabilities. Halves, because a witness is found on one and measured on the other.
    """

    name: str = "tokens"
    needs_draft: bool = False
    sums: Values = field(default_factory=lambda: np.zeros((2, 3, 0)))
    effect: str = "excess probability of a token that is expected five times"

    def observe(self, drawn: Drawn) -> None:
        """Add the tokens and their laws."""
        half = drawn.place[:, 1] % 2
        if drawn.laws.ids is None:
            self._add_dense(drawn.laws, half)
            return
        for side in (0, 1):
            rows = np.flatnonzero(half == side)
            if len(rows):
                self._add(side, _listed_sums(drawn.laws, rows))

    def merge(self, later: "Tokens") -> None:
        """Add the sums."""
        for half in (0, 1):
            self._add(half, later.sums[half])

    @property
    def p_value(self) -> float:
        """Of all tokens, corrected for their number."""
        return self.test().p_value

    @property
    def shown(self) -> float:
        """The z value that is furthest out."""
        return self.test().z

    def test(self) -> TokenCalibration:
        """The test of every token."""
        counts, expected, squares = self.sums.sum(axis=0)
        return token_calibration(counts, expected, squares, LOSSY_LEVEL)

    def detectable(self, level: float) -> float | None:
        """By the exact bar of the test, at the smallest expected count that is tested."""
        found, total = self.test(), float(self.sums[:, 0].sum())
        if not found.num_tested:
            return None
        _, upper = count_bars(np.array([MIN_EXPECTED]), level / found.num_tested)
        quantile = float(stats.norm.ppf(DEFAULT_POWER))
        return float(upper[0] + quantile * upper[0] ** 0.5 - MIN_EXPECTED) / total

    def power_of(self, drawn: Drawn, fault: Values) -> FaultPower:
        """From each token's rate under target and fault."""
        return TokenPower(drawn.laws.null.mean(axis=0), fault.mean(axis=0))

    def _add_dense(self, laws: Laws, half: NDArray[np.int64]) -> None:
        for side in (0, 1):
            rows = np.flatnonzero(half == side)
            if not len(rows):
                continue
            sums = np.empty((3, laws.null.shape[1]))
            sums[0] = np.bincount(laws.column[rows], minlength=sums.shape[1])
            # A few columns at a time stay in the cache.
            for start in range(0, sums.shape[1], _COLUMNS):
                part = laws.null[rows, start : start + _COLUMNS]
                sums[1, start : start + _COLUMNS] = part.sum(axis=0)
                part *= part
                sums[2, start : start + _COLUMNS] = part.sum(axis=0)
            self._add(side, sums)

    def _add(self, half: int, more: Values) -> None:
        width = max(self.sums.shape[2], more.shape[1])
        sums = np.zeros((2, 3, width))
        sums[:, :, : self.sums.shape[2]] = self.sums
        sums[half, :, : more.shape[1]] += more
        self.sums = sums


def _listed_sums(laws: Laws, rows: NDArray[np.int64]) -> Values:
    """[3, tokens] counts, expected counts and sums of squares of some rows that list tokens."""
    assert laws.ids is not None
    law, column, table = laws.null[rows], laws.column[rows], laws.ids[rows]
    there = table >= 0
    drawn = table[np.arange(len(rows)), column]
    mass, ids = law[there], table[there]
    size = max(int(ids.max(initial=-1)), int(drawn.max(initial=-1))) + 1
    counts = np.bincount(drawn[drawn >= 0], minlength=size)
    expected, squares = (np.bincount(ids, mass**power, minlength=size) for power in (1, 2))
    return np.stack([counts, expected, squares])


def score_limit(sums: ScoreSums, level: float) -> float | None:
    """Shift of a score's mean that its e-value finds with power 0.95; None where it finds none."""
    bar = max(e_value_bar(sums.cumulant, level, sign) for sign in (1.0, -1.0))
    if not np.isfinite(bar):
        return None
    spread = float(stats.norm.ppf(DEFAULT_POWER)) * math.sqrt(sums.variance)
    return (bar + spread) / sums.num_samples


def chi_square_limit(count: int, df: int, level: float) -> float | None:
    """Total variation that a chi-square finds with power 0.95; None where it finds none."""
    found = chi_square_detectable(count, df, level) if count and df else 1.0
    return found if found < 1.0 else None
