"""One run of a program against the choice oracle: draws are replayed, then recorded."""

import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from rheocheck.errors import (
    BudgetExceededError,
    LawError,
    ProgramError,
    RheocheckError,
    shown,
    shown_error,
    shown_with_type,
)
from rheocheck.reference.laws import as_exact, as_law


class Choose(Protocol):
    """What a program draws through."""

    def categorical(self, weights: Sequence[Any]) -> int:
        """Draw an index with probability `weights[index]`; weights are rationals that sum to 1."""
        ...

    def bernoulli(self, p: Any) -> bool:
        """Draw True with probability `p`, an exact rational between 0 and 1."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedPath:
    """One run of a program.

    Attributes:
      outcome: What the program returned.
      probability: Probability of the choices that led there; positive.
      choices: [draw] branch taken at each draw that had more than one branch of positive weight.
    """

    outcome: Any
    probability: Fraction
    choices: tuple[int, ...]


class Recorder:
    """`choose` for one program: replays the recorded choices, then records new ones."""

    def __init__(self, max_choices: int, generator: random.Random | None = None) -> None:
        """Nothing is recorded yet.

        Args:
          max_choices: Most branching draws in one run.
          generator: Picks the branches of new draws; None takes the first.
        """
        self._choices: list[_Choice] = []
        self._cursor = 0
        self._max_choices = max_choices
        self._generator = generator
        self._failure: RheocheckError | None = None

    def run(self, program: Callable[["Choose"], Any]) -> RecordedPath:
        """Run `program` once more, along the recorded choices and then along first branches."""
        self._cursor = 0
        self._failure = None
        try:
            outcome = program(self)
        except _Abandoned:
            outcome = None
        except RheocheckError:
            if self._failure is None:
                raise
        except (Exception, SystemExit) as error:
            if self._failure is None:
                raise ProgramError(
                    f"the program raised {shown_error(error)}; {self._trail()}"
                ) from error
        # What a program makes of a draw that failed is no outcome, also if it caught the error.
        if self._failure is not None:
            raise self._failure
        if self._cursor < len(self._choices):
            raise ProgramError(
                f"the program made {self._cursor} draws where it had made {len(self._choices)} "
                f"with the same outcomes; required: the same run for the same choices; "
                f"{self._trail()}"
            )
        try:
            check_outcome(outcome)
        except ProgramError as error:
            raise ProgramError(f"{error}; {self._trail()}") from None
        choices = tuple(choice.taken for choice in self._choices)
        return RecordedPath(outcome, self._probability(len(self._choices)), choices)

    def advance(self) -> bool:
        """Move the last choice with an open branch on; False if every branch has been taken."""
        while self._choices:
            last = self._choices[-1]
            if last.position + 1 < len(last.branches):
                last.move_to(last.position + 1, self._probability(len(self._choices) - 1))
                return True
            self._choices.pop()
        return False

    def num_branches(self) -> list[int]:
        """[draw] branches of each recorded draw."""
        return [len(choice.branches) for choice in self._choices]

    def categorical(self, weights: Sequence[Any]) -> int:
        """Draw an index."""
        return self._guarded(self._categorical, weights)

    def bernoulli(self, p: Any) -> bool:
        """Draw True with probability `p`."""
        return self._guarded(self._bernoulli, p) == 1

    def _guarded(self, draw: Callable[[Any], int], given: Any) -> int:
        """Draw; the first draw that fails ends the run, whatever the program does about it."""
        if self._failure is not None:
            raise _Abandoned
        try:
            return draw(given)
        except RheocheckError as error:
            self._failure = error
            raise
        except Exception as error:  # a number of the program's own that cannot be compared
            self._failure = ProgramError(f"a draw raised {shown_error(error)}; {self._trail()}")
            raise self._failure from error

    def _categorical(self, weights: Any) -> int:
        given = tuple(weights) if isinstance(weights, Iterable) else weights
        if self._cursor < len(self._choices) and isinstance(given, tuple):
            return self._replayed("categorical", given)
        try:
            law = as_law(given, name="weights")
        except LawError as error:
            raise ProgramError(f"choose.categorical: {error}; {self._trail()}") from None
        branches = [(index, weight) for index, weight in enumerate(law) if weight]
        return self._taken("categorical", given, branches)

    def _bernoulli(self, p: Any) -> int:
        replayed = self._cursor < len(self._choices)
        try:
            success = as_exact(p, "p")
            if success > 1:
                raise LawError(f"p is {shown(success)}; required: at most 1")
        except LawError as error:
            raise ProgramError(f"choose.bernoulli: {error}; {self._trail()}") from None
        if replayed and success not in (0, 1):
            return self._replayed("bernoulli", success)
        branches = [(index, weight) for index, weight in ((1, success), (0, 1 - success)) if weight]
        return self._taken("bernoulli", success, branches)

    def _taken(self, kind: str, given: Any, branches: list[tuple[int, Fraction]]) -> int:
        if len(branches) == 1:
            return branches[0][0]
        if len(self._choices) >= self._max_choices:
            raise BudgetExceededError(
                f"one run made more than max_choices = {self._max_choices} branching draws; the "
                f"program may never end; {self._trail(last=5)}"
            )
        before = self._probability(len(self._choices))
        choice = _Choice(kind, given, branches, before)
        if self._generator is not None:
            choice.move_to(self._generator.randrange(len(branches)), before)
        self._choices.append(choice)
        self._cursor += 1
        return choice.taken

    def _replayed(self, kind: str, given: Any) -> int:
        choice = self._choices[self._cursor]
        # Weights with a single branch were never recorded; they reach here only during a replay.
        if kind == "categorical" and sum(1 for weight in given if weight) == 1:
            only = next(index for index, weight in enumerate(given) if weight)
            if given[only] == 1:
                return only
        if choice.kind != kind or choice.given != given:
            raise ProgramError(
                f"draw {self._cursor} was {choice.kind} of {_weights_text(choice.given)} and is "
                f"now {kind} of {_weights_text(given)}; required: the same run for the same "
                f"choices; {self._trail()}"
            )
        self._cursor += 1
        return choice.taken

    def _probability(self, num_choices: int) -> Fraction:
        return self._choices[num_choices - 1].probability if num_choices else Fraction(1)

    def _trail(self, last: int | None = None) -> str:
        made = self._choices[: self._cursor]
        shown = made if last is None else made[-last:]
        if not shown:
            return "no branching choice led there"
        named = ", ".join(
            f"categorical -> {choice.taken}"
            if choice.kind == "categorical"
            else f"bernoulli -> {choice.taken == 1}"
            for choice in shown
        )
        return f"choices that led there: {'... ' if len(shown) < len(made) else ''}{named}"


class _Abandoned(BaseException):
    """Ends a run that went on drawing after a draw had failed; `except Exception` lets it by."""


class _Choice:
    """One draw with at least two branches of positive weight."""

    __slots__ = ("branches", "given", "kind", "position", "probability")

    def __init__(
        self, kind: str, given: Any, branches: list[tuple[int, Fraction]], before: Fraction
    ) -> None:
        self.kind = kind
        self.given = given
        self.branches = branches
        self.position = 0
        # Probability of this branch and all choices before it: a run starts from the last one.
        self.probability = before * branches[0][1]

    @property
    def taken(self) -> int:
        return self.branches[self.position][0]

    def move_to(self, position: int, before: Fraction) -> None:
        self.position = position
        self.probability = before * self.branches[position][1]


def check_outcome(outcome: object) -> None:
    """Refuse an outcome that stands for no value.

    Raises:
      ProgramError: It is an iterator or awaitable, equal to nothing but itself, or not hashable.
    """
    if isinstance(outcome, Iterator | Awaitable | AsyncIterator):
        close = getattr(outcome, "close", None)
        if inspect.iscoroutine(outcome) and close is not None:
            close()  # else Python warns that it was never awaited
        raise ProgramError(
            f"the program returned {shown_with_type(outcome)}, which has yet to run; required: a "
            f"hashable outcome such as a tuple, from a plain function"
        )
    try:
        hash(outcome)
    except Exception:
        raise ProgramError(
            f"the program returned {shown_with_type(outcome)}; required: a hashable outcome such "
            f"as a tuple"
        ) from None


def _weights_text(given: Any) -> str:
    """What a draw was given, as people write numbers."""
    if not isinstance(given, tuple):
        return shown(given)
    return f"({', '.join(shown(weight) for weight in given[:20])}{', ...' * (len(given) > 20)})"
