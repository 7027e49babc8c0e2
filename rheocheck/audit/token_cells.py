"""Cells of emitted tokens by their rank under the target.

Cells are fixed by a context's laws before its tree and its token are drawn, so the target's law of
the cell is exact whatever was accepted.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.cells import RANK_STARTS
from rheocheck.stats.wide import WIDE, largest, ranks
from rheocheck.traces.laws import Laws

Values = NDArray[np.float64]
RANK_NAMES = ("1", "2", "3-5", "6-20", "21-100", "101 and more, or not listed")


def rank_buckets(
    laws: Laws, earlier: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], Values]:
    """Rank bucket of each token, and the buckets' law at its place.

    Ranks go by (mass descending, column ascending) over the listed tokens; the column of the rest
    belongs to the last bucket.

    Args:
      laws: At the tokens.
      earlier: [emitted] ranks from 0 over all columns, where they are known and all columns are
        tokens.

    Returns:
      [emitted] index into `RANK_NAMES`; [emitted, buckets], rows sum to 1.
    """
    law, column = laws.null, laws.column
    body = law if laws.ids is None else law[:, :-1]
    num_columns = body.shape[1]
    is_rest = column >= num_columns
    rows = np.arange(len(column))
    kept = min(num_columns, RANK_STARTS[-1] - 1)
    if num_columns > WIDE:
        if earlier is None:
            earlier = ranks(body, np.where(is_rest, 0, column))[0]
        top = largest(body, kept)
    else:
        own = law[rows, column][:, None]
        before = (body > own) | ((body == own) & (np.arange(num_columns) < column[:, None]))
        earlier = before.sum(axis=1)
        # Only the largest hundred need an order.
        top = -np.sort(np.partition(-body, kept - 1, axis=1)[:, :kept], axis=1) if kept else body
    rank = np.where(is_rest, RANK_STARTS[-1], earlier + 1)
    padded = np.zeros((len(column), RANK_STARTS[-1] - 1))
    padded[:, :kept] = top
    sums = np.add.reduceat(padded, np.array(RANK_STARTS[:-1]) - 1, axis=1)
    last = np.maximum(law.sum(axis=1) - sums.sum(axis=1), 0.0)
    bucket = np.searchsorted(np.array(RANK_STARTS), rank, side="right") - 1
    # A law of at most a hundred listed tokens has nothing in the last bucket but rounding.
    empty = (num_columns < RANK_STARTS[-1]) & ((laws.ids is None) | (law[:, -1] == 0))
    return bucket, np.column_stack([sums, np.where(empty & (bucket < sums.shape[1]), 0.0, last)])
