"""Yardsticks of the class benchmark: straightforward class enumerators on Fractions.

They branch on surviving probes, as the engine does, and then verify each class by itself: they walk
down that class's tree and add the probability of every emission. Laws, rankings and probe laws are
looked up once a path. `Baseline` makes the tests of the rule one after the other, renormalising the
residual after each rejection; `TelescopedBaseline` knows that tests of point masses followed by the
last draw are one draw from the residual, which saves most of the work. They share no code with
either enumerator of rheocheck.
"""

import functools
import heapq
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from rheocheck.config import SpeculationConfig

Path: TypeAlias = tuple[int, ...]
Law: TypeAlias = tuple[Fraction, ...]
Key: TypeAlias = tuple[int, int, int]

ZERO, ONE = Fraction(0), Fraction(1)


class Node(NamedTuple):
    """What is known of a path before its probe is drawn."""

    tokens: list[int]
    ranking: list[Fraction]
    num_top: int
    probe_law: dict[int, Fraction]
    proxy: Fraction


class State(NamedTuple):
    """A search under way: open candidates, survivors by path in order, survivors by layer."""

    heap: list[tuple[Fraction, Key, Path, int]]
    kept: dict[Path, list[int]]
    probes: dict[Path, int]
    layers: list[int]
    left: int


class Baseline:
    """Class enumeration of one instance; every test made by itself.

    Attributes:
      emissions: Law of the round.
      num_classes: Classes visited.
    """

    def __init__(
        self,
        target: Callable[[Path], Law],
        draft: Callable[[Path], Law],
        config: SpeculationConfig,
    ) -> None:
        self.emissions: dict[Path, Fraction] = {}
        self.num_classes = 0
        self._target = functools.cache(target)
        self._draft = draft
        self._config = config
        self._node = functools.cache(self._expand)
        state = State([], {}, {}, [0] * (config.depth + 1), config.budget)
        if config.depth > 0:
            self._open(state, (), ONE, 1, 0)
        self._visit(state, ONE)

    def _expand(self, path: Path) -> Node:
        config = self._config
        law = self._draft(path)
        order = sorted((t for t in range(len(law)) if law[t]), key=lambda t: (-law[t], t))
        tokens = order[: config.support_size]
        mass = sum((law[t] for t in tokens), ZERO)
        ranking = [law[t] / mass for t in tokens]
        num_top = min(config.num_top, config.top_k, len(tokens))
        if config.num_top >= config.top_k or num_top == len(tokens):
            return Node(tokens, ranking, num_top, {}, ZERO)
        tail_mass = sum(ranking[num_top:], ZERO)
        probe_law = {
            t: share / tail_mass
            for t, share in zip(tokens[num_top:], ranking[num_top:], strict=True)
        }
        proxy = min(ranking[num_top - 1], tail_mass) if num_top else ranking[0]
        return Node(tokens, ranking, num_top, probe_law, proxy)

    def _open(self, state: State, path: Path, score: Fraction, layer: int, rank: int) -> None:
        """Offer the top children and the probe of an expanded node; token -1 is a probe."""
        node = self._node(path)
        for slot in range(node.num_top):
            entry = (-score * node.ranking[slot], (layer, rank, slot), path, node.tokens[slot])
            heapq.heappush(state.heap, entry)
        if node.probe_law:
            entry = (-score * node.proxy, (layer, rank, node.num_top), path, -1)
            heapq.heappush(state.heap, entry)

    def _visit(self, state: State, weight: Fraction) -> None:
        left = state.left
        while left and state.heap:
            negative, key, parent, token = heapq.heappop(state.heap)
            left -= 1
            if token < 0:
                for probe, share in self._node(parent).probe_law.items():
                    branch = State(
                        state.heap.copy(),
                        {path: kept.copy() for path, kept in state.kept.items()},
                        {**state.probes, parent: probe},
                        state.layers.copy(),
                        left,
                    )
                    self._offer_fillers(branch, parent, probe, -negative, key)
                    self._keep(branch, parent, probe, -negative, key)
                    self._visit(branch, weight * share)
                return
            self._keep(state, parent, token, -negative, key)
        self.num_classes += 1
        self._verify(state, (), weight)

    def _offer_fillers(
        self, state: State, parent: Path, probe: int, score: Fraction, key: Key
    ) -> None:
        node = self._node(parent)
        base = score / node.proxy
        slot = node.num_top + 1
        for token, share in zip(
            node.tokens[node.num_top :], node.ranking[node.num_top :], strict=True
        ):
            if slot == self._config.top_k:
                break
            if token != probe:
                heapq.heappush(state.heap, (-base * share, (key[0], key[1], slot), parent, token))
                slot += 1

    def _keep(self, state: State, parent: Path, token: int, score: Fraction, key: Key) -> None:
        state.kept.setdefault(parent, []).append(token)
        layer = key[0]
        rank = state.layers[layer]
        state.layers[layer] += 1
        if rank < self._config.top_k and layer < self._config.depth:
            self._open(state, (*parent, token), score, layer + 1, rank)

    def _verify(self, state: State, path: Path, reached: Fraction) -> None:
        """Verify one class from a node down; survivors of a node are in slot order."""
        residual = self._target(path)
        probe = state.probes.get(path) if self._config.rule != "onehot" else None
        children = state.kept.get(path, [])
        if probe is not None and self._config.rule == "rheo":
            children = [probe, *(token for token in children if token != probe)]
        for child in children:
            if child == probe:
                law = self._node(path).probe_law
                chance = min(ONE, residual[child] / law[child])
                excess = [
                    max(ZERO, mass - law.get(token, ZERO)) for token, mass in enumerate(residual)
                ]
            else:
                chance = residual[child]
                excess = [ZERO if token == child else mass for token, mass in enumerate(residual)]
            self._accept(state, path, child, reached * chance)
            reached *= 1 - chance
            if not reached:
                return
            total = sum(excess, ZERO)
            residual = tuple(mass / total for mass in excess)
        for token, mass in enumerate(residual):
            if mass:
                emission = (*path, token)
                self.emissions[emission] = self.emissions.get(emission, ZERO) + reached * mass

    def _accept(self, state: State, path: Path, token: int, reached: Fraction) -> None:
        if reached:
            self._verify(state, (*path, token), reached)


class TelescopedBaseline(Baseline):
    """The same with one pass over the vocabulary at each node of each class."""

    def _verify(self, state: State, path: Path, reached: Fraction) -> None:
        """Verify one class from a node down; survivors of a node are in slot order."""
        law = self._target(path)
        children = state.kept.get(path, [])
        probe = state.probes.get(path)
        if probe is None or self._config.rule == "onehot":
            return self._draw(state, path, law, reached, children)
        before = children[: self._node(path).num_top] if self._config.rule == "rrsw" else []
        after = [token for token in children if token != probe and token not in before]
        for token in before:
            self._accept(state, path, token, reached * law[token])
        left = ONE - sum((law[token] for token in before), ZERO)
        if not left:
            return None
        probe_law = self._node(path).probe_law
        kept = [
            ZERO if token in before else mass - left * probe_law.get(token, ZERO)
            for token, mass in enumerate(law)
        ]
        drawn = left * probe_law[probe]
        chance = min(ONE, law[probe] / drawn)
        self._accept(state, path, probe, reached * left * chance)
        if chance < 1:
            excess = [max(ZERO, mass) for mass in kept]
            total = sum(excess, ZERO)
            scale = reached * left * (1 - chance) / total
            self._draw(state, path, excess, scale, after)
        return None

    def _draw(
        self,
        state: State,
        path: Path,
        masses: Law | list[Fraction],
        scale: Fraction,
        children: list[int],
    ) -> None:
        """Tests of point masses, one after the other, are one draw: of a child, or of the end."""
        for token, mass in enumerate(masses):
            if mass:
                if token in children:
                    self._accept(state, path, token, scale * mass)
                else:
                    emission = (*path, token)
                    self.emissions[emission] = self.emissions.get(emission, ZERO) + scale * mass
