"""Which tokens of a node may be its probes, and the draw of one or several.

Torch twin of the options in `rheocheck.reference.expansion`: top counts that adapt to the ranking
law, several probes without replacement, merged probes.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the single probe; the options are this
project's own.
"""

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.config import TOP_THRESHOLD_SLACK, SpeculationConfig
from rheocheck.gpu.randomness import inverse_cdf


def split_support(
    log_ranking: Float64[Tensor, "*nodes support"],
    inside: Bool[Tensor, "*nodes support"],
    config: SpeculationConfig,
) -> tuple[int | Int64[Tensor, "*nodes 1"], Bool[Tensor, "*nodes support"]]:
    """How many tokens are top, and which form the tail that a probe is drawn from.

    Args:
      log_ranking: [..., support] log of the ranking law in rank order.
      inside: [..., support] False on padding.
      config: top_k, num_top and top_thresholds.

    Returns:
      num_top: top tokens that a node asks for; one number unless there are thresholds. A threshold
        counts where the sum of squares of the ranking law reaches it within TOP_THRESHOLD_SLACK.
      tail: [..., support] True on the tail; nowhere where num_top >= top_k.
    """
    num_top: int | Tensor = config.num_top
    if config.top_thresholds:
        collision = (2 * log_ranking).exp().sum(-1, keepdim=True)
        reached = torch.zeros_like(collision, dtype=torch.int64)
        for threshold in config.top_thresholds:
            reached = reached + (collision + TOP_THRESHOLD_SLACK >= threshold).long()
        num_top = config.num_top + reached
    rank = torch.arange(inside.shape[-1], device=inside.device)
    return num_top, inside & (rank >= num_top) & (num_top < config.top_k)


def draw_probes(
    probe_law: Float64[Tensor, "*nodes support"],
    tail: Bool[Tensor, "*nodes support"],
    num_top: int | Tensor,
    uniform: Float64[Tensor, "*nodes probes"],
) -> Int64[Tensor, "*nodes probes"]:
    """Draw the probes one after the other, without replacement.

    Args:
      probe_law: [..., support] law of the first.
      tail: [..., support] True on the tail.
      num_top: Rank at which the tail begins.
      uniform: [..., probes] draws from [0, 1).

    Returns:
      [..., probes] ranks in the support; -1 where the tail has run out. A later probe has the law
      of the first without those drawn before it; without mass left, the first tail token left.
    """
    ranks = [inverse_cdf(probe_law, uniform[..., 0])]
    left, law = tail, probe_law
    for number in range(1, uniform.shape[-1]):
        at = ranks[-1].clamp_min(0).unsqueeze(-1)
        left, law = left.scatter(-1, at, False), law.scatter(-1, at, 0.0)
        drawn = inverse_cdf(law, uniform[..., number])
        first = torch.where(left.any(-1), left.byte().argmax(-1), -1)
        ranks.append(torch.where(drawn >= 0, drawn, first))
    return torch.stack(ranks, dim=-1)


def merged_probe(
    probe_law: Float64[Tensor, "*nodes support"],
    num_top: int | Tensor,
    tail: Bool[Tensor, "*nodes support"],
    config: SpeculationConfig,
) -> tuple[
    Float64[Tensor, "*nodes support"], Int64[Tensor, "*nodes 1"], Bool[Tensor, "*nodes support"]
]:
    """Law, top count and tail of a merged probe: all children but one are top, in rank order.

    What the law has on tail tokens among these goes to the first token after them.

    Args:
      probe_law: [..., support] law of the probe on the tail.
      num_top: Top tokens without merging.
      tail: [..., support] True on the tail without merging.
      config: top_k.

    Returns:
      Law, top count and tail of the merged probe; a law of zeros where no token is left for it.
    """
    rank = torch.arange(tail.shape[-1], device=tail.device)
    core = config.top_k - 1
    left = tail & (rank >= core)
    has_probe = left.any(-1, keepdim=True)
    early = torch.where(tail & (rank <= core), probe_law, 0.0).sum(-1, keepdim=True)
    law = torch.where(rank == core, early, torch.where(rank > core, probe_law, 0.0))
    # Nodes without a tail keep their top count; where a tail ends within the core, all are top.
    num_top = torch.where(tail.any(-1, keepdim=True), core, num_top)
    return torch.where(has_probe, law, 0.0), num_top, left
