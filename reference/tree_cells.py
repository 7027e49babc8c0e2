"""Sign cells of whole trees: random laws at every path, and which cell of the tree they lie in.

Down a tree the scheme meets each node's own comparisons (`cells`) and, in addition, compares scores
of different nodes. Scores are made from ranking laws only; the signs at a node compare its target
with its probe law only. So a cell of a tree is a shape of the pruned tree under every outcome of
its surviving probes, times one sign pattern at each node whose probe survives.

The shape is found here by a best-first search of its own, to share no code with what is under test.
"""

import hashlib
import heapq
import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from rheocheck.config import SpeculationConfig
from rheocheck.reference.cell_points import NodeLaws, sample_law, sample_laws
from rheocheck.reference.cells import NodeCell, random_cell, split_support
from rheocheck.reference.laws import Law, Path

# How ranking laws of different nodes relate: unrelated; equal for all nodes of a layer, or of the
# tree, up to the tokens' names; unrelated but with weights so small that products often tie.
Ties: TypeAlias = Literal["free", "layer", "tree", "coarse"]
TIES: tuple[Ties, ...] = ("free", "layer", "tree", "coarse")


class CellModels:
    """A target and a draft whose laws at every path are a random point of a random cell.

    Laws are made when they are asked for and depend on the seed and the path only, not on the order
    of the questions. Beyond the drafted layers a target is only drawn from: it has no cell.
    """

    def __init__(
        self,
        vocab: int,
        config: SpeculationConfig,
        seed: str,
        *,
        root: NodeCell | None = None,
        ties: Ties = "free",
        bits: int = 32,
    ) -> None:
        """Fix everything; nothing is drawn yet.

        Args:
          vocab: Number of tokens.
          config: The scheme whose comparisons the cells are about.
          seed: Any text; determines every law.
          root: Cell of the root; None draws one.
          ties: How ranking laws of different nodes relate.
          bits: Coordinates are uniform on {1..2^bits}.
        """
        self._vocab = vocab
        self._config = config
        self._seed = seed
        self._root = root
        self._ties = ties
        self._bits = bits
        self._nodes: dict[Path, tuple[NodeCell, NodeLaws]] = {}
        self._last: dict[Path, Law] = {}

    def cell(self, path: Path) -> NodeCell:
        """Cell of the node at `path`."""
        return self._node(path)[0]

    def target(self, path: Path) -> Law:
        """[vocab] target law after `path`."""
        if len(path) < self._config.depth:
            return self._node(path)[1].target
        law = self._last.get(path)
        if law is None:
            generator = random.Random(f"{self._seed}:{path}")
            law = self._last[path] = sample_law(self._vocab, generator, self._bits)
        return law

    def draft(self, path: Path) -> tuple[Law, Law]:
        """[vocab] ranking law and [vocab] tempered draft after `path`."""
        laws = self._node(path)[1]
        return laws.ranking, laws.draft

    def _node(self, path: Path) -> tuple[NodeCell, NodeLaws]:
        found = self._nodes.get(path)
        if found is None:
            found = self._nodes[path] = self._draw(path)
        return found

    def _draw(self, path: Path) -> tuple[NodeCell, NodeLaws]:
        generator = random.Random(f"{self._seed}:{path}")
        group = {"layer": str(len(path)), "tree": ""}.get(self._ties, str(path))
        shared = random.Random(f"{self._seed}:ranking:{group}")
        if not path and self._root is not None:
            cell = self._root
        else:
            cell = random_cell(self._vocab, self._config, shared, generator)
        ranking_bits = 1 if self._ties == "coarse" else None
        return cell, sample_laws(cell, shared, generator, self._bits, ranking_bits)


@dataclass(frozen=True, slots=True)
class TreeCell:
    """The cell of a tree that given laws lie in.

    Attributes:
      digest: Names the cell: equal if and only if (up to a collision of SHA-256) all comparisons
        come out the same.
      num_classes: Outcomes of surviving probes.
      num_ties: Equal scores met when nodes were ordered.
    """

    digest: str
    num_classes: int
    num_ties: int


def tree_cell(models: CellModels, config: SpeculationConfig) -> TreeCell:
    """Find the cell of a tree: the order of its survivors under every outcome of their probes.

    Args:
      models: Laws at every path.
      config: The scheme.

    Returns:
      The cell.
    """
    search = _Search(models, config)
    shape = search.explore(search.start())
    digest = hashlib.sha256(repr(shape).encode()).hexdigest()
    return TreeCell(digest, search.num_classes, search.num_ties)


@dataclass(slots=True)
class _State:
    """A best-first search under way. `heap` entries: (-score, key, path, is_probe)."""

    heap: list[tuple[Fraction, tuple[int, int, int], Path, bool]]
    popped: Counter[int]
    left: int
    last: Fraction | None = None

    def copy(self) -> "_State":
        return _State(self.heap.copy(), self.popped.copy(), self.left, self.last)


class _Search:
    def __init__(self, models: CellModels, config: SpeculationConfig) -> None:
        self._models = models
        self._config = config
        self.num_classes = 0
        self.num_ties = 0

    def start(self) -> _State:
        state = _State([], Counter(), self._config.budget)
        if self._config.depth > 0:
            self._expand(state, (), Fraction(1), 1, 0)
        return state

    def explore(self, state: _State) -> tuple[Any, ...]:
        """Pop the best node until the budget is spent; branch at each surviving probe."""
        events: list[Any] = []
        while state.left and state.heap:
            negative, key, path, is_probe = heapq.heappop(state.heap)
            tied = negative == state.last
            self.num_ties += tied
            state.last = negative
            state.left -= 1
            layer = key[0]
            rank = state.popped[layer]
            state.popped[layer] += 1
            opens = rank < self._config.top_k and layer < self._config.depth
            events.append((key, tied))
            if not is_probe:
                if opens:
                    self._expand(state, path, -negative, layer + 1, rank)
                continue
            cell = self._models.cell(path)
            events.append((cell.top, cell.tail, cell.outside, cell.fallback))
            events.append(tuple(self._branches(state, -negative, key, path, rank, opens)))
            return tuple(events)
        self.num_classes += 1
        return tuple(events)

    def _branches(
        self,
        state: _State,
        score: Fraction,
        key: tuple[int, int, int],
        parent: Path,
        rank: int,
        opens: bool,
    ) -> list[tuple[Any, ...]]:
        ranked, weights, num_top = self._support(parent)
        tail = ranked[num_top:]
        draft = self._models.draft(parent)[1]
        possible = [token for token in tail if draft[token] > 0] or tail[:1]
        factor = self._proxy(weights, num_top)
        found = []
        for probe in possible:
            branch = state.copy()
            fillers = [token for token in tail if token != probe]
            for offset, token in enumerate(fillers[: self._config.top_k - num_top - 1]):
                child_score = score / factor * weights[ranked.index(token)]
                child_key = (key[0], key[1], num_top + 1 + offset)
                heapq.heappush(branch.heap, (-child_score, child_key, (*parent, token), False))
            if opens:
                self._expand(branch, (*parent, probe), score, key[0] + 1, rank)
            found.append(self.explore(branch))
        return found

    def _expand(self, state: _State, path: Path, score: Fraction, layer: int, rank: int) -> None:
        """Push the top children of a node and its probe, whose token is still open."""
        ranked, weights, num_top = self._support(path)
        for slot in range(num_top):
            entry = (-score * weights[slot], (layer, rank, slot), (*path, ranked[slot]), False)
            heapq.heappush(state.heap, entry)
        if len(ranked) > num_top:
            factor = self._proxy(weights, num_top)
            heapq.heappush(state.heap, (-score * factor, (layer, rank, num_top), path, True))

    def _support(self, path: Path) -> tuple[list[int], list[Fraction], int]:
        """Tokens of the tree in rank order, their renormalised ranking, and the number of tops."""
        ranking, _ = self._models.draft(path)
        order = sorted(range(len(ranking)), key=lambda token: (-ranking[token], token))
        ranked = [token for token in order if ranking[token] > 0]
        num_top, num_tail = split_support(len(ranked), self._config)
        kept = ranked[: self._config.support_size]
        mass = sum((ranking[token] for token in kept), Fraction(0))
        used = kept[: num_top + num_tail]
        return used, [ranking[token] / mass for token in used], num_top

    def _proxy(self, weights: list[Fraction], num_top: int) -> Fraction:
        tail_mass = sum(weights[num_top:], Fraction(0))
        return min(weights[num_top - 1], tail_mass) if num_top else weights[0]
