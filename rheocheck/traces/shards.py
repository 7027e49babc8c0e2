"""Reads a shard piece by piece: whole records, so many that their laws fit a given size."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.errors import InputError, TraceError
from rheocheck.traces.fields import FIELDS, FLOATS, INTEGERS, NEEDS, REQUIRED, TOGETHER, Axis
from rheocheck.traces.index import Index, Shard

# Laws of one piece, as float64; the arrays made from them take a few times that.
PIECE_BYTES = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some records of a shard: their arrays as they stand in the file, sizes checked.

    Attributes:
      shard: Where they come from.
      vocab: Of the trace.
      first: Row of the first record within the shard.
      arrays: By field; integers as int64, floats in the file's dtype.
    """

    shard: Shard
    vocab: int
    first: int
    arrays: dict[str, NDArray[Any]]

    def error(self, message: str, record: int) -> TraceError:
        """An error at a record, counted within the piece."""
        return self.shard.error(message, self.first + record)

    def token_error(self, message: str, token: int) -> TraceError:
        """An error at an emitted token, counted within the piece."""
        ends = np.cumsum(self.arrays["num_tokens"])
        record = int(np.searchsorted(ends, token, side="right"))
        step = token - int(ends[record] - self.arrays["num_tokens"][record])
        return self.error(f"emitted token {step}: {message}", record)


def read_pieces(index: Index, only: Shard | None = None) -> Iterator[Piece]:
    """All records, in order, a few at a time.

    Args:
      index: Of the trace.
      only: One shard instead of all.

    Yields:
      Pieces of at least one record. A single round is never split.

    Raises:
      TraceError: A truncated or corrupt shard, missing or unknown arrays, shapes that disagree.
      InputError: safetensors is not installed.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise InputError(
            "traces are safetensors files; install the reader with pip install safetensors"
        ) from None
    for shard in index.shards if only is None else (only,):
        try:
            with safe_open(shard.path, framework="numpy") as file:
                yield from _pieces(file, shard, index.vocab)
        except SafetensorError as error:
            raise shard.error(f"the shard is truncated or corrupt: {error}") from None


def _pieces(file: Any, shard: Shard, vocab: int) -> Iterator[Piece]:
    shapes = _check_layout(file, shard, vocab)
    read: dict[str, NDArray[np.int64]] = {
        name: _integers(file.get_tensor(name), name, shard)
        for name in ("num_tokens", "num_nodes", "target_size", "draft_size")
        if name in shapes
    }
    _check_counts(read, shapes, shard, vocab)
    ends: dict[Axis, NDArray[np.int64]] = {Axis.RECORD: np.arange(1, shard.num_records + 1)}
    ends[Axis.TOKEN] = np.cumsum(read["num_tokens"])
    if "num_nodes" in read:
        ends[Axis.NODE] = np.cumsum(read["num_nodes"])
    for axis, name in ((Axis.TARGET, "target_size"), (Axis.DRAFT, "draft_size")):
        if name in read:
            entries = np.concatenate([[0], np.cumsum(read[name])])
            ends[axis] = entries[ends[Axis.TOKEN]]
    for axis, end in ends.items():
        _check_length(axis, int(end[-1]), shapes, shard)
    begins = {axis: np.concatenate([[0], end]) for axis, end in ends.items()}
    width = _width(read, shapes, vocab)
    first = 0
    while first < shard.num_records:
        room = int(begins[Axis.TOKEN][first]) + max(1, PIECE_BYTES // (8 * width))
        last = max(first + 1, int(np.searchsorted(ends[Axis.TOKEN], room, side="right")))
        arrays = {}
        for name in shapes:
            bounds = begins[FIELDS[name].axis]
            array = _rows(file, name, int(bounds[first]), int(bounds[last]))
            arrays[name] = array if FIELDS[name].is_float else _integers(array, name, shard)
        yield Piece(shard, vocab, first, arrays)
        first = last


def _rows(file: Any, name: str, begin: int, end: int) -> NDArray[Any]:
    """Rows of an array; safetensors refuses to slice none."""
    part = file.get_slice(name)
    if begin < end:
        return np.asarray(part[begin:end])
    dtype = {**INTEGERS, **FLOATS}[part.get_dtype()]
    return np.zeros((0, *part.get_shape()[1:]), dtype=dtype)


def _check_layout(file: Any, shard: Shard, vocab: int) -> dict[str, tuple[int, ...]]:
    """Names, dtypes and ranks of the arrays; their shapes."""
    names = set(file.keys())
    unknown = sorted(names - FIELDS.keys())
    if unknown:
        raise shard.error(f"array {unknown[0]!r} is not one of this format's")
    for name in REQUIRED:
        if name not in names:
            raise shard.error(f"array {name!r} is missing")
    for group in TOGETHER:
        given = [name for name in group if name in names]
        if given and len(given) < len(group):
            missing = next(name for name in group if name not in names)
            raise shard.error(f"array {missing!r} is missing, and {given[0]!r} needs it")
    for name, needed in NEEDS.items():
        if name in names and needed not in names:
            raise shard.error(f"array {name!r} needs {needed!r}, which is missing")
    forms = {
        law: [form for form in ("law", "logits") if f"{law}_{form}" in names]
        for law in ("target", "draft", "plain")
    }
    for law, entry in (("target", "target_size"), ("draft", "draft_size"), ("plain", "plain_mass")):
        found = len(forms[law]) + (entry in names)
        if found > 1 or (law == "target" and found == 0):
            raise shard.error(
                f"the {law} law must be given in one of its forms ({law}_law, {law}_logits or "
                f"{entry} and its companions), not in {found}"
            )
    if forms["plain"] and "target_size" in names:
        raise shard.error("the plain law must be sparse where the target law is")
    shapes = {}
    for name in sorted(names):
        part, field = file.get_slice(name), FIELDS[name]
        dtype, shape = part.get_dtype(), tuple(part.get_shape())
        allowed = FLOATS if field.is_float else INTEGERS
        if dtype not in allowed:
            raise shard.error(f"{name}: dtype {dtype}: must be one of {', '.join(allowed)}")
        if len(shape) != 1 + field.is_wide or (field.is_wide and shape[1] != vocab):
            wanted = f"[{field.axis.value}{f', {vocab}' if field.is_wide else ''}]"
            raise shard.error(f"{name}: shape {list(shape)}: must be {wanted}")
        shapes[name] = shape
    return shapes


def _check_counts(
    read: dict[str, NDArray[np.int64]],
    shapes: dict[str, tuple[int, ...]],
    shard: Shard,
    vocab: int,
) -> None:
    """Counts are within bounds before anything is summed or allocated by them."""
    for name in ("num_tokens", "num_nodes"):
        if name in read:
            _check_rows(read[name], name, shard.num_records, "records", shard)
            lowest = 1 if name == "num_tokens" else 0
            bad = np.flatnonzero((read[name] < lowest) | (read[name] > 2**20))
            if bad.size:
                raise shard.error(
                    f"{name} = {read[name][bad[0]]}: must be from {lowest} to {2**20}", int(bad[0])
                )
    ends = np.cumsum(read["num_tokens"])
    for name in ("target_size", "draft_size"):
        if name in read:
            _check_rows(read[name], name, int(ends[-1]), "emitted tokens", shard)
            bad = np.flatnonzero((read[name] < 0) | (read[name] > vocab))
            if bad.size:
                record = int(np.searchsorted(ends, bad[0], side="right"))
                raise shard.error(f"{name} = {read[name][bad[0]]}: must be 0 to {vocab}", record)


def _check_rows(array: NDArray[np.int64], name: str, wanted: int, what: str, shard: Shard) -> None:
    if len(array) != wanted:
        raise shard.error(
            f"{name} has {len(array)} rows where {wanted} {what} are announced; shapes disagree"
        )


def _check_length(
    axis: Axis, length: int, shapes: dict[str, tuple[int, ...]], shard: Shard
) -> None:
    for name, shape in shapes.items():
        if FIELDS[name].axis is axis and shape[0] != length:
            raise shard.error(
                f"{name} has {shape[0]} rows where there are {length} {axis.value}; shapes disagree"
            )


def _width(
    read: dict[str, NDArray[np.int64]], shapes: dict[str, tuple[int, ...]], vocab: int
) -> int:
    """Columns of the widest law of a token."""
    if any(FIELDS[name].is_wide for name in shapes):
        return vocab
    sizes = [int(read[name].max()) for name in ("target_size", "draft_size") if name in read]
    return 1 + max(sizes, default=0)


def _integers(array: NDArray[Any], name: str, shard: Shard) -> NDArray[np.int64]:
    return np.asarray(array, dtype=np.int64)
