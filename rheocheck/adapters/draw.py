"""One uniform draw, known only through the interval that comparisons leave for it."""

import math
import sys
from fractions import Fraction

from rheocheck.adapters.exact_values import Exact
from rheocheck.errors import ProgramError
from rheocheck.protocols import Choose, note

# Modules between a comparison in the code under test and the draw that decides it.
_INTERNAL = tuple(
    f"rheocheck.adapters.{name}"
    for name in (
        "draw",
        "uniforms",
        "exact_values",
        "object_tensor",
        "object_elementwise",
        "object_functions",
        "noise",
    )
)


class Draw:
    """One draw, and the interval [low, high) that the comparisons so far leave for it."""

    __slots__ = ("bits", "choose", "high", "last", "low", "name", "spent", "top")

    def __init__(self, choose: Choose, name: str, bits: int | None) -> None:
        """Draw one number; the arguments are those of `Uniform`."""
        self.choose = choose
        self.name = name
        # In units of 2^-bits: the draw is an integer. None: of 1, and the draw is a real number.
        self.bits = bits
        self.low = Fraction(0)
        self.high = self.top = Fraction(1 if bits is None else 2**bits)
        # Cut, answer and place of the last comparison that was not decided from the start.
        self.last: tuple[Fraction, bool, object] | None = None
        self.spent = False
        self._note("uniform drawn")

    def is_below(self, threshold: Exact, inclusive: bool) -> bool:
        """Decide draw < threshold, or <= if `inclusive`, and narrow the interval to the answer."""
        if self.spent:
            raise ProgramError(
                f"{self.name} made exponential noise and was then compared with {threshold}; "
                f"required: one use of each draw"
            )
        if not isinstance(threshold, Fraction):
            return threshold > 0
        cut = threshold
        if self.bits is not None:
            scaled = threshold * 2**self.bits
            cut = Fraction(math.floor(scaled) + 1 if inclusive else math.ceil(scaled))
        if not 0 < cut < self.top:
            return cut > 0
        if cut <= self.low or cut >= self.high:
            below = cut >= self.high
        else:
            below = self.choose.bernoulli((cut - self.low) / (self.high - self.low))
            if below:
                self.high = cut
            else:
                self.low = cut
        self._remember(cut, below)
        return below

    def _remember(self, cut: Fraction, below: bool) -> None:
        """Note a second use: all but the rising thresholds of one inverse CDF, at one place."""
        place = _calling_place() if hasattr(self.choose, "note") else None
        if self.last is not None:
            last_cut, last_below, last_place = self.last
            if last_below or cut <= last_cut or place != last_place:
                self._note("uniform reused")
        self.last = (cut, below, place)

    def _note(self, fact: str) -> None:
        """Tell the oracle, if it takes notes; they help to name the cause of a defect."""
        note(self.choose, fact, self.name)

    def interval(self) -> tuple[Fraction, Fraction]:
        """Lowest value and supremum that are left."""
        unit = 1 if self.bits is None else 2**self.bits
        return self.low / unit, self.high / unit


def _calling_place() -> object:
    """File and line of the code that compares, outside this folder's tensors and uniforms."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") in _INTERNAL:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
