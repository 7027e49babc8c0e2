"""Verification on static trees of random drafts: recursive rejection and K-SEQ.

Torch twin of the verifying half of `rheocheck.reference.static_round`. Everything that a test reads
lies on the draft's support; outside it a rejection leaves the target as it is, up to scale.

Source: Miao et al. (2024), SpecInfer, arXiv:2305.09781, algorithm 2; Sun et al. (2023), SpecTr,
arXiv:2310.15141, algorithm 3 (their gamma is the scale); Chen et al. (2024), Sequoia,
arXiv:2402.12374, algorithm 2.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.config import KSEQ_SCALE_STEPS, StaticConfig, StaticRule
from rheocheck.gpu.masses import excess, probe_ratio
from rheocheck.gpu.randomness import inverse_cdf
from rheocheck.gpu.static_tree import StaticUniforms
from rheocheck.gpu.tree import Tree
from rheocheck.gpu.verification import Verification, accept_tests, emission

# Slack of the inequality that the K-SEQ scale has to satisfy; where it holds with equality, as with
# a single draft, rounding would otherwise decide. It moves the emitted law by at most this much.
_SCALE_SLACK = 2.0**-40


@dataclass(frozen=True, slots=True, eq=False)
class StaticNodeLaw:
    """What verification does at a batch of nodes, before any uniform is read.

    Attributes:
      acceptance: [rows, children] probability of accepting that child once all earlier ones were
        rejected; 0 for absent children.
      kept: [rows, support] residual mass of each support token once every child was rejected; the
        other tokens keep their target mass. Not normalised; the target itself where rejecting
        everything has probability 0.
    """

    acceptance: Float64[Tensor, "rows children"]
    kept: Float64[Tensor, "rows support"]


def static_node_law(
    on_support: Float64[Tensor, "rows support"],
    outside: Float64[Tensor, " rows"],
    draft: Float64[Tensor, "rows support"],
    rank: Int64[Tensor, "rows children"],
    valid: Bool[Tensor, "rows children"],
    rule: StaticRule,
) -> StaticNodeLaw:
    """Acceptance and residual of the children of a batch of nodes.

    Args:
      on_support: [rows, support] target mass of each token of the draft's support; 0 on padding.
      outside: [rows] target mass of all other tokens.
      draft: [rows, support] law that the first child was drawn from.
      rank: [rows, children] index in the support of each child's token; any value where not valid.
      valid: [rows, children] True where there is a child; these come first.
      rule: "specinfer", "kseq" or "sequoia".

    Returns:
      The laws.
    """
    rank = torch.where(valid, rank, 0)
    if rule == "kseq":
        return _kseq_law(on_support, outside, draft, rank, valid)
    kept, law = on_support, draft
    # Rejected nothing yet: the law itself, not its rounded sum.
    left = torch.ones_like(outside).unsqueeze(1)
    acceptance = []
    for slot in range(rank.shape[1]):
        here, at = valid[:, slot : slot + 1], rank[:, slot : slot + 1]
        scaled = left * law
        mass, drafted = kept.gather(1, at), scaled.gather(1, at)
        acceptance.append(torch.where(here, probe_ratio(mass, drafted), 0.0))
        kept = torch.where(here, excess(kept, scaled), kept)
        left = torch.where(here, kept.sum(1, keepdim=True) + outside.unsqueeze(1), left)
        if rule == "sequoia":
            law = torch.where(here, law.scatter(1, at, 0.0), law)
            total = law.sum(1, keepdim=True)
            law = law / torch.where(total > 0, total, 1.0)
    stacked = torch.cat(acceptance, dim=1) if acceptance else on_support[:, :0]
    return StaticNodeLaw(stacked, torch.where(left > 0, kept, on_support))


def kseq_scale(
    on_support: Float64[Tensor, "rows support"],
    draft: Float64[Tensor, "rows support"],
    count: Int64[Tensor, " rows"],
    most: int,
) -> Float64[Tensor, " rows"]:
    """Smallest multiple of 1 / KSEQ_SCALE_STEPS at which K-SEQ with `count` drafts is lossless.

    Args:
      on_support: [rows, support] target masses at the tokens drafted from.
      draft: [rows, support] their draft law.
      count: [rows] drafts, 0 to `most`.
      most: Largest count.

    Returns:
      [rows] scales, in [1, max(1, count)]; by bisection, with a fixed number of steps.
    """
    low = torch.full_like(count, KSEQ_SCALE_STEPS)
    high = count.clamp_min(1) * KSEQ_SCALE_STEPS
    for _ in range(math.ceil(math.log2(max(1, most - 1) * KSEQ_SCALE_STEPS + 1))):
        middle = (low + high) // 2
        scale = middle / KSEQ_SCALE_STEPS
        one = torch.minimum(draft, on_support / scale.unsqueeze(1)).sum(1)
        enough = _any_of(one, count) <= scale * one + _SCALE_SLACK
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
        low = torch.minimum(low, high)
    return low / KSEQ_SCALE_STEPS


def verify_static(
    tree: Tree,
    target_laws: Float64[Tensor, "batch nodes vocab"],
    draws: StaticUniforms,
    config: StaticConfig,
) -> Verification:
    """Verify one round of every row: walk down from the root until no child is accepted.

    Args:
      tree: Of `grow_static`.
      target_laws: [batch, nodes + 1, vocab] target law at the root and at each node.
      draws: `accept` and `final` are read.
      config: Shape and rule.

    Returns:
      Accepted path and emitted tokens.
    """
    batch, device = draws.final.shape[0], draws.final.device
    row = torch.arange(batch, device=device)
    node = torch.zeros_like(row)
    place = torch.zeros_like(row)
    active = torch.ones_like(row, dtype=torch.bool)
    final_mass = target_laws[:, 0]
    accepted: list[Tensor] = []
    first = 0
    width = 1
    for children in config.branching:
        law = target_laws[row, node]
        child = tree.child[row, node, :children]
        support, draft = tree.support[row, node], tree.probe_law[row, node]
        token = torch.nn.functional.pad(tree.token, (1, 0), value=-1).gather(1, child)
        valid = child > 0
        rank = (support.unsqueeze(1) == token.unsqueeze(2)).long().argmax(2)
        known = support >= 0
        on_support = torch.where(known, law.gather(1, support.clamp_min(0)), 0.0)
        elsewhere = law.scatter_add(1, support.clamp_min(0), -on_support)
        found = static_node_law(on_support, elsewhere.sum(1), draft, rank, valid, config.rule)
        index = first + place.unsqueeze(1) * children + torch.arange(children, device=device)
        uniform = draws.accept.gather(1, index)
        is_accepted = accept_tests(uniform, found.acceptance) & valid
        hit = active & is_accepted.any(1)
        slot = is_accepted.long().argmax(1)
        residual = elsewhere.scatter_add(1, support.clamp_min(0), found.kept * known)
        final_mass = torch.where((active & ~hit).unsqueeze(1), residual, final_mass)
        node = torch.where(hit, child.gather(1, slot.unsqueeze(1)).squeeze(1), node)
        place = torch.where(hit, place * children + slot, 0)
        accepted.append(torch.where(hit, node, -1))
        active = hit
        first, width = first + width * children, width * children
    final_mass = torch.where(active.unsqueeze(1), target_laws[row, node], final_mass)
    path = torch.stack(accepted, 1) if accepted else row.new_zeros(batch, 0)
    return emission(tree, path, node, inverse_cdf(final_mass, draws.final))


def _kseq_law(
    on_support: Tensor, outside: Tensor, draft: Tensor, rank: Tensor, valid: Tensor
) -> StaticNodeLaw:
    count = valid.sum(1)
    scale = kseq_scale(on_support, draft, count, valid.shape[1]).unsqueeze(1)
    kept = torch.minimum(draft, on_support / scale)
    test = torch.where(valid, probe_ratio(kept.gather(1, rank), draft.gather(1, rank)), 0.0)
    one = kept.sum(1, keepdim=True)
    factor = _any_of(one, count.unsqueeze(1))
    factor = torch.where(one > 0, factor / torch.where(one > 0, one, 1.0), 0.0)
    left = excess(on_support, factor * kept)
    mass = left.sum(1) + outside
    return StaticNodeLaw(test, torch.where((mass > 0).unsqueeze(1), left, on_support))


def _any_of(one: Tensor, count: Tensor) -> Tensor:
    """Probability that one of `count` independent tests of probability `one` succeeds.

    To the last bits also where it is small: a residual that should vanish would otherwise keep
    rounding errors, which a uniform of 0 would draw.
    """
    log_none = torch.where(count > 0, count * torch.log1p(-one.clamp_max(1)), 0.0)
    return -torch.expm1(log_none)
