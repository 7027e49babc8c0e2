"""Verification written over dense float64 laws [batch, nodes, vocab]: the second path of tests.

It shares no code with `rheocheck.gpu.node_law` and reads every law whole.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.config import Rule
from rheocheck.gpu.expansion import Role
from rheocheck.gpu.randomness import RoundUniforms, inverse_cdf
from rheocheck.gpu.tree import Tree

# As in `rheocheck.gpu.node_law`.
# A target mass and a scaled probe mass that differ by less than this factor count as equal: the
# probe is accepted for sure and leaves no residual there. Each is the exp of a shifted logit over
# a sum; with a shifted logit up to 60 (beyond it the mass is below 1e-26) its argument is off by up
# to 60 * 2**-53, the sum by less, so two roundings of one number differ by up to 2**-45.9. Without
# this rule a uniform of 1 - 2**-53 would lead into a residual made of rounding errors only. It
# moves the law of the emitted token by at most 2**-44, or 6e-14, in total variation.
_EQUAL_WITHIN = 2.0**-44


@dataclass(frozen=True, slots=True, eq=False)
class NodeLaw:
    """What verification does at a batch of nodes, before any uniform is read.

    Attributes:
      order: [rows, children] column of the child that is tested first, second, ...; absent children
        come last.
      acceptance: [rows, children] in the order of the tests: probability in [0, 1] of accepting
        that child once all earlier ones were rejected; 0 for absent children.
      residual: [rows, vocab] law of the emitted token once every child was rejected, sums to 1.
    """

    order: Int64[Tensor, "rows children"]
    acceptance: Float64[Tensor, "rows children"]
    residual: Float64[Tensor, "rows vocab"]


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """Outcome of one round for every row.

    Attributes:
      num_accepted: [batch] accepted draft tokens; the residual or bonus token is not counted.
      accepted: [batch, depth] node indices of the accepted path, from layer 1 down; -1 beyond it.
      emitted: [batch, depth + 1] the accepted tokens, then the final one; -1 beyond it.
      final_token: [batch] the residual or bonus token; -1 where the target law has no mass.
      final_node: [batch] node at which the round ended; 0 is the root.
    """

    num_accepted: Int64[Tensor, " batch"]
    accepted: Int64[Tensor, "batch depth"]
    emitted: Int64[Tensor, "batch length"]
    final_token: Int64[Tensor, " batch"]
    final_node: Int64[Tensor, " batch"]


def node_acceptance(
    target: Float64[Tensor, "rows vocab"],
    child_token: Int64[Tensor, "rows children"],
    child_role: Int64[Tensor, "rows children"],
    child_valid: Bool[Tensor, "rows children"],
    support: Int64[Tensor, "rows support"],
    probe_law: Float64[Tensor, "rows support"],
    rule: Rule,
) -> NodeLaw:
    """Accept-test probabilities and residual law of a batch of nodes; one row a node.

    Children stand in slot order, which is their score order too: the probe's factor is at most the
    last top token's and at least the first filler's. "rheo" tests the probe first and then the
    others in that order, "rrsw" all in that order, "onehot" the same with every child, the probe
    included, treated as a point mass.

    Args:
      target: [rows, vocab] target law.
      child_token: [rows, children] token of the child in each slot; any value where not valid.
      child_role: [rows, children] `rheocheck.gpu.expansion.Role`; at most one valid probe a row.
      child_valid: [rows, children] True where a child survived. No two of a row share a token.
      support: [rows, support] tokens of the node's draft support; -1 on padding.
      probe_law: [rows, support] law that the probe was drawn from; read by rows with a valid probe.
      rule: "rheo", "rrsw" or "onehot".

    Returns:
      Test order, acceptance and residual. Where a rejection of everything has probability 0 (the
      target has no mass left), the residual is the target itself.
    """
    token = torch.where(child_valid, child_token, 0)
    is_probe = child_valid & (child_role == Role.PROBE)
    if rule == "onehot":
        is_probe = torch.zeros_like(is_probe)
    order = _test_order(child_valid, is_probe, probe_first=rule == "rheo")
    mass = torch.where(child_valid, target.gather(1, token), 0.0)
    # Each subtraction leaves exactly 0, and an absent child subtracts 0.
    untested = target.scatter_add(1, token, -mass)
    mass, probe_here = mass.gather(1, order), is_probe.gather(1, order)
    drafted = _law_at(support, probe_law, child_token).gather(1, order)

    before = _mass_left(mass, untested.sum(1))
    before[:, :1] = 1.0  # nothing was rejected yet: the law itself, not its rounded sum
    left_at_probe = torch.where(probe_here, before, 0.0).sum(1, keepdim=True)
    # Dividing the target by what is left and subtracting the probe law is, up to a factor, the same
    # as subtracting the scaled probe law from the target, and needs no division.
    excess = _excess(mass, left_at_probe * drafted)
    scaled = torch.zeros_like(target).scatter_add(
        1, support.clamp_min(0), left_at_probe * probe_law
    )
    residual = _excess(untested, scaled)
    after = _mass_left(torch.where(probe_here, 0.0, excess), residual.sum(1))

    is_after = probe_here.cumsum(1) > 0
    acceptance = torch.where(is_after, _ratio(excess, after), _ratio(mass, before))
    scaled_here = before * drafted
    probe_acceptance = torch.where(
        _excess(scaled_here, mass) > 0, _ratio(mass, scaled_here), (mass > 0).to(mass.dtype)
    )
    acceptance = torch.where(probe_here, probe_acceptance, acceptance)
    left = residual.sum(1, keepdim=True)
    residual = torch.where(left > 0, residual / torch.where(left > 0, left, 1.0), target)
    return NodeLaw(order=order, acceptance=acceptance, residual=residual)


def emitted_law(
    law: NodeLaw,
    child_token: Int64[Tensor, "rows children"],
    child_valid: Bool[Tensor, "rows children"],
) -> Float64[Tensor, "rows vocab"]:
    """Law of the token that follows a node when these children are verified.

    Args:
      law: Of `node_acceptance` for the same children.
      child_token: [rows, children] token of the child in each slot.
      child_valid: [rows, children] True where a child survived.

    Returns:
      [rows, vocab] accepted children and final token together, sums to 1. Averaged over the probe's
      law it is the target, if the scheme is lossless.
    """
    rejected = (1 - law.acceptance).cumprod(1)
    reached = torch.cat([torch.ones_like(rejected[:, :1]), rejected[:, :-1]], dim=1)
    token = torch.where(child_valid, child_token, 0).gather(1, law.order)
    everything = torch.ones_like(law.residual[:, :1]) if token.shape[1] == 0 else rejected[:, -1:]
    return (law.residual * everything).scatter_add(1, token, reached * law.acceptance)


def verify(
    tree: Tree,
    target_laws: Float64[Tensor, "batch nodes vocab"],
    uniforms: RoundUniforms,
    rule: Rule,
) -> Verification:
    """Verify one round of every row: walk down from the root until no child is accepted.

    Args:
      tree: Surviving nodes.
      target_laws: [batch, budget + 1, vocab] target law at the root and at each survivor; padding
        is never read.
      uniforms: `accept` at each tested child's key, `final` for the last token. A child is accepted
        where uniform < acceptance, so acceptance 0 never accepts and acceptance 1 always does.
      rule: "rheo", "rrsw" or "onehot".

    Returns:
      Accepted path and emitted tokens. The final token is drawn in token id order and has positive
      mass; a row whose target law is all zero (bad logits that were not refused) emits -1.
    """
    batch, device = tree.probe_rank.shape[0], tree.probe_rank.device
    row = torch.arange(batch, device=device)
    node = torch.zeros_like(row)
    active = torch.ones_like(row, dtype=torch.bool)
    residual = torch.zeros_like(target_laws[:, 0])
    accepted = []
    for layer in range(1, tree.depth + 1):
        child = tree.child[row, node]
        law = _law_at_nodes(tree, target_laws, row, node, child, rule)
        uniform = uniforms.accept[row, layer - 1, _rank_in_layer(tree, row, node)]
        is_accepted = accept_tests(uniform.gather(1, law.order), law.acceptance) & (
            child.gather(1, law.order) > 0
        )
        hit = active & is_accepted.any(1)
        first = is_accepted.long().argmax(1, keepdim=True)
        chosen = child.gather(1, law.order.gather(1, first)).squeeze(1)
        residual = torch.where((active & ~hit).unsqueeze(1), law.residual, residual)
        node = torch.where(hit, chosen, node)
        accepted.append(torch.where(hit, node, -1))
        active = hit
    # Rows that are still active accepted a node of the last layer, which has no children.
    residual = torch.where(active.unsqueeze(1), target_laws[row, node], residual)
    final_token = inverse_cdf(residual, uniforms.final)
    return _emission(tree, accepted, node, final_token)


def accept_tests(uniform: Tensor, acceptance: Tensor) -> Tensor:
    """True where a test accepts: uniform < acceptance, strictly, because a uniform can be 0."""
    return uniform < acceptance


def _test_order(child_valid: Tensor, is_probe: Tensor, *, probe_first: bool) -> Tensor:
    """[rows, children] columns in the order of their tests; absent children last."""
    num_children = child_valid.shape[1]
    slot = torch.arange(num_children, device=child_valid.device)
    place = torch.where(child_valid, slot, num_children + slot)
    if probe_first:
        place = torch.where(is_probe, -1, place)
    return place.argsort(dim=1)


def _law_at(support: Tensor, probe_law: Tensor, token: Tensor) -> Tensor:
    """[rows, children] probe law at each token; 0 for tokens outside the support."""
    match = (support.unsqueeze(1) == token.unsqueeze(2)) & (support >= 0).unsqueeze(1)
    return torch.where(match, probe_law.unsqueeze(1), 0.0).sum(-1)


def _mass_left(mass: Tensor, elsewhere: Tensor) -> Tensor:
    """[rows, children] what a test divides by: the child's mass, that of later ones, and the rest.

    Sums of non-negative terms from the last child up, never one minus what was tested: a child
    whose successors and rest are exactly 0 gets its own mass, hence acceptance exactly 1.
    """
    left = [elsewhere]
    for column in reversed(mass.unbind(1)):
        left.append(left[-1] + column)
    return torch.stack(left[:0:-1], dim=1) if len(left) > 1 else torch.zeros_like(mass)


def _excess(mass: Tensor, drafted: Tensor) -> Tensor:
    """max(0, mass - drafted), and 0 where the two are equal up to rounding."""
    difference = mass - drafted
    return torch.where(difference > _EQUAL_WITHIN * mass, difference, 0.0)


def _ratio(mass: Tensor, total: Tensor) -> Tensor:
    """min(1, mass / total); without a total 1 where there is mass and 0 where there is none."""
    has_total = total > 0
    ratio = mass / torch.where(has_total, total, 1.0)
    return torch.where(has_total, ratio.clamp_max(1), (mass > 0).to(mass.dtype))


def _law_at_nodes(
    tree: Tree, target_laws: Tensor, row: Tensor, node: Tensor, child: Tensor, rule: Rule
) -> NodeLaw:
    """`node_acceptance` at one node of each row."""
    valid = child > 0
    survivor = (child - 1).clamp_min(0)
    if tree.token.shape[1] == 0:  # budget 0: there is no survivor to look up
        token, role = child - 1, child
    else:
        token, role = tree.token.gather(1, survivor), tree.role.gather(1, survivor)
    return node_acceptance(
        target_laws[row, node],
        token,
        role,
        valid,
        tree.support[row, node],
        tree.probe_law[row, node],
        rule,
    )


def _rank_in_layer(tree: Tree, row: Tensor, node: Tensor) -> Tensor:
    """[batch] rank of a node in its layer, within the width of a frontier; 0 for the root.

    A node beyond the frontier was not expanded, has no children and needs no uniform.
    """
    rank = torch.nn.functional.pad(tree.rank_in_layer, (1, 0))[row, node]
    return rank.clamp(0, tree.child.shape[2] - 1)


def _emission(
    tree: Tree, accepted: list[Tensor], node: Tensor, final_token: Tensor
) -> Verification:
    """Lay the accepted tokens and the final one out in one padded row."""
    empty = torch.zeros(node.shape[0], 0, dtype=torch.int64, device=node.device)
    path = torch.stack(accepted, dim=1) if accepted else empty
    num_accepted = (path >= 0).sum(1)
    tokens = torch.nn.functional.pad(tree.token, (1, 0), value=-1)
    emitted = torch.where(path >= 0, tokens.gather(1, path.clamp_min(0)), -1)
    emitted = torch.nn.functional.pad(emitted, (0, 1), value=-1)
    emitted = emitted.scatter(1, num_accepted.unsqueeze(1), final_token.unsqueeze(1))
    return Verification(
        num_accepted=num_accepted,
        accepted=path,
        emitted=emitted,
        final_token=final_token,
        final_node=node,
    )
