"""One layer of a draft tree: scores of all its nodes, their order, and the frontier that grows on.

Source: EAGLE-2 (Li, Wei, Zhang, Zhang 2024, arXiv:2406.16858) for the layered growth.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.gpu.expansion import Expansion
from rheocheck.gpu.protocols import ForcedProbe
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.top_tokens import Fault

# Log scores are compared on this grid. Products that tie exactly, such as 1/2 * 1/4 and 1/8 * 1,
# have float64 log sums some 1e-15 apart and would be ordered by their rounding errors instead of by
# the tie rule; on the grid all but a few such ties in 1,000 compare equal. The price is that scores
# within a factor 1 + 1e-12 of one another may count as tied. That costs no exactness: any score
# that never rises from parent to child and that drawn identities do not enter is lossless.
SCORE_GRID = 2.0**-40


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Nodes to be expanded next, by rank in their layer; width is 1 for the root, else top_k.

    Attributes:
      valid: [batch, width] False on padding.
      log_score: [batch, width] log score before rounding; minus infinity on padding.
      parent: [batch, width] rank of the parent in its own layer.
      token: [batch, width] target ids; -1 on padding.
      position: [batch, width] column of the node among all nodes of all layers; -1 for the root.
    """

    valid: Bool[Tensor, "batch width"]
    log_score: Float64[Tensor, "batch width"]
    parent: Int64[Tensor, "batch width"]
    token: Int64[Tensor, "batch width"]
    position: Int64[Tensor, "batch width"]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """All nodes of one layer, flattened in the order (parent_rank, slot) of the tie rule.

    Attributes:
      expansion: [batch, width, ...] of the frontier that they grew from.
      fault: [batch, width] `expansion.fault`, and no fault on the frontier's padding.
      score: [batch, width * top_k] comparable log scores; minus infinity where there is no node.
      rank: [batch, width * top_k] rank in the layer.
      parent_position: [batch, width * top_k] `Frontier.position` of the parent.
      frontier: The top_k best of them.
    """

    expansion: Expansion
    fault: Int64[Tensor, "batch width"]
    score: Float64[Tensor, "batch size"]
    rank: Int64[Tensor, "batch size"]
    parent_position: Int64[Tensor, "batch size"]
    frontier: Frontier


def root_frontier(uniforms: RoundUniforms) -> Frontier:
    """The frontier that holds the root alone."""
    score = torch.zeros_like(uniforms.final).unsqueeze(1)
    index = torch.zeros_like(score, dtype=torch.int64)
    return Frontier(index == 0, score, index, index - 1, index - 1)


def forced_tokens(forced: ForcedProbe, layer: int, width: int) -> Int64[Tensor, "batch width"]:
    """Token that is forced at each expanded node of a layer; -1 where none is."""
    rank = torch.arange(width, device=forced.layer.device)
    here = (forced.layer == layer).unsqueeze(1) & (forced.parent_rank.unsqueeze(1) == rank)
    return torch.where(here, forced.token.unsqueeze(1), -1)


def grow_layer(expansion: Expansion, parents: Frontier, layer: int, top_k: int) -> Layer:
    """Score and rank the children of a frontier, and choose the next frontier.

    Args:
      expansion: [batch, width, ...] of the frontier.
      parents: The frontier.
      layer: Layer of the children, from 1.
      top_k: Children a node, and width of the next frontier.

    Returns:
      The layer.
    """
    valid = (expansion.valid & parents.valid.unsqueeze(-1)).flatten(1)
    # A rounded sum with a term <= 0 is at most the other term, and rounding to the grid is
    # monotone: no child outranks its parent (on equal scores the earlier layer goes first), so
    # survivors are closed under parents in floats too.
    log_score = (parents.log_score.unsqueeze(-1) + expansion.log_factor).flatten(1)
    log_score = torch.where(valid, log_score, -torch.inf)
    score = comparable_score(log_score)
    order = best_first(score)
    start = 0 if layer == 1 else top_k + (layer - 2) * top_k * top_k
    best = order[:, :top_k]
    return Layer(
        expansion=expansion,
        fault=torch.where(parents.valid, expansion.fault, int(Fault.NONE)),
        score=score,
        rank=order.argsort(dim=1),
        parent_position=parents.position.repeat_interleave(top_k, dim=1),
        frontier=Frontier(
            valid=valid.gather(1, best),
            log_score=log_score.gather(1, best),
            parent=best // top_k,
            token=torch.where(valid, expansion.token.flatten(1), -1).gather(1, best),
            position=best + start,
        ),
    )


def comparable_score(log_score: Float64[Tensor, "*nodes"]) -> Float64[Tensor, "*nodes"]:
    """Log scores rounded to SCORE_GRID; rounding is monotone, so no order is reversed by it."""
    return torch.round(log_score / SCORE_GRID) * SCORE_GRID


def best_first(score: Float64[Tensor, "batch size"]) -> Int64[Tensor, "batch size"]:
    """Order of nodes by score, best first; equal scores keep the order of their columns.

    Columns come in the order (layer, parent_rank, slot), so a stable sort is the tie rule.
    """
    return score.argsort(dim=1, descending=True, stable=True)
