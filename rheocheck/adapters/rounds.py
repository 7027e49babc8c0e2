"""Several rounds of a sampler, checked jointly."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.adapters.rules import check_positive
from rheocheck.protocols import Choose, LawFunction, Path, Sampler, Shrinkable


@dataclass(frozen=True, slots=True)
class Rounds:
    """The same sampler with `num_rounds` set: the checker calls it so often, each time re-rooted.

    Attributes:
      sampler: One round.
      num_rounds: Rounds, at least 1.
    """

    sampler: Sampler
    num_rounds: int = 2

    def __post_init__(self) -> None:
        """Check the number of rounds."""
        check_positive(self.num_rounds, "num_rounds")

    @property
    def tolerance(self) -> Fraction:
        """That of the sampler."""
        return Fraction(getattr(self.sampler, "tolerance", 0))

    def smaller(self) -> Iterator["Rounds"]:
        """Fewer rounds, then smaller samplers."""
        for num_rounds in range(1, self.num_rounds):
            yield Rounds(self.sampler, num_rounds)
        if isinstance(self.sampler, Shrinkable):
            for sampler in self.sampler.smaller():
                yield Rounds(sampler, self.num_rounds)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        return self.sampler(target, draft, choose)
