"""The largest logits of a row in an exact order, and what is wrong with a row that has no law.

`topk` alone may keep any of the tokens that tie at the cut. Here ties always go to the smaller
token index. Each of the two functions reads the vocabulary once, for maxima.
"""

from enum import IntEnum

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

# Widths of the blocks whose maxima are ranked first, powers of two. A reduction over a wide block
# fills vector registers, over narrow ones it is slow; the blocks taken should be a small part of
# the row.
_WIDE, _MIDDLE, _NARROW = 64, 32, 8
_WIDE_FROM = 2**16
# Below this many values a `topk` over all of them costs less than the blocks.
_DIRECT_BELOW = 2048
_LOW_WORD = 0xFFFFFFFF


class Fault(IntEnum):
    """Why no law can be made from a row of logits."""

    NONE = 0
    NAN = 1
    INFINITE = 2
    EMPTY = 3


def rank_support(
    logits: Float[Tensor, "*nodes vocab"], support_size: int
) -> tuple[Int64[Tensor, "*nodes support"], Float64[Tensor, "*nodes support"]]:
    """The largest logits in rank order: by (logit descending, token index ascending).

    Args:
      logits: [..., vocab] of any float dtype, vocab >= 1.
      support_size: Most tokens to keep, >= 1.

    Returns:
      index: [..., min(support_size, vocab)] token indices; those with minus infinity come last and
        are no part of the support.
      ranked: [..., same] their logits in float64, -0.0 as 0.0. A row with NaN or +inf, which
        `find_fault` tells, has any tokens in any order.
    """
    size = min(support_size, logits.shape[-1])
    rows = logits.reshape(-1, logits.shape[-1])
    index = _first_largest(rows, size, in_order=True)
    ranked = rows.gather(-1, index).double() + 0.0
    shape = (*logits.shape[:-1], size)
    return index.view(shape), ranked.view(shape)


def find_fault(logits: Float[Tensor, "*nodes vocab"]) -> Int64[Tensor, "*nodes"]:
    """Why no law can be made from a row: [...] `Fault`; nothing here waits for the device.

    Args:
      logits: [..., vocab] of any float dtype, vocab >= 1.

    Returns:
      [...] NAN where any logit is NaN, else INFINITE where any is +inf, else EMPTY where all are
      -inf, else NONE.
    """
    highest = logits.amax(-1)  # NaN where any entry is
    return (
        highest.isnan() * int(Fault.NAN)
        + (highest == torch.inf) * int(Fault.INFINITE)
        + (highest == -torch.inf) * int(Fault.EMPTY)
    )


def _first_largest(values: Tensor, size: int, *, in_order: bool) -> Tensor:
    """[rows, size] positions of the largest of [rows, width] values.

    Largest by (value descending, position ascending); in that order, or in any.

    They lie in the `size` first blocks by (maximum descending, position ascending): a block that
    comes before a value's own holds something that comes before it, namely its maximum, which is
    larger, or equal and at a smaller position.
    """
    rows, width = values.shape
    block = _block_width(values, size)
    if block is None:
        position = torch.arange(width, device=values.device).unsqueeze(0)
        return _first_of_few(values, position, size, in_order=in_order)[0]
    num_whole = width // block
    blocks = values[:, : num_whole * block].view(rows, num_whole, block)
    chosen = _first_largest(blocks.amax(-1), size, in_order=False)
    candidates = _take(blocks, chosen)
    if width % block:  # what follows the last whole block is a candidate always
        end = torch.nn.functional.pad(
            values[:, num_whole * block :], (0, block - width % block), value=-torch.inf
        )
        candidates = torch.cat([candidates, end.unsqueeze(1)], dim=1)
        chosen = torch.nn.functional.pad(chosen, (0, 1), value=num_whole)
    if candidates.dtype != torch.float64:
        candidates = candidates.float()  # reductions of narrower floats are slow
    first = chosen * block
    if candidates[0].numel() >= max(_DIRECT_BELOW, 2 * size * _NARROW) and block > _NARROW:
        step = torch.arange(0, block, _NARROW, device=values.device)
        first = (first.unsqueeze(-1) + step).flatten(1)
        candidates = candidates.view(rows, -1, _NARROW)
        first, place = _first_of_few(_narrow_maxima(candidates), first, size, in_order=False)
        candidates = _take(candidates, place)
    step = torch.arange(candidates.shape[-1], device=values.device)
    position = (first.unsqueeze(-1) + step).flatten(1)
    # Positions beyond the end come after all others, but for those of a NaN.
    found = _first_of_few(candidates.flatten(1), position, size, in_order=in_order)[0]
    return found.clamp_max(width - 1) if width % block else found


def _take(blocks: Tensor, index: Tensor) -> Tensor:
    """[rows, some, block] of [rows, blocks, block], by [rows, some] indices."""
    rows, count, width = blocks.shape
    row = torch.arange(rows, device=blocks.device).unsqueeze(-1)
    if not blocks.is_contiguous():
        return blocks[row, index]
    # Whole blocks are copied at once: several times faster than indexing by two tensors.
    flat = blocks.view(-1, width).index_select(0, (row * count + index).flatten())
    return flat.view(rows, -1, width)


def _narrow_maxima(blocks: Tensor) -> Tensor:
    """[rows, blocks] maxima of [rows, blocks, _NARROW]."""
    if blocks.device.type != "cpu" or torch.compiler.is_compiling():
        return blocks.amax(-1)
    # A CPU reduces so few values at a time slowly, and pools them fast.
    return torch.nn.functional.max_pool1d(blocks.flatten(1).unsqueeze(1), _NARROW).squeeze(1)


def _block_width(values: Tensor, size: int) -> int | None:
    """Width of the blocks to look at first; None where they would not spare work."""
    width = values.shape[-1]
    if width < _DIRECT_BELOW or values.shape[0] == 0:
        return None
    if values.element_size() < 4:
        choice, share = [_WIDE, _MIDDLE], 2
    else:
        choice, share = [_WIDE, _MIDDLE] if width >= _WIDE_FROM else [_MIDDLE], 4
    for block in choice:
        if share * size * block <= width:
            return block
    return _NARROW if 2 * size * _NARROW <= width else None


def _first_of_few(
    values: Tensor, position: Tensor, size: int, *, in_order: bool
) -> tuple[Tensor, Tensor]:
    """`_first_largest` by looking at all values.

    Args:
      values: [rows, width].
      position: [rows, width] or [1, width], each value's; no two of a row are equal.
      size: Of them to find.
      in_order: As for `_first_largest`.

    Returns:
      [rows, size] positions, and where in `values` they stand.
    """
    if values.dtype == torch.float64:
        position = position.expand(values.shape)
        ascending, by_position = position.sort(dim=-1)
        order = values.gather(-1, by_position).sort(dim=-1, descending=True, stable=True).indices
        order = order[..., :size]
        return ascending.gather(-1, order), by_position.gather(-1, order)
    # One integer holds value and position, so no two are equal and `topk` has no choice. The bits
    # of a float, those below the sign flipped in negative ones, are ordered as the floats are;
    # adding 0 makes -0.0 and 0.0 one number.
    bits = (values.float() + 0.0).view(torch.int32)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    key = (ordered << 32) | (_LOW_WORD - position)
    # Sorting is left to `sort`, which is several times faster at it than `topk`.
    best, place = key.topk(size, dim=-1, sorted=False)
    if in_order:
        best, order = best.sort(dim=-1, descending=True)
        place = place.gather(-1, order)
    return _LOW_WORD - (best & _LOW_WORD), place
