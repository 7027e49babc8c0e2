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
ROLES = ("top", "filler range", "rest of support", "outside")


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


def role_cell(draft: Laws, num_top: int, num_candidates: int) -> Tokens:
    """[contexts, vocab] index into `ROLES` of each token, by its rank under the draft.

    What a token would most likely be in a tree, fixed before any tree is drawn: 0 for the `num_top`
    first tokens, 1 for those up to rank `num_candidates`, where fillers come from, 2 for the rest
    of the support, 3 outside. Roles that tokens really had must not be the cells of this test:
    given the tree the emitted token's law is not the target's.

    Order is by draft mass, ties by token id. A context without a draft (a zero row) is all outside.
    """
    first = min(max(num_top, num_candidates), draft.shape[1])
    order = np.argsort(-draft, axis=1, kind="stable")[:, :first]
    cell = np.where(draft > 0, 2, 3)
    chosen = np.take_along_axis(cell, order, axis=1)
    role = np.where(np.arange(first) < num_top, 0, 1)
    np.put_along_axis(cell, order, np.where(chosen == 2, role, chosen), axis=1)
    return np.asarray(cell, dtype=np.int64)


def cell_law(law: Laws, cell: Tokens, num_cells: int) -> Laws:
    """[contexts, num_cells] mass that each context's law puts on each cell."""
    rows = np.arange(len(law))[:, None] * num_cells
    flat = np.bincount((rows + cell).ravel(), law.ravel(), minlength=len(law) * num_cells)
    return np.asarray(flat.reshape(len(law), num_cells), dtype=np.float64)
