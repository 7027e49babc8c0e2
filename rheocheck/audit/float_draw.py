"""The exact law of the draw that ends a round: numbers of uniforms out of 2^53 for each token.

The tables are those that the code under test makes; only comparisons of its floats are counted.

Source: inversion of a running sum, Devroye (1986), Non-Uniform Random Variate Generation, III.2.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.gpu import final_draw
from rheocheck.gpu.final_draw import Residual
from rheocheck.gpu.row_mass import BLOCK
from rheocheck.reference.float_law import UNIFORM_BITS, draw_counts

_LARGEST_UNIFORM = 1.0 - 2.0**-53
_NEAR = 3
_CHUNK = 64  # blocks at a time: what is compared stays in the cache


def final_counts(
    residual: Residual, logits: Tensor, temperature: float
) -> NDArray[np.int64] | None:
    """How many uniforms draw each token.

    Args:
      residual: Law of the last token of one node: one row.
      logits: [vocab] the node's target logits, processed.
      temperature: Of the request.

    Returns:
      [vocab] counts that sum to 2^53; None where the law has no mass.
    """
    masses = final_draw.block_masses(residual)
    share = masses[0].numpy()
    if not (share > 0).any():
        return None
    running = masses.cumsum(1)[0].numpy()
    per_block = draw_counts(running, share > 0)
    values = torch.nn.functional.pad(logits, (0, -len(logits) % BLOCK), value=-torch.inf)
    values = values.view(-1, BLOCK)
    many = Residual(
        **{
            name: getattr(residual, name).expand(len(values), *getattr(residual, name).shape[1:])
            for name in ("listed", "mass", "rest", "scale", "highest")
        }
    )
    inside = final_draw.token_masses(many, torch.arange(len(values)), values, temperature)
    below = np.concatenate([[0.0], running[:-1]])
    ends = np.cumsum(per_block)
    parts = [
        _inside_counts(
            per_block[part], ends[part], below[part], running[-1], share[part], inside[part]
        )
        for part in (slice(at, at + _CHUNK) for at in range(0, len(share), _CHUNK))
    ]
    return np.concatenate(parts).reshape(-1)[: len(logits)]


def _inside_counts(
    per_block: NDArray[np.int64],
    ends: NDArray[np.int64],
    before_block: NDArray[np.float64],
    total_mass: np.float64,
    share: NDArray[np.float64],
    inside: Tensor,
) -> NDArray[np.int64]:
    """[blocks, BLOCK] counts; the uniforms of a block are consecutive, so bisection counts them."""
    sums = inside.cumsum(1).numpy()
    positive = inside.numpy() > 0
    below = before_block[:, None]
    divisor = np.where(share > 0, share, 1.0)[:, None]
    first, end = (ends - per_block)[:, None], ends[:, None]

    def before(count: NDArray[np.int64]) -> NDArray[np.bool_]:
        uniform = count.astype(np.float64) * 2.0**-UNIFORM_BITS
        place = np.clip((uniform * total_mass - below) / divisor, 0.0, _LARGEST_UNIFORM)
        return np.asarray(place * sums[:, -1:] < sums)

    # The inverse of the rounded map is a few units off at most; where it is more, the whole block
    # is searched.
    total = np.where(sums[:, -1:] > 0, sums[:, -1:], 1.0)
    guess = (sums / total * divisor + below) / total_mass * 2.0**UNIFORM_BITS
    near = np.clip(guess.astype(np.int64), first, end)
    low, high = np.maximum(near - _NEAR, first), np.minimum(near + _NEAR, end)
    low = np.where((low > first) & ~before(np.maximum(low - 1, 0)), first, low)
    high = np.where((high < end) & before(high), end, high)
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        is_before = before(middle)
        low = np.where(open_ & is_before, middle + 1, low)
        high = np.where(open_ & ~is_before, middle, high)
    reached = np.maximum.accumulate(np.where(positive, low, first), axis=1)
    # What no running sum exceeds goes to the last token that has mass.
    last = sums.shape[1] - 1 - positive[:, ::-1].argmax(axis=1)
    is_end = np.arange(sums.shape[1]) >= last[:, None]
    reached = np.where(is_end & positive.any(axis=1, keepdims=True), ends[:, None], reached)
    return np.diff(reached, axis=1, prepend=first)
