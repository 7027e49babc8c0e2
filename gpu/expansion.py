"""Dual-identity expansion of many nodes at once: top children, one random probe, fillers.

Torch twin of `rheocheck.reference.expansion`. All arithmetic after the selection of the support is
float64, whatever the dtype of the logits.

Source: RheoSampling (Hu, Weng, Zhang 2026, arXiv:2609.21827); their p is `target`, their q is
`ranking` at temperature 1 and `draft` at the request's temperature, their q-tilde is `probe_law`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.config import SpeculationConfig, check_config
from rheocheck.errors import InputError
from rheocheck.gpu.probes import draw_probes, merged_probe, split_support
from rheocheck.gpu.top_tokens import Fault, find_fault, rank_support

Logits: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Draft logits, or a pair (ranking logits, draft logits): the first fixes support, order and
scores, the second is what the probe is drawn from. The draft logits of a pair are divided by the
temperature, the ranking logits never are."""

# Log probabilities in the support stop here instead of at minus infinity (which float64 logits more
# than 1.8e308 apart would give), so that every child has a score above that of an empty slot.
_LOWEST_LOG_PROBABILITY = -1e30


class Role(IntEnum):
    """Which of the two identities a child has."""

    TOP = 0
    PROBE = 1
    FILLER = 2


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """Children of a batch of nodes, one column a slot, and the laws that they came from.

    With n = min(support_size, vocabulary) columns of support:

    Attributes:
      fault: [...] `rheocheck.gpu.top_tokens.Fault` of the node's logits; such a node has an empty
        support and no children.
      support: [..., n] token ids by (ranking descending, token id ascending); -1 beyond it.
      probe_law: [..., n] law of the first probe over `support`, 0 on the top tokens, sums to 1;
        all zero where there is no probe.
      probe_rank: [...] index in `support` of the first probe; -1 where there is none.
      token: [..., top_k] token of each child; -1 where the slot is empty.
      role: [..., top_k] `Role` of each slot (also of empty ones).
      log_factor: [..., top_k] log of the child's score factor, <= 0; minus infinity in empty slots.
      valid: [..., top_k] True where the slot has a child.
    """

    fault: Int64[Tensor, "*nodes"]
    support: Int64[Tensor, "*nodes support"]
    probe_law: Float64[Tensor, "*nodes support"]
    probe_rank: Int64[Tensor, "*nodes"]
    token: Int64[Tensor, "*nodes top_k"]
    role: Int64[Tensor, "*nodes top_k"]
    log_factor: Float64[Tensor, "*nodes top_k"]
    valid: Bool[Tensor, "*nodes top_k"]


def expand(
    logits: Logits,
    probe_uniform: Float64[Tensor, "*nodes"],
    config: SpeculationConfig,
    temperature: float,
    *,
    token_ids: Int64[Tensor, " vocab"] | None = None,
    forced_probe: Int64[Tensor, "*nodes"] | None = None,
) -> Expansion:
    """Expand every node of a batch.

    Args:
      logits: [..., vocab] draft logits of any float dtype, or a pair of them. Minus infinity puts a
        token outside the support. A row with NaN or +inf, or without a finite logit, is reported in
        `fault` and does not touch the others.
      probe_uniform: [...] draws of the probes, in [0, 1); [..., num_probes] where there are
        several a node.
      config: top_k, num_top, support_size, num_probes, top_thresholds and merged.
      temperature: Of the request; 0 makes the probe a point mass on the first tail token.
      token_ids: [vocab] target id of each draft token, strictly increasing, so that ties by draft
        index are ties by target id; None where the vocabularies agree.
      forced_probe: [...] token that takes the first probe's place instead of the drawn one; -1
        keeps the draw, and so does a token that is not in the tail.

    Returns:
      The children. A tail without tokens gives neither probe nor fillers, a tail shorter than its
      slots fewer children.

    Raises:
      InputError: The vocabulary is empty, or `config` is no legal SpeculationConfig.
    """
    if not torch.compiler.is_compiling():
        check_config(config)
    ranking_logits, draft_logits = logits if isinstance(logits, tuple) else (logits, logits)
    if ranking_logits.shape[-1] == 0:
        raise InputError("draft logits: the vocabulary is empty, at least one token is required")
    is_pair = draft_logits is not ranking_logits
    fault = find_fault(ranking_logits)
    if is_pair:  # of two faults the ranking's is reported
        fault = torch.where(fault == int(Fault.NONE), find_fault(draft_logits), fault)
    is_usable = (fault == int(Fault.NONE)).unsqueeze(-1)
    index, ranking = rank_support(ranking_logits, config.support_size)
    ranking = torch.where(is_usable, ranking, -torch.inf)
    draft = ranking
    if is_pair:
        draft = torch.where(is_usable, draft_logits.gather(-1, index).double(), -torch.inf)
    inside = ranking > -torch.inf
    rank = torch.arange(index.shape[-1], device=index.device)
    token = index if token_ids is None else token_ids[index]
    support = torch.where(inside, token, -1)

    log_ranking = log_normalise(ranking)
    num_top, tail = split_support(log_ranking, inside, config)
    probe_law = tempered_tail_law(draft, tail, num_top, temperature)
    if config.merged:
        probe_law, num_top, tail = merged_probe(probe_law, num_top, tail, config)
    if config.num_probes == 1:
        probe_uniform = probe_uniform.unsqueeze(-1)
    probe_rank = draw_probes(probe_law, tail, num_top, probe_uniform)
    if forced_probe is not None:
        is_forced = (support == forced_probe.unsqueeze(-1)) & tail
        forced_rank = torch.where(is_forced, rank, -1).amax(-1, keepdim=True)
        first = torch.where(forced_rank >= 0, forced_rank, probe_rank[..., :1])
        probe_rank = torch.cat([first, probe_rank[..., 1:]], dim=-1)

    child_rank = child_ranks(probe_rank, inside.sum(-1), config, num_top)
    valid = child_rank >= 0
    position = child_rank.clamp_min(0)
    role = slot_roles(config, index.device, num_top).expand_as(child_rank)
    log_factor = torch.where(
        role == int(Role.PROBE),
        log_proxy(log_ranking, tail, num_top).unsqueeze(-1),
        log_ranking.gather(-1, position),
    )
    return Expansion(
        fault=fault,
        support=support,
        probe_law=probe_law,
        probe_rank=probe_rank[..., 0],
        token=torch.where(valid, support.gather(-1, position), -1),
        role=role,
        log_factor=torch.where(valid, log_factor, -torch.inf),
        valid=valid,
    )


def child_ranks(
    probe_rank: Int64[Tensor, "*nodes probes"],
    num_support: Int64[Tensor, "*nodes"],
    config: SpeculationConfig,
    num_top: int | Tensor | None = None,
) -> Int64[Tensor, "*nodes top_k"]:
    """Rank in the support of the child of each slot.

    Args:
      probe_rank: [..., probes] ranks of the probes; -1 where there is none.
      num_support: [...] number of tokens in the support.
      config: top_k, num_top and num_probes.
      num_top: Top tokens of each node, [..., 1], where they are not config.num_top.

    Returns:
      [..., top_k] ranks: top tokens, the probes, then the best tail tokens that are no probe; -1 in
      empty slots. No rank appears twice.
    """
    num_top = config.num_top if num_top is None else num_top
    slot = torch.arange(config.top_k, device=probe_rank.device)
    if isinstance(num_top, int) and config.num_probes == 1 and num_top < config.top_k:
        # What follows, with the slots of each role known.
        filler = slot[num_top:-1] + (slot[num_top:-1] >= probe_rank).long()
        top = slot[:num_top].expand(*probe_rank.shape[:-1], num_top)
        rank = torch.cat((top, probe_rank, filler), dim=-1)
        return torch.where(rank < num_support.unsqueeze(-1), rank, -1)
    # The filler of slot j is the (j - num_top - num_probes)-th tail token once the probes are taken
    # out: it steps over each of them in ascending order.
    filler = (slot - config.num_probes).expand(*probe_rank.shape[:-1], config.top_k)
    for probe in probe_rank.sort(dim=-1).values.unbind(-1):
        filler = filler + (filler >= probe.unsqueeze(-1)).long()
    number = slot - num_top
    is_probe = (number >= 0) & (number < config.num_probes)
    at = number.clamp(0, config.num_probes - 1).expand(filler.shape)
    rank = torch.where(is_probe, probe_rank.gather(-1, at), filler)
    rank = torch.where(number < 0, slot, rank)
    return torch.where(rank < num_support.unsqueeze(-1), rank, -1)


def slot_roles(
    config: SpeculationConfig, device: torch.device, num_top: int | Tensor | None = None
) -> Int64[Tensor, "*nodes top_k"]:
    """`Role` of each slot; with num_top >= top_k every slot is TOP.

    Args:
      config: top_k, num_top and num_probes.
      device: Of the result.
      num_top: Top tokens of each node, [..., 1], where they are not config.num_top.

    Returns:
      [top_k] roles, or [..., top_k] where num_top differs by node.
    """
    num_top = config.num_top if num_top is None else num_top
    number = torch.arange(config.top_k, device=device) - num_top
    role = torch.where(number < config.num_probes, int(Role.PROBE), int(Role.FILLER))
    return torch.where(number < 0, int(Role.TOP), role)


def tempered_tail_law(
    draft: Float64[Tensor, "*nodes support"],
    tail: Bool[Tensor, "*nodes support"],
    num_top: int | Tensor,
    temperature: float,
) -> Float64[Tensor, "*nodes support"]:
    """Law of the probe: the softmax of the tail's own logits at the request's temperature.

    Args:
      draft: [..., support] draft logits in rank order.
      tail: [..., support] True on the tail, which begins at rank num_top where it is not empty.
      num_top: Top tokens, >= 0; a number, or [..., 1].
      temperature: >= 0.

    Returns:
      [..., support] probabilities, 0 outside the tail. A tail without mass, and any tail at
      temperature 0, gives the point mass on its first token; an empty tail gives zeros.
    """
    first = tail & (torch.arange(tail.shape[-1], device=tail.device) == num_top)
    if temperature == 0:
        return first.double()
    logits = torch.where(tail, draft, -torch.inf)
    highest = logits.amax(-1, keepdim=True)
    has_mass = highest > -torch.inf
    # The shift comes before the division: its largest entry is exactly 0 at any temperature, so
    # the sum is at least 1 and no temperature, however small, can make the law 0/0.
    shifted = torch.where(has_mass & tail, logits - torch.where(has_mass, highest, 0), -torch.inf)
    weight = (shifted / temperature).exp()
    total = weight.sum(-1, keepdim=True)
    return torch.where(has_mass, weight / total.clamp_min(1), first.double())


def log_proxy(
    log_ranking: Float64[Tensor, "*nodes support"],
    tail: Bool[Tensor, "*nodes support"],
    num_top: int | Tensor,
) -> Float64[Tensor, "*nodes"]:
    """Log of the probe's score factor: min(ranking of the last top token, tail mass).

    Args:
      log_ranking: [..., support] log of the ranking law in rank order.
      tail: [..., support] True on the tail.
      num_top: Top tokens, a number or [..., 1]. Without any the factor is the ranking of the first
        token.

    Returns:
      [...] log factors, at least the log ranking of the first tail token also after rounding; minus
      infinity where the tail is empty.
    """
    if isinstance(num_top, int):
        first = log_ranking[..., num_top : num_top + 1]
        last_top = log_ranking[..., num_top - 1 : num_top] if num_top else log_ranking[..., :1]
    else:
        at = num_top.expand(*log_ranking.shape[:-1], 1).clamp_max(log_ranking.shape[-1] - 1)
        first = log_ranking.gather(-1, at)
        last_top = log_ranking.gather(-1, (at - 1).clamp_min(0))
    if first.shape[-1] == 0:  # a tail would begin beyond the support
        return torch.full_like(log_ranking[..., 0], -torch.inf)
    # Sum of the tail relative to its first token. That token contributes exactly 1, a rounded sum
    # of non-negative terms is at least each term, so the log is >= 0 and adding it to `first`
    # cannot go below `first`: the probe never ranks below a filler, in floats too.
    relative = torch.where(tail, log_ranking - first, -torch.inf).exp().sum(-1, keepdim=True)
    tail_mass = first + relative.clamp_min(1).log()
    proxy = torch.minimum(last_top, tail_mass)
    if isinstance(num_top, int):
        proxy = proxy if num_top else last_top
    else:
        proxy = torch.where(num_top == 0, last_top, proxy)
    return torch.where(tail.any(-1), proxy.squeeze(-1), -torch.inf)


def log_normalise(logits: Float64[Tensor, "*nodes support"]) -> Float64[Tensor, "*nodes support"]:
    """Log-softmax of rows whose first entry is their largest.

    Args:
      logits: [..., support] descending; minus infinity outside the support.

    Returns:
      [..., support] log probabilities, <= 0 also after rounding (the shifted maximum contributes
      exactly 1 to the sum); minus infinity outside the support and in rows without a finite logit.
    """
    highest = logits[..., :1]
    inside = logits > -torch.inf
    shifted = torch.where(inside, logits - torch.where(inside[..., :1], highest, 0), -torch.inf)
    log_law = shifted - shifted.exp().sum(-1, keepdim=True).clamp_min(1).log()
    return torch.where(inside, log_law.clamp_min(_LOWEST_LOG_PROBABILITY), -torch.inf)
