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


# Less than so much of the target's mass counts as nothing left: its reciprocal must be finite.
_LEAST_LEFT = 2.0**-1000


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Nodes to be verified, one row each, with their tokens listed once.

    Attributes:
      listed: [rows, listed] the children in the order of their tests, then the draft support
        without them; -1 on padding and where there is no child.
      probe_law: [rows, listed] law that the probe was drawn from, 0 outside the support.
      children: Their children.
    """

    listed: Int64[Tensor, "rows listed"]
    probe_law: Float64[Tensor, "rows listed"]
    children: "OrderedChildren"


@dataclass(frozen=True, slots=True, eq=False)
class OrderedChildren:
    """Children in the order of their tests, absent ones last.

    Attributes:
      slot: [rows, children] slot of the child that is tested first, second, ...
      valid: [rows, children] True where there is a child.
      is_probe: [rows, children] True where it is tested as one that was drawn from the probe law.
      num_probes: Most probes that a row may have; they stand in the order of their draws.
    """

    slot: Int64[Tensor, "rows children"]
    valid: Bool[Tensor, "rows children"]
    is_probe: Bool[Tensor, "rows children"]
    num_probes: int = 1

    @classmethod
    def of(
        cls,
        role: Int64[Tensor, "rows children"],
        valid: Bool[Tensor, "rows children"],
        rule: Rule,
        num_probes: int = 1,
    ) -> "OrderedChildren":
        """The order in which a rule tests children.

        Children stand in slot order, which is their score order too: the probe's factor is at most
        the last top token's and at least the first filler's. "rheo" tests the probe first and then
        the others in that order, "rrsw" all in that order, "onehot" the same with every child, the
        probe included, treated as a point mass.

        Args:
          role: [rows, children] `rheocheck.gpu.expansion.Role`, by slot.
          valid: [rows, children] True where a child survived, by slot.
          rule: "rheo", "rrsw" or "onehot".
          num_probes: Most valid probes of a row.
        """
        # An int: comparing a tensor with an enum member compiles to a constant.
        is_probe = valid & (role == int(Role.PROBE))
        if rule == "onehot":
            is_probe = torch.zeros_like(is_probe)
        slot = _test_order(valid, is_probe, probe_first=rule == "rheo")
        return cls(slot, valid.gather(1, slot), is_probe.gather(1, slot), num_probes)

    def of_rows(self, at: Int64[Tensor, " some"]) -> "OrderedChildren":
        """Of some rows."""
        return OrderedChildren(self.slot[at], self.valid[at], self.is_probe[at], self.num_probes)


@dataclass(frozen=True, slots=True, eq=False)
class NodeLaw:
    """What verification does at a batch of nodes, before any uniform is read.

    Attributes:
      order: [rows, children] slot of the child that is tested first, second, ...; absent children
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
    support: Int64[Tensor, "rows support"],
    probe_law: Float64[Tensor, "rows support"],
    children: OrderedChildren,
) -> Nodes:
    """List every token of interest once.

    Args:
      child_token: [rows, children] token of the child in each slot; any value where there is none.
        No two of a row share a token.
      support: [rows, support] tokens of the node's draft support; -1 on padding.
      probe_law: [rows, support] law of the first probe; read by rows with a valid probe.
      children: The order of the tests.

    Returns:
      The nodes.
    """
    return list_ordered(child_token.gather(1, children.slot), support, probe_law, children)


def list_ordered(
    token: Int64[Tensor, "rows children"],
    support: Int64[Tensor, "rows support"],
    probe_law: Float64[Tensor, "rows support"],
    children: OrderedChildren,
) -> Nodes:
    """`list_nodes` of children that stand in the order of their tests already."""
    size = support.shape[1]
    # At least one column of padding, which absent children match, and those from elsewhere go to.
    width = _LANES - (size + token.shape[1]) % _LANES
    support = torch.nn.functional.pad(support, (0, width), value=-1)
    probe_law = torch.nn.functional.pad(probe_law, (0, width))
    token = torch.where(children.valid, token, -1)
    match = support.unsqueeze(1) == token.unsqueeze(2)
    place = match.view(torch.uint8).argmax(2)
    place = torch.where(support.gather(1, place) == token, place, size)
    return Nodes(
        listed=torch.cat((token, support.scatter(1, place, -1)), 1),
        probe_law=torch.cat((probe_law.gather(1, place), probe_law.scatter(1, place, 0.0)), 1),
        children=children,
    )


def node_acceptance(
    mass: Float64[Tensor, "rows listed"], rest: Float64[Tensor, " rows"], nodes: Nodes
) -> NodeLaw:
    """Accept-test probabilities and residual law of a batch of nodes; one row a node.

    Args:
      mass: [rows, listed] target law on the listed tokens.
      rest: [rows] target mass of all other tokens; with `mass` it makes 1.
      nodes: Children and probe laws.

    Returns:
      Test order, acceptance and residual. Where a rejection of everything has probability 0 (the
      target has no mass left), the residual is the target itself.
    """
    probe_here = nodes.children.is_probe
    children = probe_here.shape[1]
    if nodes.children.num_probes > 1:
        column = torch.arange(children, device=mass.device).expand(probe_here.shape)
        acceptance, kept = tests_in_order(
            mass, rest, nodes.probe_law, column, nodes.children.valid, probe_here
        )
        return _normalised(acceptance, kept, mass, rest, nodes)
    child_mass, drafted = mass[:, :children], nodes.probe_law[:, :children]
    before = _mass_left(child_mass, mass[:, children:].sum(1) + rest)
    before[:, :1] = 1.0  # nothing was rejected yet: the law itself, not its rounded sum
    left_at_probe = torch.where(probe_here, before, 0.0).sum(1, keepdim=True)
    # Dividing the target by what is left and subtracting the probe law is, up to a factor, the same
    # as subtracting the scaled probe law from the target, and needs no division.
    residual = excess(mass, left_at_probe * nodes.probe_law)
    kept = residual[:, :children].masked_fill(probe_here, 0.0)
    residual[:, :children] = 0.0
    after = _mass_left(kept, residual.sum(1) + rest)

    # Later than the probe: what it left is tested, over what it left in all.
    is_after = probe_here.cumsum(1) > 0
    acceptance = ratio(
        torch.where(is_after, kept, child_mass), torch.where(is_after, after, before)
    )
    acceptance = torch.where(probe_here, probe_ratio(child_mass, before * drafted), acceptance)
    return _normalised(acceptance, residual, mass, rest, nodes)


def _normalised(
    acceptance: Tensor, kept: Tensor, mass: Tensor, rest: Tensor, nodes: Nodes
) -> NodeLaw:
    """The law with what all rejections left, over its sum; the target where nothing is left."""
    left = kept.sum(1) + rest
    has_mass = left > _LEAST_LEFT
    scale = torch.where(has_mass, left, 1.0).reciprocal()
    residual = torch.where(has_mass.unsqueeze(1), kept * scale.unsqueeze(1), mass)
    return NodeLaw(nodes.children.slot, acceptance, nodes.listed, residual, scale)


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
    last_first = torch.cat((elsewhere.unsqueeze(1), mass.flip(1)), 1)
    return last_first.cumsum(1)[:, 1:].flip(1)
