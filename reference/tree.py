"""Draft tree of one round, grown layer by layer and cut to its budget.

Source: Li et al. (2025), EAGLE-3, arXiv:2503.01840, and Hu, Weng and Zhang (2026),
arXiv:2609.21827. Every probe of every expanded node is drawn before anything is cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.config import SpeculationConfig
from rheocheck.reference.draws import Draws, NodeKey
from rheocheck.reference.expansion import Expansion, Role, children, next_probe_law
from rheocheck.reference.laws import Path, numerators

ExpandAt = Callable[[Path], Expansion]


@dataclass(frozen=True, slots=True)
class Node:
    """A drafted node. The root is none: it stands for what was emitted before the round.

    Attributes:
      key: Its place: layer, rank of the parent in the parent's layer, slot.
      path: Tokens from the root to this node, this node's token last.
      role: Top, probe or filler.
      factor: Its score over its parent's.
      score: Product of the factors on its path, in (0, 1].
    """

    key: NodeKey
    path: Path
    role: Role
    factor: Fraction
    score: Fraction

    @property
    def token(self) -> int:
        """The node's own token."""
        return self.path[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """What a round drafted. Compared by identity: two trees may be the same in all but their draws.

    Attributes:
      survivors: The nodes within the budget, best first.
      layers: [layer - 1] all drafted nodes of each layer, best first: a node's index is its rank.
      expansions: Expansion of every expanded node by its path; the root's path is ().
    """

    survivors: tuple[Node, ...]
    layers: tuple[tuple[Node, ...], ...]
    expansions: dict[Path, Expansion]

    def surviving_children(self, path: Path) -> list[Node]:
        """Children of the node at `path` that survived, in slot order."""
        found = [node for node in self.survivors if node.path[:-1] == path]
        return sorted(found, key=lambda node: node.key.slot)


def grow(expand_at: ExpandAt, config: SpeculationConfig, draws: Draws) -> Tree:
    """Draft one tree.

    Layer 1 holds the root's children. The top_k best nodes of each layer are expanded, down to
    layer `depth`; of all nodes the `budget` best survive. Equal scores are ordered by layer, then
    the parent's rank, then the slot; never by the token.

    Args:
      expand_at: Expansion of the node at a path.
      config: top_k, budget and depth are used.
      draws: Draws the probes, in order of layer and parent's rank.

    Returns:
      The tree. With depth 0 it is empty.
    """
    expansions: dict[Path, Expansion] = {}
    layers: list[tuple[Node, ...]] = []
    frontier: list[tuple[Path, Fraction]] = [((), Fraction(1))]
    for layer in range(1, config.depth + 1):
        grown = []
        for parent_rank, (path, score) in enumerate(frontier):
            expansion = expansions[path] = expand_at(path)
            places: list[int] = []
            for slot in range(expansion.num_top, expansion.num_top + expansion.num_probes):
                law = next_probe_law(expansion.probe_law, places)
                places.append(draws.probe(law, NodeKey(layer, parent_rank, slot)))
            grown += [
                Node(
                    key=NodeKey(layer, parent_rank, child.slot),
                    path=(*path, child.token),
                    role=child.role,
                    factor=child.factor,
                    score=score * child.factor,
                )
                for child in children(expansion, *places)
            ]
        layers.append(best_first(grown))
        frontier = [(node.path, node.score) for node in layers[-1][: config.top_k]]
    drafted = best_first([node for nodes in layers for node in nodes])
    return Tree(drafted[: config.budget], tuple(layers), expansions)


def best_first(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Order nodes by score, best first; equal scores by layer, parent's rank and slot."""
    shares, _ = numerators([node.score for node in nodes])
    keyed = sorted(zip(shares, nodes, strict=True), key=order_key)
    return tuple(node for _, node in keyed)


def order_key(scored: tuple[int, Node]) -> tuple[object, ...]:
    """Sort key of a node given its score, as a numerator over a denominator that all share."""
    score, node = scored
    return (-score, node.key)
