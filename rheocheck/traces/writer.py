"""Writes a trace. Self-contained: paste it into the engine that is to be audited."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

FLOATS = ("_law", "_logits", "_mass", "_rest", "_uniform", "probe_below", "probe_at")


class TraceWriter:
    """Writes rounds to shards of about `shard_bytes`; `close` writes the index."""

    def __init__(
        self, folder: Any, vocab: int, settings: dict[str, Any], shard_bytes: int = 2**26
    ) -> None:
        """`settings`: temperature and whatever else; the scheme's where trees are recorded."""
        self.folder, self.shard_bytes = Path(folder), shard_bytes
        self.folder.mkdir(parents=True)
        self.index: dict[str, Any] = {"format": "rheocheck-trace", "schema_version": 1}
        self.index |= {"vocab": vocab, "runs": [settings], "versions": {}, "shards": []}
        self.columns: dict[str, list[Any]] = {}
        self.size = 0

    def add(self, request: int, round: int, token: Any, **fields: Any) -> None:
        """One round: its emitted tokens and any fields of the page, the same ones every time."""
        counts = {"request": [request], "round": [round], "num_tokens": [len(token)]}
        for name, value in {**counts, "token": token, **fields}.items():
            array = np.atleast_1d(np.asarray(value))
            array = array if name.endswith(FLOATS) else array.astype(np.int64)
            self.columns.setdefault(name, []).append(array)
            self.size += array.nbytes
        if self.size >= self.shard_bytes:
            self.flush()

    def flush(self) -> None:
        """End the shard."""
        if self.columns:
            name, rounds = f"{len(self.index['shards']):05d}.safetensors", self.columns["request"]
            tensors = {key: np.concatenate(parts) for key, parts in self.columns.items()}
            save_file(tensors, self.folder / name)
            self.index["shards"].append({"file": name, "records": len(rounds)})
            self.columns, self.size = {}, 0

    def close(self) -> None:
        """Write the last shard, then the index: a trace without one is incomplete."""
        self.flush()
        (self.folder / "index.json").write_text(json.dumps(self.index, indent=1))
