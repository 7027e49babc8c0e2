"""Exact laws of code that takes plain uniforms: one representative for each interval."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from rheocheck.adapters.exact_values import as_exact
from rheocheck.errors import InputError, ProgramError

LARGEST_BELOW_ONE = 1.0 - 2.0**-53


@dataclass(frozen=True, slots=True)
class Representative:
    """One value that stands for all uniforms that a program cannot tell apart from it.

    Attributes:
      value: The float64 to feed.
      weight: Length of the interval it stands for; 0 for the end points.
    """

    value: float
    weight: Fraction


def representatives(thresholds: Sequence[Any]) -> list[Representative]:
    """One uniform for each interval between thresholds, then the end points 0 and 1 - 2^-53.

    Args:
      thresholds: Numbers that a program compares one uniform with, in any order; those outside
        (0, 1) and repeated ones do not matter.

    Returns:
      The midpoints (as float64) of the intervals in ascending order, with weights that sum to 1,
      then 0 and the largest float64 below 1, of weight 0: they test the edges of < against <=.

    Raises:
      InputError: An interval holds no float64 in its interior.
    """
    exact = (as_exact(threshold) for threshold in thresholds)
    inner = sorted({value for value in exact if isinstance(value, Fraction) and 0 < value < 1})
    edges = [Fraction(0), *inner, Fraction(1)]
    chosen = []
    for low, high in pairwise(edges):
        value = float((low + high) / 2)
        if not low < Fraction(value) < high:
            raise InputError(
                f"no float64 lies strictly between the thresholds {low} and {high}; required: "
                f"thresholds at least two units in the last place apart"
            )
        chosen.append(Representative(value, high - low))
    ends = [Representative(0.0, Fraction(0)), Representative(LARGEST_BELOW_ONE, Fraction(0))]
    return chosen + ends


@dataclass(frozen=True, slots=True)
class UniformArrayLaw:
    """What code that takes plain uniforms does.

    Attributes:
      law: Probability of each outcome.
      at_end_points: Outcomes of probability 0 that are met when uniforms are 0 or 1 - 2^-53, with
        the uniforms that gave them.
    """

    law: dict[Any, Fraction]
    at_end_points: dict[Any, tuple[float, ...]]


def law_of_uniform_array(
    function: Callable[[Sequence[float]], Hashable], thresholds: Sequence[Sequence[Any]]
) -> UniformArrayLaw:
    """Exact law of a function of plain uniforms, from the thresholds each is compared with.

    Each interval is tried next to both of its ends: if the outcome differs, a threshold is missing.
    Pairs of missing thresholds inside one interval cannot be seen.

    Args:
      function: Takes one float for each uniform and returns something hashable.
      thresholds: [uniform][threshold] numbers that each uniform is compared with, all of them.

    Returns:
      Its law, and what happens at the end points.

    Raises:
      ProgramError: The outcome differs inside an interval.
      InputError: As in `representatives`.
    """
    chosen = [representatives(row) for row in thresholds]
    law: dict[Any, Fraction] = {}
    ends: dict[Any, tuple[float, ...]] = {}
    for picks in product(*chosen):
        values = tuple(pick.value for pick in picks)
        outcome = function(values)
        weight = math.prod((pick.weight for pick in picks), start=Fraction(1))
        if weight == 0:
            ends.setdefault(outcome, values)
            continue
        law[outcome] = law.get(outcome, Fraction(0)) + weight
        for position, pick in enumerate(picks):
            # One unit inside each end: a threshold that was left out shows as a change.
            low = sum((r.weight for r in chosen[position] if r.value < pick.value), Fraction(0))
            for end, towards in ((low, 2.0), (low + pick.weight, -1.0)):
                inside = math.nextafter(float(end), towards)
                if not low < Fraction(inside) < low + pick.weight:
                    continue
                moved = (*values[:position], inside, *values[position + 1 :])
                if function(moved) != outcome:
                    raise ProgramError(
                        f"uniform {position} = {inside!r} gives {function(moved)!r} and "
                        f"{pick.value!r} gives {outcome!r}, with no threshold between them; "
                        f"required: every threshold of uniform {position}"
                    )
    return UniformArrayLaw(law, {o: values for o, values in ends.items() if o not in law})
