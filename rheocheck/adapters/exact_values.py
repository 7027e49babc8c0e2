"""Numbers of any library, read as the rationals they are."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.errors import ProgramError

Exact: TypeAlias = Fraction | float  # a float here is an infinity, which has no Fraction


def as_exact(value: Any) -> Exact:
    """The rational that a number stands for, without rounding.

    Args:
      value: An int, a Fraction, a float of any precision, or an array or tensor of one element.

    Returns:
      Its exact value: a float is read as the dyadic rational it is. Infinities stay floats.

    Raises:
      ProgramError: Not a number (NaN), or not something that has a value.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | float):
        number = value
    else:
        item = getattr(value, "item", None)
        if item is None:
            return _as_rational(value)
        try:
            number = item()
        except (TypeError, ValueError, RuntimeError):
            raise ProgramError(
                f"{value!r} was given where a single number is required; compare a uniform with "
                f"one element, or use a uniform tensor for elementwise comparison"
            ) from None
        if not isinstance(number, int | float):
            return as_exact(number)
    if isinstance(number, float) and not math.isfinite(number):
        if math.isnan(number):
            raise ProgramError("a uniform was compared or combined with NaN; required: a number")
        return number
    return Fraction(number)


def _as_rational(value: Any) -> Fraction:
    try:
        return Fraction(value.numerator, value.denominator)
    except (AttributeError, TypeError):
        raise ProgramError(
            f"a uniform met {value!r} of type {type(value).__name__}; only comparisons and "
            f"+ - * / with numbers can be followed exactly"
        ) from None


def num_elements(value: Any) -> int:
    """Elements of an array or tensor; 1 for anything else."""
    if hasattr(value, "numel"):
        return int(value.numel())
    return int(getattr(value, "size", 1)) if hasattr(value, "ndim") else 1


def elementwise(values: Any, decide: Callable[[Any], Any]) -> Any:
    """Decide for each element in row-major order; the result has the container's type and shape."""
    flat = [decide(item) for item in values.reshape(-1)]
    if hasattr(values, "new_tensor"):
        import torch

        return torch.tensor(flat, dtype=torch.bool, device=values.device).reshape(values.shape)
    import numpy as np

    return np.array(flat, dtype=bool).reshape(values.shape)
