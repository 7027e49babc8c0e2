"""One round driven by given uniforms, for draw-for-draw comparison with the torch twin.

A float64 uniform is read as the dyadic rational it stands for, so every decision here is exact.
The twin may decide otherwise only where a float lies within its own rounding of a threshold:
`margins` says how far each decision was from that.
"""

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.laws import Draft, Law, Path, Target
from rheocheck.reference.models import Models
from rheocheck.reference.sampler import Round, round_program
from rheocheck.reference.tree import Node, Tree, best_first

Decision: TypeAlias = Literal["probe", "accept", "final", "layer order", "survival"]


@dataclass(frozen=True, slots=True)
class Margin:
    """How far one decision was from turning out otherwise.

    Attributes:
      decision: "probe" and "final": inverse CDF; "accept": accept test; "layer order": two
        neighbours in a layer's ranking, up to the first that is not expanded; "survival": two
        neighbours in the order of survival, up to the first that was cut.
      key: The node: the probe, the child tested, the node where the round ends, or the better of
        the two nodes compared.
      gap: Draws: distance of the uniform to the nearest threshold inside (0, 1); 1 if there is
        none. Scores: (better - worse) / better. At least 0; a gap of 0 is a tie.
      other: The worse of two nodes compared; None for a draw.
      same_floats: A tie of scores that any code sees as one: factor by factor, both come from the
        same law and are the same number. Code that adds equal logs in the order of the path gets
        equal sums, so such a tie excuses no difference.
    """

    decision: Decision
    key: NodeKey
    gap: Fraction
    other: NodeKey | None = None
    same_floats: bool = False


class UniformDraws:
    """Draws made from given uniforms.

    A probe and the final token come by inverse CDF: the first item whose cumulated weight exceeds
    the uniform, hence never one of weight 0. A test accepts where the uniform is below the
    acceptance, hence never at acceptance 0 and always at acceptance 1.
    """

    def __init__(self, probe: Any, accept: Any, final: Any, num_probes: int = 1) -> None:
        """Take the uniforms of one round: floats, or Fractions, in [0, 1).

        Args:
          probe: [depth, top_k * num_probes] by (layer - 1, rank of the parent * num_probes + number
            of the probe): nested sequences or an array.
          accept: [depth, top_k, top_k] by (layer - 1, rank of the parent, slot).
          final: One number.
          num_probes: Probes that a node may have; they are asked for in order.
        """
        self._probe = probe
        self._accept = accept
        self._final = final
        self._num_probes = num_probes
        self._drawn: Counter[tuple[int, int]] = Counter()
        self.margins: list[Margin] = []

    def probe(self, weights: Law, key: NodeKey) -> int:
        """Index of the probe in its tail."""
        layer, parent_rank, _ = key
        column = parent_rank * self._num_probes + self._drawn[layer, parent_rank]
        self._drawn[layer, parent_rank] += 1
        uniform = _exact(self._probe[layer - 1][column], "probe", (layer - 1, column))
        return self._inverse_cdf(uniform, weights, "probe", key)

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        """Whether the child `key` is kept."""
        layer, parent_rank, slot = key
        uniform = _exact(
            self._accept[layer - 1][parent_rank][slot], "accept", (layer - 1, parent_rank, slot)
        )
        inside = 0 < probability < 1
        gap = abs(probability - uniform) if inside else Fraction(1)
        self.margins.append(Margin("accept", key, gap))
        return uniform < probability

    def final(self, weights: Law, key: NodeKey) -> int:
        """Token that ends the round."""
        return self._inverse_cdf(_exact(self._final, "final", ()), weights, "final", key)

    def _inverse_cdf(
        self, uniform: Fraction, weights: Law, decision: Decision, key: NodeKey
    ) -> int:
        # Integers over one denominator: comparing Fractions would cost a gcd an item.
        scale = math.lcm(*(weight.denominator for weight in weights))
        edges = list(
            itertools.accumulate(
                weight.numerator * (scale // weight.denominator) for weight in weights
            )
        )
        position = uniform * scale
        index = bisect.bisect_right(edges, position.numerator // position.denominator)
        below = edges[index - 1] if index else 0
        distances = [abs(position - edge) for edge in (below, edges[index]) if 0 < edge < scale]
        gap = min(distances, default=Fraction(scale)) / scale
        self.margins.append(Margin(decision, key, gap))
        return index


@dataclass(frozen=True, slots=True)
class Replay:
    """One replayed round.

    Attributes:
      round: The tree and what verification kept of it.
      draw_margins: Margins of the draws in the order they were made.
      config: The scheme.
    """

    round: Round
    draw_margins: tuple[Margin, ...]
    config: SpeculationConfig

    def margins(self) -> list[Margin]:
        """All margins: of the draws, then of the scores compared."""
        return [*self.draw_margins, *score_margins(self.round.tree, self.config)]

    def margins_within(self, tolerance: Fraction) -> list[Margin]:
        """Decisions that rounding of relative size `tolerance` may turn over."""
        return [
            margin
            for margin in self.margins()
            if margin.gap <= tolerance and not margin.same_floats
        ]


def replay_round(
    target: Target, draft: Draft, config: SpeculationConfig, probe: Any, accept: Any, final: Any
) -> Replay:
    """Run one round on given uniforms.

    Args:
      target: path -> [vocab] law of Fractions.
      draft: path -> [vocab] law, or a 2-tuple of laws (ranking, tempered draft).
      config: The scheme.
      probe: [depth, top_k * num_probes] uniforms of the probes, by (layer - 1, rank of the parent *
        num_probes + number of the probe).
      accept: [depth, top_k, top_k] uniforms of the accept tests, by (layer - 1, rank of the parent,
        slot).
      final: Uniform of the last token.

    Returns:
      The round and its margins.

    Raises:
      InputError: A uniform that is needed is not in [0, 1), or there are too few of them.
      LawError: A law that was asked for is none.
    """
    draws = UniformDraws(probe, accept, final, config.num_probes)
    done = round_program(Models(target, draft), config)(draws)
    return Replay(done, tuple(draws.margins), config)


def score_margins(tree: Tree, config: SpeculationConfig) -> list[Margin]:
    """Margins of all comparisons of scores that shaped a tree.

    Args:
      tree: A grown tree.
      config: top_k and budget are used.

    Returns:
      Neighbours in each layer's ranking, then neighbours in the order of survival.
    """
    nodes = {node.path: node for layer in tree.layers for node in layer}
    drafted = best_first(list(nodes.values()))
    found = [
        _compared("layer order", better, worse, tree, nodes)
        for layer in tree.layers
        for better, worse in itertools.pairwise(layer[: config.top_k + 1])
    ]
    return found + [
        _compared("survival", better, worse, tree, nodes)
        for better, worse in itertools.pairwise(drafted[: config.budget + 1])
    ]


def _compared(
    decision: Decision, better: Node, worse: Node, tree: Tree, nodes: dict[Path, Node]
) -> Margin:
    gap = (better.score - worse.score) / better.score
    same = gap == 0 and _same_factors(better.path, worse.path, tree, nodes)
    return Margin(decision, better.key, gap, worse.key, same)


def _same_factors(first: Path, second: Path, tree: Tree, nodes: dict[Path, Node]) -> bool:
    """Whether two scores are products of the same factors of the same laws, in the same order."""
    if len(first) != len(second):
        return False
    for length in range(1, len(first) + 1):
        one, two = nodes[first[:length]], nodes[second[:length]]
        laws = [tree.expansions[node.path[:-1]] for node in (one, two)]
        if one.factor != two.factor or (laws[0].tokens, laws[0].ranking) != (
            laws[1].tokens,
            laws[1].ranking,
        ):
            return False
        for law in laws:
            # The proxy is then a sum in one rounding and a single number in another.
            if law.num_top and law.tail_mass == law.ranking[law.num_top - 1]:
                return False
    return True


def _exact(uniform: Any, name: str, index: Iterable[int]) -> Fraction:
    try:
        exact = uniform if isinstance(uniform, Fraction) else Fraction(*_ratio(uniform))
    except (TypeError, ValueError, OverflowError, AttributeError):
        exact = None
    if exact is None or not 0 <= exact < 1:
        place = "".join(f"[{axis}]" for axis in index)
        raise InputError(
            f"{name}{place} is {uniform!r}; required: a uniform, at least 0 and below 1"
        )
    return exact


def _ratio(uniform: Any) -> Sequence[int]:
    numerator, denominator = uniform.as_integer_ratio()
    return int(numerator), int(denominator)
