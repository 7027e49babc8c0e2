"""Sampler match: draw from the target at every verified row, keep drafts while they agree.

Emitting the compared draw itself makes this the target's own sampling, whatever the drafter does;
only drawing once more after a mismatch, or once for each sibling, is lossy.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rheocheck.adapters.rules import check_positive
from rheocheck.adapters.specinfer import MultiRound
from rheocheck.adapters.trees import DraftNode
from rheocheck.protocols import Choose, LawFunction, Path


@dataclass(frozen=True, slots=True)
class SamplerMatch:
    """A tree of drafts; one target draw a node decides which child to follow.

    Attributes:
      width: Independent drafts a node, at least 1.
      depth: Levels, at least 1.
    """

    width: int = 1
    depth: int = 2

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_positive(self.width, "width")
        check_positive(self.depth, "depth")

    def smaller(self) -> Iterator["SamplerMatch"]:
        """Narrower and shallower trees."""
        for tree in MultiRound(self.width, self.depth).smaller():
            yield SamplerMatch(tree.width, tree.depth)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        node = MultiRound(self.width, self.depth).drafted((), draft, choose)
        while True:
            drawn = choose.categorical(target(node.path))
            following = _child(node, drawn)
            if following is None:
                return (*node.path, drawn)
            node = following


def _child(node: DraftNode, token: int) -> DraftNode | None:
    return next((child for child in node.children if child.path[-1] == token), None)


sampler = SamplerMatch()
