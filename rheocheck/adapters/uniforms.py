"""Uniform numbers that are known only through the comparisons made with them.

A `Uniform` stands for a number drawn from [0, 1). Comparing it with a threshold splits the interval
it may lie in, draws one side with its exact probability, and remembers the side: nested comparisons
of one number, as in an inverse-CDF walk or a coin that decides two things, get their joint law.
"""

import math
from fractions import Fraction
from typing import Any

from rheocheck.adapters.draw import Draw
from rheocheck.adapters.exact_values import Exact, as_exact, elementwise, num_elements
from rheocheck.errors import ProgramError
from rheocheck.protocols import Choose


class Uniform:
    """`scale * u + shift` for a draw u from [0, 1), in exact arithmetic.

    Comparisons with numbers fork; + - * / with numbers give another view of the same draw. What
    cannot be followed exactly (float(), two draws compared with each other) raises ProgramError.
    """

    __slots__ = ("_draw", "_scale", "_shift")
    # Equality forks, so a uniform has no place in a set or a dict.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, choose: Choose, name: str = "u", bits: int | None = None) -> None:
        """Draw one number; nothing is decided yet.

        Args:
          choose: The choice oracle that decides comparisons.
          name: What to call the draw in messages.
          bits: None: a real number of [0, 1), for which < and <= have the same law. b: a multiple
            of 2^-b, as a real generator gives, so that 0 has probability 2^-b.
        """
        self._draw = Draw(choose, name, bits)
        self._scale = Fraction(1)
        self._shift = Fraction(0)

    def _view(self, scale: Fraction, shift: Fraction) -> "Uniform":
        view = object.__new__(Uniform)
        view._draw, view._scale, view._shift = self._draw, scale, shift
        return view

    def interval(self) -> tuple[Fraction, Fraction]:
        """Lowest value and supremum that the comparisons so far leave for the draw itself."""
        return self._draw.interval()

    def spend(self) -> str:
        """Give the draw away to make noise of it; it cannot be compared any more.

        Returns:
          Its name.

        Raises:
          ProgramError: It was scaled, compared or spent before.
        """
        draw = self._draw
        if self._scale != 1 or self._shift != 0 or draw.last or draw.spent:
            raise ProgramError(
                f"-log of {self!r} was asked for; required: a uniform that was neither scaled, "
                f"compared nor used for noise before"
            )
        draw.spent = True
        return draw.name

    def __repr__(self) -> str:
        """Name and interval of the draw."""
        low, high = self.interval()
        return f"Uniform({self._draw.name} in [{low}, {high}))"

    # Comparisons -----------------------------------------------------------------------------

    def _compare(self, other: Any, below: bool, inclusive: bool) -> Any:
        """`self` < other (below) or > other (not below), elementwise if other has elements."""
        if isinstance(other, Uniform):
            if other._draw is not self._draw:
                raise ProgramError(
                    f"{self!r} was compared with {other!r}; comparisons of two draws with each "
                    f"other cannot be followed"
                )
            return self._compare_views(other, below, inclusive)
        if num_elements(other) != 1 or getattr(other, "ndim", 0) > 0:
            return elementwise(other, lambda item: self._compare(item, below, inclusive))
        return self._decide(as_exact(other), below, inclusive)

    def _decide(self, value: Exact, below: bool, inclusive: bool) -> bool:
        threshold = value
        if isinstance(value, Fraction):
            threshold = (value - self._shift) / self._scale
        elif self._scale < 0:
            threshold = -value
        if below == (self._scale > 0):
            return self._draw.is_below(threshold, inclusive)
        # u > t is the opposite of u <= t, and u >= t of u < t.
        return not self._draw.is_below(threshold, not inclusive)

    def _compare_views(self, other: "Uniform", below: bool, inclusive: bool) -> bool:
        scale, shift = self._scale - other._scale, self._shift - other._shift
        if scale == 0:
            difference = shift if below else -shift
            return difference < 0 or (inclusive and difference == 0)
        return self._view(scale, shift)._decide(Fraction(0), below, inclusive)

    def __lt__(self, other: Any) -> Any:
        """Fork on self < other."""
        return self._compare(other, below=True, inclusive=False)

    def __le__(self, other: Any) -> Any:
        """Fork on self <= other."""
        return self._compare(other, below=True, inclusive=True)

    def __gt__(self, other: Any) -> Any:
        """Fork on self > other."""
        return self._compare(other, below=False, inclusive=False)

    def __ge__(self, other: Any) -> Any:
        """Fork on self >= other."""
        return self._compare(other, below=False, inclusive=True)

    def __eq__(self, other: Any) -> Any:
        """False for a real draw, which equals a given number with probability 0; else fork."""
        if self._draw.bits is None and not isinstance(other, Uniform):
            return False
        return bool(self <= other) and bool(self >= other)

    def __ne__(self, other: Any) -> Any:
        """Opposite of ==."""
        return not self == other

    # Arithmetic ------------------------------------------------------------------------------

    def _affine(self, other: Any, scale: int, of_other: int) -> Any:
        """scale * self + of_other * other, other a number."""
        if isinstance(other, Uniform):
            if other._draw is not self._draw:
                raise ProgramError(
                    f"{self!r} was combined with {other!r}; sums of two draws cannot be followed"
                )
            new = scale * self._scale + of_other * other._scale
            moved = scale * self._shift + of_other * other._shift
            return self._view(new, moved) if new else moved
        if num_elements(other) != 1 or getattr(other, "ndim", 0) > 0:
            return NotImplemented
        moved = scale * self._shift + of_other * _finite(other)
        return self._view(scale * self._scale, moved)

    def __add__(self, other: Any) -> Any:
        """Sum with a number."""
        return self._affine(other, 1, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        """Difference with a number."""
        return self._affine(other, 1, -1)

    def __rsub__(self, other: Any) -> Any:
        """A number minus self."""
        return self._affine(other, -1, 1)

    def __neg__(self) -> "Uniform":
        """The opposite."""
        return self._view(-self._scale, -self._shift)

    def __mul__(self, other: Any) -> Any:
        """Product with a number; a product with 0 is the number 0."""
        if num_elements(other) != 1 or getattr(other, "ndim", 0) > 0:
            return NotImplemented
        factor = _finite(other)
        return self._view(self._scale * factor, self._shift * factor) if factor else Fraction(0)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        """Quotient by a number."""
        if num_elements(other) != 1 or getattr(other, "ndim", 0) > 0:
            return NotImplemented
        divisor = _finite(other)
        if divisor == 0:
            raise ProgramError(f"{self!r} was divided by 0")
        return self._view(self._scale / divisor, self._shift / divisor)

    def __floor__(self) -> int:
        """Fork on the integer part, as in floor(n * u)."""
        low, high = self.interval()
        ends = sorted((self._scale * low + self._shift, self._scale * high + self._shift))
        number, last = math.floor(ends[0]), math.ceil(ends[1]) - 1
        # A view that falls with u reaches its upper end, where u is at its lowest.
        last += self._scale < 0 and ends[1].denominator == 1
        while number < last and not self < number + 1:
            number += 1
        return number

    def __int__(self) -> int:
        """Fork on the integer part, towards 0."""
        number = math.floor(self)
        return number if number >= 0 or self == number else number + 1

    __trunc__ = __int__

    def _unsupported(self, operation: str) -> ProgramError:
        return ProgramError(
            f"{operation} of {self!r} was asked for; only comparisons, + - * / with numbers and "
            f"int() can be followed exactly"
        )

    def __float__(self) -> float:
        """Refused: the draw has no value yet."""
        raise self._unsupported("the value (float(), or a function such as log)")

    def __bool__(self) -> bool:
        """Refused: the draw has no value yet."""
        raise self._unsupported("the truth value")

    def __rtruediv__(self, other: Any) -> Any:
        """Refused: 1/u is not affine."""
        raise self._unsupported("a quotient with it below the line")

    def __pow__(self, other: Any) -> Any:
        """Refused: a power of u is not affine."""
        raise self._unsupported("a power")


def draw_uniform(choose: Choose, name: str = "u", bits: int = 53) -> Uniform:
    """One uniform, real or on a grid as the oracle wants it.

    Args:
      choose: The choice oracle; if its attribute `grid` is true, uniforms are multiples of 2^-bits.
      name: What to call the draw in messages.
      bits: Precision of the generator that the draw stands for.
    """
    return Uniform(choose, name, bits if getattr(choose, "grid", False) else None)


def _finite(value: Any) -> Fraction:
    exact = as_exact(value)
    if not isinstance(exact, Fraction):
        raise ProgramError(f"a uniform was combined with {exact}; required: a finite number")
    return exact
