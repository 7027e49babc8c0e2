"""Draft trees of small or synthetic models, exact or float, every class of draws or one at random.

Nodes are popped from one best-first queue until the budget is spent; a probe's token is chosen when
it is popped, because its survival is settled then. A run of choices stands for a class of draws.

This is the third growth in the project, next to the layered one of `rheocheck.reference` and its
deferred integers: it also takes floats, and expansions other than the published one (`Drafting`),
which is what bounds need. Tests compare it with the reference.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rheocheck.bounds.laws import DraftLike, Tokens, rank_order, ratio, read_node, total, truncated
from rheocheck.config import SpeculationConfig, check_config
from rheocheck.reference import Role

# Float products that tie in exact arithmetic differ in their last bits; on this grid of log scores
# they tie. Any order that does not look at drawn tokens is lossless, so nothing depends on it.
SCORE_STEPS = 2**40

Path: TypeAlias = tuple[int, ...]
DraftModel: TypeAlias = Callable[[Path], DraftLike]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The children of a node before its probe is drawn.

    Attributes:
      tokens: [rank] support in rank order.
      factors: [rank] ranking mass of each token, its score factor as top or filler.
      num_top: Top children.
      num_children: All children.
      proxy: Score factor of the probe, the same for every token it can be.
      probe_law: [rank - num_top] law of the probe over the tokens after the top; empty without one.
    """

    tokens: Sequence[int]
    factors: Sequence[Any]
    num_top: int
    num_children: int
    proxy: Any
    probe_law: Sequence[Any]

    def child(self, slot: int, probe: int) -> tuple[int, Role, Any]:
        """Token, role and score factor in a slot, given the probe's place in the tail."""
        if slot < self.num_top or not len(self.probe_law):
            return self.tokens[slot], Role.TOP, self.factors[slot]
        if slot == self.num_top:
            return self.tokens[slot + probe], Role.PROBE, self.proxy
        rank = slot if slot - self.num_top > probe else slot - 1
        return self.tokens[rank], Role.FILLER, self.factors[rank]


Drafting: TypeAlias = Callable[[DraftLike, SpeculationConfig], Expansion]


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Surviving nodes, best first. Survivor i is node i + 1; node 0 is the root.

    Attributes:
      token: [survivor] token ids.
      parent: [survivor] node index of the parent.
      layer: [survivor] distance from the root.
      slot: [survivor] slot among its siblings.
      role: [survivor] why it is there.
      expansions: [node] laws of the node's children; None where it was not expanded.
      probability: Probability of this class of draws.
    """

    token: Sequence[int]
    parent: Sequence[int]
    layer: Sequence[int]
    slot: Sequence[int]
    role: Sequence[Role]
    expansions: Sequence[Expansion | None]
    probability: Any

    def paths(self) -> list[Path]:
        """[node] tokens from the root to each node."""
        found: list[Path] = [()]
        for token, parent in zip(self.token, self.parent, strict=True):
            found.append((*found[parent], token))
        return found

    def children(self) -> list[list[int]]:
        """[node] surviving children of each node, in score order, which is slot order."""
        below: list[list[int]] = [[] for _ in range(len(self.token) + 1)]
        for index, parent in enumerate(self.parent):
            below[parent].append(index + 1)
        return below


def dual_identity(draft: DraftLike, config: SpeculationConfig) -> Expansion:
    """The published expansion: top, one probe from the tail, fillers.

    Args:
      draft: [vocab] law, or a 2-tuple (ranking, tempered draft) of laws.
      config: top_k, num_top and support_size.

    Raises:
      LawError: `draft` is no law.
    """
    tokens, ranking, drawn = ranked_support(draft, config.support_size)
    num_children = min(config.top_k, len(tokens))
    num_top = min(config.num_top, num_children)
    tail = drawn[num_top:] if num_top < num_children else drawn[:0]
    return Expansion(
        tokens.tolist(),
        ranking.tolist(),
        num_top,
        num_children,
        min(ranking[num_top - 1], total(ranking[num_top:])) if num_top else ranking[0],
        probe_law_of(tail),
    )


def ranked_support(draft: DraftLike, support_size: int) -> tuple[Tokens, Any, Any]:
    """Tokens of the support in rank order, and both laws on them, renormalised."""
    given = draft[0] if isinstance(draft, tuple) and hasattr(draft[0], "__len__") else draft
    laws = truncated(read_node(given, draft), support_size)
    tokens = rank_order(laws.ranking, int(np.count_nonzero(laws.ranking)))
    return tokens, laws.ranking[tokens], laws.draft[tokens]


def probe_law_of(tail: Any) -> list[Any]:
    """[tail] masses normalised; the point mass on the first token where there is no mass."""
    mass = total(tail)
    law: list[Any] = ratio(tail, np.broadcast_to(np.asarray(mass), tail.shape)).tolist()
    if law and mass == 0:
        law[0] = mass + 1
    return law


def all_trees(
    draft: DraftModel, config: SpeculationConfig, drafting: Drafting = dual_identity
) -> Iterator[DraftTree]:
    """Every class of draws once, with its probability.

    Args:
      draft: path -> draft law, or a 2-tuple (ranking, tempered draft).
      config: The scheme; its rule does not matter here.
      drafting: How a node's children are made.

    Yields:
      The trees. Their probabilities sum to 1.
    """
    expand = expansions_of(draft, config, drafting)
    stack = [Growth(expand, config)]
    while stack:
        growth = stack.pop()
        weights = growth.run()
        if weights is None:
            yield growth.tree()
            continue
        for place in reversed(range(len(weights))):
            if weights[place] > 0:
                stack.append(growth.branch(place))


def sample_tree(
    draft: DraftModel,
    config: SpeculationConfig,
    generator: np.random.Generator,
    drafting: Drafting = dual_identity,
) -> DraftTree:
    """One tree with float draws.

    Args:
      draft: path -> draft law, or a 2-tuple (ranking, tempered draft).
      config: The scheme.
      generator: Draws the probes.
      drafting: How a node's children are made.
    """
    growth = Growth(expansions_of(draft, config, drafting), config)
    while (weights := growth.run()) is not None:
        shares = np.asarray(weights, dtype=np.float64)
        growth = growth.branch(int(generator.choice(len(shares), p=shares / shares.sum())))
    return growth.tree()


class Growth:
    """A tree under construction; `branch` copies it, so that every draw can be followed."""

    def __init__(self, expand: Callable[[Path], Expansion], config: SpeculationConfig) -> None:
        """Start with the root alone."""
        self._expand = expand
        self._config = config
        self._heap: list[tuple[Any, int, int, int, int]] = []
        self._nodes: list[tuple[int, int, int, int, Role]] = []
        self._paths: list[Path] = [()]
        self._scores: list[Any] = [1]
        self._expansions: list[Expansion | None] = [None]
        self._probes: list[int] = [-1]
        self._layer_sizes = [0] * (config.depth + 2)
        self._ranks = [0]
        self._probability: Any = 1
        if config.budget and config.depth:
            self._offer(0)

    def run(self) -> Sequence[Any] | None:
        """Pop nodes until a probe has to be drawn: its law. None when the tree is done."""
        while not self.done:
            weights = self.waiting_law()
            if weights is not None:
                return weights
            self.pop()
        return None

    @property
    def done(self) -> bool:
        """Whether the budget is spent or nothing is left."""
        return not self._heap or len(self._nodes) >= self._config.budget

    def waiting_law(self) -> Sequence[Any] | None:
        """[tail] law of the next node's token if it is a probe that was not drawn yet."""
        _, _, _, slot, parent = self._heap[0]
        expansion = self._expansion(parent)
        undrawn = slot == expansion.num_top and self._probes[parent] < 0
        return expansion.probe_law if undrawn and len(expansion.probe_law) else None

    def waiting_parent(self) -> Path:
        """Path of the next node's parent."""
        return self._paths[self._heap[0][4]]

    def pop(self) -> int:
        """Take the next node, whose token must be known, into the tree; returns its index."""
        _, layer, _, slot, parent = heapq.heappop(self._heap)
        expansion = self._expansion(parent)
        token, role, factor = expansion.child(slot, self._probes[parent])
        node = len(self._paths)
        self._nodes.append((token, parent, layer, slot, role))
        self._paths.append((*self._paths[parent], token))
        self._scores.append(self._scores[parent] * factor)
        self._expansions.append(None)
        self._probes.append(-1)
        rank = self._layer_sizes[layer]
        self._layer_sizes[layer] = rank + 1
        self._ranks.append(rank)
        if slot + 1 < expansion.num_children:
            self._push(parent, slot + 1)
        if rank < self._config.top_k and layer < self._config.depth:
            self._offer(node)
        return node

    def is_expanded(self, node: int) -> bool:
        """Whether a node of the tree has children, surviving or not."""
        return self._expansions[node] is not None

    def branch(self, place: int) -> "Growth":
        """A copy in which the probe that is next is the token at `place` in the tail."""
        parent = self._heap[0][4]
        copy = self.copy()
        copy._probes[parent] = place
        copy._probability = self._probability * self._expansion(parent).probe_law[place]
        return copy

    def copy(self) -> "Growth":
        """A growth that goes on independently of this one."""
        copy = object.__new__(Growth)
        copy._expand, copy._config = self._expand, self._config
        copy._heap, copy._nodes = self._heap.copy(), self._nodes.copy()
        copy._paths, copy._scores = self._paths.copy(), self._scores.copy()
        copy._expansions, copy._probes = self._expansions.copy(), self._probes.copy()
        copy._layer_sizes, copy._ranks = self._layer_sizes.copy(), self._ranks.copy()
        copy._probability = self._probability
        return copy

    def tree(self) -> DraftTree:
        """The survivors so far."""
        token, parent, layer, slot, role = (
            zip(*self._nodes, strict=True) if self._nodes else ((),) * 5
        )
        return DraftTree(token, parent, layer, slot, role, self._expansions, self._probability)

    def _offer(self, node: int) -> None:
        self._expansions[node] = self._expand(self._paths[node])
        self._push(node, 0)

    def _push(self, parent: int, slot: int) -> None:
        """Siblings enter one by one: their scores fall with the slot."""
        _, _, factor = self._expansion(parent).child(slot, self._probes[parent])
        layer = len(self._paths[parent]) + 1
        key = _queue_key(self._scores[parent] * factor)
        heapq.heappush(self._heap, (key, layer, self._ranks[parent], slot, parent))

    def _expansion(self, node: int) -> Expansion:
        expansion = self._expansions[node]
        assert expansion is not None, "only an expanded node has children in the queue"
        return expansion


def _queue_key(score: Any) -> Any:
    """What the queue sorts by: falling score, floats on a grid where rounded ties are ties."""
    if not isinstance(score, float):
        return -score
    return -round(math.log(score) * SCORE_STEPS) if score else math.inf


def expansions_of(
    draft: DraftModel, config: SpeculationConfig, drafting: Drafting = dual_identity
) -> Callable[[Path], Expansion]:
    """path -> expansion, each made once.

    Raises:
      InputError: `config` is no legal SpeculationConfig.
    """
    check_config(config)
    known: dict[Path, Expansion] = {}

    def expand(path: Path) -> Expansion:
        if path not in known:
            known[path] = drafting(draft(path), config)
        return known[path]

    return expand
