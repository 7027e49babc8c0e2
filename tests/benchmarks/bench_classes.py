"""Speed of the class enumerator: ratios within one run, cost against classes, the largest instance.

Run `python tests/benchmarks/bench_classes.py --json out.json --plot out.svg` on a quiet machine; it
uses one core. Laws are random with denominators of about 1,000; for ratios they are made before the
clock starts. Every ratio is of processor times in one run, the results having been checked equal.
Each large instance runs in a process of its own, whose peak memory includes the interpreter, NumPy
and the laws.
"""

import argparse
import functools
import gc
import json
import multiprocessing
import platform
import random
import resource
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from rheocheck.config import SpeculationConfig  # noqa: E402
from rheocheck.errors import BudgetExceededError  # noqa: E402
from rheocheck.reference.round_law import RoundLaw, round_law  # noqa: E402
from tests.benchmarks.baseline_classes import Baseline, TelescopedBaseline  # noqa: E402

Law: TypeAlias = tuple[Fraction, ...]
Model: TypeAlias = Callable[[tuple[int, ...]], Law]
Row: TypeAlias = dict[str, Any]

# vocab, top_k, num_top, budget, depth; the ratio to reach; seeds. The number of classes depends
# on the laws: the last seed of each is a small case, the first ones are near 5,000 and 26,000.
RATIOS = (
    ((16, 4, 1, 10, 4), 20, (14, 15, 5, 1)),
    ((32, 4, 1, 8, 4), 60, (21, 14, 11, 1)),
)
LARGE = (32, 4, 1, 10, 4)
LARGE_SEED = 14  # some 800,000 classes
EAGER = ((4, 2, 1, 4, 3), (3, 3, 0, 4, 2), (5, 3, 1, 5, 2), (4, 3, 1, 5, 2), (8, 2, 1, 3, 2))
MAX_EAGER_PATHS = 400_000


def scheme(vocab: int, top_k: int, num_top: int, budget: int, depth: int) -> SpeculationConfig:
    """The benchmark's scheme: no truncation, probe-first verification."""
    return SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=vocab, rule="rheo"
    )


def models(vocab: int, seed: int) -> tuple[Model, Model]:
    """Random target and draft, remembered by path; integer weights sum to about 1,000."""

    def law(name: str, path: tuple[int, ...]) -> Law:
        generator = random.Random(f"{seed} {name} {path}")
        weights = [generator.randint(1, max(1, 2000 // vocab)) for _ in range(vocab)]
        total = sum(weights)
        return tuple(Fraction(weight, total) for weight in weights)

    return (
        functools.cache(functools.partial(law, "target")),
        functools.cache(functools.partial(law, "draft")),
    )


def timed(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Shortest processor time of some runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        result = None
        gc.collect()
        started = time.process_time()
        result = run()
        best = min(best, time.process_time() - started)
    return best, result


def ratio_rows() -> list[Row]:
    """The engine against both baselines, checked equal."""
    rows = []
    for shape, wanted, seeds in RATIOS:
        for seed in seeds:
            config = scheme(*shape)
            target, draft = models(shape[0], seed)
            round_law(target, draft, config)  # makes the laws
            seconds, law = timed(functools.partial(round_law, target, draft, config), 5)
            row = {**_shape(shape), "seed": seed, "classes": law.num_classes}
            row["engine_seconds"] = seconds
            for name, kind in (("baseline", Baseline), ("telescoped", TelescopedBaseline)):
                slow, other = timed(functools.partial(kind, target, draft, config), 1)
                if other.emissions != law.emissions or other.num_classes != law.num_classes:
                    raise SystemExit(f"the engine and the {name} differ at {shape}, seed {seed}")
                row |= {f"{name}_seconds": slow, f"{name}_ratio": slow / seconds}
            rows.append({**row, "to_reach": wanted})
    return rows


def eager_rows(seeds: int) -> list[Row]:
    """Classes against eager enumeration wherever that finishes."""
    rows = []
    for shape in EAGER:
        for seed in range(seeds):
            config = scheme(*shape)
            target, draft = models(shape[0], seed)
            round_law(target, draft, config)
            seconds, law = timed(functools.partial(round_law, target, draft, config), 5)
            row = {**_shape(shape), "seed": seed, "classes": law.num_classes}
            run = functools.partial(
                round_law, target, draft, config, "eager", max_paths=MAX_EAGER_PATHS
            )
            try:
                slow, eager = timed(run, 1)
            except BudgetExceededError:
                rows.append({**row, "paths": None, "ratio": None})
                continue
            if eager.emissions != law.emissions:
                raise SystemExit(f"the two enumerators differ at {shape}, seed {seed}")
            rows.append(
                {
                    **row,
                    "paths": eager.num_classes,
                    "engine_seconds": seconds,
                    "eager_seconds": slow,
                    "ratio": slow / seconds,
                }
            )
    return rows


def alone(shape: tuple[int, ...], seed: int, seconds: float) -> Row:
    """Run one instance in a process of its own; `done` is False if it took longer than allowed."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_alone, args=(shape, seed, send))
    process.start()
    send.close()
    row: Row = {**_shape(shape), "seed": seed, "done": False}
    if receive.poll(seconds):
        row |= {"done": True, **receive.recv()}
    process.kill()
    process.join()
    return row


def _alone(shape: tuple[int, ...], seed: int, send: Any) -> None:
    target, draft = models(shape[0], seed)
    before = _peak_megabytes()
    wall, started = time.perf_counter(), time.process_time()
    law: RoundLaw = round_law(target, draft, scheme(*shape))
    send.send(
        {
            "classes": law.num_classes,
            "emissions": len(law.emissions),
            "seconds": time.process_time() - started,
            "wall_seconds": time.perf_counter() - wall,
            "peak_megabytes": _peak_megabytes(),
            "megabytes_before": before,
            "sums_to_one": sum(law.emissions.values()) == 1,
        }
    )


def cost_rows(seed: int, cap: float) -> list[Row]:
    """Time against the number of classes, by growing the budget; laws are made inside the clock."""
    vocab, top_k, num_top, budget, depth = LARGE
    return [alone((vocab, top_k, num_top, cut, depth), seed, cap) for cut in range(3, budget + 1)]


def largest_rows(seed: int, cap: float) -> list[Row]:
    """V = 128, K = 10, D = 8 with one node more at a time, until the cap is met."""
    rows: list[Row] = []
    budget = 4
    while not rows or rows[-1]["done"]:
        rows.append(alone((128, 10, 1, budget, 8), seed, cap))
        budget += 1
    return rows


def _shape(shape: Any) -> Row:
    return dict(zip(("vocab", "top_k", "num_top", "budget", "depth"), shape, strict=True))


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def print_table(title: str, rows: list[Row]) -> None:
    """One line a row, all fields."""
    print(f"\n{title}")
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = [[_shown(row.get(name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    for line in (names, *shown):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    sys.stdout.flush()


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def plot(rows: list[Row], path: Path) -> None:
    """Seconds against classes, both on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    done = [row for row in rows if row["done"]]
    figure, axes = pyplot.subplots(figsize=(5, 3.5))
    classes = [row["classes"] for row in done]
    axes.loglog(classes, [row["seconds"] for row in done], "o-", label="class enumerator")
    rate = done[-1]["seconds"] / done[-1]["classes"]
    axes.loglog(classes, [rate * count for count in classes], ":", label="linear")
    axes.set_xlabel("classes of draws")
    axes.set_ylabel("seconds")
    axes.set_title("V = 32, K = 4, m = 1, D = 4, R = 3 to 10")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Run everything, print tables and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--plot", type=Path, help="write the cost plot (SVG, PNG or PDF)")
    parser.add_argument("--cap", type=float, default=600, help="seconds for the largest instance")
    parser.add_argument("--skip-largest", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "ratios": ratio_rows(),
    }
    print_table("Engine against baselines (checked equal)", result["ratios"])
    result["eager"] = eager_rows(2)
    print_table("Classes against eager (checked equal)", result["eager"])
    result["cost"] = cost_rows(LARGE_SEED, options.cap)
    print_table("Cost against classes; the last row is the large instance", result["cost"])
    if not options.skip_largest:
        result["largest"] = largest_rows(0, options.cap)
        print_table(f"Largest instance within {options.cap:g} s", result["largest"])
    if options.plot:
        plot(result["cost"], options.plot)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
