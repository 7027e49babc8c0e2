"""Cells of unlike contexts: by hand, and a lost tail seen by decades."""

import numpy as np

from rheocheck.stats.cells import (
    NUM_DECADES,
    RANK_STARTS,
    cell_law,
    decade_cell,
    rank_cell,
    role_cell,
)
from rheocheck.stats.chi_square import bucket_chi_square
from rheocheck.stats.mutants import tail_dropped


def test_ranks_by_hand() -> None:
    law = np.array([[0.2, 0.3, 0.2, 0.1, 0.1, 0.05, 0.05]])
    assert rank_cell(law).tolist() == [[1, 0, 2, 2, 2, 3, 3]]
    masses = cell_law(law, rank_cell(law), len(RANK_STARTS))
    assert np.allclose(masses, [[0.3, 0.2, 0.4, 0.1, 0.0, 0.0]])


def test_decades_by_hand() -> None:
    law = np.array([[0.8, 0.1, 0.0999, 1e-4, 9e-6, 0.0]])
    assert decade_cell(law).tolist() == [[0, 0, 1, 3, 5, 5]]


def test_roles_by_hand() -> None:
    draft = np.array([[0.2, 0.0, 0.4, 0.4], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert role_cell(draft, 2, 2).tolist() == [[2, 3, 0, 0], [3, 3, 3, 3], [0, 3, 3, 3]]
    assert role_cell(draft, 1, 2).tolist() == [[2, 3, 0, 1], [3, 3, 3, 3], [0, 3, 3, 3]]
    assert role_cell(draft, 0, 3).tolist() == [[1, 3, 1, 1], [3, 3, 3, 3], [1, 3, 3, 3]]
    assert role_cell(draft, 0, 0).tolist() == [[2, 3, 2, 2], [3, 3, 3, 3], [2, 3, 3, 3]]
    assert role_cell(draft, 9, 1).tolist() == [[0, 3, 0, 0], [3, 3, 3, 3], [0, 3, 3, 3]]


def test_no_contexts_have_no_cells() -> None:
    none = np.zeros((0, 5))
    assert cell_law(none, decade_cell(none), NUM_DECADES).shape == (0, NUM_DECADES)


def test_a_lost_tail_is_seen_by_decades_and_sound_draws_are_quiet() -> None:
    """3,000 contexts, tokens below 1e-3 dropped."""
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(400, 0.05), size=3000)
    cut = np.array([tail_dropped(law, law, 0, 1e-3) for law in laws])
    cell = decade_cell(laws)
    for emitted, quiet in ((laws, True), (cut, False)):
        above = rng.random(3000)[:, None] > emitted.cumsum(axis=1)
        token = above.sum(axis=1).clip(max=399)
        counts = np.bincount(cell[np.arange(3000), token], minlength=NUM_DECADES)
        p_value = bucket_chi_square(counts, cell_law(laws, cell, NUM_DECADES)).p_value
        assert (p_value > 1e-9) is quiet
