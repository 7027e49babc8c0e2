"""Whether rounding explains that the torch path and the exact reference part on a round.

Both are deterministic, so all that follows their first difference is its consequence: only the
decision where they part is looked at. Its exact threshold comes from the reference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from rheocheck.audit.differential_instances import Batch, ExactRow, TableDrafter
from rheocheck.gpu import tree as gpu_tree
from rheocheck.gpu.layers import SCORE_GRID
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.expansion import Role
from rheocheck.reference.replay import Replay
from rheocheck.reference.tree import Node
from rheocheck.reference.verification import vocab_probe_law

if TYPE_CHECKING:
    from rheocheck.audit.differential import Decisions

# Largest absolute error of a float threshold, before it is divided by the mass that is left. A
# probability is exp of a logit, shifted by at most log(2**40) = 28 and divided by a temperature of
# at least 1/3, over a sum: its relative error is below 3 * 28 * 2**-52 + 512 * 2**-53 = 8e-14, and
# a running sum of at most 512 of them adds no more than 512 * 2**-53 = 6e-14. What verification
# takes for equal differs by at most 6e-14. Room for a few of these gives 1e-12; a uniform that is
# not planted at an edge falls so close to a threshold once in 10**11 draws.
DRAW_TOLERANCE = Fraction(1, 10**12)
# Log scores are sums of at most 4 terms of such accuracy, rounded to a grid.
SCORE_TOLERANCE = Fraction(SCORE_GRID) + DRAW_TOLERANCE


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the twins part on a round.

    Attributes:
      decision: "tree shape", "score order", "probe", "accept" or "final".
      is_explained: Whether the exact gap at that decision is within rounding.
      text: One sentence for people.
    """

    decision: str
    is_explained: bool
    text: str


def explain(
    batch: Batch,
    row: int,
    exact: ExactRow,
    replay: Replay,
    expected: "Decisions",
    found: "Decisions",
) -> Difference:
    """Classify the first difference of a row.

    Args:
      batch: Instances.
      row: The row.
      exact: Its exact models.
      replay: Its exact round.
      expected: Decisions of the reference.
      found: Decisions of the torch path, not all equal to `expected`.

    Returns:
      The difference.
    """
    if expected.nodes != found.nodes:
        return _tree_difference(batch, row, replay, expected, found)
    if expected.accepted != found.accepted:
        return _accept_difference(exact, replay, expected, found)
    gap = _draw_gap(replay, "final", None)
    path = replay.round.verification.accepted
    left = _mass_left(exact, replay, path, _tested(replay, len(path) + 1))
    return _draw_difference(
        "final", gap, left, f"final token {found.final}, expected {expected.final}"
    )


def _tree_difference(
    batch: Batch, row: int, replay: Replay, expected: "Decisions", found: "Decisions"
) -> Difference:
    """The first survivor that differs: in its place, or in its token."""
    shared = min(len(expected.nodes), len(found.nodes))
    first = next(
        (place for place in range(shared) if expected.nodes[place] != found.nodes[place]), shared
    )
    if first == shared:
        text = f"{len(found.nodes)} survivors, expected {len(expected.nodes)}"
        return Difference("tree shape", False, text)
    (key, token, role), (found_key, found_token, found_role) = (
        expected.nodes[first],
        found.nodes[first],
    )
    text = f"survivor {first} is {found_key} token {found_token}, expected {key} token {token}"
    if key == found_key:
        if role == found_role == Role.PROBE:
            return _draw_difference("probe", _draw_gap(replay, "probe", key), Fraction(1), text)
        return Difference("tree shape", False, text)
    nodes = {node.key: node for layer in replay.round.tree.layers for node in layer}
    if found_key not in nodes:
        return Difference("tree shape", False, text)
    return _score_difference(batch, row, nodes[key], nodes[found_key], text)


def _score_difference(batch: Batch, row: int, better: Node, worse: Node, text: str) -> Difference:
    """Two nodes in the wrong order: explained if their float scores ask for it, and are right."""
    scores = _float_scores(batch, row)
    gap = abs(better.score - worse.score) / max(better.score, worse.score)
    places = [(-scores.get(node.key, -math.inf), node.key) for node in (better, worse)]
    # Equal float scores in an order other than the tie rule's are a fault, however small the gap.
    is_asked_for = places[1] < places[0]
    is_right = all(
        abs(_log(node.score) - scores.get(node.key, -math.inf)) <= SCORE_TOLERANCE
        for node in (better, worse)
    )
    explained = gap <= SCORE_TOLERANCE and is_asked_for and is_right
    return Difference("score order", explained, f"{text}; their scores differ by {float(gap):.3g}")


def _float_scores(batch: Batch, row: int) -> dict[NodeKey, float]:
    """Scores of all nodes that the torch path drafts in a row, cut or not."""
    top_k, depth = batch.config.top_k, batch.config.depth
    whole = batch.config.model_copy(update={"budget": top_k * (1 + top_k * depth)})
    tree = gpu_tree.grow(TableDrafter(batch), batch.uniforms(), whole, batch.temperature)
    columns = (tree.layer, tree.parent_rank, tree.slot, tree.score)
    size = int(tree.valid[row].sum())
    return {
        NodeKey(layer, rank, slot): score
        for layer, rank, slot, score in zip(
            *(column[row, :size].tolist() for column in columns), strict=True
        )
    }


def _accept_difference(
    exact: ExactRow, replay: Replay, expected: "Decisions", found: "Decisions"
) -> Difference:
    """The first accept test that went the other way."""
    shared = 0
    while expected.accepted[: shared + 1] == found.accepted[: shared + 1]:
        shared += 1
    ours, theirs = (
        keys[shared] if shared < len(keys) else None for keys in (expected.accepted, found.accepted)
    )
    tested = _tested(replay, shared + 1)
    text = f"node {shared} of the walk leads to {theirs}, expected {ours}"
    disputed = next((key for key in tested if key in (ours, theirs)), None)
    if disputed is None:
        return Difference("accept", False, text)
    before = tested[: tested.index(disputed)]
    path = replay.round.verification.accepted[:shared]
    left = _mass_left(exact, replay, path, before)
    return _draw_difference("accept", _draw_gap(replay, "accept", disputed), left, text)


def _draw_difference(decision: str, gap: Fraction, left: Fraction, text: str) -> Difference:
    """A draw: explained if its uniform is within rounding of the nearest exact threshold.

    Thresholds 0 and 1 have no margin (the reference gives them a gap of 1): they come from masses
    that are exactly 0 in floats too.
    """
    explained = gap * left <= DRAW_TOLERANCE
    return Difference(
        decision, explained, f"{text}; the uniform is {float(gap):.3g} from a threshold"
    )


def _draw_gap(replay: Replay, decision: str, key: NodeKey | None) -> Fraction:
    """Distance of a draw's uniform to its nearest exact threshold inside (0, 1)."""
    for margin in replay.draw_margins:
        if margin.decision == decision and key in (None, margin.key):
            return margin.gap
    return Fraction(1)


def _tested(replay: Replay, layer: int) -> list[NodeKey]:
    """Children that the reference tested in a layer of its walk, in order."""
    return [
        margin.key
        for margin in replay.draw_margins
        if margin.decision == "accept" and margin.key.layer == layer
    ]


def _mass_left(
    exact: ExactRow, replay: Replay, path: tuple[int, ...], rejected: Sequence[NodeKey]
) -> Fraction:
    """Target mass at a node that the given rejections leave, before it is normalised."""
    masses = list(exact.target(path))
    tree = replay.round.tree
    expansion = tree.expansions.get(path)
    taken: list[int] = []
    node_at = {node.key: node for node in tree.survivors}
    for key in rejected:
        child = node_at[key]
        if child.role is Role.PROBE and replay.config.rule != "onehot":
            left = sum(masses)
            probe_law = vocab_probe_law(expansion, len(masses), taken)
            masses = [
                max(Fraction(0), mass - left * drawn)
                for mass, drawn in zip(masses, probe_law, strict=True)
            ]
            taken.append(child.token)
        else:
            masses[child.token] = Fraction(0)
    return sum(masses, Fraction(0))


def _log(value: Fraction) -> float:
    """Natural logarithm of a positive rational."""
    return math.log(value.numerator) - math.log(value.denominator)
