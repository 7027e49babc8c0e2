"""Drafted trees as the adapters use them, and the candidate table that EAGLE's verifier reads."""

from collections.abc import Iterator
from dataclasses import dataclass

from rheocheck.adapters.rules import ranked
from rheocheck.protocols import LawFunction, Path


@dataclass(frozen=True, slots=True)
class DraftNode:
    """A node of a drafted tree.

    Attributes:
      path: Tokens from the root; empty at the root itself.
      children: Its children in the order in which they are tried; siblings may share a token.
    """

    path: Path
    children: tuple["DraftNode", ...] = ()

    def paths(self) -> list[Path]:
        """Paths of all nodes below the root, parents first."""
        found = [self.path] if self.path else []
        return found + [path for child in self.children for path in child.paths()]

    def leaves(self) -> Iterator["DraftNode"]:
        """Nodes without children, left to right; the root itself if it has none."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def ranked_tree(
    draft: LawFunction, slots: tuple[int, ...], depth: int, path: Path = ()
) -> DraftNode:
    """The deterministic tree whose children are picked by their rank in the draft.

    Args:
      draft: path -> [vocab] law.
      slots: Ranks of the children, in order: (0, 1) is Top-2, (0, 0) a duplicate. Ranks beyond the
        draft's support give no child.
      depth: Levels.
      path: Where the tree starts.
    """
    if len(path) == depth:
        return DraftNode(path)
    tokens = ranked(draft(path))
    children = (
        ranked_tree(draft, slots, depth, (*path, tokens[slot]))
        for slot in slots
        if slot < len(tokens)
    )
    return DraftNode(path, tuple(children))


def candidate_rows(root: DraftNode) -> list[Path]:
    """One row a leaf: the tokens of its path, padded with -1 to the deepest leaf."""
    paths = [leaf.path for leaf in root.leaves()]
    width = max(len(path) for path in paths)
    return [path + (-1,) * (width - len(path)) for path in paths]
