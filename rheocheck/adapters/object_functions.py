"""What torch functions do to an `ObjectTensor`, and the table of those that are followed."""

import operator
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import torch

from rheocheck.adapters import object_elementwise as elements
from rheocheck.adapters import object_reductions as reductions
from rheocheck.adapters.object_tensor import (
    ObjectTensor,
    cells,
    dtype_of,
    object_tensor,
    plain,
    view_of,
)
from rheocheck.errors import ProgramError


def _inspect(func: Any, *args: Any, **kwargs: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _reshape(func: Any, tensor: ObjectTensor, *args: Any, **kwargs: Any) -> Any:
    index = func(plain(tensor.places), *args, **kwargs)
    if isinstance(index, tuple | list):
        return tuple(
            view_of(tensor.pool, part, dtype_of(tensor), tensor.recorder) for part in index
        )
    return view_of(tensor.pool, index, dtype_of(tensor), tensor.recorder)


def _copy(func: Any, tensor: ObjectTensor, *args: Any, **kwargs: Any) -> ObjectTensor:
    name = func.__name__
    dtype = dtype_of(tensor)
    casts = {"float": torch.float32, "double": torch.float64, "half": torch.float16}
    wanted = casts.get(name, dtype)
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.dtype):
            wanted = value
        elif isinstance(value, torch.Tensor):
            wanted = dtype_of(value)
    if name == "bfloat16":
        wanted = torch.bfloat16
    if not wanted.is_floating_point:
        raise ProgramError(f"a recorded draw was cast to {wanted}; required: a floating dtype")
    if name != "clone" and wanted == dtype:
        return tensor
    return object_tensor(cells(tensor), tensor.shape, wanted, tensor.recorder)


def _join(func: Any, tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> ObjectTensor:
    pool: list[Any] = []
    indices = []
    like = next(tensor for tensor in tensors if isinstance(tensor, ObjectTensor))
    for tensor in tensors:
        shape = tuple(tensor.shape)
        count = int(torch.Size(shape).numel())
        indices.append((torch.arange(count) + len(pool)).reshape(shape))
        pool += cells(tensor)
    return view_of(pool, func(tuple(indices), *args, **kwargs), dtype_of(like), like.recorder)


def _zeros_like(func: Any, tensor: torch.Tensor, **kwargs: Any) -> Any:
    dtype = kwargs.get("dtype") or dtype_of(tensor)
    fill = 1 if func.__name__ == "ones_like" else 0
    return torch.full(tuple(tensor.shape), fill, dtype=dtype)


def _new(func: Any, tensor: ObjectTensor, *args: Any, **kwargs: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return plain(func(tensor, *args, **kwargs))


def _copied(func: Any, tensor: torch.Tensor, source: Any, **kwargs: Any) -> Any:
    elements.set_item(func, tensor, ..., source)
    return tensor


def _fill(func: Any, tensor: ObjectTensor, value: Any = 0) -> ObjectTensor:
    elements.set_item(func, tensor, ..., value)
    return tensor


def _scatter(func: Any, tensor: ObjectTensor, dim: int, where: torch.Tensor, value: Any) -> Any:
    target = (
        tensor
        if func.__name__ == "scatter_"
        else object_tensor(cells(tensor), tensor.shape, dtype_of(tensor), tensor.recorder)
    )
    positions = plain(target.places).gather(dim, where)
    pairs = zip(
        positions.reshape(-1).tolist(), elements.broadcast(value, tuple(where.shape)), strict=True
    )
    for position, element in pairs:
        target.pool[position] = element
    return target


def _truth(func: Any, tensor: ObjectTensor) -> bool:
    return bool(tensor.item())


def _number(func: Any, tensor: ObjectTensor) -> Any:
    raise ProgramError(
        f"float() of {tensor!r} was asked for; required: no conversion, which would round an exact "
        f"law or needs the value of a draw"
    )


def _named(names: str, handler: Callable[..., Any]) -> Iterable[tuple[str, Callable[..., Any]]]:
    return ((name, handler) for name in names.split())


HANDLERS: dict[str, Callable[..., Any]] = dict(
    pair
    for names, handler in (
        ("size dim numel __len__ stride is_floating_point is_contiguous nelement", _inspect),
        (
            "squeeze unsqueeze reshape view flatten permute transpose t expand expand_as movedim "
            "__getitem__ gather index_select take_along_dim select narrow unbind split chunk "
            "repeat repeat_interleave flip masked_select ravel swapaxes view_as reshape_as",
            _reshape,
        ),
        ("clone detach contiguous to cpu float double half bfloat16 type_as", _copy),
        ("cat concat concatenate stack hstack vstack", _join),
        ("__setitem__", elements.set_item),
        ("copy_", _copied),
        ("fill_ zero_", _fill),
        ("add add_", elements.elementwise(operator.add)),
        ("sub sub_ subtract", elements.elementwise(operator.sub)),
        ("mul mul_ multiply", elements.elementwise(operator.mul)),
        ("div div_ divide true_divide", elements.elementwise(elements.divided)),
        ("__rsub__ rsub", elements.elementwise(lambda left, right: right - left)),
        ("__rdiv__ rdiv", elements.elementwise(lambda left, right: elements.divided(right, left))),
        ("neg negative neg_", elements.elementwise(operator.neg)),
        ("minimum", elements.elementwise(min)),
        ("maximum", elements.elementwise(max)),
        ("reciprocal", elements.elementwise(lambda value: elements.divided(Fraction(1), value))),
        ("log log_", elements.elementwise(reductions.log_of)),
        ("exp exp_", elements.elementwise(reductions.exp_of)),
        ("relu relu_", elements.elementwise(lambda value: max(value, Fraction(0)))),
        ("abs", elements.elementwise(abs)),
        ("clamp clamp_ clip", elements.clamp),
        ("clamp_min clamp_min_", lambda func, t, min: elements.clamp(func, t, min=min)),
        ("clamp_max clamp_max_", lambda func, t, max: elements.clamp(func, t, max=max)),
        ("lt less", elements.comparison(operator.lt)),
        ("le less_equal", elements.comparison(operator.le)),
        ("gt greater", elements.comparison(operator.gt)),
        ("ge greater_equal", elements.comparison(operator.ge)),
        ("eq", elements.comparison(operator.eq)),
        ("ne not_equal", elements.comparison(operator.ne)),
        ("where", elements.where),
        ("masked_fill masked_fill_", elements.masked_fill),
        ("sum", reductions.reduction(lambda row: sum(row, Fraction(0)))),
        ("cumsum", reductions.along(reductions.accumulated)),
        ("cumprod", reductions.along(reductions.running_products)),
        ("softmax", reductions.along(reductions.softmax_row)),
        ("log_softmax", reductions.along(reductions.log_softmax_row)),
        ("argmax argmin", reductions.arg_best),
        ("max min amax amin", reductions.best_values),
        ("searchsorted", reductions.search_sorted),
        ("zeros_like ones_like empty_like", _zeros_like),
        ("new_tensor new_zeros new_ones new_empty new_full", _new),
        ("scatter scatter_", _scatter),
        ("sort argsort topk", reductions.sorted_values),
        ("__bool__", _truth),
        ("__float__ __int__ __index__", _number),
    )
    for pair in _named(names, handler)
)
