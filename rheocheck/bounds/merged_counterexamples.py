"""Exact instances on which too weak a condition makes merged verification lossy; see `merged`."""

from dataclasses import dataclass
from fractions import Fraction

from rheocheck.bounds.growth import Path
from rheocheck.bounds.merged import Condition, merged_round
from rheocheck.config import SpeculationConfig
from rheocheck.reference import Violation, exact_law, worst_violation


@dataclass(frozen=True, slots=True)
class Counterexample:
    """An instance on which merged verification under too weak a condition is lossy.

    Attributes:
      condition: The condition.
      config: The scheme.
      target: Weights of the target law by path; the other paths have all mass on token 0.
      draft: Weights of the draft law by path, likewise.
      everywhere: Whether the laws at the root are those of every path instead.
    """

    condition: Condition
    config: SpeculationConfig
    target: dict[Path, tuple[int, ...]]
    draft: dict[Path, tuple[int, ...]]
    everywhere: bool = False

    def target_at(self, path: Path) -> tuple[Fraction, ...]:
        """[vocab] target law."""
        return self._law(self.target, path)

    def draft_at(self, path: Path) -> tuple[Fraction, ...]:
        """[vocab] draft law."""
        return self._law(self.draft, path)

    def violation(self, condition: Condition | None = None) -> Violation | None:
        """Where the round's law is not the target's; None if it is lossless.

        Args:
          condition: Another condition to try on the same models; None keeps this one's.
        """
        program = merged_round(
            self.target_at, self.draft_at, self.config, condition or self.condition
        )
        return worst_violation(exact_law(program), self.target_at)

    def _law(self, weights: dict[Path, tuple[int, ...]], path: Path) -> tuple[Fraction, ...]:
        root = weights[()]
        point = (1, *[0] * (len(root) - 1))
        found = root if self.everywhere else weights.get(path, point)
        return tuple(Fraction(weight, sum(found)) for weight in found)


COUNTEREXAMPLES = (
    # Found by exhausting laws that are the same at every path, by common denominator: 6 is least.
    Counterexample(
        "survivors",
        SpeculationConfig(top_k=3, num_top=1, budget=3, depth=2),
        {(): (5, 1, 0)},
        {(): (3, 2, 1)},
        everywhere=True,
    ),
    # Found at random, then every law replaced by simpler ones for as long as it stayed lossy.
    Counterexample(
        "regrown",
        SpeculationConfig(top_k=3, num_top=1, budget=6, depth=2),
        {(): (1, 1, 0), (1,): (1, 1, 0)},
        {(): (3, 2, 1), (1,): (2, 2, 1)},
    ),
)
