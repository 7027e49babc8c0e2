"""Positive controls: faults planted on purpose, which a run must find before its verdict counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Control:
    """One planted fault, or one right law that must not be accused.

    Attributes:
      name: What was planted.
      expected: What the judge has to say.
      found: What it said.
    """

    name: str
    expected: str
    found: str

    @property
    def fired(self) -> bool:
        """Whether the judge said what it has to."""
        return self.found == self.expected


def controls_json(controls: Sequence[Control]) -> list[dict[str, Any]]:
    """The controls as JSON values."""
    return [
        {"name": one.name, "expected": one.expected, "found": one.found, "fired": one.fired}
        for one in controls
    ]


def all_fired(controls: Sequence[Control]) -> bool:
    """Whether every control did; none at all is no control."""
    return bool(controls) and all(control.fired for control in controls)


def controls_text(controls: Sequence[Control]) -> str:
    """One sentence: how many fired, and the first that did not."""
    silent = [control for control in controls if not control.fired]
    counted = f"Controls: {len(controls) - len(silent)} of {len(controls)} planted cases judged"
    if not silent:
        return f"{counted} as they must be."
    first = silent[0]
    return (
        f"{counted} as they must be; {first.name!r} gave {first.found!r}, required: "
        f"{first.expected!r}. The judge of this run is defective and nothing is concluded."
    )
