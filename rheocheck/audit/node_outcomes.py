"""What a node's probe can be, and the children that each outcome gives, by the code under test."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.audit.laws import rank_order, softmax
from rheocheck.config import SpeculationConfig
from rheocheck.gpu import tree as trees
from rheocheck.gpu.protocols import ForcedProbe
from rheocheck.gpu.randomness import RoundUniforms

# A draw is asked for at both ends of its interval of the inverse CDF, this far inside. 128
# intervals off by that much, and the outcomes left out, change the law by less than 2e-7.
_EDGE = 1e-10
_SMALLEST_CHECKED = 1e-9
# Draft vocabularies above this are expanded without the tokens that cannot be in the support.
_WIDE = 4096
Misdrawn = tuple[float, int, int]
"""(uniform, token wanted, token drawn)"""


@dataclass(frozen=True, slots=True, eq=False)
class DraftedNode:
    """What an expansion of one node takes: raw logits, scheme, temperature, token ids."""

    logits: Tensor
    config: SpeculationConfig
    temperature: float
    token_ids: Tensor | None


def outcomes_of(node: DraftedNode) -> tuple[NDArray[np.float64], Tensor, Misdrawn | None]:
    """All outcomes of the probe: probabilities, children, and whether each is drawn by its own.

    Over a large vocabulary one expansion reads all logits, that of the likeliest outcome; the
    others read what can be in the support, and must give the same children for that outcome.

    Returns:
      [outcomes] probabilities; [outcomes, top_k] children in slot order, -1 for none; the first
      draw that goes elsewhere.
    """
    narrow = _without_the_rest(node)
    tokens, weights = _probe_outcomes(narrow)
    found = _children(narrow, tokens, None)
    misdrawn = _check_draws(narrow, tokens, weights)
    if narrow is not node and misdrawn is None:
        likeliest = int(weights.argmax())
        whole = _children(node, tokens[likeliest : likeliest + 1], None)[0].tolist()
        middle = float(np.cumsum(weights)[likeliest] - 0.5 * weights[likeliest])
        for wanted, drawn in zip(found[likeliest].tolist(), whole, strict=True):
            if wanted != drawn:
                return weights, found, (middle, wanted, drawn)
    return weights, found, misdrawn


def _probe_outcomes(node: DraftedNode) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Tokens that the probe can be, in rank order, and their probabilities, made here."""
    raw = node.logits.double().cpu().numpy()
    tail = rank_order(raw, node.config.support_size)[node.config.num_top :]
    law = softmax(raw[tail], node.temperature)
    target_ids = tail if node.token_ids is None else node.token_ids.cpu().numpy()[tail]
    possible = law > 0
    return target_ids[possible], law[possible]


def _without_the_rest(node: DraftedNode) -> DraftedNode:
    """The node on the tokens that are or tie with the support's last, where that is worth it."""
    vocab, size = node.logits.shape[-1], node.config.support_size
    if vocab <= max(_WIDE, 2 * size):
        return node
    least = node.logits.topk(size).values[-1]
    kept = (node.logits >= least).nonzero().squeeze(1)
    ids = kept if node.token_ids is None else node.token_ids[kept]
    return DraftedNode(node.logits[kept], node.config, node.temperature, ids)


class _OneNode:
    """A drafter that knows one node's logits and nothing below it; one row for each outcome."""

    def __init__(self, logits: Tensor, rows: int, token_ids: Tensor | None) -> None:
        self.token_ids = token_ids
        self._logits = logits.expand(rows, -1)

    def root(self) -> Tensor:
        return self._logits

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        raise AssertionError("a tree of depth 1 asks for the root only")


def _children(
    node: DraftedNode, forced: NDArray[np.int64] | None, uniform: NDArray[np.float64] | None
) -> Tensor:
    """[outcomes, top_k] children in slot order, for each forced probe or each uniform; -1 for none.

    They come from a tree of depth 1 with room for all of them (for uniforms, for all up to the
    probe), so that the very code that made the
    real tree draws, places and ranks them.
    """
    rows = len(forced) if forced is not None else len(uniform) if uniform is not None else 0
    device, config = node.logits.device, node.config
    # Of draws the probe alone is looked at, and it stands before the fillers.
    budget = config.top_k if forced is not None else min(config.top_k, config.num_top + 1)
    alone = config.model_copy(update={"depth": 1, "budget": budget})
    draws = np.zeros(rows) if uniform is None else uniform
    zeros = torch.zeros(rows, dtype=torch.float64, device=device)
    uniforms = RoundUniforms(
        probe=torch.as_tensor(draws, device=device)[:, None, None].expand(-1, 1, config.top_k),
        accept=zeros[:, None, None, None].expand(-1, 1, config.top_k, config.top_k),
        final=zeros,
    )
    probe = None
    if forced is not None:
        layer = torch.ones(rows, dtype=torch.int64, device=device)
        probe = ForcedProbe(layer, layer - 1, torch.as_tensor(forced, device=device))
    drafter = _OneNode(node.logits, rows, node.token_ids)
    grown = trees.grow(drafter, uniforms, alone, node.temperature, forced=probe)
    tokens = torch.nn.functional.pad(grown.token, (1, 0), value=-1)
    return tokens.gather(1, grown.child[:, 0])


def _check_draws(
    node: DraftedNode, tokens: NDArray[np.int64], weights: NDArray[np.float64]
) -> Misdrawn | None:
    """Draw the probe at both ends of every outcome's interval; the first that goes elsewhere."""
    above = np.cumsum(weights)
    below = above - weights
    wide = weights > _SMALLEST_CHECKED
    points = np.concatenate([below[wide] + _EDGE, above[wide] - _EDGE]).clip(0.0, 1.0 - 2.0**-53)
    wanted = np.concatenate([tokens[wide], tokens[wide]])
    found = _children(node, None, points)[:, node.config.num_top].cpu().numpy()
    wrong = np.flatnonzero(found != wanted)
    if not wrong.size:
        return None
    first = int(wrong[0])
    return float(points[first]), int(wanted[first]), int(found[first])
