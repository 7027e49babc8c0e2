"""Logarithms and exponential noise as exact objects: cells of an `ObjectTensor`.

Code that works with logits draws in one of two ways that plain intervals cannot follow: it compares
log u with log p, or it adds Gumbel noise (equivalently, divides by exponential noise) and takes the
argmax. Both have exact laws: log u <= log p is u <= p, and of independent exponentials the one of
rate w_i is smallest with probability w_i / sum w.

Source: the exponential race, Yellott (1977); Gumbel-max, Maddison, Tarlow and Minka (2014).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rheocheck.adapters.exact_values import as_exact
from rheocheck.adapters.uniforms import Uniform
from rheocheck.errors import ProgramError

if TYPE_CHECKING:
    from rheocheck.adapters.recorder import Recorder


class LogMass:
    """log of a non-negative quantity: a rational, a uniform or a race score. log 0 is -infinity.

    Adding logarithms multiplies the quantities, exactly. A number other than 0 may be added only to
    the logarithm of a race score; its exponential is then rounded to float64.
    """

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        """Logarithm of `value`."""
        self.value = value

    def __repr__(self) -> str:
        """log(value)."""
        return f"log({self.value})"

    def __add__(self, other: Any) -> "LogMass":
        """Logarithm of the product."""
        if isinstance(other, LogMass):
            return LogMass(_product(self.value, other.value))
        return self._moved(as_exact(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> "LogMass":
        """Logarithm of the quotient."""
        if isinstance(other, LogMass):
            if isinstance(other.value, Fraction | int) and other.value == 0:
                raise ProgramError(f"log 0 was subtracted from {self!r}; required: a finite number")
            return LogMass(self.value / other.value)
        return self._moved(-as_exact(other))

    def __rsub__(self, other: Any) -> Any:
        """A number minus the logarithm."""
        return -self + other

    def __neg__(self) -> Any:
        """Logarithm of the reciprocal; -log u of a fresh uniform is a standard exponential."""
        if isinstance(self.value, Uniform):
            return Exponential(self.value.spend())
        if isinstance(self.value, Exponential):
            return LogMass(Score(self.value, Fraction(1)))
        if self.value == 0:
            return math.inf
        return LogMass(1 / self.value)

    def __mul__(self, other: Any) -> "LogMass":
        """Logarithm of an integer power."""
        power = as_exact(other)
        if power == 1:
            return self
        integer = isinstance(power, Fraction) and power.denominator == 1
        if integer and isinstance(self.value, Fraction):
            return LogMass(self.value ** int(power))
        raise ProgramError(f"{self!r} was multiplied by {other}; required: an integer")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "LogMass":
        """Logarithm of a root that is an integer power (temperatures 1, 1/2, 1/3, ...)."""
        divisor = as_exact(other)
        if divisor == 0 or not isinstance(divisor, Fraction):
            raise ProgramError(f"{self!r} was divided by {other}; required: a finite number")
        return self * (1 / divisor)

    def _moved(self, number: Any) -> "LogMass":
        if number == 0:
            return self
        if number == -math.inf:
            return LogMass(Fraction(0))
        if isinstance(self.value, Score) and isinstance(number, Fraction):
            return LogMass(self.value * Fraction(math.exp(number)))
        raise ProgramError(
            f"{number} was added to {self!r}; required: a logarithm, since exp of a number is "
            f"irrational"
        )

    def _other(self, other: Any) -> Any:
        if isinstance(other, LogMass):
            return other.value
        number = as_exact(other)
        if number == 0:
            return Fraction(1)
        if not isinstance(number, Fraction):
            return Fraction(0) if number < 0 else number
        raise ProgramError(f"{self!r} was compared with {number}; required: a logarithm or 0")

    def __lt__(self, other: Any) -> Any:
        """Compare the quantities."""
        return self.value < self._other(other)

    def __le__(self, other: Any) -> Any:
        """Compare the quantities."""
        return self.value <= self._other(other)

    def __gt__(self, other: Any) -> Any:
        """Compare the quantities."""
        return self.value > self._other(other)

    def __ge__(self, other: Any) -> Any:
        """Compare the quantities."""
        return self.value >= self._other(other)

    def __eq__(self, other: Any) -> bool:
        """Compare the quantities."""
        return bool(self.value == self._other(other))


def _product(left: Any, right: Any) -> Any:
    return right * left if isinstance(right, Score) else left * right


class Exponential:
    """One standard exponential variate; it may decide one race."""

    __slots__ = ("origin", "used")

    def __init__(self, origin: str) -> None:
        """Make a fresh variate; `origin` names the draw in messages."""
        self.origin = origin
        self.used = False

    def __repr__(self) -> str:
        """Name of the draw."""
        return f"Exponential({self.origin})"

    def __truediv__(self, rate: Any) -> "ArrivalTime":
        """Exponential of that rate."""
        return ArrivalTime(self, _weight(rate))

    def __rtruediv__(self, weight: Any) -> "Score":
        """Race score: the larger, the earlier."""
        return Score(self, _weight(weight))


@dataclass(frozen=True, slots=True)
class Score:
    """weight / exponential; its logarithm is Gumbel noise plus log weight."""

    noise: Exponential
    weight: Fraction

    def __mul__(self, factor: Any) -> "Score":
        """Scale the weight."""
        return Score(self.noise, self.weight * _weight(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> "Score":
        """Scale the weight."""
        return Score(self.noise, self.weight / _weight(divisor))


@dataclass(frozen=True, slots=True)
class ArrivalTime:
    """exponential / rate: the smallest of several wins."""

    noise: Exponential
    weight: Fraction


def _weight(value: Any) -> Fraction:
    weight = as_exact(value)
    if not isinstance(weight, Fraction) or weight < 0:
        raise ProgramError(f"exponential noise met the weight {value}; required: a number >= 0")
    return weight


def run_race(entrants: Sequence[Any], recorder: "Recorder", winner: str) -> int:
    """Index that wins a race, forked with probability weight / sum of weights.

    Args:
      entrants: Scores, their logarithms, or arrival times, one a category.
      recorder: Where the fork is made.
      winner: "argmax" or "argmin", as the code called it.

    Raises:
      ProgramError: The entrants do not race in that direction, or share noise with another race
        (a wrong sampler may do so, but the joint law of two races on one noise is not followed).
    """
    racing: list[Any] = []
    for entrant in entrants:
        inner = entrant.value if isinstance(entrant, LogMass) else entrant
        if (isinstance(inner, Fraction) and inner == 0) or inner == -math.inf:
            racing.append(None)
        elif isinstance(inner, Exponential):
            racing.append(ArrivalTime(inner, Fraction(1)))
        else:
            racing.append(inner)
    wanted = Score if winner == "argmax" else ArrivalTime
    for index, entrant in enumerate(racing):
        if entrant is None:
            continue
        if not isinstance(entrant, wanted):
            raise ProgramError(
                f"{winner} was taken over {entrant!r} at index {index}; required: weights divided "
                f"by exponential noise (argmax), or noise divided by weights (argmin)"
            )
        if entrant.noise.used:
            raise ProgramError(
                f"{entrant.noise!r} decided two draws; required: fresh noise for each draw (noise "
                f"shared between the draft, the test and the residual makes a sampler lossy)"
            )
        entrant.noise.used = True
    weights = [Fraction(0) if entrant is None else entrant.weight for entrant in racing]
    return recorder.category(weights, f"{winner} of a race")
