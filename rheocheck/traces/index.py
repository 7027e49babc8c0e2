"""The index of a trace: which shards there are, and that their files are what they say.

A trace comes from anyone. Names in it never lead out of its folder, nothing in it is executed, and
no length in it is believed before the file has been seen to be that long.
"""

import json
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rheocheck.errors import TraceError
from rheocheck.traces.fields import FORMAT, INDEX_NAME, SCHEMA_VERSION

LARGEST_INDEX = 2**26
# A shard has some thirty arrays; a megabyte of header is a hundred times what they need.
LARGEST_HEADER = 2**20
LARGEST_VOCAB = 2**24
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a trace.

    Attributes:
      path: In the trace's folder.
      first_record: Number of its first record in the trace.
      num_records: Records in it.
      run: Index into the trace's runs.
    """

    path: Path
    first_record: int
    num_records: int
    run: int

    def error(self, message: str, row: int = 0) -> TraceError:
        """An error at a record of this shard, counted within it."""
        return TraceError(
            f"trace {self.path.parent}: record {self.first_record + row} (shard {self.path.name}): "
            f"{message}"
        )


@dataclass(frozen=True, slots=True)
class Index:
    """A trace before any of its arrays is read.

    Attributes:
      folder: Of the trace.
      vocab: Size of the target's vocabulary.
      runs: Settings of the runs that the shards belong to.
      versions: Of the software that wrote it; informative.
      shards: In the order of the records.
    """

    folder: Path
    vocab: int
    runs: tuple[dict[str, Any], ...]
    versions: dict[str, Any]
    shards: tuple[Shard, ...]

    @property
    def num_records(self) -> int:
        """Records in all shards."""
        return sum(shard.num_records for shard in self.shards)


def read_index(path: Path) -> Index:
    """Read and check the index, and that each shard is a plain file of plausible size.

    Args:
      path: The trace's folder, or its index file.

    Returns:
      The index.

    Raises:
      TraceError: No index, not JSON, another format or schema version, values out of range, a shard
        that is missing, a link, outside the folder, or shorter than its header says.
    """
    folder = path if path.is_dir() else path.parent
    file = path / INDEX_NAME if path.is_dir() else path
    values = _load(file)
    if values.get("format") != FORMAT:
        raise TraceError(f'{file}: format = {values.get("format")!r}: must be "{FORMAT}"')
    version = values.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise TraceError(
            f"{file}: schema_version = {version!r}: this version of rheocheck reads "
            f"{SCHEMA_VERSION} only"
        )
    vocab = _integer(values, "vocab", f"{file}: vocab", 1, LARGEST_VOCAB)
    runs = values.get("runs", [{}])
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise TraceError(f"{file}: runs: must be a list of at least one object of settings")
    versions = values.get("versions", {})
    if not isinstance(versions, dict):
        raise TraceError(f"{file}: versions: must be an object")
    listed = values.get("shards")
    if not isinstance(listed, list):
        raise TraceError(f"{file}: shards: must be a list")
    shards: list[Shard] = []
    first = 0
    for number, entry in enumerate(listed):
        where = f"{file}: shards[{number}] (from record {first})"
        if not isinstance(entry, dict):
            raise TraceError(f"{where}: must be an object with file and records")
        count = _integer(entry, "records", f"{where}: records", 1, 2**40)
        run = _integer({"run": 0, **entry}, "run", f"{where}: run", 0, len(runs) - 1)
        shard = Shard(_inside(folder, entry.get("file"), where), first, count, run)
        if any(shard.path == other.path for other in shards):
            raise TraceError(f"{where}: file {shard.path.name} is listed twice")
        _check_file(shard)
        shards.append(shard)
        first += count
    return Index(folder, vocab, tuple(runs), versions, tuple(shards))


def _load(file: Path) -> dict[str, Any]:
    try:
        status = file.lstat()
    except OSError as error:
        raise TraceError(
            f"{file}: {error.strerror}; a trace is a folder with {INDEX_NAME} and its shards"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise TraceError(f"{file}: is not a plain file (links are refused)")
    if status.st_size > LARGEST_INDEX:
        raise TraceError(f"{file}: has {status.st_size} bytes: at most {LARGEST_INDEX} allowed")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: is not JSON, or was cut off: {error}") from None
    if not isinstance(values, dict):
        raise TraceError(f"{file}: must hold a JSON object")
    return values


def _integer(values: dict[str, Any], key: str, what: str, lowest: int, highest: int) -> int:
    found = values.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or not lowest <= found <= highest:
        raise TraceError(f"{what} = {found!r}: must be an integer from {lowest} to {highest}")
    return found


def _inside(folder: Path, name: Any, where: str) -> Path:
    """The shard's path: a bare file name in the trace's own folder."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise TraceError(
            f"{where}: file = {name!r}: must be a bare name of letters, digits, '.', '_' and '-' "
            "that ends in .safetensors"
        )
    return folder / name


def _check_file(shard: Shard) -> None:
    """That the file is plain and as long as its header's length asks at the least."""
    try:
        status = shard.path.lstat()
    except OSError as error:
        raise shard.error(f"the shard cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise shard.error("the shard is not a plain file (links are refused)")
    with shard.path.open("rb") as stream:
        start = stream.read(8)
    if len(start) < 8:
        raise shard.error(f"the shard is truncated: {status.st_size} bytes hold no header")
    (length,) = struct.unpack("<Q", start)
    if length > LARGEST_HEADER:
        raise shard.error(
            f"the header claims {length} bytes, at most {LARGEST_HEADER} allowed: not a "
            "safetensors file of this format, or corrupt"
        )
    if length + 8 > status.st_size:
        raise shard.error(
            f"the shard is truncated: {status.st_size} bytes, its header alone takes {length + 8}"
        )
