"""Models of verification in float64, float32 and bfloat16, for their exact laws.

`float_node` does one node of any vocabulary with the operations a vectorised sampler makes, each
rounded; `FloatDraws` lets the exact sampler of a whole round decide through rounded thresholds.
Both yield integers for `rheocheck.reference.float_law`: the law of the model, without sampling.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rheocheck.config import Rule
from rheocheck.errors import InputError
from rheocheck.reference.choices import Choose
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.float_law import (
    Branch,
    DyadicLaw,
    Floats,
    accept_counts,
    draw_counts,
    node_law,
)
from rheocheck.reference.laws import Law


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a model rounds.

    Attributes:
      name: "float64", "float32" or "bfloat16".
      uniform_bits: Bits of a uniform.
    """

    name: Literal["float64", "float32", "bfloat16"]
    uniform_bits: int

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """Type that sums are made in: float32 for bfloat16, as matrix units and kernels do."""
        return np.dtype(np.float64 if self.name == "float64" else np.float32)

    def rounded(self, values: Floats) -> Floats:
        """Round to nearest, ties to even; bfloat16 values stay in float32 arrays."""
        narrow = np.ascontiguousarray(values, dtype=self.dtype)
        if self.name != "bfloat16":
            return narrow
        bits = narrow.view(np.uint32).astype(np.uint64)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return kept.astype(np.uint32).view(np.float32).reshape(np.shape(values))


FLOAT64 = Arithmetic("float64", 53)
FLOAT32 = Arithmetic("float32", 24)
BFLOAT16 = Arithmetic("bfloat16", 24)


@dataclass(frozen=True, slots=True)
class FloatNode:
    """A node as an implementation holds it; all its children survive.

    Attributes:
      target: [vocab] target masses, as rounded by the implementation.
      top: Tokens of the top children, in rank order.
      tail: [tail] tokens of the tail, in rank order; empty where there is no probe.
      probe_law: [tail] probe masses, as rounded.
      num_fillers: Most fillers after the probe.
    """

    target: Floats
    top: tuple[int, ...]
    tail: tuple[int, ...]
    probe_law: Floats
    num_fillers: int


def float_node(node: FloatNode, rule: Rule, arithmetic: Arithmetic = FLOAT64) -> DyadicLaw:
    """Exact law of the token after a node that is verified in rounded arithmetic.

    Operations: thresholds are a child's mass over a sum of the masses from the last child up, each
    rounded; the residual is a rounded difference clipped at 0; draws invert sequential running
    sums. Probes whose rejection leaves bit for bit the same residual share its draw, which under
    "onehot" never happens: time there grows with the tail.

    Args:
      node: The node.
      rule: "rheo", "rrsw" or "onehot".
      arithmetic: How every result is rounded.

    Returns:
      [vocab] law, summing to exactly 1.

    Raises:
      InputError: A probe law of another length than the tail, or target masses that are all zero.
    """
    if len(node.probe_law) != len(node.tail):
        raise InputError(
            f"probe_law has {len(node.probe_law)} masses for {len(node.tail)} tail tokens; "
            f"required: one each"
        )
    if not np.any(node.target > 0):
        raise InputError("target has no mass; required: a positive entry")
    model = _Model(node, rule, arithmetic)
    bits = arithmetic.uniform_bits
    if not node.tail:
        branches = [model.branch(1 << bits, None)]
    else:
        weights = draw_counts(model.probe_law.cumsum(), model.probe_law > 0, bits)
        drawn = zip(weights.tolist(), range(len(node.tail)), strict=True)
        branches = [model.branch(weight, place) for weight, place in drawn if weight]
    return node_law(branches, model.finals, bits)


class FloatDraws:
    """Draws of a whole round whose thresholds and running sums are rounded.

    Laws and residuals reach it exactly and are rounded once; scores stay exact.
    """

    def __init__(self, choose: Choose, arithmetic: Arithmetic = FLOAT64) -> None:
        """Branch through `choose` with the exact probabilities of rounded draws."""
        self._choose = choose
        self._arithmetic = arithmetic

    def probe(self, weights: Law, key: NodeKey) -> int:
        """Branch on the probe's place in the tail."""
        return self._draw(weights)

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        """Branch on an accept test with a rounded threshold."""
        threshold = self._arithmetic.rounded(np.array([float(probability)]))
        count = int(accept_counts(threshold, self._arithmetic.uniform_bits)[0])
        return self._choose.bernoulli(Fraction(count, 1 << self._arithmetic.uniform_bits))

    def final(self, weights: Law, key: NodeKey) -> int:
        """Branch on the last token."""
        return self._draw(weights)

    def _draw(self, weights: Law) -> int:
        masses = self._arithmetic.rounded(np.array([float(weight) for weight in weights]))
        bits = self._arithmetic.uniform_bits
        counts = draw_counts(masses.cumsum(), masses > 0, bits)
        return self._choose.categorical([Fraction(count, 1 << bits) for count in counts.tolist()])


class _Model:
    """Rounded verification of one node; `finals` collects the distinct last draws."""

    def __init__(self, node: FloatNode, rule: Rule, arithmetic: Arithmetic) -> None:
        self._node = node
        self._rule = rule
        self._arithmetic = arithmetic
        self._bits = arithmetic.uniform_bits
        self.finals: list[NDArray[np.int64]] = []
        self._known: dict[tuple[int, ...], tuple[int, Floats]] = {}
        round_ = arithmetic.rounded
        self._target = round_(node.target)
        self.probe_law = round_(node.probe_law)
        # What is left once the probe has been rejected; the target itself under "onehot".
        self._left_at_probe = arithmetic.dtype.type(1)
        self._residual = self._target.copy()
        if rule == "rrsw" and node.tail:
            self._residual[list(node.top)] = 0
            rest = self._residual.sum(dtype=arithmetic.dtype)
            self._left_at_probe = rest
        if rule != "onehot" and node.tail:
            tail = list(node.tail)
            drawn = round_(self._left_at_probe * self.probe_law)
            self._residual[tail] = np.maximum(round_(self._residual[tail] - drawn), 0)

    def branch(self, weight: int, place: int | None) -> Branch:
        """The tests of one outcome of the probe, at `place` of the tail."""
        node, rule = self._node, self._rule
        if place is None:
            return self._tests(weight, [], self._target, list(node.top))
        probe = node.tail[place]
        fillers = [token for token in node.tail if token != probe][: node.num_fillers]
        if rule == "onehot":
            return self._tests(weight, [], self._target, [*node.top, probe, *fillers])
        threshold = self._probe_threshold(place)
        if rule == "rheo":
            return self._tests(weight, [(probe, threshold)], self._residual, [*node.top, *fillers])
        before = self._thresholds(self._target, list(node.top), self._left_at_probe)
        done = [*zip(node.top, before, strict=True), (probe, threshold)]
        return self._tests(weight, done, self._residual, fillers)

    def _probe_threshold(self, place: int) -> int:
        drawn = self._arithmetic.rounded(self._left_at_probe * self.probe_law[place : place + 1])
        mass = self._target[[self._node.tail[place]]]
        with np.errstate(all="ignore"):
            ratio = np.where(mass < drawn, mass / drawn, np.where(mass > 0, 1.0, 0.0))
        return int(accept_counts(self._arithmetic.rounded(ratio), self._bits)[0])

    def _tests(
        self, weight: int, done: list[tuple[int, int]], residual: Floats, later: list[int]
    ) -> Branch:
        """Append the tests of point masses on `later`, and the last draw."""
        final, rest = self._final(residual, later)
        thresholds = self._thresholds(residual, later, rest)
        return Branch(weight, (*done, *zip(later, thresholds, strict=True)), final)

    def _thresholds(self, masses: Floats, tokens: Sequence[int], rest: Any) -> list[int]:
        """Accept counts of point masses: each mass over itself, the later ones and the rest."""
        thresholds = []
        left = rest
        for token in reversed(tokens):
            mass = masses[token]
            left = self._arithmetic.rounded(np.array([left + mass]))[0]
            ratio = min(mass / left, 1) if left > 0 else 0
            thresholds.append(self._arithmetic.rounded(np.array([ratio])))
        found = accept_counts(np.array(thresholds[::-1]).reshape(-1), self._bits)
        counts: list[int] = found.tolist()
        return counts

    def _final(self, residual: Floats, taken: list[int]) -> tuple[int, Any]:
        """Index of the draw from a residual without some tokens, and its sum."""
        key = tuple(token for token in sorted(taken) if residual[token] > 0)
        if key not in self._known:
            left = residual.copy()
            left[list(key)] = 0
            rest = left.sum(dtype=self._arithmetic.dtype)
            # Nothing left: a rejection of everything has probability 0 and the draw is never made.
            masses = left if rest > 0 else self._target
            self.finals.append(draw_counts(masses.cumsum(), masses > 0, self._bits))
            self._known[key] = (len(self.finals) - 1, rest)
        return self._known[key]
