"""The law of every node of a tree at once, in sparse form: what audits read, and a walk over it.

The same functions make the laws here and in `rheocheck.gpu.verification`, from the same pass over
the logits; only which rows are read differs.

Source: RheoSampling (Hu, Weng, Zhang 2026, arXiv:2609.21827).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from rheocheck.config import Rule
from rheocheck.gpu.final_draw import Residual, draw_final
from rheocheck.gpu.node_law import NodeLaw, Nodes
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.row_mass import Process, Scratch, read_rows, wide_enough
from rheocheck.gpu.tree import Tree
from rheocheck.gpu.verification import (
    Verification,
    accept_tests,
    check_shape,
    child_uniforms,
    children_of,
    emission,
    law_of_rows,
)

# Nodes are listed and their laws made in groups, so that all but the results stays small: at least
# so many groups, and on a CPU at most so many nodes in one.
_LEAST_PARTS, _MOST_NODES = 2, 128


@dataclass(frozen=True, slots=True, eq=False)
class TreeLaws:
    """Laws of all nodes of all rows; the leading axis runs over rows, then nodes.

    Attributes:
      law: Accept tests and residuals, one entry a node.
      residual: The same residuals with what a draw from them needs.
      num_nodes: Nodes of each row.
    """

    law: NodeLaw
    residual: Residual
    num_nodes: int


def tree_laws(
    tree: Tree,
    logits: Float[Tensor, "batch nodes vocab"],
    rule: Rule,
    temperature: float = 1.0,
    *,
    process: Process | None = None,
) -> TreeLaws:
    """Accept tests and residual of every node.

    Args:
      tree: Surviving nodes.
      logits: [batch, nodes, vocab] target logits, as `verify` takes them; padding is read, and what
        comes of it means nothing.
      rule: "rheo", "rrsw" or "onehot".
      temperature: Of the target, >= 0.
      process: Further processors of the target.

    Returns:
      Laws of all nodes; all zero at nodes whose logits are unusable.

    Raises:
      InputError: As `verify`.
    """
    check_shape(tree, logits)
    batch, num_nodes, _ = logits.shape
    row = torch.arange(batch, device=logits.device).repeat_interleave(num_nodes)
    node = torch.arange(num_nodes, device=logits.device).repeat(batch)
    at = row * tree.child.shape[1] + node
    children, flat = children_of(tree, rule), logits.flatten(0, 1)
    path = None if process is None else node_paths(tree)[row, node]
    count = len(at)
    step = max(1, -(-count // _LEAST_PARTS))
    if flat.device.type == "cpu":
        step = min(step, _MOST_NODES)
    scratch = Scratch.of(flat, step, temperature, process)
    parts = []
    for begin in range(0, max(count, 1), step):
        part = slice(begin, begin + step)
        nodes = children.nodes_at(at[part])
        read = read_rows(
            flat[part], None, nodes.listed, temperature, process=process, row=row[part],
            path=None if path is None else path[part], scratch=scratch,
        )  # fmt: skip
        parts.append(law_of_rows(read, nodes))
    del scratch
    return TreeLaws(*_joined(parts), num_nodes)


def laws_of(
    logits: Float[Tensor, "rows vocab"], nodes: Nodes, temperature: float
) -> tuple[NodeLaw, Residual]:
    """Laws of single nodes, whose logits are already processed.

    Args:
      logits: [rows, vocab] target logits.
      nodes: Children and probe laws of the same nodes.
      temperature: Of the target, >= 0.

    Returns:
      One entry a node.
    """
    return law_of_rows(read_rows(logits, None, nodes.listed, temperature), nodes)


def follow(
    tree: Tree,
    laws: TreeLaws,
    logits: Float[Tensor, "batch nodes vocab"],
    uniforms: RoundUniforms,
    temperature: float = 1.0,
    *,
    process: Process | None = None,
) -> Verification:
    """The walk of `verify` along pointers that are set at all nodes in parallel.

    Args:
      tree: Surviving nodes.
      laws: Of `tree_laws` for the same arguments.
      logits: [batch, nodes, vocab] target logits.
      uniforms: The round's draws.
      temperature: Of the target, >= 0.
      process: Further processors of the target.

    Returns:
      What `verify` returns for the same arguments, bit for bit.
    """
    batch, num_nodes, _ = logits.shape
    rows = torch.arange(batch, device=logits.device)
    child = tree.child[:, :num_nodes].flatten(0, 1)
    order = laws.law.order
    uniform = child_uniforms(tree, uniforms).view(tree.child.shape)[:, :num_nodes].flatten(0, 1)
    uniform = uniform.gather(1, order)
    tests = accept_tests(uniform, laws.law.acceptance) & (child.gather(1, order) > 0)
    first = order.gather(1, tests.long().argmax(1, keepdim=True))
    # Where no child is accepted the pointer is -1.
    pointer = torch.where(tests.any(1), child.gather(1, first).squeeze(1), -1)
    pointer = pointer.view(batch, num_nodes)
    node, steps = torch.zeros_like(rows), []
    active = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(tree.depth):
        onward = torch.where(active, pointer[rows, node], -1)
        active = onward >= 0
        node = torch.where(active, onward, node)
        steps.append(onward)
    accepted = torch.stack(steps, 1) if steps else rows.new_zeros(batch, 0)
    index = rows * num_nodes + node
    final = laws.residual
    final = Residual(
        final.listed[index], final.mass[index], final.rest[index], final.scale[index],
        final.highest[index],
    )  # fmt: skip
    flat = logits.flatten(0, 1)
    if process is not None:
        flat = process(wide_enough(flat[index]), rows, node_paths(tree)[rows, node])
        index = rows
    return emission(
        tree, accepted, node, draw_final(final, flat, index, uniforms.final, temperature)
    )


def node_paths(tree: Tree) -> Int64[Tensor, "batch nodes depth"]:
    """[batch, budget + 1, depth] tokens from the root to each node, -1 beyond it and on padding."""
    batch, num_nodes = tree.probe_rank.shape
    pad = torch.nn.functional.pad
    parent, token, level = (
        pad(tree.parent, (1, 0)),
        pad(tree.token, (1, 0), value=-1),
        tree.depths(),
    )
    node = torch.arange(num_nodes, device=parent.device).expand(batch, num_nodes)
    # One spare column takes the tokens of the steps that a node has no ancestor for.
    path = parent.new_full((batch, num_nodes, tree.depth + 1), -1)
    for _ in range(tree.depth):
        at = level.gather(1, node)
        place = torch.where(at > 0, at - 1, tree.depth).unsqueeze(2)
        path.scatter_(2, place, token.gather(1, node).unsqueeze(2))
        node = parent.gather(1, node)
    return path[:, :, : tree.depth]


def _joined(parts: list[tuple[NodeLaw, Residual]]) -> tuple[NodeLaw, Residual]:
    """Laws of several groups of nodes as one; what both kinds hold in common stays shared."""
    if len(parts) == 1:
        return parts[0]
    laws, residuals = zip(*parts, strict=True)

    def column(group: tuple[NodeLaw | Residual, ...], name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in group])

    names = ("order", "acceptance", "listed", "residual", "scale")
    law = NodeLaw(*[column(laws, name) for name in names])
    rest, scale, highest = [column(residuals, name) for name in ("rest", "scale", "highest")]
    return law, Residual(law.listed, law.residual, rest, scale, highest)
