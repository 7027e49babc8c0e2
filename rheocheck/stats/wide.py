"""Statistics of drawn tokens that order a whole vocabulary by the target, row by row.

The dense functions make several arrays of contexts times vocabulary; at a hundred thousand tokens
these do not fit in a cache. Here each context is looked at by itself, and only what can matter of
it after one comparison. `surprisal_terms` bounds the cumulants from above (see `binned_terms`), all
else is what `scores`, `pit` and `cells` give, up to rounding.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.scores import SURPRISAL_CLIP, ScoreTerms
from rheocheck.stats.surprisal_bins import binned_terms

WIDE = 4096
"""Laws of more columns than this are worth looking at row by row."""

Values = NDArray[np.float64]
Tokens = NDArray[np.int64]
_RAREST = float(np.exp(-SURPRISAL_CLIP))
# Blocks whose maxima bound the largest masses from below, in multiples of how many are wanted.
_BLOCKS_A_RANK = 16


def ranks(law: Values, drawn: Tokens) -> tuple[Tokens, Values]:
    """Rank of each drawn token by (mass descending, column ascending), and the mass before it.

    Args:
      law: [contexts, columns] laws.
      drawn: [contexts] columns.

    Returns:
      [contexts] ranks from 0; [contexts] mass of the columns before it in that order.
    """
    rank, before = np.zeros(len(drawn), dtype=np.int64), np.zeros(len(drawn))
    for index, (row, column) in enumerate(zip(law, drawn.tolist(), strict=True)):
        own = row[column]
        larger = np.flatnonzero(row > own)
        ties = int(np.count_nonzero(row[:column] == own))
        rank[index] = len(larger) + ties
        before[index] = row[larger].sum() + ties * own
    return rank, before


def largest(law: Values, count: int) -> Values:
    """The largest masses of each context, in descending order.

    Args:
      law: [contexts, columns] laws.
      count: How many, at most the number of columns.

    Returns:
      [contexts, count].
    """
    found = np.empty((len(law), count))
    for index, row in enumerate(law):
        chosen = row
        blocks = _BLOCKS_A_RANK * count
        if len(row) >= 2 * blocks:
            whole = len(row) // blocks * blocks
            # As many columns as there are maxima above a bar lie above it.
            maxima = row[:whole].reshape(-1, blocks).max(axis=0)
            bar = np.partition(maxima, blocks - count)[blocks - count]
            chosen = row[np.flatnonzero(row >= bar)]
        part = np.partition(chosen, len(chosen) - count)[len(chosen) - count :]
        found[index] = np.sort(part)[::-1]
    return found


def surprisal_terms(law: Values, drawn: Tokens) -> ScoreTerms:
    """`score_terms` of `surprisal`, with upper bounds of the cumulants.

    Args:
      law: [contexts, columns] laws.
      drawn: [contexts] columns.
    """
    rows = []
    for row, column in zip(law, drawn.tolist(), strict=True):
        if row[column] > 0:
            head = row[np.flatnonzero(row > _RAREST)]
            rows.append(binned_terms(head, -np.log(head), -float(np.log(row[column]))))
    return ScoreTerms(
        np.array([found[0] for found in rows]),
        np.array([found[1] for found in rows]),
        np.array([found[2] for found in rows]).reshape(len(rows), -1),
    )
