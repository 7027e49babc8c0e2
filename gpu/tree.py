"""Layered growth of draft trees under a budget, for all rows of a batch at once.

Torch twin of `rheocheck.reference.tree`. Layer 1 holds the root's children; from each layer the
top_k best nodes are expanded, down to depth; at the end the budget best nodes of all layers
survive. Equal scores are ordered by (layer, rank of the parent in its layer, slot).

Source: EAGLE-2 (Li, Wei, Zhang, Zhang 2024, arXiv:2406.16858) for the layered growth; RheoSampling
(Hu, Weng, Zhang 2026, arXiv:2609.21827) for the probe in it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.config import SpeculationConfig, check_config
from rheocheck.errors import InputError
from rheocheck.gpu import layers
from rheocheck.gpu.expansion import Logits, expand
from rheocheck.gpu.protocols import Drafter, ForcedProbe
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.top_tokens import Fault

__all__ = ["Drafter", "ForcedProbe", "Tree", "grow"]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The surviving nodes of every row, best first, and the laws of those that were expanded.

    Survivor i of a row (0 <= i < budget) is node i + 1; node 0 is the root. Rows with fewer
    survivors are padded: token, layer, parent_rank, slot, role and rank_in_layer are -1, parent is
    0 and score is minus infinity there.

    Attributes:
      valid: [batch, budget] True on survivors, which come first.
      token: [batch, budget] target ids.
      parent: [batch, budget] node index of the parent, always smaller than the node's own.
      layer: [batch, budget] 1 to depth.
      parent_rank: [batch, budget] rank of the parent among all nodes of its layer; 0 in layer 1.
      slot: [batch, budget] slot among the parent's children, 0 to top_k - 1.
      role: [batch, budget] `rheocheck.gpu.expansion.Role`.
      score: [batch, budget] log score <= 0, rounded as `layers.comparable_score` does.
      rank_in_layer: [batch, budget] rank among all nodes of the layer, also those that were cut.
      child: [batch, budget + 1, top_k] node index of the surviving child in each slot; 0 where
        there is none. A node's children in slot order are in score order.
      support: [batch, budget + 1, n] of each node's expansion, see `Expansion`; -1 everywhere at
        nodes that were not expanded and on padding.
      probe_law: [batch, budget + 1, n] law of the node's probe over `support`.
      probe_rank: [batch, budget + 1] index in `support` of the drawn probe, whether or not it
        survived; -1 where there is none.
      fault: [batch] `rheocheck.gpu.top_tokens.Fault` of the row's first node with bad draft logits
        by (layer, rank), survivor or not; 0 where no node has any. Such a node has no children:
        the row's tree is smaller and its verification still lossless.
      fault_layer: [batch] layer that this node's children would be in; 0 without a fault.
      fault_rank: [batch] rank of this node in its own layer; 0 without a fault.
      depth: Most layers that the tree may have.
      num_probes: Most probes that a node may have. A node's probes stand in the order in which they
        were drawn; a later one has the probe law without those before it.
    """

    valid: Bool[Tensor, "batch budget"]
    token: Int64[Tensor, "batch budget"]
    parent: Int64[Tensor, "batch budget"]
    layer: Int64[Tensor, "batch budget"]
    parent_rank: Int64[Tensor, "batch budget"]
    slot: Int64[Tensor, "batch budget"]
    role: Int64[Tensor, "batch budget"]
    score: Float64[Tensor, "batch budget"]
    rank_in_layer: Int64[Tensor, "batch budget"]
    child: Int64[Tensor, "batch nodes top_k"]
    support: Int64[Tensor, "batch nodes support"]
    probe_law: Float64[Tensor, "batch nodes support"]
    probe_rank: Int64[Tensor, "batch nodes"]
    fault: Int64[Tensor, " batch"]
    fault_layer: Int64[Tensor, " batch"]
    fault_rank: Int64[Tensor, " batch"]
    depth: int
    num_probes: int = 1

    def num_survivors(self) -> Int64[Tensor, " batch"]:
        """[batch] number of drafted nodes that survived."""
        return self.valid.sum(-1)

    def depths(self) -> Int64[Tensor, "batch nodes"]:
        """[batch, budget + 1] distance of each node from the root; 0 for the root and padding."""
        return torch.cat([torch.zeros_like(self.probe_rank[:, :1]), self.layer.clamp_min(0)], dim=1)

    def ancestor_mask(self) -> Bool[Tensor, "batch nodes nodes"]:
        """Which nodes a node sees in tree attention: itself and its ancestors.

        Returns:
          [batch, budget + 1, budget + 1] True where the column's node is the row's or an ancestor
          of it. The root is an ancestor of every survivor. A padding node sees itself only, so
          that a softmax over its row is defined; nobody else sees it.
        """
        batch, num_nodes = self.probe_rank.shape
        node = torch.arange(num_nodes, device=self.parent.device).expand(batch, num_nodes)
        root = torch.zeros_like(node[:, :1])
        is_node = torch.cat([torch.ones_like(root, dtype=torch.bool), self.valid], dim=1)
        parent = torch.where(is_node, torch.cat([root, self.parent], dim=1), node)
        mask = torch.zeros(batch, num_nodes, num_nodes, dtype=torch.bool, device=node.device)
        ancestor = node
        # A survivor's parent comes before it, so that many steps reach the root from anywhere.
        for _ in range(self.depth + 1):
            mask.scatter_(2, ancestor.unsqueeze(-1), True)
            ancestor = parent.gather(1, ancestor)
        return mask


def grow(
    drafter: Drafter,
    uniforms: RoundUniforms,
    config: SpeculationConfig,
    temperature: float,
    *,
    forced: ForcedProbe | None = None,
    check: bool = True,
) -> Tree:
    """Grow and prune the draft tree of every row.

    Args:
      drafter: Gives logits; called once for the root and once for each layer but the last.
      uniforms: `probe` is read, at (layer, rank of the expanded node).
      config: The scheme; its rule is not read.
      temperature: Of the request; the probes are drawn at it, scores never see it.
      forced: Probes that are given instead of drawn, one a row.
      check: Refuse bad draft logits once the trees are grown, which waits for the device.
        Unchecked, `Tree.fault` reports them by row and nothing here waits.

    Returns:
      The surviving nodes: fewer than budget where the tree has fewer, none where budget or depth
      is 0.

    Raises:
      InputError: Draft logits with NaN, +inf, or no finite entry; the message names row and layer.
        `config` is no legal SpeculationConfig.
    """
    if not torch.compiler.is_compiling():
        check_config(config)
    grown_layers: list[layers.Layer] = []
    if config.budget > 0 and config.depth > 0:
        logits = _map_logits(drafter.root(), lambda values: values.unsqueeze(1))
        frontier = layers.root_frontier(uniforms)
        for layer in range(1, config.depth + 1):
            width = frontier.valid.shape[1]
            probe_uniform = uniforms.probe[:, layer - 1, : width * config.num_probes]
            if config.num_probes > 1:
                shape = (probe_uniform.shape[0], width, config.num_probes)
                probe_uniform = probe_uniform.reshape(shape)
            expansion = expand(
                logits,
                probe_uniform,
                config,
                temperature,
                token_ids=drafter.token_ids,
                forced_probe=None if forced is None else layers.forced_tokens(forced, layer, width),
            )
            grown = layers.grow_layer(expansion, frontier, layer, config.top_k)
            grown_layers.append(grown)
            frontier = grown.frontier
            if layer < config.depth:
                logits = drafter.extend(frontier.parent, frontier.token, frontier.valid)
    tree = _prune(grown_layers, uniforms, config)
    if check:
        check_drafted(tree)
    return tree


def check_drafted(tree: Tree) -> None:
    """Refuse trees that met bad draft logits; waits for the device.

    Raises:
      InputError: Draft logits with NaN, +inf, or no finite entry; the message names the first row,
        and its first node by layer and rank.
    """
    if not bool(tree.fault.any()):
        return
    row = int((tree.fault != int(Fault.NONE)).nonzero()[0])
    found = {
        Fault.NAN: "NaN",
        Fault.INFINITE: "+inf",
        Fault.EMPTY: "-inf at every token",
    }[Fault(int(tree.fault[row]))]
    raise InputError(
        f"draft logits of layer {int(tree.fault_layer[row])}: row {row}, position "
        f"({int(tree.fault_rank[row])},) has {found}; every logit must be finite or -inf, and at "
        "least one finite"
    )


def _prune(grown: list[layers.Layer], uniforms: RoundUniforms, config: SpeculationConfig) -> Tree:
    """Keep the budget best nodes of all layers and attach the laws of those that were expanded."""
    batch, device = uniforms.final.shape[0], uniforms.final.device
    score, fields = _all_nodes(grown, batch, config, device)
    order = layers.best_first(score)[:, : config.budget]
    score = score.gather(1, order)
    valid = score > -torch.inf
    token, layer, parent_rank, slot, role, rank, parent_position = (
        torch.where(valid, field.gather(1, order), -1) for field in fields
    )
    node = torch.arange(1, config.budget + 1, device=device).expand(batch, config.budget)
    node_at = torch.zeros(batch, fields[0].shape[1] + 1, dtype=torch.int64, device=device)
    node_at.scatter_(1, order, torch.where(valid, node, 0))
    # Position -1 is the root's (or padding's): the spare last column, which stays 0.
    parent = node_at.gather(
        1, torch.where(parent_position >= 0, parent_position, fields[0].shape[1])
    )
    num_places = (config.budget + 1) * config.top_k
    child = torch.zeros(batch, num_places + 1, dtype=torch.int64, device=device)
    child.scatter_(1, torch.where(valid, parent * config.top_k + slot, num_places), node)
    support, probe_law, probe_rank = _expanded_laws(grown, layer, rank, config)
    fault, fault_layer, fault_rank = _first_fault(grown, batch, config, device)
    return Tree(
        valid=valid,
        token=token,
        parent=parent,
        layer=layer,
        parent_rank=parent_rank,
        slot=slot,
        role=role,
        score=score,
        rank_in_layer=rank,
        child=child[:, :num_places].view(batch, config.budget + 1, config.top_k),
        support=support,
        probe_law=probe_law,
        probe_rank=probe_rank,
        fault=fault,
        fault_layer=fault_layer,
        fault_rank=fault_rank,
        depth=config.depth,
        num_probes=config.num_probes,
    )


def _all_nodes(
    grown: list[layers.Layer], batch: int, config: SpeculationConfig, device: torch.device
) -> tuple[Tensor, list[Tensor]]:
    """Scores and integer fields of all nodes, padded with absent ones to at least budget columns.

    The fields are token, layer, parent_rank, slot, role, rank_in_layer, position of the parent.
    """
    columns: list[list[Tensor]] = [[torch.zeros(batch, 0, device=device).double()]]
    columns += [[torch.zeros(batch, 0, dtype=torch.int64, device=device)] for _ in range(7)]
    for number, layer in enumerate(grown, start=1):
        index = torch.arange(layer.score.shape[1], device=device).expand_as(layer.rank)
        parts = (
            layer.score,
            layer.expansion.token.flatten(1),
            torch.full_like(index, number),
            index // config.top_k,
            index % config.top_k,
            layer.expansion.role.flatten(1),
            layer.rank,
            layer.parent_position,
        )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    score, *fields = (torch.cat(column, dim=1) for column in columns)
    missing = max(0, config.budget - score.shape[1])
    padded = [torch.nn.functional.pad(field, (0, missing), value=-1) for field in fields]
    return torch.nn.functional.pad(score, (0, missing), value=-torch.inf), padded


def _expanded_laws(
    grown: list[layers.Layer], layer: Tensor, rank: Tensor, config: SpeculationConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Support, probe law and probe rank of the root and every survivor; blank if not expanded."""
    batch, device = layer.shape[0], layer.device
    if not grown:
        shape = (batch, layer.shape[1] + 1)
        support = torch.full((*shape, 0), -1, dtype=torch.int64, device=device)
        return support, support.double(), torch.full(shape, -1, dtype=torch.int64, device=device)
    support, probe_law, probe_rank = (
        torch.cat([getattr(part.expansion, name) for part in grown], dim=1)
        for name in ("support", "probe_law", "probe_rank")
    )
    # Columns: the root, then top_k expanded nodes of each layer but the last, then a blank one.
    blank = support.shape[1]
    is_expanded = (layer >= 1) & (layer < config.depth) & (rank < config.top_k)
    column = torch.where(is_expanded, 1 + (layer - 1) * config.top_k + rank, blank)
    column = torch.nn.functional.pad(column, (1, 0))
    row = torch.arange(batch, device=device).unsqueeze(1)
    pad = torch.nn.functional.pad
    # Indexing copies a node's whole support at once, which `gather` does not.
    return (
        pad(support, (0, 0, 0, 1), value=-1)[row, column],
        pad(probe_law, (0, 0, 0, 1))[row, column],
        pad(probe_rank, (0, 1), value=-1)[row, column],
    )


def _first_fault(
    grown: list[layers.Layer], batch: int, config: SpeculationConfig, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """[batch] each: fault of the row's first bad node, layer of its children, its rank."""
    blank = torch.full((batch, 1), int(Fault.NONE), dtype=torch.int64, device=device)
    # Columns: the root, then top_k expanded nodes of each layer but the last, then a blank one.
    fault = torch.cat([*(part.fault for part in grown), blank], dim=1)
    column = (fault != int(Fault.NONE)).byte().argmax(1, keepdim=True)
    fault, column = fault.gather(1, column).squeeze(1), column.squeeze(1)
    is_root, is_bad = column == 0, fault != int(Fault.NONE)
    layer = torch.where(is_root, 1, 2 + (column - 1) // config.top_k)
    rank = torch.where(is_root, 0, (column - 1) % config.top_k)
    return fault, torch.where(is_bad, layer, 0), torch.where(is_bad, rank, 0)


def _map_logits(logits: Logits, change: Callable[[Tensor], Tensor]) -> Logits:
    """Apply `change` to logits or to both of a pair."""
    if isinstance(logits, tuple):
        return change(logits[0]), change(logits[1])
    return change(logits)
