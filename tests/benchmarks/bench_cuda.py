"""The ratios of `bench_verification.py` on a CUDA device, kernels, graphs and the draft phase.

Run `python tests/benchmarks/bench_cuda.py --json out.json` on a machine with a GPU. `--smoke` runs
every part but the graph and the synchronisation check on the CPU, with tiny shapes; its times mean
nothing. Not run on a GPU so far.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from rheocheck.bench.random_laws import RandomLaws  # noqa: E402
from rheocheck.config import SpeculationConfig  # noqa: E402
from rheocheck.gpu.all_nodes import tree_laws  # noqa: E402
from rheocheck.gpu.drafting import EagleDrafter  # noqa: E402
from rheocheck.gpu.eagle3 import Eagle3Head, HeadConfig  # noqa: E402
from rheocheck.gpu.expansion import expand  # noqa: E402
from rheocheck.gpu.graphs import CapturedRound  # noqa: E402
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms  # noqa: E402
from rheocheck.gpu.tree import grow  # noqa: E402
from rheocheck.gpu.verification import Verification, verify  # noqa: E402
from tests.benchmarks.bench_verification import SPREAD, instance, median  # noqa: E402

Row = dict[str, Any]

LLAMA_8B = HeadConfig(
    vocab_size=128_256, draft_vocab_size=32_000, hidden_size=4096, target_hidden_size=4096,
    intermediate_size=14_336, num_heads=32, num_kv_heads=8, head_dim=128,
    aux_layers=(2, 16, 29),
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What is run."""

    vocabularies: tuple[int, ...] = (32_000, 128_256)
    batches: tuple[int, ...] = (1, 8, 64)
    supports: tuple[int, ...] = (128, 256, 512, 1024, 32_000)  # the last is dense
    draft_batches: tuple[int, ...] = (1, 8)
    pairs: int = 512
    head: HeadConfig = LLAMA_8B


SMOKE = Sizes(
    (600,), (2,), (16, 40), (1,), 3,
    HeadConfig(
        vocab_size=60, draft_vocab_size=40, hidden_size=16, target_hidden_size=16,
        intermediate_size=24, num_heads=4, num_kv_heads=2, head_dim=4, aux_layers=(1, 2, 3),
    ),
)  # fmt: skip


def seconds(run: Callable[[], Any], device: str, repeats: int = 20) -> float:
    """Median by CUDA events after warm-up; by the clock on a CPU."""
    if device == "cpu":
        return median(run, 1)
    times = []
    for number in range(repeats + 3):
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(1e-3 * float(begin.elapsed_time(end)))
    return sorted(times)[repeats // 2]


def moved(value: Any, device: str) -> Any:
    """A dataclass of tensors on a device."""
    parts = {part.name: getattr(value, part.name) for part in fields(value)}
    return replace(value, **{k: v.to(device) for k, v in parts.items() if isinstance(v, Tensor)})


def ratios(batch: int, vocab: int, device: str) -> Row:
    """Times and memory of verification over those of logsumexp."""
    tree, logits, draws = instance(batch, vocab)
    tree, logits, draws = moved(tree, device), logits.to(device), moved(draws, device)
    runs: dict[str, Callable[[], Any]] = {
        "walk": lambda: verify(tree, logits, draws, "rheo", 1.0),
        "all nodes": lambda: tree_laws(tree, logits, "rheo", 1.0),
        "logsumexp": lambda: torch.logsumexp(logits, -1),
    }
    took, memory = {name: seconds(run, device) for name, run in runs.items()}, {}
    for name, run in runs.items() if device != "cpu" else ():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        grown = torch.cuda.max_memory_allocated() - before
        memory[name] = grown / (logits.numel() * logits.element_size())
    return {
        "vocab": vocab, "batch": batch, "logsumexp_ms": 1e3 * took["logsumexp"],
        "walk_ratio": took["walk"] / took["logsumexp"],
        "all_nodes_ratio": took["all nodes"] / took["logsumexp"], "extra_memory": memory,
        "limits": {"walk": 1.0 if batch < 8 else 0.15, "all_nodes": 0.7, "extra_memory": 0.1},
    }  # fmt: skip


def expansion(rows: int, vocab: int, device: str) -> Row:
    """Expansion over `topk`."""
    logits = SPREAD * torch.randn(rows, vocab, device=device)
    uniform = torch.rand(rows, dtype=torch.float64, device=device)
    topk = seconds(lambda: logits.topk(128, dim=-1), device)
    ours = seconds(lambda: expand(logits, uniform, SpeculationConfig(), 1.0), device)
    limit = 0.75 if vocab > 100_000 else 1.4
    return {"vocab": vocab, "rows": rows, "ratio": ours / topk, "limit": limit}


def rounds(batch: int, vocab: int, device: str) -> Row:
    """Kernels of a round, host synchronisation, and the graph beside the eager round."""
    config, laws = SpeculationConfig(), RandomLaws(batch, vocab, 0, SPREAD, device)
    request = torch.arange(batch, device=device)

    def draws(number: int) -> tuple[Tensor, Tensor, Tensor]:
        made = round_uniforms(0, request, torch.full_like(request, number), config, check=False)
        return made.probe, made.accept, made.final

    def run(*given: Tensor) -> Verification:
        uniforms = RoundUniforms(*given)
        tree = grow(laws, uniforms, config, 1.0, check=False)
        return verify(tree, laws.target_logits(tree), uniforms, config.rule, 1.0)

    first, second = draws(0), draws(1)
    row: Row = {
        "vocab": vocab,
        "batch": batch,
        "eager_ms": 1e3 * seconds(lambda: run(*first), device),
    }
    activity = torch.profiler.ProfilerActivity
    kind = activity.CPU if device == "cpu" else activity.CUDA
    with torch.profiler.profile(activities=[kind]) as profile:
        run(*first)
    wanted = "CPU" if device == "cpu" else "CUDA"
    row["launched"] = sum(event.device_type.name == wanted for event in profile.events() or ())
    if device == "cpu":
        return row | {"graph": "skipped: no CUDA device", "host_syncs": "skipped: no CUDA device"}
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(*first)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    captured = CapturedRound(run, first)
    equal = []
    for given in (first, second):
        eager, replayed = run(*given), captured(*given)
        equal += [
            torch.equal(getattr(eager, part.name), getattr(replayed, part.name))
            for part in fields(eager)
        ]
    graph_ms = 1e3 * seconds(lambda: captured(*first), device)
    return row | {"graph": {"equal": all(equal), "ms": graph_ms}, "host_syncs": "none"}


def drafting(sizes: Sizes, device: str) -> list[Row]:
    """Growth with a random EAGLE-3 head in bfloat16, by support size."""
    with torch.device(device):
        head = Eagle3Head(sizes.head).to(torch.bfloat16)
    found: list[Row] = []
    for batch in sizes.draft_batches:
        drafter = EagleDrafter(head, batch)
        shape = (batch, sizes.pairs)
        features = torch.randn(*shape, 3 * sizes.head.hidden_size, device=device)
        token = torch.randint(sizes.head.vocab_size, shape, device=device)
        drafter.advance(features, token, torch.full((batch,), sizes.pairs, device=device))
        request = torch.arange(batch, device=device)
        for support in sizes.supports:
            config = SpeculationConfig(support_size=support)
            draws = round_uniforms(0, request, request, config, check=False)
            took = seconds(lambda: grow(drafter, draws, config, 1.0, check=False), device)  # noqa: B023
            name = "dense" if support == sizes.head.draft_vocab_size else str(support)
            found.append({"batch": batch, "support": name, "ms": 1e3 * took})
    return found


def measure(sizes: Sizes, device: str) -> dict[str, list[Row]]:
    """All parts."""
    pairs = [(batch, vocab) for vocab in sizes.vocabularies for batch in sizes.batches]
    return {
        "verification": [ratios(*pair, device) for pair in pairs],
        "expansion": [expansion(10 * batch, vocab, device) for batch, vocab in pairs],
        "rounds": [rounds(*pair, device) for pair in pairs],
        "drafting": drafting(sizes, device),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on the CPU")
    options = parser.parse_args(arguments)
    if not options.smoke and not torch.cuda.is_available():
        print(
            "bench_cuda: no CUDA device here; --smoke tries the script on the CPU", file=sys.stderr
        )
        return 2
    device = "cpu" if options.smoke else "cuda"
    with torch.no_grad():
        found = measure(SMOKE if options.smoke else Sizes(), device)
    for part, rows in found.items():
        print(part)
        for row in rows:
            print("  " + ", ".join(f"{name} {_shown(value)}" for name, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps({"device": device, **found}, indent=1))
    return int(
        any(isinstance(r["graph"], dict) and not r["graph"]["equal"] for r in found["rounds"])
    )


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
