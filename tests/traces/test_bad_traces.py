"""What is not a trace is refused in one paragraph that names the record, or the index's fault."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rheocheck.errors import TraceError
from rheocheck.traces.reader import open_trace, read_batches, read_record
from tests.traces.synthetic import VOCAB, write_chains, write_minimal

SHARD = "00000.safetensors"


def read_all(folder: Path) -> int:
    return sum(len(batch.request) for batch in read_batches(open_trace(folder)))


def edit_arrays(folder: Path, change: Callable[[dict[str, Any]], None], shard: str = SHARD) -> None:
    arrays = load_file(folder / shard)
    change(arrays)
    save_file(arrays, folder / shard)


def edit_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def put(name: str, row: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name][row] = value

    return change


ARRAYS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (put("target_law", (7, 3), np.nan), r"record 7 .*target_law at token id 3 = nan"),
    (put("target_law", (7, 3), -0.1), r"record 7 .*= -0.1: must be a probability"),
    (put("target_law", (7, 3), np.inf), r"record 7 .*= inf"),
    (put("target_law", 7, 0.0), r"record 7 .*target_law sums to 0: must sum to 1"),
    (put("target_law", 7, 1 / VOCAB + 1e-4), r"record 7 .*sums to 1.0012"),
    (put("draft_law", 9, 0.01), r"record 9 .*draft_law sums to 0.12.*or be all zero"),
    (put("token", 5, VOCAB), rf"record 5 .*token = {VOCAB}: outside the vocabulary of {VOCAB}"),
    (put("token", 5, -1), r"record 5 .*token = -1"),
    (put("request", 4, -2), r"record 4 .*request = -2"),
    (put("num_tokens", 4, 0), r"record 4 .*num_tokens = 0: must be from 1"),
    (put("num_tokens", 4, 2), r"record 0 .*law has 20 rows where there are 21.*disagree"),
    (put("num_tokens", 4, 2**62), r"record 4 .*num_tokens"),
    (lambda arrays: arrays.pop("token"), r"record 0 .*'token' is missing"),
    (lambda arrays: arrays.update(extra=np.zeros(3)), r"'extra' is not one of this format's"),
    (lambda arrays: arrays.update(token=np.zeros(20)), r"token: dtype F64"),
    (lambda arrays: arrays.update(token=arrays["token"][:, None]), r"token: shape \[20, 1\]"),
    (
        lambda arrays: arrays.update(target_law=np.ones((20, VOCAB + 1))),
        rf"target_law: shape \[20, {VOCAB + 1}\]: must be \[emitted tokens, {VOCAB}\]",
    ),
    (lambda arrays: arrays.update(draft_size=np.zeros(20, int)), r"'draft_id' is missing"),
    (lambda arrays: arrays.update(node_uniform=np.zeros(0)), r"needs 'num_nodes'"),
    (lambda arrays: arrays.update(target_logits=arrays["target_law"]), r"not in 2"),
]


@pytest.mark.parametrize(("change", "message"), ARRAYS)
def test_bad_arrays_are_refused_with_their_record(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    folder = write_minimal(tmp_path / "trace", 20, draft=True)
    edit_arrays(folder, change)
    with pytest.raises(TraceError, match=message):
        read_all(folder)


TREES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (put("node_parent", 13, 9), r"record 6 .*node 2: node_parent must be a node before it"),
    (put("node_token", 13, VOCAB), r"record 6 .*node 2: node_token is outside"),
    (put("node_role", 13, 3), r"record 6 .*node 2: node_role"),
    (put("node_uniform", 13, 1.0), r"record 6 .*node_uniform = 1.0: must lie in \[0, 1\)"),
    (put("final_uniform", 6, np.nan), r"record 6 .*final_uniform = nan"),
    (put("at_node", 0, 1), r"record 0 .*must be 0, the root"),
    (put("probe_below", 13, 2.0), r"record 6 .*probe_below and probe_at"),
    (put("draft_id", 0, 1), r"record 0 .*draft_id 1: is listed twice"),
    (put("draft_mass", 0, -1.0), r"record 0 .*draft_mass of token id 0 = -1"),
    (put("draft_id", 0, VOCAB), r"record 0 .*draft_id = 12: outside"),
    (put("node_parent", 13, 0), r"record 6"),
]


@pytest.mark.parametrize(("change", "message"), TREES)
def test_bad_trees_are_refused_with_their_record(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    folder = write_chains(tmp_path / "trace", 40)
    if message == r"record 6":  # a second probe under the root, or a path that leads nowhere
        message = r"record \d+ .*(second probe|not a child|another child)"
    edit_arrays(folder, change)
    with pytest.raises(TraceError, match=message):
        read_all(folder)


INDEX: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (lambda index: index.update(schema_version=2), r"schema_version = 2: .*reads 1 only"),
    (lambda index: index.update(schema_version=True), r"schema_version = True"),
    (lambda index: index.update(format="other"), r"format = 'other'"),
    (lambda index: index.update(vocab=0), r"vocab = 0"),
    (lambda index: index.update(vocab=10**12), r"vocab = 1000000000000"),
    (lambda index: index.update(vocab="9"), r"vocab = '9'"),
    (lambda index: index.update(shards={}), r"shards: must be a list"),
    (lambda index: index.update(runs=[]), r"runs: must be a list of at least one"),
    (lambda index: index["shards"][0].update(file="../00000.safetensors"), r"must be a bare name"),
    (lambda index: index["shards"][0].update(file="/etc/passwd"), r"must be a bare name"),
    (lambda index: index["shards"][0].update(file="a\x00.safetensors"), r"must be a bare name"),
    (lambda index: index["shards"][0].update(file="a\n.safetensors"), r"must be a bare name"),
    (lambda index: index["shards"][0].update(file="none.safetensors"), r"record 0 .*No such file"),
    (lambda index: index["shards"][0].update(records=19), r"num_tokens has 20 rows where 19"),
    (lambda index: index["shards"][0].update(records=-1), r"records = -1"),
    (lambda index: index["shards"][0].update(run=1), r"run = 1"),
    (lambda index: index["shards"].append(index["shards"][0]), r"is listed twice"),
    (lambda index: index["shards"].insert(0, 3), r"shards\[0\] .*must be an object"),
]


@pytest.mark.parametrize(("change", "message"), INDEX)
def test_bad_indexes_are_refused(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    folder = write_minimal(tmp_path / "trace", 20)
    edit_index(folder, change)
    with pytest.raises(TraceError, match=message):
        read_all(folder)


def test_a_truncated_index_is_refused(tmp_path: Path) -> None:
    folder = write_minimal(tmp_path / "trace", 3)
    path = folder / "index.json"
    for cut in (0, 1, 40):
        path.write_text(path.read_text()[:cut])
        with pytest.raises(TraceError, match="is not JSON, or was cut off"):
            open_trace(folder)
    path.write_text("[" * 100_000)
    with pytest.raises(TraceError, match="is not JSON"):
        open_trace(folder)
    path.unlink()
    with pytest.raises(TraceError, match=r"a trace is a folder with index\.json"):
        open_trace(folder)
    with pytest.raises(TraceError, match="No such file"):
        open_trace(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [0, 7, 8, 100, -1])
def test_a_truncated_shard_names_its_first_record(keep: int, tmp_path: Path) -> None:
    folder = write_minimal(tmp_path / "trace", 60, shard_bytes=2000)
    shards = open_trace(folder).shards
    assert len(shards) > 2
    path = shards[1].path
    path.write_bytes(path.read_bytes()[:keep])
    message = rf"record {shards[1].first_record} \(shard 00001.safetensors\): the shard is trunc"
    with pytest.raises(TraceError, match=message):
        read_all(folder)


def test_a_huge_header_and_random_bytes_are_refused(tmp_path: Path) -> None:
    folder = write_minimal(tmp_path / "trace", 3)
    for content, message in (
        (struct.pack("<Q", 2**63) + b"x" * 100, "header claims 9223372036854775808 bytes"),
        (struct.pack("<Q", 2**40) + b"x" * 100, "header claims"),
        (struct.pack("<Q", 50) + b"x" * 100, "truncated or corrupt"),
    ):
        (folder / SHARD).write_bytes(content)
        with pytest.raises(TraceError, match=message):
            read_all(folder)


def test_links_and_folders_are_no_shards(tmp_path: Path) -> None:
    folder = write_minimal(tmp_path / "trace", 3)
    outside = tmp_path / "outside.safetensors"
    os.replace(folder / SHARD, outside)
    (folder / SHARD).symlink_to(outside)
    with pytest.raises(TraceError, match="is not a plain file"):
        read_all(folder)
    (folder / SHARD).unlink()
    (folder / SHARD).mkdir()
    with pytest.raises(TraceError, match="is not a plain file"):
        read_all(folder)
    index = folder / "index.json"
    os.replace(index, tmp_path / "elsewhere.json")
    index.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(TraceError, match="links are refused"):
        open_trace(folder)


def test_a_record_that_is_not_there_is_refused(tmp_path: Path) -> None:
    index = open_trace(write_minimal(tmp_path / "trace", 3))
    assert read_record(index, 2).place(0)["record"] == 2
    with pytest.raises(TraceError, match="record 3: records go from 0 to 2"):
        read_record(index, 3)
