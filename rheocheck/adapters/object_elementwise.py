"""Elementwise arithmetic, comparisons and assignments of an `ObjectTensor`."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from rheocheck.adapters.exact_values import as_exact
from rheocheck.adapters.noise import Exponential, LogMass, Score
from rheocheck.adapters.object_tensor import (
    ObjectTensor,
    become_objects,
    cells,
    fresh,
    plain,
    refuse_options,
)
from rheocheck.adapters.uniforms import Uniform
from rheocheck.errors import ProgramError


def set_item(func: Any, tensor: torch.Tensor, where: Any, value: Any) -> None:
    """tensor[where] = value, in place; a plain tensor becomes one of objects."""
    objects = (
        tensor if isinstance(tensor, ObjectTensor) else become_objects(tensor, cells(tensor), None)
    )
    selected = plain(objects.places)[where]
    for position, element in zip(
        selected.reshape(-1).tolist(), broadcast(value, tuple(selected.shape)), strict=True
    ):
        objects.pool[position] = element


def broadcast(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """Elements of `value` repeated to `shape`, in row-major order."""
    if isinstance(value, torch.Tensor):
        elements = cells(value)
        positions = torch.arange(len(elements)).reshape(tuple(value.shape)).expand(shape)
        return [elements[position] for position in positions.reshape(-1).tolist()]
    element = (
        value if isinstance(value, Uniform | LogMass | Exponential | Score) else as_exact(value)
    )
    return [element] * int(torch.Size(shape).numel())


def common_shape(*values: Any) -> tuple[int, ...]:
    """Shape that the tensors among the arguments broadcast to."""
    shapes = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
    # torch.broadcast_shapes would import sympy.
    return tuple(np.broadcast_shapes(*shapes))


def map_elements(compute: Callable[..., Any], *values: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Elements of the result in row-major order, and its shape."""
    shape = common_shape(*values)
    columns = [broadcast(value, shape) for value in values]
    return [compute(*row) for row in zip(*columns, strict=True)], shape


def like(*values: Any) -> ObjectTensor:
    """The first tensor of objects among the arguments."""
    return next(value for value in values if isinstance(value, ObjectTensor))


def elementwise(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Handler of an elementwise function, in place if torch's name ends in _."""

    def handle(func: Any, *values: Any, **kwargs: Any) -> ObjectTensor:
        refuse_options(func, kwargs)
        elements, shape = map_elements(compute, *values)
        if func.__name__.endswith("_") and not func.__name__.startswith("_"):
            set_item(func, values[0], ..., fresh(like(*values), elements, shape))
            changed: ObjectTensor = values[0]
            if changed.recorder is None:
                changed.recorder = like(*values[1:], *values).recorder
            return changed
        recorders = [v.recorder for v in values if isinstance(v, ObjectTensor) and v.recorder]
        made = fresh(like(*values), elements, shape)
        made.recorder = recorders[0] if recorders else None
        return made

    return handle


def comparison(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Handler of a comparison; elements are decided in row-major order."""

    def handle(func: Any, left: Any, right: Any) -> torch.Tensor:
        decided, shape = map_elements(compare, left, right)
        return torch.tensor([bool(answer) for answer in decided], dtype=torch.bool).reshape(shape)

    return handle


def clamp(func: Any, tensor: Any, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
    """clamp with numbers or tensors as limits."""
    refuse_options(func, kwargs)
    low = -float("inf") if min is None else min
    high = float("inf") if max is None else max
    return elementwise(_limited)(func, tensor, low, high)


def _limited(value: Any, low: Any, high: Any) -> Any:
    if value < low:
        return low
    return high if value > high else value


def divided(left: Any, right: Any) -> Any:
    """Quotient; a positive number by 0 is infinite, as in floating point."""
    if isinstance(right, Fraction) and isinstance(left, Fraction) and right == 0:
        if left == 0:
            raise ProgramError("0 was divided by 0 (a residual without mass?); required: a number")
        return float("inf") if left > 0 else -float("inf")
    return left / right


def where(func: Any, condition: torch.Tensor, left: Any, right: Any) -> ObjectTensor:
    """where(condition, left, right)."""
    shape = common_shape(condition, left, right)
    mask = condition.expand(shape).reshape(-1).tolist()
    pairs = zip(mask, broadcast(left, shape), broadcast(right, shape), strict=True)
    return fresh(like(left, right), [a if keep else b for keep, a, b in pairs], shape)


def masked_fill(func: Any, tensor: Any, mask: torch.Tensor, value: Any) -> Any:
    """masked_fill and masked_fill_."""
    filled = where(func, mask, value, tensor) if isinstance(value, torch.Tensor) else None
    if filled is None:
        shape = common_shape(tensor, mask)
        fill = broadcast(value, shape)
        kept = broadcast(tensor, shape)
        chosen = mask.expand(shape).reshape(-1).tolist()
        filled = fresh(
            tensor, [f if m else k for m, f, k in zip(chosen, fill, kept, strict=True)], shape
        )
    if func.__name__ == "masked_fill_":
        set_item(func, tensor, ..., filled)
        return tensor
    return filled
