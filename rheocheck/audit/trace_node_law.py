"""Exact law of the token after some nodes of a trace, over everything their probe could have been.

The white box of a trace: the tree around a node stays as recorded, its probe runs through the tail
of the draft's law with its probabilities, and the outcomes are verified with the probe's law that
verification used. Survival is taken as given.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.laws import total_variation
from rheocheck.audit.trace_rule import node_tests
from rheocheck.config import Rule
from rheocheck.traces.reader import Batch
from rheocheck.traces.trees import FILLER, PROBE

# Nodes of a batch that are looked at, one a record; a large trace has many batches.
MOST_NODES = 16
# Outcomes times columns of a node; beyond it the node is left out.
LARGEST_NODE = 2**24


def node_distances(
    batch: Batch,
    used: NDArray[np.float64],
    drawn: NDArray[np.float64],
    num_top: int,
    rule: Rule,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Distance of exact node laws from the target's.

    Args:
      batch: Rounds with trees, complete target laws and draft laws.
      used: [emitted, columns] probe's law in verification.
      drawn: [emitted, columns] probe's law by the draft; zero rows where no probe survived.
      num_top: Deterministic children of a node.
      rule: Of verification.

    Returns:
      [nodes] rows that were looked at, [nodes] total variation at each.
    """
    assert batch.trees is not None
    candidates = np.flatnonzero(drawn.any(axis=1))
    _, first = np.unique(batch.record[candidates], return_index=True)
    rows, distances = [], []
    for row in candidates[first][:MOST_NODES].tolist():
        outcomes = int((drawn[row] > 0).sum())
        if outcomes * drawn.shape[1] > LARGEST_NODE:
            continue
        rows.append(row)
        law = _node_law(batch, row, used[row], drawn[row], num_top, rule)
        distances.append(float(total_variation(law, batch.laws.target[row])))
    return np.array(rows, dtype=np.int64), np.array(distances)


def _node_law(
    batch: Batch,
    row: int,
    used: NDArray[np.float64],
    drawn: NDArray[np.float64],
    num_top: int,
    rule: Rule,
) -> NDArray[np.float64]:
    trees, laws = batch.trees, batch.laws
    assert trees is not None and laws.draft is not None
    child = laws.column_of(trees.token)[row]
    role = trees.role[row]
    order = np.argsort(-laws.draft[row], kind="stable")
    tail = order[num_top:][laws.draft[row][order[num_top:]] > 0]
    outcomes = np.flatnonzero(drawn > 0)
    table = np.tile(child, (len(outcomes), 1))
    table[:, role == PROBE] = outcomes[:, None]
    # Surviving fillers are the best tail tokens other than the probe, whatever it is.
    num_fillers = int((role == FILLER).sum())
    best = tail[: num_fillers + 1]
    for index, outcome in enumerate(outcomes.tolist()):
        fillers = best[best != outcome][:num_fillers]
        places = np.flatnonzero(role == FILLER)
        table[index, places[: len(fillers)]] = fillers
    roles = np.broadcast_to(role, table.shape)
    target = np.broadcast_to(laws.target[row], (len(outcomes), len(drawn)))
    tests = node_tests(target, table, roles, np.broadcast_to(used, target.shape), rule)
    taken = tests.reach * tests.acceptance * drawn[outcomes][:, None]
    emitted = (tests.residual * (tests.refused * drawn[outcomes])[:, None]).sum(axis=0)
    columns = np.take_along_axis(table, tests.order, axis=1)
    np.add.at(emitted, columns[columns >= 0], taken[columns >= 0])
    return np.asarray(emitted, dtype=np.float64)
