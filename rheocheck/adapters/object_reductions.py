"""Reductions, races, searches and sorts of an `ObjectTensor`."""

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch

from rheocheck.adapters.noise import LogMass, run_race
from rheocheck.adapters.object_elementwise import broadcast, elementwise
from rheocheck.adapters.object_tensor import (
    ObjectTensor,
    cells,
    fresh,
    plain,
    refuse_options,
)
from rheocheck.errors import ProgramError


def reduction(reduce: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Handler of a function that reduces rows along `dim`, or everything."""

    def handle(
        func: Any, tensor: ObjectTensor, dim: Any = None, keepdim: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        kwargs.pop("dtype", None)
        refuse_options(func, kwargs)
        if dim is None:
            return fresh(tensor, [reduce(cells(tensor))], ())
        rows, shape = _rows(tensor, dim)
        reduced = fresh(tensor, [reduce(row) for row in rows], shape)
        return reduced.unsqueeze(dim) if keepdim else reduced

    return handle


def _rows(tensor: ObjectTensor, dim: Any) -> tuple[list[list[Any]], tuple[int, ...]]:
    """Elements along `dim`, one list for each position of the other axes, and their shape."""
    if isinstance(dim, tuple | list):
        if len(dim) != 1:
            raise ProgramError(f"a reduction over axes {dim} was asked for; required: one axis")
        dim = dim[0]
    moved = plain(tensor.places).movedim(dim, -1)
    flat = moved.reshape(-1, moved.shape[-1]).tolist()
    return [[tensor.pool[position] for position in row] for row in flat], tuple(moved.shape[:-1])


def along(compute: Callable[[list[Any]], list[Any]]) -> Callable[..., Any]:
    """Handler of a function that maps each row along `dim` to a row of the same length."""

    def handle(func: Any, tensor: ObjectTensor, dim: int = -1, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("dtype", None)
        kwargs.pop("_stacklevel", None)
        refuse_options(func, kwargs)
        rows, shape = _rows(tensor, dim)
        flat = [element for row in rows for element in compute(row)]
        made = fresh(tensor, flat, (*shape, len(rows[0])))
        return made.movedim(-1, dim)

    return handle


def softmax_row(row: Sequence[Any]) -> list[Any]:
    """Normalised masses of a row of logarithms."""
    masses = [_mass(logit) for logit in row]
    total = sum(masses, Fraction(0))
    if total == 0:
        raise ProgramError("softmax was taken of logits that are all -infinity")
    return [mass / total for mass in masses]


def log_softmax_row(row: Sequence[Any]) -> list[Any]:
    """Logarithms of the normalised masses of a row of logarithms."""
    return [LogMass(mass) for mass in softmax_row(row)]


def _mass(logit: Any) -> Fraction:
    if logit == -float("inf"):
        return Fraction(0)
    if not isinstance(logit, LogMass) or not isinstance(logit.value, Fraction):
        raise ProgramError(f"softmax was taken of {logit!r}; required: logarithms of exact masses")
    return logit.value


def log_of(value: Any) -> LogMass:
    """Logarithm of an element."""
    return LogMass(value)


def exp_of(value: Any) -> Any:
    """Exponential of an element that is a logarithm."""
    if isinstance(value, LogMass):
        return value.value
    if value == -float("inf"):
        return Fraction(0)
    if value == 0:
        return Fraction(1)
    raise ProgramError(f"exp of {value!r} was asked for; required: a logarithm of an exact mass")


def accumulated(row: Sequence[Any]) -> list[Any]:
    """Running sums of a row."""
    sums: list[Any] = []
    for element in row:
        sums.append(sums[-1] + element if sums else element)
    return sums


def running_products(row: Sequence[Any]) -> list[Any]:
    """Running products of a row."""
    products: list[Any] = []
    for element in row:
        products.append(products[-1] * element if products else element)
    return products


def _best(name: str, row: list[Any], recorder: Any) -> int:
    wanted = operator.gt if name.endswith("max") else operator.lt
    inner = [e.value if isinstance(e, LogMass) else e for e in row]
    if any(not isinstance(e, Fraction | int | float) for e in inner):
        return run_race(row, recorder, "argmax" if name.endswith("max") else "argmin")
    best = 0
    for position, element in enumerate(row):
        if wanted(element, row[best]):
            best = position
    return best


def arg_best(func: Any, tensor: ObjectTensor, dim: Any = None, keepdim: bool = False) -> Any:
    """argmax and argmin: a race if there is noise, else the first best element."""
    name = func.__name__
    if dim is None:
        return torch.tensor(_best(name, cells(tensor), tensor.recorder))
    rows, shape = _rows(tensor, dim)
    found = torch.tensor([_best(name, row, tensor.recorder) for row in rows]).reshape(shape)
    return found.unsqueeze(dim) if keepdim else found


def best_values(func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """max, min, amax and amin."""
    dim = args[0] if args else kwargs.get("dim")
    name = func.__name__
    if isinstance(dim, torch.Tensor):
        return elementwise(max if name == "max" else min)(func, tensor, dim)
    if dim is None:
        elements = cells(tensor)
        return fresh(tensor, [elements[_best(name, elements, tensor.recorder)]], ())
    keepdim = args[1] if len(args) > 1 else kwargs.get("keepdim", False)
    rows, shape = _rows(tensor, dim)
    found = [_best(name, row, tensor.recorder) for row in rows]
    values = fresh(tensor, [row[best] for row, best in zip(rows, found, strict=True)], shape)
    indices = torch.tensor(found).reshape(shape)
    if name.startswith("a"):
        return values.unsqueeze(dim) if keepdim else values
    pair = (values.unsqueeze(dim), indices.unsqueeze(dim)) if keepdim else (values, indices)
    return_type = torch.return_types.max if name == "max" else torch.return_types.min
    return return_type(pair)


def search_sorted(func: Any, edges: Any, values: Any, **kwargs: Any) -> torch.Tensor:
    """Binary search of a uniform in ascending edges, as an inverse CDF does."""
    right = bool(kwargs.pop("right", False)) or kwargs.pop("side", "left") == "right"
    refuse_options(func, kwargs)
    if not isinstance(edges, torch.Tensor) or edges.ndim != 1:
        raise ProgramError("searchsorted on recorded draws needs one row of edges")
    row = cells(edges)
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else ()
    # right: edges[i - 1] <= v < edges[i]; left: edges[i - 1] < v <= edges[i].
    below: Callable[[Any, Any], Any] = operator.lt if right else operator.le
    found = []
    for value in broadcast(values, shape):
        found.append(next((i for i, edge in enumerate(row) if below(value, edge)), len(row)))
    return torch.tensor(found).reshape(shape)


def sorted_values(func: Any, tensor: ObjectTensor, *args: Any, **kwargs: Any) -> Any:
    """sort, argsort and topk along the last axis, stable, of rationals or their logarithms."""
    name = func.__name__
    count = tensor.shape[-1]
    largest = kwargs.get("descending", args[1] if name != "topk" and len(args) > 1 else False)
    if name == "topk":
        count = args[0] if args else kwargs["k"]
        largest = kwargs.get("largest", True)
    dim = kwargs.get("dim", -1)
    if dim not in (-1, tensor.ndim - 1):
        raise ProgramError(f"{name} along axis {dim} was asked for; required: the last axis")
    rows, shape = _rows(tensor, -1)
    order = []
    for row in rows:
        masses = [e.value if isinstance(e, LogMass) else e for e in row]
        signed = [-mass if largest else mass for mass in masses]
        order.append(sorted(range(len(row)), key=signed.__getitem__)[:count])
    indices = torch.tensor(order).reshape((*shape, count))
    if name == "argsort":
        return indices
    flat = [row[position] for row, chosen in zip(rows, order, strict=True) for position in chosen]
    values = fresh(tensor, flat, (*shape, count))
    return (torch.return_types.topk if name == "topk" else torch.return_types.sort)(
        (values, indices)
    )
