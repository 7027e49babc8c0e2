"""Forms of laws agree with each other, and a long trace takes no more memory than a short one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rheocheck.traces.reader import Batch, open_trace, read_batches, read_record
from rheocheck.traces.writer import TraceWriter
from tests.traces.synthetic import VOCAB, random_laws, write_chains


def one_batch(folder: Path) -> Batch:
    (batch,) = read_batches(open_trace(folder))
    return batch


def test_dense_logits_and_sparse_laws_are_the_same_laws(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    target, draft, plain = (random_laws(rng, 4) for _ in range(3))
    target[:, 2:5] = 0
    target /= target.sum(1, keepdims=True)
    draft[1] = 0
    token = [0, 1, 5, 11]

    def sparse(laws: Any) -> tuple[Any, Any, Any]:
        row, ids = laws.nonzero()
        order = rng.permutation(len(row))
        order = order[np.argsort(row[order], kind="stable")]  # ids of a row in any order
        return np.bincount(row, minlength=4), ids[order], laws[row[order], ids[order]]

    size, ids, mass = sparse(target)
    draft_size, draft_id, draft_mass = sparse(draft)
    row = np.repeat(np.arange(4), size)
    with np.errstate(divide="ignore"):
        logits = np.log(target) + 7.0
    forms = {
        "dense": {"target_law": target, "draft_law": draft, "plain_law": plain},
        "logits": {"target_logits": logits, "draft_law": draft, "plain_law": plain},
        "sparse": {
            "target_size": size, "target_id": ids, "target_mass": mass, "target_rest": np.zeros(4),
            "draft_size": draft_size, "draft_id": draft_id, "draft_mass": draft_mass,
            "plain_mass": plain[row, ids],
            "plain_rest": [1 - plain[r, ids[row == r]].sum() for r in range(4)],
        },
    }  # fmt: skip
    for name, fields in forms.items():
        trace = TraceWriter(tmp_path / name, VOCAB, {})
        trace.add(0, 0, token, **fields)
        trace.close()
        laws = one_batch(tmp_path / name).laws
        for row_number in range(4):
            for token_id in range(VOCAB):
                (column,) = laws.column_of(np.full((4, 1), token_id))[row_number]
                there = column >= 0
                got = laws.target[row_number, column] if there else 0.0
                assert got == pytest.approx(target[row_number, token_id], abs=1e-14)
                if there:
                    assert laws.draft is not None and laws.plain is not None
                    assert laws.draft[row_number, column] == draft[row_number, token_id]
        listed = laws.target[np.arange(4), laws.column]
        np.testing.assert_allclose(listed, target[np.arange(4), token], atol=1e-14)
        np.testing.assert_allclose(laws.target.sum(1), 1)
        assert laws.plain is not None
        np.testing.assert_allclose(laws.plain.sum(1), 1)


def test_a_rest_is_one_column_for_all_tokens_that_are_not_listed(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path / "rest", VOCAB, {})
    trace.add(
        0, 0, [3, 9], target_size=[2, 1], target_rest=[0.25, 0.5], target_id=[3, 1, 7],
        target_mass=[0.5, 0.25, 0.5], draft_size=[2, 0], draft_id=[3, 8], draft_mass=[0.75, 0.25],
    )  # fmt: skip
    trace.close()
    laws = one_batch(tmp_path / "rest").laws
    np.testing.assert_array_equal(laws.ids, [[1, 3, -1], [7, -1, -1]])
    np.testing.assert_array_equal(laws.target, [[0.25, 0.5, 0.25], [0.5, 0, 0.5]])
    np.testing.assert_array_equal(laws.draft, [[0, 0.75, 0.25], [0, 0, 0]])
    np.testing.assert_array_equal(laws.column, [1, 2])


def test_every_record_read_alone_is_the_one_read_in_order(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 30, shard_bytes=5000)
    index = open_trace(folder)
    assert len(index.shards) > 3
    number = 0
    for batch in read_batches(index):
        for record in range(len(batch.request)):
            alone = read_record(index, number)
            rows = batch.record == record
            np.testing.assert_array_equal(alone.token, batch.token[rows])
            np.testing.assert_array_equal(alone.laws.target, batch.laws.target[rows])
            number += 1
    assert number == 30


MEASURE = """
import sys, tracemalloc
from pathlib import Path
from rheocheck.audit.trace_run import run_trace_audit
run_trace_audit(Path(sys.argv[1]))
tracemalloc.start()
report = run_trace_audit(Path(sys.argv[2]))
print(report.facts["shards"], tracemalloc.get_traced_memory()[1])
"""


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """A shard of 2 MB, or 16 of them: peaks differ by what is kept of a token, not by the laws."""
    rng = np.random.default_rng(0)
    vocab = 2048
    laws = rng.dirichlet(np.ones(vocab), size=128)
    for name, copies in (("short", 1), ("long", 16)):
        trace = TraceWriter(tmp_path / name, vocab, {}, shard_bytes=2**21)
        for copy in range(copies):
            for row, law in enumerate(laws):
                token = [int(np.searchsorted(law.cumsum(), rng.random() * 0.999))]
                trace.add(copy * 128 + row, 0, token, target_law=law[None])
        trace.close()
    peaks = {}
    for name in ("short", "long"):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path / "short"), str(tmp_path / name)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        shards, peaks[name] = map(int, done.stdout.split())
        assert shards == {"short": 1, "long": 16}[name]
    assert peaks["long"] < peaks["short"] + 2**21
    assert peaks["long"] < 16 * 2**21
