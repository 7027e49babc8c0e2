"""Cells of emitted tokens: ranks under the target, roles by rank under the draft.

Cells are fixed by a context's laws before its tree and its token are drawn, so the target's law of
the cell is exact whatever was accepted.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.drawn_tokens import Values
from rheocheck.stats.cells import RANK_STARTS, ROLES, cell_law, role_cell
from rheocheck.traces.laws import Laws

RANK_NAMES = ("1", "2", "3-5", "6-20", "21-100", "101 and more, or not listed")


def rank_buckets(laws: Laws) -> tuple[NDArray[np.int64], Values]:
    """Rank bucket of each token, and the buckets' law at its place.

    Ranks go by (mass descending, column ascending) over the listed tokens; the column of the rest
    belongs to the last bucket.

    Returns:
      [emitted] index into `RANK_NAMES`; [emitted, buckets], rows sum to 1.
    """
    law, column = laws.null, laws.column
    body = law if laws.ids is None else law[:, :-1]
    num_columns = body.shape[1]
    is_rest = column >= num_columns
    rows = np.arange(len(column))
    own = law[rows, column][:, None]
    before = (body > own) | ((body == own) & (np.arange(num_columns) < column[:, None]))
    rank = np.where(is_rest, RANK_STARTS[-1], before.sum(axis=1) + 1)
    kept = min(num_columns, RANK_STARTS[-1] - 1)
    # Only the largest hundred need an order.
    top = -np.sort(np.partition(-body, kept - 1, axis=1)[:, :kept], axis=1) if kept else body
    padded = np.zeros((len(column), RANK_STARTS[-1] - 1))
    padded[:, :kept] = top
    sums = np.add.reduceat(padded, np.array(RANK_STARTS[:-1]) - 1, axis=1)
    last = np.maximum(law.sum(axis=1) - sums.sum(axis=1), 0.0)
    bucket = np.searchsorted(np.array(RANK_STARTS), rank, side="right") - 1
    # A law of at most a hundred listed tokens has nothing in the last bucket but rounding.
    empty = (num_columns < RANK_STARTS[-1]) & ((laws.ids is None) | (law[:, -1] == 0))
    return bucket, np.column_stack([sums, np.where(empty & (bucket < sums.shape[1]), 0.0, last)])


def role_buckets(laws: Laws, num_top: int, num_candidates: int) -> tuple[NDArray[np.int64], Values]:
    """Role of each token by its rank under the draft, and the roles' law at its place.

    Where laws list some tokens only, the column of the rest is ranked like a token.

    Args:
      laws: With the draft's.
      num_top: Ranks that are deterministic children.
      num_candidates: Ranks up to which fillers are taken, all children together.

    Returns:
      [emitted] index into `rheocheck.stats.cells.ROLES`; [emitted, roles], rows sum to 1.
    """
    assert laws.draft is not None
    cell = role_cell(laws.draft, num_top, num_candidates)
    bucket = cell[np.arange(len(laws.column)), laws.column]
    return bucket, cell_law(laws.null, cell, len(ROLES))
