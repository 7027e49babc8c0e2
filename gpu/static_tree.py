"""Static trees of random drafts, for all rows of a batch at once: the baselines of the literature.

Torch twin of the drafting half of `rheocheck.reference.static_round`. All nodes of a layer have the
same number of children, every child is drawn, nothing is scored or cut.

Source: Miao et al. (2024), SpecInfer, arXiv:2305.09781, and Sun et al. (2023), SpecTr,
arXiv:2310.15141, draw independently; Chen et al. (2024), Sequoia, arXiv:2402.12374, without
replacement.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from rheocheck.config import SpeculationConfig, StaticConfig
from rheocheck.gpu.expansion import Role, expand
from rheocheck.gpu.protocols import Drafter
from rheocheck.gpu.randomness import Purpose, inverse_cdf, node_key, uniforms
from rheocheck.gpu.top_tokens import Fault
from rheocheck.gpu.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class StaticUniforms:
    """All uniforms that one round on a static tree can use; each in [0, 1).

    Attributes:
      child: [batch, nodes] draw of each drafted node, layer by layer, parents in order.
      accept: [batch, nodes] its accept test.
      final: [batch] the draw of the residual or bonus token that ends the round.
    """

    child: Float64[Tensor, "batch nodes"]
    accept: Float64[Tensor, "batch nodes"]
    final: Float64[Tensor, " batch"]


@dataclass(frozen=True, slots=True, eq=False)
class StaticPlaces:
    """Where each drafted node of a static tree stands; the same for every row.

    Attributes:
      layer: [nodes] 1 to depth.
      parent_place: [nodes] place of the parent in its layer.
      slot: [nodes] place among its siblings.
      place: [nodes] place in its own layer.
      parent: [nodes] index of the parent, counting drafted nodes from 1; 0 is the root.
    """

    layer: Int64[Tensor, " nodes"]
    parent_place: Int64[Tensor, " nodes"]
    slot: Int64[Tensor, " nodes"]
    place: Int64[Tensor, " nodes"]
    parent: Int64[Tensor, " nodes"]


def static_places(config: StaticConfig, device: torch.device) -> StaticPlaces:
    """Places of all nodes of a static tree, layer by layer."""
    columns: list[list[Tensor]] = [
        [torch.zeros(0, dtype=torch.int64, device=device)] for _ in "12345"
    ]
    width, first, first_parent = 1, 1, 0
    for layer, children in enumerate(config.branching, start=1):
        place = torch.arange(width * children, device=device)
        parent_place = place // children
        parts = (
            torch.full_like(place, layer),
            parent_place,
            place % children,
            place,
            parent_place + first_parent,
        )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
        first_parent, width = first, width * children
        first += width
    return StaticPlaces(*(torch.cat(column) for column in columns))


def static_uniforms(
    seed: int,
    request: Int64[Tensor, " batch"],
    round_index: Int64[Tensor, " batch"],
    config: StaticConfig,
) -> StaticUniforms:
    """Make the uniforms of one round of every row, each keyed by its node's place in the tree.

    Args:
      seed: Key of the run, 0 <= seed < 2**63.
      request: [batch] number of each row's request, in [0, 2**32).
      round_index: [batch] number of each row's round, in [0, 2**32).
      config: Shape of the tree.

    Returns:
      Uniforms on the device of `request`; a row's depend on its own counters only.

    Raises:
      InputError: A seed out of range.
    """
    places = static_places(config, request.device)
    key = node_key(places.layer, places.parent_place, places.slot)
    rows = request[:, None], round_index[:, None]
    return StaticUniforms(
        child=uniforms(seed, *rows, key, Purpose.PROBE),
        accept=uniforms(seed, *rows, key, Purpose.ACCEPT),
        final=uniforms(seed, request, round_index, torch.zeros_like(request), Purpose.FINAL),
    )


def grow_static(
    drafter: Drafter, draws: StaticUniforms, config: StaticConfig, temperature: float
) -> Tree:
    """Draft the static tree of every row.

    Args:
      drafter: Gives logits; called once for the root and once for each layer but the last, with
        frontiers as wide as the layer.
      draws: `child` is read.
      config: Shape, rule (with or without replacement) and support_size.
      temperature: Of the request.

    Returns:
      The nodes, all of role PROBE and of score 0. Siblings may share a token unless they are drawn
      without replacement; then a node whose support runs out has fewer children. A node with bad
      draft logits has none, and `fault` reports it. `probe_law` is the law of a node's first child.
    """
    batch, device = draws.final.shape[0], draws.final.device
    places = static_places(config, device)
    # One probe and nothing else: its tail is the whole support, its law the tempered draft.
    one_draw = SpeculationConfig(top_k=1, num_top=0, support_size=config.support_size)
    tokens: list[Tensor] = []
    supports: list[Tensor] = []
    laws: list[Tensor] = []
    faults: list[Tensor] = []
    first, width = 0, 1
    valid = torch.ones(batch, 1, dtype=torch.bool, device=device)
    for layer, children in enumerate(config.branching, start=1):
        if layer == 1:
            logits = drafter.root()
            logits = (
                (logits[0].unsqueeze(1), logits[1].unsqueeze(1))
                if isinstance(logits, tuple)
                else logits.unsqueeze(1)
            )
        else:
            parent = places.parent_place[first - width : first].expand(batch, width)
            logits = drafter.extend(parent, tokens[-1], valid)
        uniform = draws.child[:, first : first + width * children].view(batch, width, children)
        expansion = expand(
            logits, uniform[..., 0], one_draw, temperature, token_ids=drafter.token_ids
        )
        faults.append(torch.where(valid, expansion.fault, int(Fault.NONE)))
        rank = _children(expansion.probe_law, uniform, replace=config.rule != "sequoia")
        token = expansion.support.gather(-1, rank.clamp_min(0))
        valid = ((rank >= 0) & valid.unsqueeze(-1)).flatten(1)
        tokens.append(torch.where(valid, token.flatten(1), -1))
        supports.append(expansion.support)
        laws.append(expansion.probe_law)
        first, width = first + width * children, width * children
    return _tree(tokens, supports, laws, faults, places, config, batch)


def _children(law: Tensor, uniform: Tensor, *, replace: bool) -> Tensor:
    """[batch, width, children] rank in the support of each child; -1 where nothing is left."""
    ranks = []
    for slot in range(uniform.shape[-1]):
        rank = inverse_cdf(law, uniform[..., slot])
        ranks.append(rank)
        if not replace:
            law = law.scatter(-1, rank.clamp_min(0).unsqueeze(-1), 0.0)
    return torch.stack(ranks, dim=-1)


def _tree(
    tokens: list[Tensor],
    supports: list[Tensor],
    laws: list[Tensor],
    faults: list[Tensor],
    places: StaticPlaces,
    config: StaticConfig,
    batch: int,
) -> Tree:
    """Lay the drafted nodes out as `Tree` wants them: those that exist first, the root apart."""
    device, size = places.layer.device, config.num_nodes
    widest = max(config.branching, default=1)
    token = torch.cat([torch.zeros(batch, 0, dtype=torch.int64, device=device), *tokens], dim=1)
    order = (token < 0).long().argsort(dim=1, stable=True)
    token = token.gather(1, order)
    valid = token >= 0
    new_index = torch.zeros(batch, size + 1, dtype=torch.int64, device=device)
    node = torch.arange(1, size + 1, device=device).expand(batch, size)
    new_index.scatter_(1, order + 1, node)
    layer, parent_rank, slot, rank_in_layer = (
        torch.where(valid, column[order], -1)
        for column in (places.layer, places.parent_place, places.slot, places.place)
    )
    parent = torch.where(valid, new_index.gather(1, places.parent[order]), 0)
    num_places = (size + 1) * widest
    child = torch.zeros(batch, num_places + 1, dtype=torch.int64, device=device)
    child.scatter_(1, torch.where(valid, parent * widest + slot, num_places), node)
    support, probe_law = _laws(supports, laws, order, valid, config, batch)
    # Columns: the root, the nodes of all layers but the last, and one without a fault.
    none = torch.zeros(batch, 1, dtype=torch.int64, device=device)
    fault = torch.cat([*faults, none], dim=1)
    column = (fault != int(Fault.NONE)).byte().argmax(1, keepdim=True)
    fault = fault.gather(1, column).squeeze(1)
    is_bad = fault != int(Fault.NONE)
    pad = torch.nn.functional.pad
    fault_layer = pad(places.layer, (1, 0))[column.squeeze(1)] + 1
    fault_rank = pad(places.place, (1, 0))[column.squeeze(1)]
    return Tree(
        valid=valid,
        token=token,
        parent=parent,
        role=torch.where(valid, int(Role.PROBE), -1),
        score=torch.where(valid, 0.0, -torch.inf).double(),
        child=child[:, :num_places].view(batch, size + 1, widest),
        support=support,
        probe_law=probe_law,
        probe_rank=torch.full((batch, size + 1), -1, dtype=torch.int64, device=device),
        fault=fault,
        fault_layer=torch.where(is_bad, fault_layer, 0),
        fault_rank=torch.where(is_bad, fault_rank, 0),
        depth=config.depth,
        layer=layer,
        parent_rank=parent_rank,
        slot=slot,
        rank_in_layer=rank_in_layer,
    )


def _laws(
    supports: list[Tensor],
    laws: list[Tensor],
    order: Tensor,
    valid: Tensor,
    config: StaticConfig,
    batch: int,
) -> tuple[Tensor, Tensor]:
    """Support and draft law of the root and every node; blank at leaves and on padding."""
    if not supports:
        blank = torch.full((batch, 1, 0), -1, dtype=torch.int64, device=order.device)
        return blank, blank.double()
    # Columns: the root, the nodes of all layers but the last, and a blank one.
    support = torch.nn.functional.pad(torch.cat(supports, dim=1), (0, 0, 0, 1), value=-1)
    law = torch.nn.functional.pad(torch.cat(laws, dim=1), (0, 0, 0, 1))
    num_expanded = support.shape[1] - 1
    column = torch.where(valid & (order + 1 < num_expanded), order + 1, num_expanded)
    column = torch.nn.functional.pad(column, (1, 0)).unsqueeze(-1)
    column = column.expand(-1, -1, support.shape[-1])
    return support.gather(1, column), law.gather(1, column)
