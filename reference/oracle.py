"""The choice oracle: the exact law of any program that draws through `choose`.

The program is run once for every outcome of every draw. A run replays the choices recorded so far
and takes the first open branch at each new draw; the last choice with a branch left is then moved
on, as an odometer would. No state of the program is copied, so it may be any Python code.
"""

import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, TypeVar

from rheocheck.errors import BudgetExceededError, LawError, ProgramError, RheocheckError
from rheocheck.reference.laws import as_exact, as_law, check_callable

Outcome = TypeVar("Outcome", bound=Hashable)
MAX_CHOICES = 10_000


class Choose(Protocol):
    """What a program draws through."""

    def categorical(self, weights: Sequence[Any]) -> int:
        """Draw an index with probability `weights[index]`; weights are rationals that sum to 1."""
        ...

    def bernoulli(self, probability: Any) -> bool:
        """Draw True with `probability`, an exact rational between 0 and 1."""
        ...


Program: TypeAlias = Callable[[Choose], Outcome]


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


def exact_law(
    program: Program[Outcome], max_paths: int | None = None, max_choices: int = MAX_CHOICES
) -> dict[Outcome, Fraction]:
    """Law of what `program` returns, by running it once for every outcome of every draw.

    Args:
      program: Takes `choose` and returns something hashable; must do the same whenever it is given
        the same choices.
      max_paths: Most runs; None sets no bound.
      max_choices: Most branching draws in one run.

    Returns:
      Probability of each outcome of positive probability; they sum to 1.

    Raises:
      ProgramError: Weights that are no law, an outcome that is not hashable, an exception inside
        the program, or a program that ignores its choices. The message gives the choices.
      BudgetExceededError: `max_paths` or `max_choices` was met: the law is unknown.
    """
    law: dict[Outcome, Fraction] = {}
    for path in enumerate_paths(program, max_paths, max_choices):
        law[path.outcome] = law.get(path.outcome, 0) + path.probability
    return law


def enumerate_paths(
    program: Program[Any], max_paths: int | None = None, max_choices: int = MAX_CHOICES
) -> Iterator[RecordedPath]:
    """Run `program` once for every outcome of every draw, in depth-first order.

    Args:
      program: As in `exact_law`.
      max_paths: Most runs; None sets no bound.
      max_choices: Most branching draws in one run.

    Yields:
      The runs. Their probabilities sum to 1 once all have been seen.

    Raises:
      ProgramError: As in `exact_law`.
      BudgetExceededError: As in `exact_law`.
    """
    check_callable(program, "program")
    recorder = _Recorder(max_choices)
    num_paths = 0
    while True:
        if max_paths is not None and num_paths >= max_paths:
            raise BudgetExceededError(
                f"the program has more than max_paths = {max_paths} paths; its law is unknown"
            )
        yield recorder.run(program)
        num_paths += 1
        if not recorder.advance():
            return


def estimate_num_paths(program: Program[Any], num_dives: int = 4, seed: int = 0) -> int:
    """Estimate how many paths `program` has, without running them all.

    Each dive takes every branch with equal probability and multiplies the numbers of branches it
    met, which is an unbiased estimate of the number of leaves; the mean is returned, rounded down.

    Args:
      program: As in `exact_law`.
      num_dives: Runs to average over, at least 1.
      seed: Seeds the choice of branches.

    Returns:
      The estimate, at least 1.

    Source: Knuth (1975), Estimating the efficiency of backtrack programs, Math. Comp. 29.
    """
    check_callable(program, "program")
    generator = random.Random(seed)
    total = 0
    for _ in range(num_dives):
        recorder = _Recorder(MAX_CHOICES, generator)
        recorder.run(program)
        total += math.prod(recorder.num_branches())
    return total // num_dives


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


class _Recorder:
    """`choose` for one program: replays the recorded choices, then records new ones."""

    def __init__(self, max_choices: int, generator: random.Random | None = None) -> None:
        self._choices: list[_Choice] = []
        self._cursor = 0
        self._max_choices = max_choices
        self._generator = generator

    def run(self, program: Program[Any]) -> RecordedPath:
        self._cursor = 0
        try:
            outcome = program(self)
        except RheocheckError:
            raise
        except (Exception, SystemExit) as error:
            raise ProgramError(
                f"the program raised {type(error).__name__}: {error}; {self._trail()}"
            ) from error
        if self._cursor < len(self._choices):
            raise ProgramError(
                f"the program made {self._cursor} draws where it had made {len(self._choices)} "
                f"with the same outcomes; required: the same run for the same choices; "
                f"{self._trail()}"
            )
        try:
            hash(outcome)
        except TypeError:
            raise ProgramError(
                f"the program returned {outcome!r} of type {type(outcome).__name__}; required: a "
                f"hashable outcome such as a tuple; {self._trail()}"
            ) from None
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
        return [len(choice.branches) for choice in self._choices]

    def categorical(self, weights: Sequence[Any]) -> int:
        given = tuple(weights)
        if self._cursor < len(self._choices):
            return self._replayed("categorical", given)
        try:
            law = as_law(given, name="weights")
        except LawError as error:
            raise ProgramError(f"choose.categorical: {error}; {self._trail()}") from None
        branches = [(index, weight) for index, weight in enumerate(law) if weight]
        return self._taken("categorical", given, branches)

    def bernoulli(self, probability: Any) -> bool:
        if self._cursor < len(self._choices) and probability not in (0, 1):
            return self._replayed("bernoulli", probability) == 1
        try:
            success = as_exact(probability, "probability")
            if success > 1:
                raise LawError(f"probability is {success}; required: at most 1")
        except LawError as error:
            raise ProgramError(f"choose.bernoulli: {error}; {self._trail()}") from None
        branches = [(index, weight) for index, weight in ((1, success), (0, 1 - success)) if weight]
        return self._taken("bernoulli", probability, branches) == 1

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
            return next(index for index, weight in enumerate(given) if weight)
        if choice.kind != kind or choice.given != given:
            raise ProgramError(
                f"draw {self._cursor} was {choice.kind} of {choice.given} and is now {kind} of "
                f"{given}; required: the same run for the same choices; {self._trail()}"
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
