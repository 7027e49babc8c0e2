"""What is watched while a sampler runs: its draws, its time, and generators it should not touch."""

import contextlib
import random
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.errors import ProgramError
from rheocheck.protocols import Choose, Path

_SHOWN_CHOICES = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """One call of `choose` in one run.

    Attributes:
      weights: [branch] probabilities; of a coin (tails, heads).
      taken: Branch.
      is_coin: Whether it was `choose.bernoulli`.
      row: Path at which the target was asked last before this call; None if it was not asked yet.
    """

    weights: tuple[Fraction, ...]
    taken: int
    is_coin: bool
    row: Path | None

    def __str__(self) -> str:
        """As people read it."""
        if self.is_coin:
            return f"bernoulli({self.weights[1]}) -> {bool(self.taken)}"
        return f"categorical({', '.join(map(str, self.weights))}) -> {self.taken}"


class Tracer:
    """`choose` as the sampler sees it: passes draws on, remembers them, takes notes."""

    def __init__(self, grid: bool = False) -> None:
        """Make a tracer; uniforms are multiples of 2^-53 if `grid`."""
        self.grid = grid
        self.choices: list[Choice] = []
        self.notes: list[tuple[str, Any]] = []
        self.asked: list[Path] = []
        self.drafted: list[Path] = []
        self._choose: Choose | None = None
        self._failure: ProgramError | None = None

    def start(self, choose: Choose) -> None:
        """Begin a run that draws through `choose`."""
        self._choose = choose
        self._failure = None
        self.choices, self.notes, self.asked, self.drafted = [], [], [], []

    def categorical(self, weights: Sequence[Any]) -> int:
        """Draw an index with probability `weights[index]`."""
        assert self._choose is not None
        given = tuple(weights)
        for index, weight in enumerate(given):
            self._check_finite(weight, f"weight {index} of choose.categorical")
        taken = self._choose.categorical(given)
        self.choices.append(Choice(given, taken, False, self._row()))
        return taken

    def bernoulli(self, p: Any) -> bool:
        """Draw True with probability `p`."""
        assert self._choose is not None
        self._check_finite(p, "p of choose.bernoulli")
        heads = self._choose.bernoulli(p)
        weights = (1 - p, p)
        self.choices.append(Choice(weights, int(heads), True, self._row()))
        return heads

    def note(self, name: str, value: Any) -> None:
        """Remember a fact about this run."""
        self.notes.append((name, value))

    def _row(self) -> Path | None:
        return self.asked[-1] if self.asked else None

    def _check_finite(self, weight: Any, what: str) -> None:
        if isinstance(weight, float) and not abs(weight) < float("inf"):
            self._failure = ProgramError(f"{what} is {weight!r}; required: a finite exact rational")
            raise self._failure

    def raise_caught(self) -> None:
        """Raise the error of a draw that failed although the sampler caught it."""
        if self._failure is not None:
            raise self._failure

    def trail(self) -> str:
        """The choices so far, with their weights."""
        shown = [str(choice) for choice in self.choices[-_SHOWN_CHOICES:]]
        if not shown:
            return "no choice led there"
        left_out = len(self.choices) - len(shown)
        before = f"{left_out} more, then " if left_out else ""
        return f"choices that led there: {before}{'; '.join(shown)}"


class _TookTooLong(BaseException):
    """Interrupts a sampler; no Exception, so that it cannot be swallowed by `except Exception`."""


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt the block after `seconds`, where signals allow it: in the main thread, on POSIX."""
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    late = False

    def interrupt(number: int, frame: Any) -> None:
        nonlocal late
        late = True
        raise _TookTooLong

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.suppress(_TookTooLong):
            yield
        if late:  # also where the block caught the interruption
            raise ProgramError(
                f"did not return within {seconds:g} seconds and may never end; required: an end"
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def generator_states() -> dict[str, Any]:
    """State of every global generator that is loaded, in a form that == compares."""
    states: dict[str, Any] = {"Python's global random": random.getstate()}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        _, keys, position, *_ = numpy.get_state()
        states["NumPy's global random"] = (keys.tobytes(), position)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch's global generator"] = torch.get_rng_state().numpy().tobytes()
    return states


def moved_generator(before: dict[str, Any]) -> str | None:
    """Name of a global generator whose state moved; one that was loaded since does not count."""
    after = generator_states()
    return next((name for name in before if before[name] != after[name]), None)
