"""The audit's own random choices: counter-based, so that batches and workers do not matter."""

from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.gpu.randomness import MAX_TOP_K, Purpose, node_key, uniforms

# Seeds of the runs of one audit are this far apart; odd, so that they never meet modulo 2**63.
_SEED_STEP = 0x1E3779B97F4A7C15


class Choice(IntEnum):
    """What an audit uniform decides; each is a slot that no node of a tree has."""

    NODE = MAX_TOP_K - 1
    PROBE = MAX_TOP_K - 2
    TOKEN_PIT = MAX_TOP_K - 3


def run_seed(seed: int, run: int) -> int:
    """Seed of one of the audit's decoding runs: different runs share no uniform."""
    return (seed + run * _SEED_STEP) % 2**63


def choice_uniforms(
    seed: int, request: Tensor, round_index: Tensor, choice: Choice, count: int
) -> NDArray[np.float64]:
    """Uniforms for the choices of one kind in a round.

    Args:
      seed: Key of the run.
      request: [batch] int64.
      round_index: [batch] int64.
      choice: The kind.
      count: Choices a row, at most 1,023.

    Returns:
      [batch, count] uniforms in [0, 1).
    """
    place = torch.arange(count, device=request.device)
    key = node_key(place, torch.zeros_like(place), torch.full_like(place, int(choice)))
    drawn = uniforms(seed, request[:, None], round_index[:, None], key, Purpose.AUDIT)
    return np.asarray(drawn.cpu().numpy(), dtype=np.float64)


def probe_uniforms(
    seed: int,
    request: Tensor,
    round_index: Tensor,
    layer: Tensor,
    parent_rank: Tensor,
    slot: Tensor,
) -> NDArray[np.float64]:
    """[probes] one uniform for each probe's PIT, by its key; the arguments are [probes] int64."""
    drawn = uniforms(seed, request, round_index, node_key(layer, parent_rank, slot), Purpose.AUDIT)
    return np.asarray(drawn.cpu().numpy(), dtype=np.float64)
