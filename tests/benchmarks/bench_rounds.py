"""Batched growth and verification against one row and one node at a time.

Run `python tests/benchmarks/bench_rounds.py --json out.json` on a quiet machine; one torch thread.
Both run the same rounds on random logits that are made beforehand, with the same uniforms, and
must decide alike; the ratio of their times is printed, and the exit code is 1 where they do not.
The plain way is timed on the first rows of the batch and scaled up. It sorts and copies whole rows
at every node: at small vocabularies the ratio is about loops, at large ones about sparse against
dense. With `--eagle PATH`, a checkout of github.com/SafeAILab/EAGLE, that project's own
`evaluate_posterior` is timed beside `verify` at batch 1 on the same trees and logits.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from rheocheck.bench.random_laws import RandomLaws, next_state  # noqa: E402
from rheocheck.config import SpeculationConfig  # noqa: E402
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms  # noqa: E402
from rheocheck.gpu.tree import Tree, grow  # noqa: E402
from rheocheck.gpu.verification import Verification, verify  # noqa: E402
from tests.benchmarks import eagle_rounds  # noqa: E402
from tests.benchmarks.plain_rounds import Outcome, plain_round  # noqa: E402

SPREAD = 2.5


def at(table: Tensor, row: int, path: tuple[int, ...]) -> Tensor:
    """Logits of one row after a path."""
    state = 0
    for token in path:
        state = next_state(state, token)
    return table[row, state]


def batched(
    tables: RandomLaws, draws: RoundUniforms, config: SpeculationConfig, temperature: float
) -> tuple[Tree, Verification]:
    """All rows at once."""
    tree = grow(tables, draws, config, temperature, check=False)
    return tree, verify(tree, tables.target_logits(tree), draws, config.rule, temperature)


def plain(
    tables: RandomLaws,
    draws: RoundUniforms,
    config: SpeculationConfig,
    temperature: float,
    row: int,
) -> Outcome:
    """One row."""
    return plain_round(
        lambda path: at(tables.draft, row, path),
        lambda path: at(tables.target, row, path),
        config, temperature, draws.probe[row], draws.accept[row], float(draws.final[row]),
    )  # fmt: skip


def decided(tree: Tree, done: Verification, row: int) -> Outcome:
    """A row of the batch in the plain form."""
    size = int(tree.valid[row].sum())
    columns = (tree.layer, tree.parent_rank, tree.slot, tree.token)
    layer, rank, slot, token = (column[row, :size].tolist() for column in columns)
    keys = list(zip(layer, rank, slot, strict=True))
    accepted = done.emitted[row, : int(done.num_accepted[row])].tolist()
    return Outcome(list(zip(keys, token, strict=True)), tuple(accepted), int(done.final_token[row]))


def compare(vocab: int, batch: int, rows: int, config: SpeculationConfig) -> dict[str, Any]:
    """Times of one batch, both ways; the plain one on its first `rows` rows, scaled up."""
    tables, temperature = RandomLaws(batch, vocab, 0, SPREAD), 0.8
    request = torch.arange(batch)
    draws = round_uniforms(0, request, torch.zeros_like(request), config)
    batched(tables, draws, config, temperature)
    plain(tables, draws, config, temperature, 0)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        tree, done = batched(tables, draws, config, temperature)
        times.append(time.perf_counter() - started)
    started = time.perf_counter()
    found = [plain(tables, draws, config, temperature, row) for row in range(rows)]
    plain_seconds = (time.perf_counter() - started) * batch / rows
    different = sum(decided(tree, done, row) != found[row] for row in range(rows))
    return {
        "vocab": vocab, "batch": batch, "rows_compared": rows, "rows_that_differ": different,
        "batched_ms": 1e3 * sorted(times)[1], "plain_ms": 1e3 * plain_seconds,
        "ratio": plain_seconds / sorted(times)[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--eagle", type=Path, help="a checkout of EAGLE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = SpeculationConfig()
    beside = []
    if options.eagle:
        eagle = eagle_rounds.load(options.eagle)
        for vocab, temperature in ((512, 1.0), (512, 0.0), (32_000, 1.0), (32_000, 0.0)):
            beside.append(eagle_rounds.beside_eagle(eagle, vocab, temperature, SPREAD))
            print(eagle_rounds.line(beside[-1]), flush=True)
    else:
        print("EAGLE's evaluate_posterior: not run (no --eagle PATH)")
    rows = [compare(vocab, 64, 16, config) for vocab in (32, 128, 512)]
    rows.append(compare(32_000, 64, 4, config))
    for row in rows:
        print(
            f"V = {row['vocab']:>6,}  batch {row['batch']}: batched {row['batched_ms']:8.1f} ms, "
            f"plain {row['plain_ms']:9.1f} ms, {row['ratio']:6.1f}x; "
            f"{row['rows_that_differ']} of {row['rows_compared']} rows decide otherwise"
        )
    if options.json:
        options.json.write_text(json.dumps({"rounds": rows, "eagle": beside}, indent=1))
    if any(row["rows_that_differ"] for row in [*rows, *beside]):
        sys.exit(1)


if __name__ == "__main__":
    main()
