"""Equal uniforms within a round of a trace: one draw used twice."""

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.trace_rule import Tests
from rheocheck.stats.repeats import repeats_p_value
from rheocheck.traces.reader import Batch
from rheocheck.traces.trees import PROBE

# Equal uniforms that are less likely by chance, in one batch, are no chance.
REPEAT_LEVEL = 1e-9


def repeated_records(batch: Batch, tests: Tests | None) -> NDArray[np.int64]:
    """Records in which one uniform stands for two draws that were made, beyond chance.

    What stands where nothing was drawn does not count: an engine that draws when it tests has
    nothing to write there.

    Args:
      batch: Rounds with trees.
      tests: In the order in which they are made, or None where the rule is not known.
    """
    trees = batch.trees
    assert trees is not None
    parts = []
    if trees.uniform is not None:
        row, child = _tested(trees.role >= 0, trees.taken, tests).nonzero()
        parts.append((batch.record[row], trees.uniform[row, child]))
    node_record = np.repeat(np.arange(len(batch.request)), batch.arrays["num_nodes"])
    probe, final = (batch.arrays.get(f"{name}_uniform") for name in ("probe", "final"))
    if probe is not None:
        drawn = batch.arrays["node_role"] == PROBE
        parts.append((node_record[drawn], probe[drawn]))
    if final is not None:
        parts.append((np.arange(len(batch.request)), final))
    if not parts:
        return np.zeros(0, dtype=np.int64)
    record = np.concatenate([part for part, _ in parts]).astype(np.int64)
    value = np.concatenate([part for _, part in parts]).astype(np.float64)
    order = np.lexsort((value, record))
    same = (np.diff(record[order]) == 0) & (np.diff(value[order]) == 0)
    counts = np.bincount(record).astype(np.float64)
    pairs = float((counts * (counts - 1.0)).sum() / 2.0)
    if repeats_p_value(value, value[order][1:][same], pairs) > REPEAT_LEVEL:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(record[order][1:][same])


def _tested(
    there: NDArray[np.bool_], taken: NDArray[np.int64], tests: Tests | None
) -> NDArray[np.bool_]:
    """[emitted, children] children whose test was made.

    Where a step ended the round, all were refused. Where it did not, those before the accepted one
    were; without an order only the accepted one is certain.
    """
    ended = taken < 0
    slot = np.arange(there.shape[1])
    if tests is None:
        return np.asarray(there & (ended[:, None] | (slot == taken[:, None])))
    place = np.argsort(tests.order, axis=1)
    own = np.take_along_axis(place, taken.clip(0)[:, None], axis=1)
    return np.asarray(there & (ended[:, None] | (place <= own)))
