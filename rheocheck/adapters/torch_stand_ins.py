"""Stand-ins for torch's generators while recording."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rheocheck.adapters.noise import Exponential
from rheocheck.adapters.object_tensor import (
    ObjectTensor,
    become_objects,
    cells,
    dtype_of,
    object_tensor,
)
from rheocheck.adapters.recorder import Recorder, refused
from rheocheck.errors import ProgramError

# torch draws uniforms with as many bits as the significand of the dtype holds.
BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_REFUSED_FUNCTIONS = ("randn", "randn_like", "normal", "randperm", "poisson", "binomial")
_REFUSED_METHODS = ("normal_", "cauchy_", "log_normal_", "geometric_", "random_")


def torch_stand_ins(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """(owner, name, stand-in) of every generator of torch."""
    functions: dict[str, Callable[..., Any]] = {
        "rand": _Rand(recorder),
        "rand_like": _rand_like(recorder),
        "randint": _randint(recorder),
        "multinomial": _multinomial(recorder),
        "bernoulli": _bernoulli(recorder),
        # Every outcome is enumerated, whatever the seed.
        "manual_seed": lambda *args, **kwargs: None,
    }
    methods: dict[str, Callable[..., Any]] = {
        "multinomial": _multinomial(recorder),
        "bernoulli": _bernoulli(recorder),
        "bernoulli_": _bernoulli_in_place(recorder),
        "uniform_": _uniform_in_place(recorder),
        "exponential_": _exponential_in_place(recorder),
    }
    functions |= {name: refused(f"torch.{name}") for name in _REFUSED_FUNCTIONS}
    methods |= {name: refused(f"torch.Tensor.{name}") for name in _REFUSED_METHODS}
    return [
        *((torch, name, stand_in) for name, stand_in in functions.items()),
        *((torch.Tensor, name, stand_in) for name, stand_in in methods.items()),
    ]


def _uniforms(
    recorder: Recorder, shape: Sequence[int], dtype: torch.dtype, source: str
) -> ObjectTensor:
    count = torch.Size(shape).numel()
    drawn = [recorder.uniform(source, BITS.get(dtype, 53)) for _ in range(count)]
    return object_tensor(drawn, shape, dtype, recorder)


class _Rand:
    """torch.rand(2, 3), torch.rand((2, 3)), torch.rand(size=...)."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, *size: Any, dtype: Any = None, out: Any = None, **options: Any) -> Any:
        if out is not None:
            raise ProgramError("torch.rand was given out= while recording; required: no out")
        given = size or options.get("size", ())
        shape = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else given
        return _uniforms(self._recorder, shape, dtype or torch.get_default_dtype(), "torch.rand")


def _rand_like(recorder: Recorder) -> Callable[..., Any]:
    def rand_like(tensor: torch.Tensor, dtype: Any = None, **options: Any) -> ObjectTensor:
        return _uniforms(recorder, tensor.shape, dtype or dtype_of(tensor), "torch.rand_like")

    return rand_like


def _randint(recorder: Recorder) -> Callable[..., Any]:
    def randint(*args: Any, **options: Any) -> torch.Tensor:
        numbers = [value for value in args if isinstance(value, int)]
        low, high = numbers if len(numbers) == 2 else (0, *numbers)
        low, high = options.get("low", low), options.get("high", high)
        shape = next((a for a in args if isinstance(a, tuple | list)), options.get("size", ()))
        count = torch.Size(shape).numel()
        drawn = [low + recorder.category([1] * (high - low), "torch.randint") for _ in range(count)]
        return torch.tensor(drawn, dtype=torch.int64).reshape(tuple(shape))

    return randint


def _multinomial(recorder: Recorder) -> Callable[..., Any]:
    def multinomial(
        tensor: torch.Tensor, num_samples: int, replacement: bool = False, **options: Any
    ) -> torch.Tensor:
        # Not cells(): a NaN is reported by `category`, as a weight with its index.
        objects = isinstance(tensor, ObjectTensor)
        rows = cells(tensor) if objects else tensor.reshape(-1).tolist()
        vocab = tensor.shape[-1]
        drawn = []
        for start in range(0, len(rows), vocab):
            weights = list(rows[start : start + vocab])
            for _ in range(num_samples):
                drawn.append(recorder.category(weights, "torch.multinomial"))
                if not replacement:
                    weights[drawn[-1]] = 0
        return torch.tensor(drawn, dtype=torch.int64).reshape((*tensor.shape[:-1], num_samples))

    return multinomial


def _coins(recorder: Recorder, probabilities: Any, shape: Sequence[int]) -> torch.Tensor:
    if isinstance(probabilities, torch.Tensor):
        probabilities = probabilities.expand(tuple(shape))
        chances = cells(probabilities)
    else:
        chances = [probabilities] * torch.Size(shape).numel()
    heads = [bool(recorder.uniform("torch.bernoulli") < chance) for chance in chances]
    return torch.tensor(heads, dtype=torch.float64).reshape(tuple(shape))


def _bernoulli(recorder: Recorder) -> Callable[..., Any]:
    def bernoulli(tensor: torch.Tensor, p: Any = None, **options: Any) -> torch.Tensor:
        chances = tensor if p is None else p
        return _coins(recorder, chances, tensor.shape).to(dtype_of(tensor))

    return bernoulli


def _bernoulli_in_place(recorder: Recorder) -> Callable[..., Any]:
    def bernoulli_(tensor: torch.Tensor, p: Any = 0.5, **options: Any) -> torch.Tensor:
        return tensor.copy_(_coins(recorder, p, tensor.shape))

    return bernoulli_


def _uniform_in_place(recorder: Recorder) -> Callable[..., Any]:
    def uniform_(tensor: torch.Tensor, *bounds: Any, **options: Any) -> ObjectTensor:
        low, high = bounds if bounds else (options.get("from", 0), options.get("to", 1))
        shape, dtype = tuple(tensor.shape), dtype_of(tensor)
        unit = cells(_uniforms(recorder, shape, dtype, "torch.Tensor.uniform_"))
        moved = unit if (low, high) == (0, 1) else [low + (high - low) * u for u in unit]
        return become_objects(tensor, moved, recorder)

    return uniform_


def _exponential_in_place(recorder: Recorder) -> Callable[..., Any]:
    def exponential_(tensor: torch.Tensor, lambd: Any = 1, **options: Any) -> ObjectTensor:
        if lambd != 1:
            raise ProgramError(f"exponential_ was given the rate {lambd}; required: 1")
        names = (f"torch.exponential_#{number}" for number in range(tensor.numel()))
        return become_objects(tensor, [Exponential(name) for name in names], recorder)

    return exponential_
