"""Verification of a round from target logits: the walk down the tree that decoding makes.

Only what decides is read: of each row, the logits of the nodes at which the walk stands, once each,
and of the last of them one block of tokens again. `rheocheck.gpu.node_law` has the accept tests,
`rheocheck.gpu.all_nodes` the same for all nodes at once.

Source: RheoSampling (Hu, Weng, Zhang 2026, arXiv:2609.21827).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from rheocheck.config import Rule, check_rule
from rheocheck.errors import InputError
from rheocheck.gpu import node_law
from rheocheck.gpu.final_draw import Residual, draw_final
from rheocheck.gpu.node_law import NodeLaw, Nodes, list_nodes
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.row_mass import Process, RowMass, read_rows, wide_enough
from rheocheck.gpu.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """Outcome of one round for every row.

    Attributes:
      num_accepted: [batch] accepted draft tokens; the residual or bonus token is not counted.
      accepted: [batch, depth] node indices of the accepted path, from layer 1 down; -1 beyond it.
      emitted: [batch, depth + 1] the accepted tokens, then the final one; -1 beyond it.
      final_token: [batch] the residual or bonus token; -1 where the target has no law.
      final_node: [batch] node at which the round ended; 0 is the root. Where `final_token` is -1,
        the node whose target logits have NaN, +inf or no finite entry.
    """

    num_accepted: Int64[Tensor, " batch"]
    accepted: Int64[Tensor, "batch depth"]
    emitted: Int64[Tensor, "batch length"]
    final_token: Int64[Tensor, " batch"]
    final_node: Int64[Tensor, " batch"]

    def usable(self) -> Bool[Tensor, " batch"]:
        """[batch] False where the round ended at target logits from which no law can be made."""
        return self.final_token >= 0


def verify(
    tree: Tree,
    logits: Float[Tensor, "batch nodes vocab"],
    uniforms: RoundUniforms,
    rule: Rule,
    temperature: float = 1.0,
    *,
    process: Process | None = None,
) -> Verification:
    """Verify one round of every row: walk down from the root until no child is accepted.

    Nothing waits for an accelerator and all shapes are fixed there. On a CPU, rows that have ended
    are left out of the later steps, which changes no result.

    Args:
      tree: Surviving nodes.
      logits: [batch, nodes, vocab] target logits of any float dtype at the root and at each
        survivor; trailing nodes that no row has may be left out, and padding is never read.
      uniforms: `accept` at each tested child's key, `final` for the last token. A child is accepted
        where uniform < acceptance, so acceptance 0 never accepts and acceptance 1 always does.
      rule: "rheo", "rrsw" or "onehot".
      temperature: Of the target, >= 0; 0 is the point mass on the first largest logit.
      process: Further processors of the target, applied before the temperature.

    Returns:
      Accepted path and emitted tokens. The final token is drawn in token id order and has positive
      mass. A row that comes to unusable logits stops there and emits -1; others do not notice.

    Raises:
      InputError: Logits of another batch, or without nodes or vocabulary.
      ConfigError: An unknown rule.
    """
    check_rule(rule)
    check_shape(tree, logits)
    batch, num_nodes, _ = logits.shape
    rows = torch.arange(batch, device=logits.device)
    node, active = torch.zeros_like(rows), torch.ones_like(rows, dtype=torch.bool)
    path = rows.new_full((batch, tree.depth), -1)
    tokens = torch.nn.functional.pad(tree.token, (1, 0), value=-1)
    accepted, final = path.clone(), None
    flat = logits.flatten(0, 1)
    skips = logits.device.type == "cpu" and not torch.compiler.is_compiling()
    # The last step stands at nodes of the last layer, which have no children.
    for layer in range(1, tree.depth + 2):
        row = active.nonzero().squeeze(1) if skips else rows
        if skips and layer > 1 and not len(row):
            break
        at = node[row]
        child = tree.child[row, at]
        nodes = nodes_at(tree, row, at, child)
        read = read_rows(
            flat, row * num_nodes + at, nodes.listed, temperature,
            process=process, row=row, path=path[row],
        )  # fmt: skip
        law, residual = law_of_rows(read, nodes, rule)
        uniform = uniforms_at(tree, uniforms, row, at, layer).gather(1, law.order)
        # Absent children are never accepted, whatever the test says.
        tests = accept_tests(uniform, law.acceptance) & (child.gather(1, law.order) > 0)
        hit = active[row] & tests.any(1)
        first = law.order.gather(1, tests.long().argmax(1, keepdim=True))
        chosen = torch.where(hit, child.gather(1, first).squeeze(1), -1)
        final = _keep(final, residual, row, active)
        if layer <= tree.depth:
            accepted[row, layer - 1] = chosen
            path[row, layer - 1] = torch.where(hit, tokens[row, chosen.clamp_min(0)], -1)
        node = node.index_copy(0, row, torch.where(hit, chosen, at))
        active = active.index_copy(0, row, hit)
    assert final is not None
    index = rows * num_nodes + node
    if process is not None:
        flat, index = process(wide_enough(flat[index]), rows, path), rows
    last = draw_final(final, flat, index, uniforms.final, temperature)
    return emission(tree, accepted, node, last)


def law_of_rows(read: RowMass, nodes: Nodes, rule: Rule) -> tuple[NodeLaw, Residual]:
    """Accept tests of nodes, and the law of the last token if all of them fail.

    Args:
      read: Weights of the nodes' target logits.
      nodes: Their children and probe laws.
      rule: "rheo", "rrsw" or "onehot".

    Returns:
      Both for every row; all zero where the logits are unusable.
    """
    rest = read.rest.sum(1)
    total = rest + read.listed.sum(1)
    factor = 1.0 / torch.where(total > 0, total, 1.0)
    law = node_law.node_acceptance(read.listed * factor.unsqueeze(1), rest * factor, nodes, rule)
    scale = law.scale * factor
    return law, Residual(
        nodes.listed, law.residual, read.rest * scale.unsqueeze(1), scale, read.highest
    )


def accept_tests(uniform: Tensor, acceptance: Tensor) -> Tensor:
    """True where a test accepts: uniform < acceptance, strictly, because a uniform can be 0."""
    return uniform < acceptance


def emission(tree: Tree, accepted: Tensor, node: Tensor, final_token: Tensor) -> Verification:
    """Lay the accepted tokens and the final one out in one padded row.

    Args:
      tree: The tree.
      accepted: [batch, depth] accepted nodes from layer 1 down; -1 beyond the last.
      node: [batch] where the round ended.
      final_token: [batch] the last token.

    Returns:
      The round's outcome.
    """
    num_accepted = (accepted >= 0).sum(1)
    tokens = torch.nn.functional.pad(tree.token, (1, 0), value=-1)
    emitted = torch.where(accepted >= 0, tokens.gather(1, accepted.clamp_min(0)), -1)
    emitted = torch.nn.functional.pad(emitted, (0, 1), value=-1)
    return Verification(
        num_accepted=num_accepted,
        accepted=accepted,
        emitted=emitted.scatter(1, num_accepted.unsqueeze(1), final_token.unsqueeze(1)),
        final_token=final_token,
        final_node=node,
    )


def nodes_at(tree: Tree, row: Tensor, node: Tensor, child: Tensor) -> Nodes:
    """`list_nodes` of one node of each row, whose children's node indices are `child`."""
    role = torch.nn.functional.pad(tree.role, (1, 0), value=-1)
    token = torch.nn.functional.pad(tree.token, (1, 0), value=-1)
    at = row.unsqueeze(1)
    return list_nodes(
        token[at, child], role[at, child], child > 0, tree.support[row, node],
        tree.probe_law[row, node], tree.num_probes,
    )  # fmt: skip


def uniforms_at(
    tree: Tree, uniforms: RoundUniforms, row: Tensor, node: Tensor, layer: int
) -> Tensor:
    """[rows, children] accept uniforms of a node's children, by slot.

    A node beyond the frontier was not expanded, has no children and needs no uniform.
    """
    width = tree.child.shape[2]
    if layer > tree.depth:
        return uniforms.final.new_zeros(row.shape[0], width)
    rank = torch.nn.functional.pad(tree.rank_in_layer, (1, 0))[row, node].clamp(0, width - 1)
    return uniforms.accept[row, layer - 1, rank]


def _keep(final: Residual | None, new: Residual, row: Tensor, active: Tensor) -> Residual:
    """The residuals of the rows that were active at this step, and the old ones of the others."""
    if final is None:
        return new
    still = active[row]

    def kept(old: Tensor, found: Tensor) -> Tensor:
        mask = still.view(-1, *([1] * (old.dim() - 1)))
        return old.index_copy(0, row, torch.where(mask, found, old[row]))

    return Residual(
        listed=kept(final.listed, new.listed),
        mass=kept(final.mass, new.mass),
        rest=kept(final.rest, new.rest),
        scale=kept(final.scale, new.scale),
        highest=kept(final.highest, new.highest),
    )


def check_shape(tree: Tree, logits: Tensor) -> None:
    """Refuse logits of another batch than the tree's, or without nodes or vocabulary."""
    batch = tree.probe_rank.shape[0]
    if logits.dim() != 3 or logits.shape[0] != batch or 0 in logits.shape[1:]:
        raise InputError(
            f"target logits of shape {list(logits.shape)} were given; required: "
            f"[{batch}, nodes, vocab] with at least one node and one token"
        )
