"""Stand-ins for Python's `random` while recording."""

import random
from collections.abc import Sequence
from typing import Any

from rheocheck.adapters.exact_values import as_exact
from rheocheck.adapters.recorder import Recorder, refused
from rheocheck.adapters.uniforms import Uniform


class PythonGenerator:
    """Stand-in for random.Random and for the functions of the module."""

    def __init__(self, recorder: Recorder, source: str) -> None:
        """Draw through `recorder`; `source` names it in messages."""
        self._recorder = recorder
        self._source = source

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: every outcome is enumerated."""

    def random(self) -> Uniform:
        """One uniform (or an array of them)."""
        return self._recorder.uniform(f"{self._source}.random")

    def uniform(self, a: Any, b: Any) -> Any:
        """Affine view of one uniform."""
        return a + (b - a) * self.random() if a != b else a

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Equally likely integer."""
        values = range(start) if stop is None else range(start, stop, step)
        return values[self._equally(len(values), "randrange")]

    def randint(self, a: int, b: int) -> int:
        """Equally likely integer."""
        return a + self._equally(b - a + 1, "randint")

    def choice(self, seq: Sequence[Any]) -> Any:
        """One item."""
        return seq[self._equally(len(seq), "choice")]

    def choices(
        self, population: Sequence[Any], weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[Any]:
        """Independent items with the weights given."""
        given = weights
        if cum_weights is not None:
            exact = [as_exact(weight) for weight in cum_weights]
            given = [after - before for before, after in zip([0, *exact], exact, strict=False)]
        if given is None:
            given = [1] * len(population)
        source = f"{self._source}.choices"
        return [population[self._recorder.category(given, source)] for _ in range(k)]

    def _equally(self, count: int, function: str) -> int:
        return self._recorder.category([1] * count, f"{self._source}.{function}")

    def __getattr__(self, name: str) -> Any:
        """Refuse every other draw."""
        if name.startswith("__"):
            raise AttributeError(name)
        return refused(f"{self._source}.{name}")


_PYTHON_REFUSED = (
    "shuffle", "sample", "gauss", "normalvariate", "expovariate", "betavariate", "gammavariate",
    "lognormvariate", "paretovariate", "triangular", "vonmisesvariate", "weibullvariate",
    "getrandbits", "randbytes",
)  # fmt: skip


def python_stand_ins(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """(owner, name, stand-in) of every generator of the module `random`."""
    generator = PythonGenerator(recorder, "random")
    followed = ("seed", "random", "uniform", "randrange", "randint", "choice", "choices")
    replaced: list[tuple[Any, str, Any]] = [
        (random, name, getattr(generator, name)) for name in followed
    ]
    replaced += [(random, name, refused(f"random.{name}")) for name in _PYTHON_REFUSED]
    for name in ("Random", "SystemRandom"):
        # Late binding of the loop's name is avoided by a default argument.
        made = lambda *args, _name=name: PythonGenerator(recorder, f"random.{_name}")  # noqa: E731
        replaced.append((random, name, made))
    return replaced
