"""Power of the statistics of emitted tokens against named faults, at the tokens that a run has.

Pilot contexts are some of the run's own. What a statistic would see of a fault there is boiled down
to a few numbers in the process that has the laws; tokens and level come later. Powers are
approximations and enter no verdict.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rheocheck.stats.cell_power import cell_power
from rheocheck.stats.chi_square import MIN_EXPECTED
from rheocheck.stats.fault_power import ScoreShift, e_value_power
from rheocheck.stats.power import DEFAULT_POWER
from rheocheck.stats.token_calibration import poisson_log_p

Values = NDArray[np.float64]
# Total variation of the faults whose power is printed.
NAMED_TV = 0.05
# Sizes are looked for up to here.
MOST_TOKENS = 2**40


class FaultPower(Protocol):
    """What the power of one statistic against one fault follows from."""

    def power(self, num_tokens: float, level: float) -> float:
        """Chance of rejection at that many tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ScorePower:
    """Of a score's e-value."""

    shift: ScoreShift

    def power(self, num_tokens: float, level: float) -> float:
        """With the e-value's exact bar."""
        return e_value_power(self.shift, num_tokens, level)


@dataclass(frozen=True, slots=True)
class BinPower:
    """Of a chi-square over equal bins, the smallest of `num_tests` p-values so many times over.

    Attributes:
      noncentrality: A token.
      df: Degrees of freedom.
      num_tests: Tests that share the level; the others can only add to the power.
    """

    noncentrality: float
    df: int
    num_tests: int

    def power(self, num_tokens: float, level: float) -> float:
        """By the noncentral chi-square."""
        bar = float(stats.chi2.isf(level / self.num_tests, self.df))
        return float(stats.ncx2.sf(bar, self.df, max(1e-12, self.noncentrality * num_tokens)))


@dataclass(frozen=True, slots=True, eq=False)
class CellPower:
    """Of the chi-square over cells common to all contexts.

    Attributes:
      target: [contexts, cells] null laws of the cell.
      fault: [contexts, cells] laws under the fault.
    """

    target: Values
    fault: Values

    def power(self, num_tokens: float, level: float) -> float:
        """With the tokens spread evenly over the pilot contexts."""
        visits = np.full(len(self.target), num_tokens / len(self.target))
        return cell_power(self.target, self.fault, visits, level)


@dataclass(frozen=True, slots=True, eq=False)
class TokenPower:
    """Of the calibration of single tokens.

    Attributes:
      target: [vocab] mean null probability.
      fault: [vocab] the same under the fault.
    """

    target: Values
    fault: Values

    def power(self, num_tokens: float, level: float) -> float:
        """Of the token that shows the fault best: a lower limit. Counts are taken as Poisson."""
        expected = num_tokens * self.target
        tested = expected >= MIN_EXPECTED
        if not tested.any():
            return 0.0
        lower, upper = count_bars(expected[tested], level / int(tested.sum()))
        mean = num_tokens * self.fault[tested]
        above = stats.poisson.sf(np.ceil(upper) - 1.0, mean)
        below = np.where(lower >= 0.0, stats.poisson.cdf(np.floor(lower), mean), 0.0)
        return float((above + below).max())


@dataclass(frozen=True, slots=True, eq=False)
class PilotFault:
    """A named fault on the pilot contexts.

    Attributes:
      name: What goes wrong, with its strength.
      total_variation: Mean distance of the emitted laws from the target's.
      statistics: By name of the statistic.
    """

    name: str
    total_variation: float
    statistics: dict[str, FaultPower]

    def of(self, names: Collection[str]) -> "PilotFault":
        """The same for some of the statistics only."""
        kept = {name: found for name, found in self.statistics.items() if name in names}
        return replace(self, statistics=kept)

    def powers(self, num_tokens: float, level: float) -> dict[str, float]:
        """Power of every statistic, by name."""
        return {
            name: found.power(num_tokens, level) if num_tokens >= 1 else 0.0
            for name, found in self.statistics.items()
        }

    def tokens_needed(self, level: float) -> int | None:
        """Tokens at which one of the statistics finds it with power 0.95; None beyond 2^40.

        To 1 %; a chi-square whose cells come and go with the size may be found a little late.
        """

        def found(size: float) -> bool:
            # Cells by the dozen are slow, and directed scores are seldom behind them.
            quick = [one for one in self.statistics.values() if not isinstance(one, CellPower)]
            return any(one.power(size, level) >= DEFAULT_POWER for one in quick)

        low, high = 0.0, math.log(MOST_TOKENS)
        if not found(math.exp(high)):
            return None
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (low, middle) if found(math.exp(middle)) else (middle, high)
        return math.ceil(math.exp(high))

    def as_json(self, num_tokens: int, level: float) -> dict[str, Any]:
        """Power of the stage and of every statistic at the tokens at hand, JSON values.

        The stage rejects where one of them does, so its power is at least the largest of theirs.
        """
        powers = self.powers(num_tokens, level)
        best = max(powers, key=lambda name: powers[name])
        return {
            "fault": self.name,
            "total_variation": self.total_variation,
            "power": powers[best],
            "best_statistic": best,
            "tokens_needed": self.tokens_needed(level),
            **{f"power_{name.replace(' ', '_')}": power for name, power in powers.items()},
        }


def count_bars(expected: Values, level: float) -> tuple[Values, Values]:
    """Counts at which `token_calibration` rejects: those up to the first or from the second on.

    Args:
      expected: [tokens] expected counts, positive.
      level: Of each token.

    Returns:
      Lower and upper bars, real numbers; a lower bar of -1 where no count is small enough.
    """
    target = math.log(level)
    reach = np.sqrt(-2.0 * expected * target) - 2.0 * target + 2.0
    low, high = expected.copy(), expected + 4.0 * reach
    for _ in range(60):
        middle = (low + high) / 2
        over = poisson_log_p(middle, expected) <= target
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    upper = high
    low, high = np.zeros_like(expected), expected.copy()
    never = poisson_log_p(low, expected) > target
    for _ in range(60):
        middle = (low + high) / 2
        under = poisson_log_p(middle, expected) <= target
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return np.where(never, -1.0, low), upper
