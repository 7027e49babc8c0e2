"""Cells common to unlike contexts, for `chi_square.bucket_chi_square`: ranks, decades, roles.

Each function returns the cell's law in every context and, given tokens, their cells. Cells depend
on the context's laws alone, never on the token, so the counts' covariance is exactly
sum_c (diag P_c - P_c P_c').
"""

import numpy as np
from numpy.typing import NDArray

Laws = NDArray[np.float64]
Tokens = NDArray[np.int64]

# First rank of each cell: 1, 2, 3-5, 6-20, 21-100 and the rest.
RANK_STARTS = (1, 2, 3, 6, 21, 101)
# Cells of probability: [0.1, 1], [0.01, 0.1), ..., below 1e-5.
NUM_DECADES = 6
ROLES = ("top", "support", "outside")


def rank_cell(target: Laws) -> Tokens:
    """[contexts, vocab] cell of each token by its rank under the target, ties by token id."""
    order = np.argsort(-target, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(target.shape[1])[None, :], axis=1)
    cell = np.searchsorted(np.array(RANK_STARTS) - 1, rank, side="right") - 1
    return np.asarray(cell, dtype=np.int64)


def decade_cell(target: Laws) -> Tokens:
    """[contexts, vocab] cell of each token by the decade of its target probability.

    Sharp against whatever cuts at a probability: nucleus and min-p cuts on one side only, tails
    lost to a low precision. A token of exactly 10^-k is in the more probable cell.
    """
    floors = 10.0 ** -np.arange(1, NUM_DECADES, dtype=np.float64)
    cell = np.searchsorted(-floors, -target, side="left")
    return np.asarray(cell, dtype=np.int64)


def role_cell(draft: Laws, num_top: int) -> Tokens:
    """[contexts, vocab] 0 for the draft's `num_top` first tokens, 1 for its other ones, 2 outside.

    Order is by draft mass, ties by token id. A context without a draft (a zero row) is all outside.
    """
    order = np.argsort(-draft, axis=1, kind="stable")
    cell = np.where(draft > 0, 1, 2)
    first = order[:, :num_top]
    chosen = np.take_along_axis(cell, first, axis=1)
    np.put_along_axis(cell, first, np.where(chosen == 1, 0, chosen), axis=1)
    return np.asarray(cell, dtype=np.int64)


def cell_law(law: Laws, cell: Tokens, num_cells: int) -> Laws:
    """[contexts, num_cells] mass that each context's law puts on each cell."""
    rows = np.arange(len(law))[:, None] * num_cells
    flat = np.bincount((rows + cell).ravel(), law.ravel(), minlength=len(law) * num_cells)
    return np.asarray(flat.reshape(len(law), num_cells), dtype=np.float64)
