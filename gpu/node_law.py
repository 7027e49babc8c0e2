"""Acceptance at nodes under three rules, from the masses of the tokens that matter.

Torch twin of `rheocheck.reference.verification`, float64. A node's law is held on its listed tokens
(draft support and children); on all others the residual is the target up to one factor.

Source: RheoSampling (Hu, Weng, Zhang 2026, arXiv:2609.21827) for `rheo`; recursive rejection
without replacement as in EAGLE (arXiv:2401.15077) for `rrsw`; Leviathan, Kalman and Matias
(arXiv:2211.17192) for the single test. Their p is `target`, their q-tilde is `probe_law`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.config import Rule
from rheocheck.gpu.expansion import Role
from rheocheck.gpu.masses import excess, probe_ratio, ratio
from rheocheck.gpu.several_probes import tests_in_order

# Widths of listed tokens are multiples of this, so that elementwise functions treat every row alike
# whatever the number of rows (a vector unit's leftover elements are rounded by other code).
_LANES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Nodes to be verified, one row each, with their tokens listed once.

    Attributes:
      listed: [rows, listed] draft support, then children outside it; -1 on padding.
      probe_law: [rows, listed] law that the probe was drawn from, 0 outside the support.
      place: [rows, children] column of `listed` with each child; 0 where not valid.
      valid: [rows, children] True where a child survived.
      role: [rows, children] `rheocheck.gpu.expansion.Role`.
      num_probes: Most valid probes that a row may have; they stand in the order of their draws.
    """

    listed: Int64[Tensor, "rows listed"]
    probe_law: Float64[Tensor, "rows listed"]
    place: Int64[Tensor, "rows children"]
    valid: Bool[Tensor, "rows children"]
    role: Int64[Tensor, "rows children"]
    num_probes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class NodeLaw:
    """What verification does at a batch of nodes, before any uniform is read.

    Attributes:
      order: [rows, children] column of the child that is tested first, second, ...; absent children
        come last.
      acceptance: [rows, children] in the order of the tests: probability in [0, 1] of accepting
        that child once all earlier ones were rejected; 0 for absent children.
      listed: [rows, listed] token ids; -1 on padding.
      residual: [rows, listed] law of the emitted token once every child was rejected, on the listed
        tokens.
      scale: [rows] the same on any other token, over its target mass.
    """

    order: Int64[Tensor, "rows children"]
    acceptance: Float64[Tensor, "rows children"]
    listed: Int64[Tensor, "rows listed"]
    residual: Float64[Tensor, "rows listed"]
    scale: Float64[Tensor, " rows"]


def list_nodes(
    child_token: Int64[Tensor, "rows children"],
    child_role: Int64[Tensor, "rows children"],
    child_valid: Bool[Tensor, "rows children"],
    support: Int64[Tensor, "rows support"],
    probe_law: Float64[Tensor, "rows support"],
    num_probes: int = 1,
) -> Nodes:
    """List every token of interest once.

    Args:
      child_token: [rows, children] token of the child in each slot; any value where not valid.
      child_role: [rows, children] `Role`.
      child_valid: [rows, children] True where a child survived. No two of a row share a token.
      support: [rows, support] tokens of the node's draft support; -1 on padding.
      probe_law: [rows, support] law of the first probe; read by rows with a valid probe.
      num_probes: Most probes that a row may have.

    Returns:
      The nodes.
    """
    size, children = support.shape[1], child_token.shape[1]
    token = torch.where(child_valid, child_token, -1)
    match = (support.unsqueeze(1) == token.unsqueeze(2)) & child_valid.unsqueeze(2)
    rank = torch.arange(size, device=support.device)
    inside = match.any(2)
    place = torch.where(match, rank, 0).sum(2)
    # Trees draw their children from the support; a child from elsewhere gets a column of its own.
    own = size + torch.arange(children, device=support.device)
    width = -(size + children) % _LANES
    pad = torch.nn.functional.pad
    return Nodes(
        listed=pad(torch.cat((support, torch.where(inside, -1, token)), 1), (0, width), value=-1),
        probe_law=pad(torch.where(support >= 0, probe_law, 0.0), (0, children + width)),
        place=torch.where(inside, place, torch.where(child_valid, own, 0)),
        valid=child_valid,
        role=child_role,
        num_probes=num_probes,
    )


def node_acceptance(
    mass: Float64[Tensor, "rows listed"], rest: Float64[Tensor, " rows"], nodes: Nodes, rule: Rule
) -> NodeLaw:
    """Accept-test probabilities and residual law of a batch of nodes; one row a node.

    Children stand in slot order, which is their score order too: the probe's factor is at most the
    last top token's and at least the first filler's. "rheo" tests the probe first and then the
    others in that order, "rrsw" all in that order, "onehot" the same with every child, the probe
    included, treated as a point mass.

    Args:
      mass: [rows, listed] target law on the listed tokens.
      rest: [rows] target mass of all other tokens; with `mass` it makes 1.
      nodes: Children and probe laws.
      rule: "rheo", "rrsw" or "onehot".

    Returns:
      Test order, acceptance and residual. Where a rejection of everything has probability 0 (the
      target has no mass left), the residual is the target itself.
    """
    # An int: comparing a tensor with an enum member compiles to a constant.
    is_probe = nodes.valid & (nodes.role == int(Role.PROBE))
    if rule == "onehot":
        is_probe = torch.zeros_like(is_probe)
    order = _test_order(nodes.valid, is_probe, probe_first=rule == "rheo")
    if nodes.num_probes > 1:
        acceptance, kept = tests_in_order(
            mass, rest, nodes.probe_law, nodes.place.gather(1, order),
            nodes.valid.gather(1, order), is_probe.gather(1, order),
        )  # fmt: skip
        return _normalised(order, acceptance, kept, mass, rest, nodes)
    child_mass = torch.where(nodes.valid, mass.gather(1, nodes.place), 0.0)
    # Each subtraction leaves exactly 0, and an absent child subtracts 0.
    untested = mass.scatter_add(1, nodes.place, -child_mass)
    child_mass, probe_here = child_mass.gather(1, order), is_probe.gather(1, order)
    drafted = nodes.probe_law.gather(1, nodes.place).gather(1, order)

    before = _mass_left(child_mass, untested.sum(1) + rest)
    before[:, :1] = 1.0  # nothing was rejected yet: the law itself, not its rounded sum
    left_at_probe = torch.where(probe_here, before, 0.0).sum(1, keepdim=True)
    # Dividing the target by what is left and subtracting the probe law is, up to a factor, the same
    # as subtracting the scaled probe law from the target, and needs no division.
    kept = excess(child_mass, left_at_probe * drafted)
    residual = excess(untested, left_at_probe * nodes.probe_law)
    after = _mass_left(torch.where(probe_here, 0.0, kept), residual.sum(1) + rest)

    is_after = probe_here.cumsum(1) > 0
    acceptance = torch.where(is_after, ratio(kept, after), ratio(child_mass, before))
    acceptance = torch.where(probe_here, probe_ratio(child_mass, before * drafted), acceptance)
    return _normalised(order, acceptance, residual, mass, rest, nodes)


def _normalised(
    order: Tensor, acceptance: Tensor, kept: Tensor, mass: Tensor, rest: Tensor, nodes: Nodes
) -> NodeLaw:
    """The law with what all rejections left, over its sum; the target where nothing is left."""
    left = kept.sum(1) + rest
    scale = 1.0 / torch.where(left > 0, left, 1.0)
    residual = torch.where((left > 0).unsqueeze(1), kept * scale.unsqueeze(1), mass)
    return NodeLaw(order, acceptance, nodes.listed, residual, scale)


def _test_order(child_valid: Tensor, is_probe: Tensor, *, probe_first: bool) -> Tensor:
    """[rows, children] columns in the order of their tests; absent children last."""
    num_children = child_valid.shape[1]
    slot = torch.arange(num_children, device=child_valid.device)
    place = torch.where(child_valid, slot, num_children + slot)
    if probe_first:
        place = torch.where(is_probe, slot - num_children, place)
    return place.argsort(dim=1)


def _mass_left(mass: Tensor, elsewhere: Tensor) -> Tensor:
    """[rows, children] what a test divides by: the child's mass, that of later ones, and the rest.

    Sums of non-negative terms from the last child up, never one minus what was tested: a child
    whose successors and rest are exactly 0 gets its own mass, hence acceptance exactly 1.
    """
    left = [elsewhere]
    for column in reversed(mass.unbind(1)):
        left.append(left[-1] + column)
    return torch.stack(left[:0:-1], dim=1) if len(left) > 1 else torch.zeros_like(mass)
