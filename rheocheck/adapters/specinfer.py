"""Multi-round speculative sampling: several independent drafts a node, one residual.

Source: Miao et al. (2024), SpecInfer, arXiv:2305.09781, Algorithm 2 (VerifyStochastic). Siblings
are independent and equal in law, so the order in which they are tried does not matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rheocheck.adapters.rules import acceptance, check_positive, excess
from rheocheck.adapters.trees import DraftNode
from rheocheck.protocols import Choose, LawFunction, Path, note


@dataclass(frozen=True, slots=True)
class MultiRound:
    """A tree of independent drafts, each node's tried one after the other against the residual.

    Attributes:
      width: Drafts a node, at least 1; siblings may be the same token.
      depth: Levels, at least 1.
    """

    width: int = 2
    depth: int = 1

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_positive(self.width, "width")
        check_positive(self.depth, "depth")

    def smaller(self) -> Iterator["MultiRound"]:
        """Narrower and shallower trees."""
        for depth in range(1, self.depth + 1):
            for width in range(1, self.width + 1):
                if (width, depth) != (self.width, self.depth):
                    yield MultiRound(width, depth)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        node = self.drafted((), draft, choose)
        note(choose, "tree", node.paths())
        while node.children:
            residual, proposed = tuple(target(node.path)), draft(node.path)
            for child in node.children:
                token = child.path[-1]
                if choose.bernoulli(acceptance(residual[token], proposed[token])):
                    node = child
                    break
                left = excess(residual, proposed)
                assert left is not None  # a rejection means residual < draft somewhere
                residual = left
            else:
                return (*node.path, choose.categorical(residual))
        return (*node.path, choose.categorical(target(node.path)))

    def drafted(self, path: Path, draft: LawFunction, choose: Choose) -> DraftNode:
        """The tree below `path`, all of it drawn before anything is verified."""
        if len(path) == self.depth:
            return DraftNode(path)
        tokens = [choose.categorical(draft(path)) for _ in range(self.width)]
        children = tuple(self.drafted((*path, token), draft, choose) for token in tokens)
        return DraftNode(path, children)


sampler = MultiRound()
