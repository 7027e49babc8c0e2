"""Stand-ins for NumPy's generators while recording."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rheocheck.adapters.recorder import PYTHON_BITS, Recorder, refused
from rheocheck.errors import ProgramError


class NumpyGenerator:
    """Stand-in for numpy.random.Generator and for the legacy functions."""

    def __init__(self, recorder: Recorder, source: str) -> None:
        """Draw through `recorder`; `source` names it in messages."""
        self._recorder = recorder
        self._source = source

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: every outcome is enumerated."""

    def _shaped(self, size: Any, draw: Callable[[], Any], dtype: Any = object) -> Any:
        if size is None:
            return draw()
        drawn = np.empty(size, dtype=dtype)
        for index in np.ndindex(drawn.shape):
            drawn[index] = draw()
        return drawn

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """One uniform (or an array of them)."""
        if out is not None:
            raise ProgramError(f"{self._source}.random was given out=; required: no out")
        bits = 24 if np.dtype(dtype) == np.float32 else PYTHON_BITS
        return self._shaped(size, lambda: self._recorder.uniform(f"{self._source}.random", bits))

    random_sample = ranf = sample = random

    def rand(self, *shape: int) -> Any:
        """Uniforms of a shape."""
        return self.random(shape or None)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Affine view of one uniform."""
        return self._shaped(size, lambda: low + (high - low) * self.random())

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        """One item."""
        values = np.arange(a) if isinstance(a, int | np.integer) else np.asarray(a)
        weights = [1] * len(values) if p is None else p
        source = f"{self._source}.choice"
        if not replace and size is not None:
            return self._without_replacement(values, weights, size, source)
        return self._shaped(
            size, lambda: values[self._recorder.category(weights, source)], values.dtype
        )

    def _without_replacement(self, values: Any, weights: Any, size: Any, source: str) -> Any:
        # The legacy generator draws in rounds and the new one with other methods: all give the
        # law of successive draws without replacement for one item only.
        if int(np.prod(size)) > 1:
            raise ProgramError(
                f"{source} of {size} items without replacement was called while recording; "
                f"required: one item at a time"
            )
        drawn = np.empty(size, dtype=values.dtype)
        for index in np.ndindex(drawn.shape):
            drawn[index] = values[self._recorder.category(weights, source)]
        return drawn

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Any:
        """Counts of n draws."""
        if size is not None:
            raise ProgramError(f"{self._source}.multinomial was given size=; required: none")
        counts = np.zeros(len(pvals), dtype=np.int64)
        for _ in range(n):
            counts[self._recorder.category(pvals, f"{self._source}.multinomial")] += 1
        return counts

    def binomial(self, n: int, p: Any, size: Any = None) -> Any:
        """Sum of n coins."""
        return self._shaped(
            size, lambda: sum(int(self.random() < p) for _ in range(n)), dtype=np.int64
        )

    def integers(self, low: int, high: int | None = None, size: Any = None, **kwargs: Any) -> Any:
        """Equally likely integers."""
        start, stop = (0, low) if high is None else (low, high)
        stop += bool(kwargs.get("endpoint"))
        source = f"{self._source}.integers"
        return self._shaped(
            size, lambda: start + self._recorder.category([1] * (stop - start), source), np.int64
        )

    randint = integers

    def __getattr__(self, name: str) -> Any:
        """Refuse every other draw."""
        if name.startswith("__"):
            raise AttributeError(name)
        return refused(f"{self._source}.{name}")


def numpy_stand_ins(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """(owner, name, stand-in) of every generator of `numpy.random`."""
    generator = NumpyGenerator(recorder, "numpy.random")
    followed = {
        "seed", "random", "random_sample", "ranf", "sample", "rand", "uniform", "choice",
        "multinomial", "binomial", "randint",
    }  # fmt: skip
    replaced: list[tuple[Any, str, Any]] = []
    for name in dir(np.random):
        value = getattr(np.random, name)
        if name in followed:
            replaced.append((np.random, name, getattr(generator, name)))
        elif getattr(value, "__self__", None) is not None and name not in (
            "get_state",
            "set_state",
        ):
            # Every other legacy function is a bound method of the global generator.
            replaced.append((np.random, name, refused(f"numpy.random.{name}")))
    for name in ("default_rng", "RandomState"):
        made = lambda *args, _name=name, **kwargs: NumpyGenerator(  # noqa: E731
            recorder, f"numpy.random.{_name}()"
        )
        replaced.append((np.random, name, made))
    return replaced
