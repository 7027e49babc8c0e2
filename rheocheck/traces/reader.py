"""A trace as the audit reads it: batches of rounds, checked, with their laws and trees."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.errors import TraceError
from rheocheck.traces.fields import FIELDS, Axis
from rheocheck.traces.index import Index, Shard, read_index
from rheocheck.traces.laws import Laws, read_laws
from rheocheck.traces.shards import Piece, read_pieces
from rheocheck.traces.trees import Trees, read_trees

# Entries of a table, one row a token, as wide as its widest row: beyond it a piece is halved.
TABLE_ENTRIES = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rounds of one run, with one row for each emitted token where axes say so.

    Attributes:
      run: Index of the run that they belong to.
      vocab: Of the target.
      first_record: Number of the first record in the trace.
      request: [records] number of the request.
      round: [records] number of the round within it.
      record: [emitted] record within the batch.
      step: [emitted] place in the round's emission, which is the depth of the token's node.
      token: [emitted] token ids.
      laws: At the emitted tokens.
      trees: None where no trees were recorded.
      arrays: All arrays of the records as they stand in the file, for stages that read more.
    """

    run: int
    vocab: int
    first_record: int
    request: NDArray[np.int64]
    round: NDArray[np.int64]
    record: NDArray[np.int64]
    step: NDArray[np.int64]
    token: NDArray[np.int64]
    laws: Laws
    trees: Trees | None
    arrays: dict[str, NDArray[Any]]

    def place(self, row: int) -> dict[str, int]:
        """Where an emitted token is: record, request, round, and its place in the round."""
        record = int(self.record[row])
        return {
            "record": self.first_record + record,
            "request": int(self.request[record]),
            "round": int(self.round[record]),
            "step": int(self.step[row]),
        }


def open_trace(path: Path) -> Index:
    """The index of a trace, checked; no array is read yet.

    Raises:
      TraceError: See `rheocheck.traces.index.read_index`.
    """
    return read_index(path)


def read_batches(index: Index) -> Iterator[Batch]:
    """All rounds in order; memory is bounded by one batch, whatever the trace's length.

    Raises:
      TraceError: At the first record that is not as it must be.
    """
    for piece in read_pieces(index):
        for part in _narrow(piece):
            yield _batch(part)


def read_record(index: Index, number: int) -> Batch:
    """One record, as a batch.

    Raises:
      TraceError: There is no such record, or it is not as it must be.
    """
    shard = _shard_of(index, number)
    row = number - shard.first_record
    for piece in read_pieces(index, shard):
        count = len(piece.arrays["request"])
        if piece.first <= row < piece.first + count:
            return _batch(_records(piece, row - piece.first, row - piece.first + 1))
    raise shard.error("the record is missing", row)


def _shard_of(index: Index, number: int) -> Shard:
    for shard in index.shards:
        if shard.first_record <= number < shard.first_record + shard.num_records:
            return shard
    last = index.num_records - 1
    raise TraceError(f"trace {index.folder}: record {number}: records go from 0 to {last}")


def _narrow(piece: Piece) -> Iterator[Piece]:
    """The piece in parts whose tables stay small: a table is as wide as its widest row.

    One node with thousands of children, or one long list of a law, would widen the rows of all
    others. Halving leaves it among few.
    """
    arrays, count = piece.arrays, len(piece.arrays["request"])
    width = max(1, _most_children(arrays))
    for name in ("target_size", "draft_size"):
        width = max(width, int(arrays[name].max(initial=0)) if name in arrays else 1)
    if count == 1 or len(arrays["token"]) * width <= TABLE_ENTRIES:
        yield piece
        return
    yield from _narrow(_records(piece, 0, count // 2))
    yield from _narrow(_records(piece, count // 2, count))


def _most_children(arrays: dict[str, NDArray[Any]]) -> int:
    """Most drafted nodes under one parent."""
    if "num_nodes" not in arrays or not len(arrays["node_parent"]):
        return 0
    record = np.repeat(np.arange(len(arrays["num_nodes"])), arrays["num_nodes"])
    order = np.lexsort((arrays["node_parent"], record))
    record, parent = record[order], arrays["node_parent"][order]
    new = np.flatnonzero((np.diff(record) != 0) | (np.diff(parent) != 0)) + 1
    return int(np.diff(np.concatenate([[0], new, [len(record)]])).max())


def _records(piece: Piece, first: int, last: int) -> Piece:
    """Records first to last - 1 of a piece."""
    arrays = piece.arrays
    tokens = np.concatenate([[0], np.cumsum(arrays["num_tokens"])])
    bounds = {Axis.RECORD: (first, last), Axis.TOKEN: (tokens[first], tokens[last])}
    if "num_nodes" in arrays:
        nodes = np.concatenate([[0], np.cumsum(arrays["num_nodes"])])
        bounds[Axis.NODE] = (nodes[first], nodes[last])
    for axis, name in ((Axis.TARGET, "target_size"), (Axis.DRAFT, "draft_size")):
        if name in arrays:
            entries = np.concatenate([[0], np.cumsum(arrays[name])])
            bounds[axis] = (entries[tokens[first]], entries[tokens[last]])
    cut = {
        name: array[slice(*map(int, bounds[FIELDS[name].axis]))] for name, array in arrays.items()
    }
    return Piece(piece.shard, piece.vocab, piece.first + first, cut)


def _batch(piece: Piece) -> Batch:
    arrays = piece.arrays
    for name in ("request", "round"):
        bad = np.flatnonzero(arrays[name] < 0)
        if bad.size:
            raise piece.error(f"{name} = {arrays[name][bad[0]]}: must be 0 or more", int(bad[0]))
    count = arrays["num_tokens"]
    record = np.repeat(np.arange(len(count)), count)
    step = np.arange(len(record)) - (np.cumsum(count) - count)[record]
    return Batch(
        run=piece.shard.run,
        vocab=piece.vocab,
        first_record=piece.shard.first_record + piece.first,
        request=arrays["request"],
        round=arrays["round"],
        record=record,
        step=step,
        token=arrays["token"],
        laws=read_laws(piece),
        trees=read_trees(piece),
        arrays=arrays,
    )
