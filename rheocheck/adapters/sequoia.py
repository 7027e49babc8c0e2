"""Drafts without replacement, verified with draft and residual both updated.

Source: Chen et al. (2024), Sequoia, arXiv:2402.12374, Algorithm 2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.adapters.rules import ZERO, Law, acceptance, check_positive, excess, without
from rheocheck.adapters.trees import DraftNode
from rheocheck.protocols import Choose, LawFunction, Path, note


@dataclass(frozen=True, slots=True)
class WithoutReplacement:
    """A tree of distinct siblings, drawn one after the other from what is left of the draft.

    Once the draft's support is used up, further siblings are drawn uniformly from the other tokens,
    as in the source; there are never more siblings than tokens.

    Attributes:
      width: Drafts a node, at least 1.
      depth: Levels, at least 1.
    """

    width: int = 2
    depth: int = 1

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_positive(self.width, "width")
        check_positive(self.depth, "depth")

    def smaller(self) -> Iterator["WithoutReplacement"]:
        """Narrower and shallower trees."""
        for depth in range(1, self.depth + 1):
            for width in range(1, self.width + 1):
                if (width, depth) != (self.width, self.depth):
                    yield WithoutReplacement(width, depth)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        node = self._drafted((), draft, choose)
        note(choose, "tree", node.paths())
        while node.children:
            residual, proposed = tuple(target(node.path)), tuple(draft(node.path))
            tried: set[int] = set()
            for child in node.children:
                token = child.path[-1]
                if choose.bernoulli(acceptance(residual[token], proposed[token])):
                    node = child
                    break
                left = excess(residual, proposed)
                assert left is not None  # a rejection means residual < draft somewhere
                residual = left
                tried.add(token)
                proposed = left_of(proposed, token, tried)
            else:
                return (*node.path, choose.categorical(residual))
        return (*node.path, choose.categorical(target(node.path)))

    def _drafted(self, path: Path, draft: LawFunction, choose: Choose) -> DraftNode:
        if len(path) == self.depth:
            return DraftNode(path)
        proposed: Law = tuple(draft(path))
        tokens: list[int] = []
        for _ in range(min(self.width, len(proposed))):
            tokens.append(choose.categorical(proposed))
            proposed = left_of(proposed, tokens[-1], set(tokens))
        children = tuple(self._drafted((*path, token), draft, choose) for token in tokens)
        return DraftNode(path, children)


def left_of(law: Law, token: int, tried: set[int]) -> Law:
    """[vocab] law without `token`; uniform on the tokens not in `tried` if it has no other mass."""
    left = without(law, token)
    if left is not None:
        return left
    num_left = len(law) - len(tried)
    if num_left == 0:
        return law  # every token was tried, so this law is not used
    return tuple(ZERO if t in tried else Fraction(1, num_left) for t in range(len(law)))


sampler = WithoutReplacement()
