"""Verification against one pass over all target logits, and expansion against one `topk`.

Run `python tests/benchmarks/bench_verification.py --json out.json` on a quiet machine; one torch
thread, temperature only, K = 10, R = 59, D = 8, N = 128. Each time is the median of a few runs, and
the ratios are to `torch.logsumexp` over all target logits of the batch (walk: what decoding reads;
all nodes: every node's law, as audits read them), to `torch.topk(logits, 128)` (expansion), and to
a dense expansion (softmax once, inverse CDF over the vocabulary). Extra memory is the largest
growth of what the allocator holds, in a process of its own, over the size of the logits.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from rheocheck.bench.random_laws import RandomLaws  # noqa: E402
from rheocheck.config import SpeculationConfig  # noqa: E402
from rheocheck.gpu.all_nodes import tree_laws  # noqa: E402
from rheocheck.gpu.expansion import expand  # noqa: E402
from rheocheck.gpu.randomness import RoundUniforms, inverse_cdf, round_uniforms  # noqa: E402
from rheocheck.gpu.tree import Tree, grow  # noqa: E402
from rheocheck.gpu.verification import verify  # noqa: E402

SPREAD = 2.5
VOCABULARIES, BATCHES, ROWS = (32_000, 128_256), (1, 8, 64), (10, 80, 640)
SUPPORTS = (128, 256, 512, 1024)
SHORT, MOST_REPEATS = 0.1, 41
MOST_TREES = 8  # larger batches repeat these


def median(run: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds, after one run that is not counted; of more repeats where these are short."""
    run()
    times: list[float] = []
    while len(times) < repeats or (sum(times) < SHORT and len(times) < MOST_REPEATS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def instance(batch: int, vocab: int) -> tuple[Tree, Tensor, RoundUniforms]:
    """Trees, target logits and uniforms of a batch; the target is the draft with noise."""
    config = SpeculationConfig()
    few = min(batch, MOST_TREES)
    request = torch.arange(few)
    draws = round_uniforms(0, request, torch.zeros_like(request), config)
    tables = RandomLaws(few, vocab, 0)
    tree = grow(tables, draws, config, 1.0)
    columns = {part.name: getattr(tree, part.name) for part in fields(tree)}
    repeated: dict[str, Any] = {
        name: column.repeat(batch // few, *[1] * (column.dim() - 1))
        for name, column in columns.items()
        if isinstance(column, Tensor)
    }
    request = torch.arange(batch)
    draws = round_uniforms(0, request, torch.zeros_like(request), config)
    logits = torch.empty(batch, config.budget + 1, vocab)
    for start in range(0, batch, few):
        logits[start : start + few] = tables.target_logits(tree)
    return replace(tree, **repeated), logits, draws


def verification_row(batch: int, vocab: int) -> dict[str, Any]:
    """Times of one batch."""
    tree, logits, draws = instance(batch, vocab)
    logsumexp = median(lambda: torch.logsumexp(logits, -1))
    walk = median(lambda: verify(tree, logits, draws, "rheo", 1.0))
    every = median(lambda: tree_laws(tree, logits, "rheo", 1.0), 3)
    accepted = verify(tree, logits, draws, "rheo", 1.0).num_accepted.double().mean()
    return {
        "vocab": vocab, "batch": batch, "logsumexp_ms": 1e3 * logsumexp,
        "walk_ratio": walk / logsumexp, "all_nodes_ratio": every / logsumexp,
        "accepted": float(accepted), "extra_memory": extra_memory(batch, vocab),
    }  # fmt: skip


def extra_memory(batch: int, vocab: int) -> dict[str, float]:
    """Growth of the peak over the size of the logits, for the walk, all nodes and logsumexp."""
    found = {}
    # Freed blocks go back at once, so that resident memory is what is held.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    for what in ("walk", "all nodes", "logsumexp"):
        command = [sys.executable, __file__, "--peak", what, str(batch), str(vocab)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        found[what] = float(done.stdout)
    return found


def print_peak(what: str, batch: int, vocab: int) -> None:
    """In a process of its own: peak growth of resident memory, in shares of the logits (Linux)."""
    runs: dict[str, Callable[[Tree, Tensor, RoundUniforms], Any]] = {
        "walk": lambda tree, logits, draws: verify(tree, logits, draws, "rheo", 1.0),
        "all nodes": lambda tree, logits, draws: tree_laws(tree, logits, "rheo", 1.0),
        "logsumexp": lambda tree, logits, draws: torch.logsumexp(logits, -1),
    }
    # A first run loads code; its memory is not the batch's.
    runs[what](*instance(batch, 300))
    tree, logits, draws = instance(batch, vocab)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    kept = runs[what](tree, logits, draws)
    after = resident("VmHWM")
    assert kept is not None
    print((after - before) / (logits.numel() * logits.element_size()))


def resident(name: str) -> int:
    """A line of this process's memory status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def dense_expansion(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """What drawing from the whole vocabulary costs when done well: one softmax, one inversion."""
    law = logits.softmax(-1)
    return law.topk(10, dim=-1).indices, inverse_cdf(law, uniform.to(law.dtype))


def expansion_row(rows: int, vocab: int) -> dict[str, Any]:
    """Times of one layer's expansion."""
    generator = torch.Generator().manual_seed(3)
    logits = SPREAD * torch.randn(rows, vocab, generator=generator)
    uniform = torch.rand(rows, generator=generator, dtype=torch.float64)
    topk = median(lambda: logits.topk(128, dim=-1))
    dense = median(lambda: dense_expansion(logits, uniform), 3)
    times = {
        size: median(lambda: expand(logits, uniform, SpeculationConfig(support_size=size), 1.0))  # noqa: B023
        for size in SUPPORTS
    }
    return {
        "vocab": vocab, "rows": rows, "topk_ms": 1e3 * topk, "dense_ms": 1e3 * dense,
        "ratio_to_topk": times[128] / topk,
        "ratio_to_dense": {str(size): value / dense for size, value in times.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--peak", nargs=3, metavar=("WHAT", "BATCH", "VOCAB"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        what, batch, vocab = options.peak
        return print_peak(what, int(batch), int(vocab))
    found: dict[str, list[dict[str, Any]]] = {"verification": [], "expansion": []}
    for vocab in VOCABULARIES:
        for batch in options.batches:
            row = verification_row(batch, vocab)
            found["verification"].append(row)
            memory = ", ".join(f"{name} {share:.3f}" for name, share in row["extra_memory"].items())
            print(
                f"V = {vocab:>7,}  batch {batch:>2}: logsumexp {row['logsumexp_ms']:8.1f} ms, walk "
                f"{row['walk_ratio']:.3f}x, all nodes {row['all_nodes_ratio']:.3f}x, accepted "
                f"{row['accepted']:.2f}; extra memory {memory}",
                flush=True,
            )
    for vocab in VOCABULARIES:
        for rows in ROWS:
            row = expansion_row(rows, vocab)
            found["expansion"].append(row)
            ratios = ", ".join(
                f"N={size} {share:.2f}x" for size, share in row["ratio_to_dense"].items()
            )
            print(
                f"V = {vocab:>7,}  rows {rows:>3}: topk {row['topk_ms']:7.1f} ms, expansion "
                f"{row['ratio_to_topk']:.2f}x; of dense {row['dense_ms']:7.1f} ms: {ratios}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
