"""Torch tensors whose elements are exact Python objects: rationals, uniforms, logarithms, noise.

An `ObjectTensor` goes through unmodified torch code. Views and copies act on an index tensor, so
that aliasing is that of real tensors; arithmetic and comparisons act on the elements with Python's
operators, so that a comparison with a uniform forks, and probabilities are not rounded. Operations
that `object_functions` does not list raise ProgramError instead of computing with the NaNs of the
placeholder.
"""

from collections.abc import Sequence
from typing import Any

import torch

from rheocheck.adapters.exact_values import as_exact
from rheocheck.errors import ProgramError


class ObjectTensor(torch.Tensor):
    """A tensor of Python objects; made by `object_tensor`.

    Attributes:
      pool: Elements of the storage, shared by views.
      places: int64 tensor of this view's shape: position in `pool` of each element.
      recorder: Where an argmax over noise forks; None if there is no noise.
    """

    pool: list[Any]
    places: torch.Tensor
    recorder: Any

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Dispatch one torch function by its name."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            return _attribute(func, args)
        from rheocheck.adapters.object_functions import HANDLERS as handlers

        handler = handlers.get(name)
        if handler is not None:
            return handler(func, *args, **kwargs)
        raise ProgramError(
            f"torch function {name} met a recorded draw or an exact law and cannot be followed; "
            f"followed are views, copies, arithmetic, comparisons, sums and draws"
        )

    def item(self) -> Any:
        """The element itself."""
        return self.pool[int(plain(self.places).item())]

    def tolist(self) -> Any:
        """Nested lists of the elements."""
        return _nested(plain(self.places).tolist(), self.pool)

    def numpy(self, *, force: bool = False) -> Any:
        """[same shape] object array of the elements."""
        import numpy as np

        array = np.empty(self.numel(), dtype=object)
        array[:] = cells(self)
        return array.reshape(tuple(self.shape))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """The elements."""
        return f"ObjectTensor({self.tolist()!r})"

    def __format__(self, spec: str) -> str:
        """The elements."""
        return repr(self)


def _operator(name: str) -> Any:
    """An operator that takes rationals and uniforms too, which torch's own would refuse."""

    def operate(self: ObjectTensor, other: Any) -> Any:
        from rheocheck.adapters.object_functions import HANDLERS

        return HANDLERS[name](operate, self, other)

    operate.__name__ = name
    return operate


for _python, _torch in (
    *((name, name) for name in ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne")),
    ("truediv", "div"),
    ("radd", "add"),
    ("rmul", "mul"),
    ("rsub", "rsub"),
    ("rtruediv", "rdiv"),
    *((f"i{name}", f"{name}_") for name in ("add", "sub", "mul")),
    ("itruediv", "div_"),
):
    setattr(ObjectTensor, f"__{_python}__", _operator(_torch))
# Setting __eq__ took the identity hash away, which torch relies on.
ObjectTensor.__hash__ = torch.Tensor.__hash__  # type: ignore[method-assign]


def object_tensor(
    elements: Sequence[Any], shape: Sequence[int], dtype: torch.dtype, recorder: Any = None
) -> ObjectTensor:
    """Make a tensor of objects.

    Args:
      elements: Elements in row-major order.
      shape: Shape; its product is the number of elements.
      dtype: What the tensor says its dtype is. Elements are never rounded to it.
      recorder: Where an argmax over noise forks.

    Returns:
      The tensor. Its storage is NaN, so that an operation that bypasses it cannot go unseen.
    """
    index = torch.arange(len(elements)).reshape(tuple(shape))
    return view_of(list(elements), index, dtype, recorder)


def cells(tensor: torch.Tensor) -> list[Any]:
    """Elements of any tensor in row-major order; those of a plain tensor read exactly."""
    if isinstance(tensor, ObjectTensor):
        return [tensor.pool[position] for position in plain(tensor.places).reshape(-1).tolist()]
    return [as_exact(element) for element in tensor.reshape(-1).tolist()]


def become_objects(tensor: torch.Tensor, elements: Sequence[Any], recorder: Any) -> ObjectTensor:
    """Turn a plain tensor into one of objects in place, as `uniform_` and `exponential_` need."""
    shape = tuple(tensor.shape)
    changed: Any = tensor
    if not isinstance(tensor, ObjectTensor):
        changed.__class__ = ObjectTensor
    changed.pool = list(elements)
    changed.places = torch.arange(len(changed.pool)).reshape(shape)
    changed.recorder = recorder
    converted: ObjectTensor = changed
    return converted


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same data as an ordinary tensor."""
    return tensor.as_subclass(torch.Tensor) if type(tensor) is not torch.Tensor else tensor


def _nested(positions: Any, pool: list[Any]) -> Any:
    if isinstance(positions, list):
        return [_nested(position, pool) for position in positions]
    return pool[positions]


def view_of(
    pool: list[Any], index: torch.Tensor, dtype: torch.dtype, recorder: Any
) -> ObjectTensor:
    """A tensor of the elements `pool[index]`, sharing the pool."""
    fill = float("nan") if dtype.is_floating_point else 0
    placeholder = torch.full(tuple(index.shape), fill, dtype=dtype)
    made: ObjectTensor = placeholder.as_subclass(ObjectTensor)
    made.pool, made.places, made.recorder = pool, index, recorder
    return made


def dtype_of(tensor: torch.Tensor) -> torch.dtype:
    """The dtype that a tensor says it has."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.dtype


def fresh(like: ObjectTensor, elements: Sequence[Any], shape: Sequence[int]) -> ObjectTensor:
    """A new tensor of the dtype and recorder of another."""
    return object_tensor(elements, shape, dtype_of(like), like.recorder)


def _attribute(func: Any, args: Sequence[Any]) -> Any:
    tensor = args[0]
    with torch._C.DisableTorchFunctionSubclass():
        found = func(*args)
        if not isinstance(found, torch.Tensor):
            return found
        # T, mT, data and the like are views: repeat them on the index.
        return view_of(tensor.pool, plain(func(tensor.places)), tensor.dtype, tensor.recorder)


def refuse_options(func: Any, options: dict[str, Any]) -> None:
    """Refuse keyword arguments that a handler does not know."""
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        raise ProgramError(f"{func.__name__} of recorded values was given {given}; required: none")
