"""EAGLE's stochastic verification, written anew: every candidate a point mass.

Rows of the candidate table are matched by their tokens, so two siblings with one token are tested
once and their subtrees count as one. It is lossless for any candidates that do not depend on the
verification's coins, because the target law given a path does not depend on the candidates.

Source: the rule as read in evaluate_posterior of EAGLE-2/3 (Li et al. 2024, arXiv:2406.16858; 2025,
arXiv:2503.01840).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rheocheck.adapters.rules import check_positive, without
from rheocheck.adapters.specinfer import MultiRound
from rheocheck.adapters.trees import candidate_rows, ranked_tree
from rheocheck.protocols import Choose, LawFunction, Path, note


@dataclass(frozen=True, slots=True)
class EagleRule:
    """A table of candidates and EAGLE's test on it.

    Attributes:
      slots: Rank of each child in the draft; a repeated rank is a duplicate sibling.
      depth: Levels, at least 1.
      sampled: Draw the children from the draft instead, independently, as many as there are slots.
    """

    slots: tuple[int, ...] = (0, 1)
    depth: int = 2
    sampled: bool = False

    def __post_init__(self) -> None:
        """Check the depth."""
        check_positive(self.depth, "depth")

    def smaller(self) -> Iterator["EagleRule"]:
        """Shallower trees, and trees without one of the children."""
        for depth in range(1, self.depth + 1):
            for left_out in range(len(self.slots) + 1):
                slots = self.slots[:left_out] + self.slots[left_out + 1 :]
                if slots and (slots, depth) != (self.slots, self.depth):
                    yield EagleRule(slots, depth, self.sampled)

    def rows(self, draft: LawFunction, choose: Choose) -> list[Path]:
        """The candidate table, one row a leaf, padded with -1."""
        if self.sampled:
            root = MultiRound(len(self.slots), self.depth).drafted((), draft, choose)
        else:
            root = ranked_tree(draft, self.slots, self.depth)
        note(choose, "tree", root.paths())
        return candidate_rows(root)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        return verify_rows(self.rows(draft, choose), target, choose)


def verify_rows(rows: Sequence[Path], target: LawFunction, choose: Choose) -> Path:
    """Walk down the candidate table.

    Args:
      rows: [leaf][level] tokens, padded with -1.
      target: path -> [vocab] law.
      choose: The choice oracle.

    Returns:
      The accepted tokens and the last one.
    """
    path: Path = ()
    while True:
        residual = tuple(target(path))
        tokens = [
            row[len(path)] for row in rows if row[: len(path)] == path and len(row) > len(path)
        ]
        for token in dict.fromkeys(token for token in tokens if token != -1):
            if choose.bernoulli(residual[token]):
                path = (*path, token)
                break
            left = without(residual, token)
            assert left is not None  # a rejection means that the token had not all the mass
            residual = left
        else:
            return (*path, choose.categorical(residual))


sampler = EagleRule()
