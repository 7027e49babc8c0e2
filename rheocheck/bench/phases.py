"""Wall time by phase of decoding."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

PHASES = ("draft", "tree", "target", "verify", "tree and verify")


class Clock:
    """Adds up seconds by phase; a phase inside another is taken off the outer one.

    Attributes:
      seconds: By phase.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Start with nothing; `now` gives seconds."""
        self._now = now
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = 0.0

    def timed(self, phase: str, run: Callable[[], Any]) -> Any:
        """Run and add the time to `phase`; the result of `run`."""
        before, self._inside = self._inside, 0.0
        started = self._now()
        result = run()
        took = self._now() - started
        self.seconds[phase] += took - self._inside
        self._inside = before + took
        return result


class Timed:
    """An object some of whose methods count for a phase; all else is the object's own."""

    def __init__(self, inner: Any, clock: Clock, phase: str, methods: tuple[str, ...]) -> None:
        """Time `methods` of `inner`."""
        self._inner, self._clock, self._phase, self._methods = inner, clock, phase, methods

    def __getattr__(self, name: str) -> Any:
        """A method, timed if it is listed; any other attribute as it is."""
        found = getattr(self._inner, name)
        if name not in self._methods:
            return found
        return lambda *given, **named: self._clock.timed(
            self._phase, lambda: found(*given, **named)
        )
