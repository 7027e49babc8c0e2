"""Exact sums of many integer vectors with large integer weights.

Integers are cut into short pieces whose products add up below 2^53, so that one float64 matrix
product makes all sums without rounding; the pieces are then put together again.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# 27 bits of a count, 16 of a weight and up to 64 terms stay below 2^(27 + 16 + 6) = 2^49; sums of
# up to 4 such products leave room for 11 bits more in an int64.
_COUNT_BITS, _WEIGHT_BITS, _TERMS, _PRODUCTS = 27, 16, 64, 4
_LOW = (1 << _COUNT_BITS) - 1
_STEP = 1 << 14  # vector items at a time: their pieces stay in the cache


def weighted_counts(weights: Sequence[int], counts: Sequence[NDArray[np.int64]]) -> list[int]:
    """Sum of weight * count over the vectors, item by item.

    Args:
      weights: [vectors] integers >= 0 of any size.
      counts: [vectors][items] integers in [0, 2^54).

    Returns:
      [items] exact sums.
    """
    items = len(counts[0]) if counts else 0
    used = [(weight, row) for weight, row in zip(weights, counts, strict=True) if weight]
    if not used:
        return [0] * items
    if len(used) == 1:
        weight, row = used[0]
        return [weight * count for count in row.tolist()]
    total: list[int] = []
    for begin in range(0, len(used), _PRODUCTS * _TERMS):
        part = _sums(used[begin : begin + _PRODUCTS * _TERMS], items)
        total = [sum(pair) for pair in zip(total, part, strict=True)] if total else part
    return total


def _sums(used: Sequence[tuple[int, NDArray[np.int64]]], items: int) -> list[int]:
    """`weighted_counts` of at most _PRODUCTS * _TERMS vectors."""
    number = -(-max(weight for weight, _ in used).bit_length() // _WEIGHT_BITS)
    groups = [used[begin : begin + _TERMS] for begin in range(0, len(used), _TERMS)]
    pieces = [_pieces([weight for weight, _ in group], number) for group in groups]
    total: list[int] = []
    for start in range(0, items, _STEP):
        width = min(_STEP, items - start)
        low, high = np.zeros((2, number, width), dtype=np.int64)
        for piece, group in zip(pieces, groups, strict=True):
            block = np.stack([row[start : start + _STEP] for _, row in group])
            low += (piece @ (block & _LOW).astype(np.float64)).astype(np.int64)
            high += (piece @ (block >> _COUNT_BITS).astype(np.float64)).astype(np.int64)
        total += _assembled(low, high)
    return total


def _pieces(weights: Sequence[int], number: int) -> NDArray[np.float64]:
    """[number, weights] the weights in pieces of _WEIGHT_BITS bits, lowest first."""
    mask = (1 << _WEIGHT_BITS) - 1
    rows = [[(weight >> (_WEIGHT_BITS * n)) & mask for weight in weights] for n in range(number)]
    return np.array(rows, dtype=np.float64)


def _assembled(low: NDArray[np.int64], high: NDArray[np.int64]) -> list[int]:
    """[items] the integers sum_n (low_n + high_n 2^_COUNT_BITS) 2^(_WEIGHT_BITS n)."""
    digits = np.zeros((low.shape[0] + 6, low.shape[1]), dtype=np.int64)
    digits[: low.shape[0]] += low
    # 2^27 is 2^11 of the next piece.
    digits[1 : low.shape[0] + 1] += high << (_COUNT_BITS - _WEIGHT_BITS)
    mask, carry = (1 << _WEIGHT_BITS) - 1, np.zeros(low.shape[1], dtype=np.int64)
    for row in digits:
        row += carry
        carry = row >> _WEIGHT_BITS
        row &= mask
    rows = np.ascontiguousarray(digits.astype("<u2").T)
    data, width = rows.tobytes(), rows.shape[1] * 2
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]
