"""Verification of a round from target logits: the walk down the tree that decoding makes.

Only what decides is read: of each row, the logits of the nodes at which the walk stands, once each,
and of the last of them one block of tokens again. `rheocheck.gpu.node_law` has the accept tests,
`rheocheck.gpu.all_nodes` the same for all nodes at once.

Source: RheoSampling (Hu, Weng, Zhang 2026, arXiv:2609.21827).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from rheocheck.config import Rule, check_rule
from rheocheck.errors import InputError
from rheocheck.gpu import node_law
from rheocheck.gpu.final_draw import Residual, draw_final
from rheocheck.gpu.node_law import NodeLaw, Nodes, OrderedChildren, list_ordered
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.row_mass import Process, RowMass, Scratch, read_rows, wide_enough
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
    children = children_of(tree, rule)
    uniform = child_uniforms(tree, uniforms).gather(1, children.tests.slot)
    accepted = rows.new_full((batch, tree.depth), -1)
    path = None if process is None else accepted.clone()
    flat = logits.flatten(0, 1)
    scratch = Scratch.of(flat, batch, temperature, process)
    skips = logits.device.type == "cpu" and not torch.compiler.is_compiling()
    # The rows that go on and the nodes at which they stand. Where rows that have ended are not left
    # out, they are tested again at the same node, by the same uniforms, and stay there.
    row, node, final = rows, torch.zeros_like(rows), None
    # The last step stands at nodes of the last layer, which have no children.
    for layer in range(tree.depth + 1):
        at = row * tree.child.shape[1] + node
        nodes = children.nodes_at(at)
        read = read_rows(
            flat, row * num_nodes + node, nodes.listed, temperature, process=process, row=row,
            path=None if path is None else path[row], scratch=scratch,
        )  # fmt: skip
        law, residual = law_of_rows(read, nodes)
        # Absent children are never accepted, whatever the test says.
        tests = accept_tests(uniform[at], law.acceptance) & nodes.children.valid
        hit = tests.any(1)
        first = tests.view(torch.uint8).argmax(1, keepdim=True)
        if final is None or not skips:
            final = residual
        else:
            final.replace(row, residual)
        if layer == tree.depth:
            break
        chosen = children.node[at].gather(1, first).squeeze(1)
        accepted[row, layer] = torch.where(hit, chosen, -1)
        if path is not None:
            token = nodes.listed.gather(1, first).squeeze(1)
            path[row, layer] = torch.where(hit, token, -1)
        if not skips:
            node = torch.where(hit, chosen, node)
            continue
        onward = hit.nonzero().squeeze(1)
        row, node = row[onward], chosen[onward]
        if not len(row):
            break
    assert final is not None
    node = accepted.amax(1) if tree.depth else torch.zeros_like(rows)
    node = node.clamp_min(0)
    index = rows * num_nodes + node
    if process is not None:
        assert path is not None
        flat, index = process(wide_enough(flat[index]), rows, path), rows
    last = draw_final(final, flat, index, uniforms.final, temperature)
    return emission(tree, accepted, node, last)


def law_of_rows(read: RowMass, nodes: Nodes) -> tuple[NodeLaw, Residual]:
    """Accept tests of nodes, and the law of the last token if all of them fail.

    Args:
      read: Weights of the nodes' target logits.
      nodes: Their children and probe laws.

    Returns:
      Both for every row; all zero where the logits are unusable.
    """
    rest = read.rest.sum(1)
    # At least 1, the weight of the largest logit, or 0 where that is unusable.
    factor = (rest + read.listed.sum(1)).clamp_min(1.0).reciprocal()
    law = node_law.node_acceptance(read.listed * factor.unsqueeze(1), rest * factor, nodes)
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


@dataclass(frozen=True, slots=True, eq=False)
class Children:
    """Children and draft laws of all nodes; the leading axis runs over rows, then nodes.

    Attributes:
      tests: Of all nodes.
      node: [rows, children] node index of the child that is tested first, second, ...; 0 where
        there is none.
      token: [rows, children] its token.
      support: [rows, support] of the tree.
      probe_law: [rows, support] of the tree.
    """

    tests: OrderedChildren
    node: Int64[Tensor, "rows children"]
    token: Int64[Tensor, "rows children"]
    support: Int64[Tensor, "rows support"]
    probe_law: Float64[Tensor, "rows support"]

    def nodes_at(self, at: Int64[Tensor, " rows"]) -> Nodes:
        """Some nodes, with their tokens listed."""
        return list_ordered(
            self.token[at], self.support[at], self.probe_law[at], self.tests.of_rows(at)
        )


def children_of(tree: Tree, rule: Rule) -> Children:
    """Children of every node of every row, budget + 1 nodes a row."""
    place = tree.child.flatten(1)
    token, role = (
        torch.nn.functional.pad(column, (1, 0), value=-1).gather(1, place).view(-1, width)
        for width in tree.child.shape[2:]
        for column in (tree.token, tree.role)
    )
    node = tree.child.flatten(0, 1)
    tests = OrderedChildren.of(role, node > 0, rule, tree.num_probes)
    return Children(
        tests=tests,
        node=node.gather(1, tests.slot),
        token=token.gather(1, tests.slot),
        support=tree.support.flatten(0, 1),
        probe_law=tree.probe_law.flatten(0, 1),
    )


def child_uniforms(tree: Tree, uniforms: RoundUniforms) -> Float64[Tensor, "rows children"]:
    """[rows, children] accept uniforms of the children of every node, by slot.

    A node beyond the frontier was not expanded, has no children and needs no uniform.
    """
    batch, num_nodes, width = tree.child.shape
    if tree.depth == 0:
        return uniforms.final.new_zeros(batch * num_nodes, width)
    rank = torch.nn.functional.pad(tree.rank_in_layer, (1, 0)).clamp(0, width - 1)
    layer = tree.depths().clamp_max(tree.depth - 1)
    row = torch.arange(batch, device=rank.device).unsqueeze(1)
    return uniforms.accept[row, layer, rank].flatten(0, 1)


def check_shape(tree: Tree, logits: Tensor) -> None:
    """Refuse logits of another batch than the tree's, or without nodes or vocabulary."""
    batch = tree.probe_rank.shape[0]
    if logits.dim() != 3 or logits.shape[0] != batch or 0 in logits.shape[1:]:
        raise InputError(
            f"target logits of shape {list(logits.shape)} were given; required: "
            f"[{batch}, nodes, vocab] with at least one node and one token"
        )
