"""What the draft's recorded laws say of the children that a trace's nodes have.

A probe is drawn from the draft's law without the node's best tokens; the deterministic children are
its best tokens. Where the recorded law says otherwise, it is another node's, or another model's.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.laws import total_variation
from rheocheck.audit.trace_rule import Tails
from rheocheck.traces.reader import Batch
from rheocheck.traces.trees import FILLER, PROBE, TOP

IMPOSSIBLE = "the draft's law cannot draw this probe"
NOT_BEST = "a deterministic child is not among the draft's best tokens"
PROBE_LAW = "the law that verification took the probe to come from is not the draft's"
DRAW_LAW = "the law that the probe was drawn from is not the draft's"

Found = tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64]]
"""[emitted] violated, role that it belongs to, and what was recorded."""


def draft_violations(
    batch: Batch,
    tails: Tails,
    used: NDArray[np.float64] | None,
    num_top: int,
    top_k: int | None,
    rounding: float,
    mass_rounding: float,
) -> dict[str, Found]:
    """Violations by kind.

    Args:
      batch: Rounds with trees and draft laws.
      tails: Of the draft's laws.
      used: [emitted, columns] probe's law in verification, or None.
      num_top: Deterministic children of a node.
      top_k: Most children of a node, or None.
      rounding: Absolute rounding of a law's mass in the trace's dtype.
      mass_rounding: Relative rounding of a mass.
    """
    trees, laws = batch.trees, batch.laws
    assert trees is not None and laws.draft is not None
    draft = laws.draft if laws.ids is None else laws.draft[:, :-1]
    # A lump of tokens without columns could hold any of them.
    lump = np.zeros(len(draft)) if laws.ids is None else laws.draft[:, -1]
    spread: NDArray[np.bool_] = (draft.sum(axis=1) > 0) & (lump == 0)
    column = laws.column_of(trees.token)
    rows = np.arange(len(column))[:, None]
    mass = np.where(column >= 0, draft[rows, np.minimum(column, draft.shape[1] - 1)], 0.0)
    slack = 1.0 + 4.0 * mass_rounding
    is_probe = (trees.role == PROBE) & spread[:, None]
    above = mass > tails.largest[:, None] * slack if num_top else np.zeros_like(is_probe)
    zero = (mass == 0) & (not _may_vanish(batch))
    impossible = is_probe & (above | zero) & (tails.total > 0)[:, None]
    found = {IMPOSSIBLE: _of_child(impossible, trees.role, mass)}
    if num_top or top_k:
        worst = _worst_allowed(draft, tails, trees.role, top_k)
        short = (mass * slack < worst) & spread[:, None] & (trees.role >= 0)
        found[NOT_BEST] = _of_child(short, trees.role, mass)
    limit = np.maximum(1e-6, rounding / np.maximum(tails.total, 1e-300))
    looked = is_probe.any(axis=1) & tails.law.any(axis=1)
    if used is not None:
        distance = np.where(looked, total_variation(used, tails.law), 0.0)
        standing = np.full(len(distance), PROBE)
        found[PROBE_LAW] = ~(distance <= limit), standing, distance
    if trees.probes is not None:
        at = is_probe.argmax(axis=1)
        found[DRAW_LAW] = _draw_law(batch, tails.law, column[rows[:, 0], at], looked, limit, at)
    return found


def _may_vanish(batch: Batch) -> bool:
    """Whether a recorded mass of 0 may be the rounding of another."""
    forms = (batch.arrays.get(f"draft_{form}") for form in ("law", "mass"))
    return any(form is not None and form.dtype.itemsize == 2 for form in forms)


def _of_child(bad: NDArray[np.bool_], role: NDArray[np.int64], mass: NDArray[np.float64]) -> Found:
    """A violation of a child stands at its parent's step."""
    rows, first = np.arange(len(bad)), bad.argmax(axis=1)
    return np.asarray(bad.any(axis=1)), role[rows, first], mass[rows, first]


def _worst_allowed(
    draft: NDArray[np.float64], tails: Tails, role: NDArray[np.int64], top_k: int | None
) -> NDArray[np.float64]:
    """[emitted, children] least mass that the child of a role can have; 0 where any will do.

    A top is one of the best `num_top`. A filler is one of the best in the tail apart from the
    probe, which may itself be one of them: so it is one of the best `top_k`.
    """
    kth = np.zeros(len(draft))
    if top_k is not None and top_k <= draft.shape[1]:
        kth = -np.partition(-draft, top_k - 1, axis=1)[:, top_k - 1]
    best = np.where(np.isfinite(tails.best), tails.best, 0.0)
    return np.where(role == TOP, best[:, None], np.where(role == FILLER, kth[:, None], 0.0))


def _draw_law(
    batch: Batch,
    law: NDArray[np.float64],
    column: NDArray[np.int64],
    looked: NDArray[np.bool_],
    limit: NDArray[np.float64],
    at: NDArray[np.int64],
) -> Found:
    """Whether each probe was drawn with the mass that the tail's law gives it."""
    trees = batch.trees
    assert trees is not None and trees.probes is not None
    probes, rows = trees.probes, np.arange(len(law))
    child = trees.child[rows, at]
    stride = int(max(probes.node.max(initial=0), child.max(initial=0))) + 1
    key = np.append(probes.record * stride + probes.node, -1)
    wanted = batch.record * stride + child
    # Probes stand in the order of records and nodes.
    place = np.searchsorted(key[:-1], wanted)
    looked = looked & (key[place] == wanted) & (column >= 0)
    place = np.where(looked, place, 0)
    if not looked.any():
        return np.zeros(len(law), dtype=bool), np.full(len(law), PROBE), np.zeros(len(law))
    mass = probes.mass[place]
    # Nothing is said of what is before it: engines draw in an order of their own.
    off = np.abs(mass - law[rows, column])
    return looked & ~(off <= limit), np.full(len(law), PROBE), mass
