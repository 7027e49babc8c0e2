"""The choice oracle: the exact law of any program that draws through `choose`.

The program is run once for every outcome of every draw. A run replays the choices recorded so far
and takes the first open branch at each new draw; the last choice with a branch left is then moved
on, as an odometer would. No state of the program is copied, so it may be any Python code.
"""

import inspect
import math
import random
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

from rheocheck.errors import BudgetExceededError, InputError, shown, shown_with_type
from rheocheck.reference.choices import Choose, RecordedPath, Recorder
from rheocheck.reference.laws import check_bound, check_count

Outcome = TypeVar("Outcome", bound=Hashable)
MAX_CHOICES = 10_000


Program: TypeAlias = Callable[[Choose], Outcome]


def exact_law(
    program: Program[Outcome], max_paths: int | None = None, max_choices: int = MAX_CHOICES
) -> dict[Outcome, Fraction]:
    """Law of what `program` returns, by running it once for every outcome of every draw.

    Args:
      program: Takes `choose` and returns something hashable; must do the same whenever it is given
        the same choices.
      max_paths: Most runs, at least 1; None sets no bound.
      max_choices: Most branching draws in one run, at least 0.

    Returns:
      Probability of each outcome of positive probability; they sum to 1.

    Raises:
      InputError: `program` is not callable, or a generator or coroutine function; a bound that is
        none.
      ProgramError: Weights that are no law, an outcome that is not hashable or an iterator, an
        exception inside the program, or a program that ignores its choices. The message gives the
        choices. Errors of a draw end the run even if the program catches them.
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
      max_paths: As in `exact_law`.
      max_choices: As in `exact_law`.

    Returns:
      The runs, made one by one. Their probabilities sum to 1 once all have been seen.

    Raises:
      InputError: As in `exact_law`, at once.
      ProgramError: As in `exact_law`.
      BudgetExceededError: As in `exact_law`.
    """
    check_program(program)
    check_bound(max_paths, "max_paths")
    check_count(max_choices, "max_choices")
    return _paths(program, max_paths, max_choices)


def _paths(
    program: Program[Any], max_paths: int | None, max_choices: int
) -> Iterator[RecordedPath]:
    recorder = Recorder(max_choices)
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
      seed: Seeds the choice of branches; at least 0.

    Returns:
      The estimate, at least 1.

    Raises:
      InputError: `program` as in `exact_law`; `num_dives` below 1; a negative seed.

    Source: Knuth (1975), Estimating the efficiency of backtrack programs, Math. Comp. 29.
    """
    check_program(program)
    check_count(num_dives, "num_dives", 1)
    check_count(seed, "seed")
    generator = random.Random(seed)
    total = 0
    for _ in range(num_dives):
        recorder = Recorder(MAX_CHOICES, generator)
        recorder.run(program)
        total += math.prod(recorder.num_branches())
    return total // num_dives


def check_program(program: object, name: str = "program") -> None:
    """Refuse what cannot be run against a choice oracle.

    Raises:
      InputError: It is not callable, or calling it runs nothing: a generator function, a coroutine
        function.
    """
    if not callable(program):
        raise InputError(
            f"{name} is {shown_with_type(program)}; required: a callable that takes choose and "
            f"returns an outcome"
        )
    for kind in (program, type(program).__call__):
        if (
            inspect.isgeneratorfunction(kind)
            or inspect.iscoroutinefunction(kind)
            or inspect.isasyncgenfunction(kind)
        ):
            raise InputError(
                f"{name} is {shown(program)}, a generator or coroutine function, whose call runs "
                f"nothing; required: a plain function that returns its outcome"
            )
