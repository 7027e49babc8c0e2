"""What a sampler under test must offer.

A sampler is a program against a choice oracle: it asks `target` and `draft` for laws, draws only
through `choose`, and returns the tokens of one round. Nothing here is run by itself.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, runtime_checkable

Path: TypeAlias = tuple[int, ...]
LawFunction: TypeAlias = Callable[[Path], Sequence[Fraction]]
"""path -> [vocab] law of the next token, exact rationals that sum to 1. A draft may instead give a
2-tuple of laws, (ranking, tempered draft), to samplers that declare `draft_pairs`."""


class Choose(Protocol):
    """What a sampler draws through."""

    def categorical(self, weights: Sequence[Any]) -> int:
        """Draw an index with probability `weights[index]`; weights are rationals that sum to 1."""
        ...

    def bernoulli(self, p: Any) -> bool:
        """Draw True with probability `p`, an exact rational between 0 and 1."""
        ...


class Sampler(Protocol):
    """One round of speculative sampling from the empty path.

    Optional attributes, read with `getattr`:
      num_rounds: int, rounds that are checked jointly (default 1). For the second round and later
        ones `target` and `draft` are re-rooted: their empty path is everything emitted before.
      carries_state: bool. The sampler is called with a fourth argument, `state`, and returns
        (tokens, state): None goes into the first round, and what a round returns into the next
        one. A sampler may carry nothing else from one call to the next.
      draft_pairs: bool. The sampler also takes drafts that give a 2-tuple of laws: (ranking,
        tempered draft), the second one's support within the first one's. Both forms of draft are
        then checked; without it every draft gives one law.
      tolerance: Fraction, largest total variation that counts as rounding (default 0, at most
        1/1000); for code that computes in floating point. The claim names it.
      smaller: method that yields samplers of the same kind with fewer nodes, for counterexamples.
    """

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Return the tokens of one round, at least one."""
        ...


@runtime_checkable
class Shrinkable(Protocol):
    """A sampler that knows smaller ones of its kind."""

    def smaller(self) -> Iterable[Sampler]:
        """Yield samplers of fewer nodes or levels, the smallest first."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A choice oracle that also takes notes, which help to name the cause of a defect."""

    def note(self, name: str, value: Any) -> None:
        """Remember a fact about this run: ("tree", paths of the drafted nodes) is printed with a
        counterexample; ("survives", (node, token, whether it survived pruning)) of a drawn node
        shows whether survival depends on identity.
        """
        ...


def note(choose: Choose, name: str, value: Any) -> None:
    """Take a note if the oracle takes any."""
    if isinstance(choose, Noting):
        choose.note(name, value)
