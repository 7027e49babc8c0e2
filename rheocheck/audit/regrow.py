"""Regrown trees: does anything that ranks at or above a probe depend on which token it is?

The losslessness proof rests on one property: whether a probe survives, and everything that ranks
above it, is decided before its token is known. Here a real tree is grown again with every other
possible token in the probe's place, from the same state and the same uniforms, and compared node
for node.
"""

import copy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.audit.choices import Choice, choice_uniforms
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.config import SpeculationConfig
from rheocheck.gpu import tree as trees
from rheocheck.gpu.decoding import RoundDrafter, RoundTrace
from rheocheck.gpu.expansion import Role
from rheocheck.gpu.protocols import ForcedProbe
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.tree import Tree

# Two evaluations of one draft model differ in a log score by about 1e-6 in float32, and by a step
# or two of a logit in half precision. Nodes whose scores are further apart may not change places.
ROUNDING = 1e-5
HALF_PRECISION_ROUNDING = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class ChosenProbe:
    """One surviving probe of a real round, with what it takes to grow its tree again.

    Attributes:
      request: Prompt.
      round_index: Round.
      node: The probe's node in the tree.
      layer: Its layer, from 1.
      parent_rank: Rank of its parent in the parent's layer.
      tokens: [outcomes] every token with positive probe mass, in rank order.
      drawn: The token that was drawn.
      drafter: In the round's state; one row.
      uniforms: The round's; one row.
      tree: The real tree; one row.
    """

    request: int
    round_index: int
    node: int
    layer: int
    parent_rank: int
    tokens: NDArray[np.int64]
    drawn: int
    drafter: RoundDrafter
    uniforms: RoundUniforms
    tree: Tree


@dataclass(frozen=True, slots=True)
class RegrowFinding:
    """What became of one probe's tree under its other identities.

    Attributes:
      request: Prompt.
      round_index: Round.
      node: The probe's node.
      num_outcomes: Other identities tried.
      num_rounded: Of them, those that differ first at two nodes whose scores are within rounding
        but not tied; nothing is said about those.
      violation: Where the first other one differs, or None.
    """

    request: int
    round_index: int
    node: int
    num_outcomes: int
    num_rounded: int
    violation: dict[str, int | str] | None


class ProbeChooser:
    """Chooses one surviving probe of each wanted prompt, uniformly over all its rounds' trees."""

    def __init__(self, seed: int, requests: set[int]) -> None:
        """`seed` keys the choices; `requests` are the prompts on which trees are regrown."""
        self._seed = seed
        self._requests = requests
        self._seen: dict[int, int] = {}
        self._chosen: dict[int, ChosenProbe] = {}

    def observe(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        if not self._requests.intersection(trace.request.tolist()):
            return
        is_probe = (trace.tree.valid & (trace.tree.role == Role.PROBE)).cpu().numpy()
        uniform = choice_uniforms(self._seed, trace.request, trace.round_index, Choice.PROBE, 2)
        for row, request in enumerate(trace.request.tolist()):
            probes = np.flatnonzero(is_probe[row])
            if request not in self._requests or not probes.size:
                continue
            self._seen[request] = self._seen.get(request, 0) + len(probes)
            # A round with n of the N probes so far takes over with probability n / N.
            if uniform[row, 0] * self._seen[request] < len(probes):
                picked = int(probes[int(uniform[row, 1] * len(probes))])
                self._chosen[request] = _take(trace, row, picked + 1)

    def probes(self) -> list[ChosenProbe]:
        """One probe a prompt, in the order of the prompts; prompts without any are left out."""
        return [self._chosen[request] for request in sorted(self._chosen)]


def regrow(
    probe: ChosenProbe,
    config: SpeculationConfig,
    temperature: float,
    rounding: float = ROUNDING,
) -> RegrowFinding:
    """Grow the probe's tree with each of its identities and compare.

    Args:
      probe: The chosen probe.
      config: Scheme.
      temperature: Of the request.
      rounding: Largest gap of two log scores that noise of the draft model may turn round.

    Returns:
      The finding. All identities, the drawn one included, are rows of one batch, and the comparison
      is with the drawn one's row, so that both sides come from the same sums.
    """
    outcomes, uniforms = len(probe.tokens), probe.uniforms
    if probe.drawn not in probe.tokens:
        witness: dict[str, int | str] = {
            "probe_token": probe.drawn,
            "what": "the drawn token has no mass in the law it is said to be drawn from",
        }
        return _finding(probe, 0, witness)
    first = torch.zeros(outcomes, dtype=torch.int64, device=uniforms.final.device)
    forced = ForcedProbe(
        layer=first + probe.layer,
        parent_rank=first + probe.parent_rank,
        token=torch.as_tensor(probe.tokens, device=first.device),
    )
    copies = RoundUniforms(uniforms.probe[first], uniforms.accept[first], uniforms.final[first])
    drafter = copy.copy(probe.drafter)
    drafter.keep_rows(first)
    grown = trees.grow(drafter, copies, config, temperature, forced=forced)
    rows = _Rows(grown)
    drawn = int(np.flatnonzero(probe.tokens == probe.drawn)[0])
    reference, real = rows.of(drawn), _Rows(probe.tree).of(0)
    replayed = _compare(real, reference, probe.node - 1, probe.drawn, rounding)
    if replayed == "rounding":
        # The drawn tree itself comes out otherwise: its identities are those of another tree.
        return _finding(probe, outcomes - 1, None)
    violation, num_rounded = replayed, 0
    for row, token in enumerate(probe.tokens.tolist()):
        found = _compare(reference, rows.of(row), probe.node - 1, token, rounding)
        if found == "rounding":
            num_rounded += 1
        elif violation is None:
            violation = found
    return _finding(probe, num_rounded, violation)


def _finding(
    probe: ChosenProbe, num_rounded: int, violation: dict[str, int | str] | str | None
) -> RegrowFinding:
    return RegrowFinding(
        request=probe.request,
        round_index=probe.round_index,
        node=probe.node,
        num_outcomes=len(probe.tokens) - 1,
        num_rounded=num_rounded,
        violation=violation if isinstance(violation, dict) else None,
    )


class _Rows:
    """A tree's columns as NumPy arrays."""

    def __init__(self, tree: Tree) -> None:
        columns = (tree.layer, tree.parent_rank, tree.slot, tree.parent, tree.token)
        self.key = torch.stack(columns, dim=-1).cpu().numpy()
        self.score = tree.score.cpu().numpy()

    def of(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """[budget, 5] layer, parent rank, slot, parent, token; and [budget] scores."""
        return self.key[row], self.score[row]


def _compare(
    wanted: tuple[NDArray[np.int64], NDArray[np.float64]],
    found: tuple[NDArray[np.int64], NDArray[np.float64]],
    place: int,
    token: int,
    rounding: float,
) -> dict[str, int | str] | str | None:
    """First difference among the survivors down to the probe, which stands at `place`.

    Returns:
      None where all agree; "rounding" where the first two that differ are within rounding but not
      tied; else a witness.
    """
    keys, other_keys = wanted[0], found[0]
    differs = (keys[: place + 1, :4] != other_keys[: place + 1, :4]).any(axis=1)
    differs[:place] |= keys[:place, 4] != other_keys[:place, 4]
    differs[place] |= other_keys[place, 4] != token
    if not differs.any():
        return None
    first = int(differs.argmax())
    if _is_rounding(wanted, found, first, place, rounding):
        return "rounding"
    return {
        "probe_token": int(keys[place, 4]),
        "other_token": token,
        "probe_rank": place,
        "first_difference_at_rank": first,
        "node_there": _describe(keys[first]),
        "with_other_token": _describe(other_keys[first]),
    }


def _is_rounding(
    wanted: tuple[NDArray[np.int64], NDArray[np.float64]],
    found: tuple[NDArray[np.int64], NDArray[np.float64]],
    place: int,
    probe: int,
    rounding: float,
) -> bool:
    """Whether two nodes that change places at `place` have scores within rounding, but not tied.

    A tie in both trees is no excuse: the tie rule decides it, and looks at no token. Nor is a small
    gap between the probe and its own sibling: both scores come from one law, the parent's, which no
    token of theirs can have changed.
    """
    (keys, scores), (other_keys, other_scores) = wanted, found
    if not np.isfinite(scores[place]) or not np.isfinite(other_scores[place]):
        return False
    pair = (keys[place, :3], other_keys[place, :3])
    probe_key = keys[probe, :3]
    is_probe = [bool((key == probe_key).all()) for key in pair]
    is_sibling = [bool((key[:2] == probe_key[:2]).all()) for key in pair]
    if any(is_probe) and all(is_sibling):
        return False
    if (pair[0] == pair[1]).all():
        # One place, two tokens: two logits of the parent changed order. Without rounding between
        # the trees their scores are the same to the last bit, and there is no excuse.
        return bool(0 < abs(scores[place] - other_scores[place]) <= rounding)
    # Where the other tree's node stands in this one, and the reverse; a node that was cut is not
    # there, and then its distance to this place in its own tree has to do.
    here = np.flatnonzero((keys[:, :3] == pair[1]).all(axis=1))
    there = np.flatnonzero((other_keys[:, :3] == pair[0]).all(axis=1))
    gaps = [abs(scores[place] - scores[index]) for index in here[:1]]
    gaps += [abs(other_scores[place] - other_scores[index]) for index in there[:1]]
    largest = max(gaps, default=abs(scores[place] - other_scores[place]))
    return bool(0 < largest <= rounding)


def _describe(key: NDArray[np.int64]) -> str:
    if key[0] < 0:
        return "no survivor"
    return f"layer {key[0]}, parent rank {key[1]}, slot {key[2]}, token {key[4]}"


def _take(trace: RoundTrace, row: int, node: int) -> ChosenProbe:
    """Copy what growing the tree again takes."""
    tree, drafter = trace.tree, trace.drafter
    assert isinstance(drafter, RecordingDrafter)
    parent = int(tree.parent[row, node - 1])
    support, law = tree.support[row, parent], tree.probe_law[row, parent]
    tokens = support[law > 0].cpu().numpy()
    uniforms, kept = trace.uniforms, slice(row, row + 1)
    return ChosenProbe(
        request=int(trace.request[row]),
        round_index=int(trace.round_index[row]),
        node=node,
        layer=int(tree.layer[row, node - 1]),
        parent_rank=int(tree.parent_rank[row, node - 1]),
        tokens=np.asarray(tokens, dtype=np.int64),
        drawn=int(tree.token[row, node - 1]),
        drafter=drafter.of_row(row),
        uniforms=RoundUniforms(uniforms.probe[kept], uniforms.accept[kept], uniforms.final[kept]),
        tree=_rows_of(tree, kept),
    )


def _rows_of(tree: Tree, rows: slice) -> Tree:
    """Some rows of a batch of trees."""
    columns: dict[str, Any] = {item.name: getattr(tree, item.name) for item in fields(Tree)}
    kept: dict[str, Any] = {
        name: value[rows] for name, value in columns.items() if isinstance(value, Tensor)
    }
    return replace(tree, **kept)
