"""Classes of a round whose nodes may have several probes: deferred decisions, one class at a time.

The fast engine (`classes`) knows one probe a node. With several, siblings that are probes carry the
same score, so they leave the queue one after the other, and each is drawn when it does, from what
the probes before it have left. Each class is verified by itself. Nothing is shared with the layered
sampler but the check of the laws.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the scheme with one probe.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from rheocheck.config import SpeculationConfig
from rheocheck.errors import BudgetExceededError
from rheocheck.reference.class_sites import Site
from rheocheck.reference.laws import ONE, Path
from rheocheck.reference.models import Models

# (minus score, layer, rank of the parent, slot, index of the parent)
_Candidate: TypeAlias = tuple[Fraction, int, int, int, int]


@dataclass(slots=True)
class _Node:
    """A survivor: its site, score, and what is known of its children."""

    site: Site
    score: Fraction
    probes: list[int] = field(default_factory=list)  # places in the tail, in the order of the draws
    children: list[int] = field(default_factory=list)  # nodes, in slot order

    def copy(self) -> "_Node":
        return _Node(self.site, self.score, self.probes.copy(), self.children.copy())


@dataclass(slots=True)
class _State:
    """A search under way."""

    nodes: list[_Node]
    heap: list[_Candidate]
    layers: list[int]

    def copy(self) -> "_State":
        return _State([node.copy() for node in self.nodes], self.heap.copy(), self.layers.copy())


class ProbeClasses:
    """The law of a round by visiting each class of draws.

    Attributes:
      emissions: Probability of each emission of positive probability.
      expected_accepted: Expected number of accepted draft tokens.
      num_classes: Classes visited.
    """

    def __init__(self, models: Models, config: SpeculationConfig, max_classes: int | None) -> None:
        """Visit all classes.

        Raises:
          BudgetExceededError: There are more than `max_classes`.
        """
        self._models = models
        self._config = config
        self._max_classes = max_classes
        self.emissions: dict[Path, Fraction] = {}
        self.expected_accepted = Fraction(0)
        self.num_classes = 0
        state = _State([_Node(Site(()), Fraction(1))], [], [0] * (config.depth + 1))
        if config.budget > 0 and config.depth > 0:
            self._offer(state, 0, 0, 1, 0)
        self._visit(state, Fraction(1))

    def _offer(self, state: _State, parent: int, slot: int, layer: int, parent_rank: int) -> None:
        """Put the child in `slot` of a node on the heap, if there is one."""
        node = state.nodes[parent]
        if not node.site.expanded:
            node.site.expand(self._models, self._config)
        if slot < node.site.num_children:
            score = node.score * self._factor(node, slot)
            heapq.heappush(state.heap, (-score, layer, parent_rank, slot, parent))

    @staticmethod
    def _factor(node: _Node, slot: int) -> Fraction:
        site = node.site
        if site.num_top <= slot < site.num_top + site.num_probes:
            return Fraction(site.proxy, site.factor_total)
        return Fraction(site.factors[_rank(node, slot)], site.factor_total)

    def _visit(self, state: _State, weight: Fraction) -> None:
        """Pop nodes until the budget is spent; at a probe, go on once for each of its tokens."""
        while state.heap and len(state.nodes) <= self._config.budget:
            candidate = heapq.heappop(state.heap)
            node = state.nodes[candidate[4]]
            if len(node.probes) < node.site.num_probes and candidate[3] >= node.site.num_top:
                for place, share in _next_probes(node):
                    branch = state.copy()
                    branch.nodes[candidate[4]].probes.append(place)
                    self._keep(branch, candidate)
                    self._visit(branch, weight * share)
                return
            self._keep(state, candidate)
        self.num_classes += 1
        if self._max_classes is not None and self.num_classes > self._max_classes:
            raise BudgetExceededError(
                f"the round has more than max_paths = {self._max_classes} classes; its law is "
                "unknown"
            )
        self._verify(state, weight)

    def _keep(self, state: _State, candidate: _Candidate) -> None:
        """Let a popped node survive; offer its next sibling and its first child."""
        score, layer, parent_rank, slot, parent = candidate
        node = state.nodes[parent]
        token = node.site.tokens[_rank(node, slot)]
        node.children.append(len(state.nodes))
        state.nodes.append(_Node(node.site.child(token), -score))
        self._offer(state, parent, slot + 1, layer, parent_rank)
        rank = state.layers[layer]
        state.layers[layer] = rank + 1
        if rank < self._config.top_k and layer < self._config.depth:
            self._offer(state, len(state.nodes) - 1, 0, layer + 1, rank)

    def _verify(self, state: _State, weight: Fraction) -> None:
        """Add the law of one class."""
        stack = [(0, weight)]
        while stack:
            index, mass = stack.pop()
            node = state.nodes[index]
            left = list(self._models.target(node.site.path))
            for slot in self._order(node):
                child = node.children[slot]
                token = state.nodes[child].site.path[-1]
                drawn = self._drawn(node, slot)
                accept = left[token] if drawn is None else min(ONE, left[token] / drawn[token])
                if accept:
                    stack.append((child, mass * accept))
                    self.expected_accepted += mass * accept
                mass *= 1 - accept
                if not mass:
                    break
                if drawn is None:
                    left[token] = Fraction(0)
                else:
                    left = [max(Fraction(0), p - q) for p, q in zip(left, drawn, strict=True)]
                total = sum(left)
                left = [value / total for value in left]
            for token, share in enumerate(left):
                if mass and share:
                    path = (*node.site.path, token)
                    self.emissions[path] = self.emissions.get(path, Fraction(0)) + mass * share

    def _order(self, node: _Node) -> list[int]:
        """Slots of the surviving children in the order of their tests."""
        slots = list(range(len(node.children)))
        if self._config.rule == "rheo" and node.probes:
            first = node.site.num_top
            last = min(first + node.site.num_probes, len(slots))
            return slots[first:last] + slots[:first] + slots[last:]
        return slots

    def _drawn(self, node: _Node, slot: int) -> list[Fraction] | None:
        """[vocab] law that the child in `slot` was drawn from; None: tested as a point mass."""
        number = slot - node.site.num_top
        if self._config.rule == "onehot" or not 0 <= number < node.site.num_probes:
            return None
        before = _Node(node.site, node.score, node.probes[:number])
        wide = [Fraction(0)] * len(self._models.target(()))
        for place, share in _next_probes(before):
            wide[node.site.tokens[node.site.num_top + place]] = share
        return wide


def _next_probes(node: _Node) -> Iterator[tuple[int, Fraction]]:
    """Places in the tail that the node's next probe may take, with their probabilities."""
    open_places = [place for place in range(len(node.site.weights)) if place not in node.probes]
    total = sum(node.site.weights[place] for place in open_places)
    if not total:
        yield open_places[0], Fraction(1)
        return
    for place in open_places:
        if node.site.weights[place]:
            yield place, Fraction(node.site.weights[place], total)


def _rank(node: _Node, slot: int) -> int:
    """Rank of the token in a slot: fillers take the tail in order and step over all probes."""
    site = node.site
    if slot < site.num_top or not site.weights:
        return slot
    number = slot - site.num_top
    if number < site.num_probes:
        return site.num_top + node.probes[number]
    others = [place for place in range(len(site.weights)) if place not in node.probes]
    return site.num_top + others[number - site.num_probes]
