"""Runs unmodified Python code under the choice oracle, by standing in for its random generators.

Inside `recording(choose)` the uniforms of `random`, `numpy.random` and torch are `Uniform`s: each
comparison with a threshold records it and forks. Draws from given weights (`random.choices`,
`Generator.choice`, `torch.multinomial`) fork over the categories with exactly those weights.

Followed: random.random, uniform, choice, choices, randrange, randint and random.Random; NumPy's
legacy functions and default_rng (random, uniform, choice, multinomial, integers, binomial of one
trial); torch.rand, rand_like, bernoulli, multinomial, Tensor.uniform_, Tensor.bernoulli_; the
exponential race (Tensor.exponential_ then a quotient and argmax) and Gumbel noise as -log of it or
-log(-log u). Everything else that draws raises ProgramError while recording, so that nothing random
is missed in silence: normal variates, shuffles and permutations, noise with a small number added
inside the logarithm, one noise vector for two draws.

Not seen: generators that were made before, and functions that another module imported by name;
name that module in `modules`.
"""

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from types import ModuleType
from typing import Any, TypeVar

from rheocheck.adapters.exact_values import as_exact
from rheocheck.adapters.uniforms import Uniform
from rheocheck.errors import ProgramError
from rheocheck.protocols import Choose
from rheocheck.reference import exact_law

Outcome = TypeVar("Outcome", bound=Hashable)
PYTHON_BITS = 53


class Recorder:
    """Source of uniforms and categories for one run; numbers its draws."""

    def __init__(self, choose: Choose, grid: bool | None = None) -> None:
        """Record through `choose`.

        Args:
          choose: The choice oracle.
          grid: False: uniforms are real numbers. True: they are multiples of 2^-53 (2^-24 for
            single precision), as real generators give, so that an exact 0 can occur. None: as the
            oracle's attribute `grid` says, False if it has none.
        """
        self.choose = choose
        self._grid = getattr(choose, "grid", False) if grid is None else grid
        self._num_draws = 0

    def uniform(self, source: str, bits: int = PYTHON_BITS) -> Uniform:
        """One uniform of [0, 1).

        Args:
          source: Function that the code called, for messages.
          bits: Precision of that generator; used on a grid only.
        """
        name = f"{source}#{self._num_draws}"
        self._num_draws += 1
        return Uniform(self.choose, name, bits if self._grid else None)

    def category(self, weights: Sequence[Any], source: str) -> int:
        """One index, with probability `weights[index]` over their exact sum.

        Args:
          weights: Non-negative finite numbers, floats read exactly; they need not sum to 1.
          source: Function that the code called, for messages.

        Raises:
          ProgramError: A weight is negative, infinite or NaN, or all are 0.
        """
        exact = exact_weights(weights, source)
        total = sum(exact)
        return self.choose.categorical(tuple(weight / total for weight in exact))


def exact_weights(weights: Sequence[Any], source: str) -> list[Fraction]:
    """Check weights of a draw and return them as rationals.

    Args:
      weights: [category] numbers.
      source: Function that was called, for messages.

    Returns:
      [category] the same numbers, exactly; not normalised.

    Raises:
      ProgramError: A weight is negative, infinite or NaN, or all are 0.
    """
    exact = []
    for index, weight in enumerate(weights):
        try:
            value = as_exact(weight)
        except ProgramError:
            value = float("nan")
        if not isinstance(value, Fraction) or value < 0:
            raise ProgramError(
                f"{source} was given weight {weight!r} at index {index}; required: a finite "
                f"number, at least 0"
            )
        exact.append(value)
    if not any(exact):
        raise ProgramError(f"{source} was given weights that are all 0; required: a positive sum")
    return exact


@contextmanager
def recording(
    choose: Choose, *, grid: bool | None = None, modules: Sequence[ModuleType] = ()
) -> Iterator[Recorder]:
    """Stand in for the generators of random, NumPy and torch while the block runs.

    torch is patched only if it has been imported. The generators are process-wide, so one
    recording at a time, in one thread.

    Args:
      choose: The choice oracle.
      grid: As in `Recorder`.
      modules: Modules that imported generator functions by name (from random import random);
        those names are replaced too.

    Yields:
      The recorder, for draws that the caller makes on behalf of the code.
    """
    # The stand-ins are made of this module's Recorder, hence the late imports.
    from rheocheck.adapters.numpy_stand_ins import numpy_stand_ins
    from rheocheck.adapters.python_stand_ins import python_stand_ins

    recorder = Recorder(choose, grid)
    replacements = [*python_stand_ins(recorder), *numpy_stand_ins(recorder)]
    if "torch" in sys.modules:
        from rheocheck.adapters.torch_stand_ins import torch_stand_ins

        replacements += torch_stand_ins(recorder)
    by_original = {id(getattr(owner, name)): new for owner, name, new in replacements}
    for module in modules:
        for name, value in list(vars(module).items()):
            if callable(value) and id(value) in by_original:
                replacements.append((module, name, by_original[id(value)]))
    with ExitStack() as stack:
        for owner, name, new in replacements:
            _replace(stack, owner, name, new)
        yield recorder


def recorded_law(
    function: Callable[[], Outcome],
    *,
    grid: bool = False,
    modules: Sequence[ModuleType] = (),
    max_paths: int | None = None,
) -> dict[Outcome, Fraction]:
    """Exact law of what unmodified code returns.

    Args:
      function: Takes nothing, draws from the generators that `recording` stands in for, returns
        something hashable.
      grid: As in `Recorder`.
      modules: As in `recording`.
      max_paths: Most runs; None sets no bound.

    Returns:
      Probability of each outcome, floats in thresholds and weights read as dyadic rationals.

    Raises:
      ProgramError: The code used a draw in a way that cannot be followed, raised, or drew from a
        generator that was not recorded; the message gives the choices.
      BudgetExceededError: More than `max_paths` runs.
    """

    def program(choose: Choose) -> Outcome:
        with recording(choose, grid=grid, modules=modules):
            return function()

    return exact_law(program, max_paths=max_paths)


def _replace(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    own = name in vars(owner)
    old = getattr(owner, name)
    setattr(owner, name, new)
    # A name that a class inherited goes away again instead of becoming its own.
    stack.callback(setattr, owner, name, old) if own else stack.callback(delattr, owner, name)


def refused(source: str) -> Callable[..., Any]:
    """A stand-in that says that `source` cannot be followed."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ProgramError(
            f"{source} was called while recording; its draws cannot be followed exactly (see "
            f"rheocheck.adapters.recorder for what can)"
        )

    return refuse
