"""One round, one row, one node at a time: how public code runs dynamic trees, as a yardstick.

The same scheme as `rheocheck.gpu`, written the plain way: Python loops over rows, layers and nodes,
a softmax a node, a list sorted for every layer. It shares no code with the package.

Source: RheoSampling (Hu, Weng, Zhang 2026, arXiv:2609.21827); EAGLE-2 (Li, Wei, Zhang, Zhang 2024,
arXiv:2406.16858) for the layered growth.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rheocheck.config import SpeculationConfig

GRID = 2.0**-40
LogitsAt = Callable[[tuple[int, ...]], Tensor]


@dataclass
class Node:
    """A drafted node."""

    path: tuple[int, ...]
    key: tuple[int, int, int]  # layer, rank of the parent in its layer, slot
    is_probe: bool
    log_score: float


@dataclass
class Expanded:
    """What verification has to know of an expanded node."""

    tail: list[int]
    probe_law: Tensor


@dataclass
class Outcome:
    """What a round decided: survivors best first, accepted tokens, the last token."""

    survivors: list[tuple[tuple[int, int, int], int]]
    accepted: tuple[int, ...]
    final: int


def plain_round(
    draft_logits: LogitsAt,
    target_logits: LogitsAt,
    config: SpeculationConfig,
    temperature: float,
    probe: Tensor,
    accept: Tensor,
    final: float,
) -> Outcome:
    """Draft, prune and verify one row.

    Args:
      draft_logits: path -> [vocab] raw logits.
      target_logits: path -> [vocab] raw logits.
      config: The scheme, with one probe a node.
      temperature: Of the request, above 0.
      probe: [depth, top_k] uniforms by (layer - 1, rank of the parent).
      accept: [depth, top_k, top_k] uniforms by (layer - 1, rank of the parent, slot).
      final: Uniform of the last token.
    """
    survivors, expanded = grow(draft_logits, config, temperature, probe)
    path: tuple[int, ...] = ()
    while True:
        residual = (target_logits(path).double() / temperature).softmax(0)
        children = [node for node in survivors if node.path[:-1] == path]
        chosen = None
        for node in test_order(children, config.rule):
            token = node.path[-1]
            layer, rank, slot = node.key
            uniform = float(accept[layer - 1, rank, slot])
            if node.is_probe and config.rule != "onehot":
                law = torch.zeros_like(residual)
                law[expanded[path].tail] = expanded[path].probe_law
                ratio = float(residual[token] / law[token])
                left = (residual - law).clamp_min(0)
            else:
                ratio = float(residual[token])
                left = residual.clone()
                left[token] = 0
            if uniform < ratio:
                chosen = node
                break
            residual = left / left.sum()
        if chosen is None:
            shown = [(node.key, node.path[-1]) for node in survivors]
            return Outcome(shown, path, inverse_cdf(residual, final))
        path = chosen.path


def grow(
    draft_logits: LogitsAt, config: SpeculationConfig, temperature: float, probe: Tensor
) -> tuple[list[Node], dict[tuple[int, ...], Expanded]]:
    """Survivors, best first, and what was expanded."""
    frontier: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    drafted: list[Node] = []
    expanded: dict[tuple[int, ...], Expanded] = {}
    for layer in range(1, config.depth + 1):
        grown = []
        for rank, (path, log_score) in enumerate(frontier):
            uniform = float(probe[layer - 1, rank])
            expanded[path], children = expand(draft_logits(path), config, temperature, uniform)
            for slot, (token, is_probe, log_factor) in enumerate(children):
                key = (layer, rank, slot)
                grown.append(Node((*path, token), key, is_probe, log_score + log_factor))
        grown.sort(key=order)
        drafted += grown
        frontier = [(node.path, node.log_score) for node in grown[: config.top_k]]
    drafted.sort(key=order)
    return drafted[: config.budget], expanded


def expand(
    logits: Tensor, config: SpeculationConfig, temperature: float, uniform: float
) -> tuple[Expanded, list[tuple[int, bool, float]]]:
    """Children of one node: (token, is probe, log factor)."""
    values, tokens = logits.double().sort(descending=True, stable=True)
    kept = min(config.support_size, int((values > -torch.inf).sum()))
    values, ids = values[:kept], tokens[:kept].tolist()
    log_ranking = values.log_softmax(0)
    num_top = min(config.num_top, config.top_k, kept)
    children = [(ids[slot], False, float(log_ranking[slot])) for slot in range(num_top)]
    tail = list(range(num_top, kept))
    if config.num_top >= config.top_k or not tail:
        return Expanded([], values[:0]), children
    law = (values[num_top:] / temperature).softmax(0)
    drawn = tail[inverse_cdf(law, uniform)]
    proxy = log_ranking[0]
    if num_top:
        proxy = torch.minimum(log_ranking[num_top - 1], log_ranking[num_top:].logsumexp(0))
    children.append((ids[drawn], True, float(proxy)))
    fillers = [rank for rank in tail if rank != drawn][: config.top_k - num_top - 1]
    children += [(ids[rank], False, float(log_ranking[rank])) for rank in fillers]
    return Expanded([ids[rank] for rank in tail], law), children


def order(node: Node) -> tuple[float, tuple[int, int, int]]:
    """Best first; equal scores by place."""
    return (-round(node.log_score / GRID), node.key)


def test_order(children: list[Node], rule: str) -> list[Node]:
    """Slot order, with the probe first under "rheo"."""
    by_slot = sorted(children, key=lambda node: node.key[2])
    return sorted(by_slot, key=lambda node: not node.is_probe) if rule == "rheo" else by_slot


def inverse_cdf(law: Tensor, uniform: float) -> int:
    """First item of positive mass whose running sum exceeds uniform times the total."""
    running = law.cumsum(0)
    hit = (running > uniform * running[-1]) & (law > 0)
    return int(hit.nonzero()[0]) if bool(hit.any()) else int((law > 0).nonzero()[-1])


test_order.__test__ = False  # type: ignore[attr-defined]
