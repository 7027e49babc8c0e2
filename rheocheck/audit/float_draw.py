"""The exact law of the draw that ends a round: numbers of uniforms out of 2^53 for each token.

The tables are those that the code under test makes; only comparisons of its floats are counted.

Source: inversion of a running sum, Devroye (1986), Non-Uniform Random Variate Generation, III.2.
"""

from dataclasses import dataclass

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
_CHUNK = 256  # blocks at a time: what is compared stays in the cache


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
    """[blocks, BLOCK] counts; the uniforms of a block are consecutive."""
    sums = inside.cumsum(1).numpy()
    positive = inside.numpy() > 0
    search = _Search(
        sums, (ends - per_block)[:, None], ends[:, None], sums[:, -1:], before_block[:, None],
        np.where(share > 0, share, 1.0)[:, None], float(total_mass),
    )  # fmt: skip
    reached = search.run()
    # A token without mass is never drawn, and what no running sum exceeds goes to the last token
    # that has mass.
    row = np.flatnonzero(~positive.all(axis=1))
    if row.size:
        has_mass, end = positive[row], search.end[row]
        last = sums.shape[1] - 1 - has_mass[:, ::-1].argmax(axis=1)
        is_end = np.arange(sums.shape[1]) >= last[:, None]
        kept = np.where(has_mass, reached[row], search.first[row])
        kept = np.maximum.accumulate(kept, axis=1)
        reached[row] = np.where(is_end & has_mass.any(axis=1, keepdims=True), end, kept)
    reached[positive[:, -1], -1] = ends[positive[:, -1]]
    return np.diff(reached, axis=1, prepend=search.first)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """How many of a block's uniforms draw something before a token's running sum ends.

    Rounding is monotone, so they are the first of the block's.

    Attributes:
      sums: [blocks, BLOCK] running sums inside each block.
      first: [blocks, 1] the first uniform of the block, over 2^-53.
      end: [blocks, 1] the first of the next.
      top: [blocks, 1] last of the sums.
      below: [blocks, 1] mass of all blocks before.
      share: [blocks, 1] mass of the block.
      total: Mass of all blocks.
    """

    sums: NDArray[np.float64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    top: NDArray[np.float64]
    below: NDArray[np.float64]
    share: NDArray[np.float64]
    total: float

    def run(self) -> NDArray[np.int64]:
        """[blocks, BLOCK] the first uniform that is not before the running sum; `end` if none."""
        # The inverse of the rounded map is a unit or two off at most, and mostly less than one.
        place = self.sums / np.where(self.top > 0, self.top, 1.0)
        place *= self.share
        place += self.below
        place *= 2.0**UNIFORM_BITS / self.total
        near = np.clip(np.rint(place, out=place), self.first, self.end)
        found = near + (self._is_before(near) & (near < self.end))
        settled = self._is_before(near - 1) | (near <= self.first)
        settled &= ~self._is_before(near + 1) | (near + 1 >= self.end)
        counts: NDArray[np.int64] = found.astype(np.int64)
        if not settled.all():
            row, column = (~settled).nonzero()
            counts[row, column] = self._at(row, column)._bisected(near[row, column])
        return counts

    def _at(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> "_Search":
        """The same question at single sums, [some] each."""
        return _Search(
            self.sums[row, column], self.first[row, 0], self.end[row, 0], self.top[row, 0],
            self.below[row, 0], self.share[row, 0], self.total,
        )  # fmt: skip

    def _bisected(self, near: NDArray[np.float64]) -> NDArray[np.int64]:
        """[some] answers; where they are far from `near`, the whole block is searched."""
        around = near.astype(np.int64)
        low = np.maximum(around - _NEAR, self.first)
        high = np.minimum(around + _NEAR, self.end)
        low = np.where((low > self.first) & ~self._is_before(low - 1.0), self.first, low)
        high = np.where((high < self.end) & self._is_before(high.astype(float)), self.end, high)
        while (open_ := low < high).any():
            middle = (low + high) >> 1
            is_before = self._is_before(middle.astype(np.float64))
            low = np.where(open_ & is_before, middle + 1, low)
            high = np.where(open_ & ~is_before, middle, high)
        return low

    def _is_before(self, count: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the uniform `count` * 2^-53 draws something before each sum; as the code does."""
        # A power of two commutes with rounding.
        place = count * (self.total * 2.0**-UNIFORM_BITS)
        place -= self.below
        place /= self.share
        np.clip(place, 0.0, _LARGEST_UNIFORM, out=place)
        place *= self.top
        return np.asarray(place < self.sums)
