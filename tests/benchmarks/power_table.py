"""Power of the sampled stage's statistics against ten faulty samplers, computed and measured.

Run `python tests/benchmarks/power_table.py` (some minutes on one core); it writes power.json,
power.md and power.svg to reports/gallery. For every fault and statistic: the sample size at level
1e-6 and power 0.95, computed from the laws; the likelihood-ratio test's own; and for the best
directed score the power measured by drawing from the faulty laws at the computed size.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from scipy import stats  # noqa: E402

from rheocheck.stats.cell_power import cell_power, cell_samples  # noqa: E402
from rheocheck.stats.cells import (  # noqa: E402
    NUM_DECADES,
    RANK_STARTS,
    cell_law,
    decade_cell,
    rank_cell,
)
from rheocheck.stats.chi_square import bucket_chi_square, pool_cells  # noqa: E402
from rheocheck.stats.fault_power import (  # noqa: E402
    ScoreShift,
    chernoff_samples,
    expected_stop,
    likelihood_ratio,
    noncentrality_samples,
    pit_noncentrality,
    score_power,
    score_samples,
    score_shift,
)
from rheocheck.stats.mutants import MUTANTS, Mutant  # noqa: E402
from rheocheck.stats.pit import draft_target_order  # noqa: E402
from rheocheck.stats.scores import above_target, draft_score, surprisal  # noqa: E402
from tests.benchmarks.contexts import synthetic_contexts  # noqa: E402

ALPHA, POWER = 1e-6, 0.95
SCORES = ("surprisal", "draft score", "draft above target")
PITS = ("PIT by draft/target", "PIT by target", "PIT by token id")
# Up to so many draws the shipped cell test decides each replicate.
SHIPPED_TEST = 20_000
CELLS = ("rank cells", "decade cells")
DIRECTED = (*SCORES, *CELLS, PITS[0])
LARGEST_RATIO, CAUGHT_AT_ONCE = 4.0, 100
# A uniform looked up in 32,000 cells takes some 0.1 us, a multinomial over them some 2 ms.
LOOKED_UP = 20_000
Array = NDArray[np.float64]
Row = dict[str, Any]


def fault_laws(mutant: Mutant, target: Array, draft: Array) -> Array:
    """[contexts, vocab] what the mutant emits."""
    return np.array([mutant.law(target[row], draft[row], row) for row in range(len(target))])


def cells_of(target: Array) -> dict[str, tuple[NDArray[np.int64], int]]:
    """The cell of every token in every context, and how many cells there are."""
    return {
        "rank cells": (rank_cell(target), len(RANK_STARTS)),
        "decade cells": (decade_cell(target), NUM_DECADES),
    }


def score_arrays(target: Array, draft: Array) -> dict[str, Array]:
    """The directed scores of every context."""
    arrays = (surprisal(target), draft_score(target, draft), above_target(target, draft))
    return dict(zip(SCORES, arrays, strict=True))


def computed_row(
    mutant: Mutant, target: Array, draft: Array, fault: Array, shifts: dict[str, ScoreShift]
) -> Row:
    """Sample sizes of all statistics against one mutant."""
    sizes = {name: score_samples(shift, ALPHA, POWER) for name, shift in shifts.items()}
    orders = (draft_target_order(target, draft), -target, None)
    for name, order in zip(PITS, orders, strict=True):
        noncentrality = pit_noncentrality(target, fault, order)
        sizes[name] = noncentrality_samples(noncentrality, 19, ALPHA, POWER)
    for name, (cell, count) in cells_of(target).items():
        laws = cell_law(target, cell, count), cell_law(fault, cell, count)
        sizes[name] = cell_samples(*laws, ALPHA, POWER)
    ratio = likelihood_ratio(target, fault, ALPHA, POWER)
    # Where one token says much, approximations can fall below what is possible.
    sizes = {name: max(size, ratio.bound) for name, size in sizes.items()}
    best = min(DIRECTED, key=lambda name: sizes[name])
    score = min(SCORES, key=lambda name: sizes[name])
    return {
        "mutant": mutant.name,
        "what": mutant.what,
        "structured": mutant.structured,
        "total_variation": shifts[score].total_variation,
        "samples": sizes,
        "best": best,
        "best_score": score,
        "score_exact_samples": chernoff_samples(shifts[score], ALPHA, POWER),
        "score_expected_stop": expected_stop(shifts[score], ALPHA),
        "likelihood_ratio_samples": ratio.samples,
        "no_test_below": ratio.bound,
        "ratio": sizes[best] / ratio.samples,
        "met": bool(
            sizes[best] <= LARGEST_RATIO * ratio.samples
            or sizes[best] <= CAUGHT_AT_ONCE
            or not mutant.structured
        ),
    }


def visits_of(num_samples: float, num_contexts: int, rng: np.random.Generator) -> Array:
    """[contexts] visits, as even as whole numbers allow."""
    whole, rest = divmod(math.ceil(num_samples), num_contexts)
    visits = np.full(num_contexts, whole, dtype=np.float64)
    visits[rng.permutation(num_contexts)[:rest]] += 1
    return visits


def measured_cell_power(
    null: Array, law: Array, num_samples: float, replicates: int, rng: np.random.Generator
) -> tuple[float, float, int]:
    """As `measured_power`, for the chi-square over cells: null and law are [contexts, cells].

    Up to `SHIPPED_TEST` draws `bucket_chi_square` itself decides each replicate. It wants one law a
    draw, so beyond that its statistic is made here from the visits, with its pooling, and the bar
    is the plain chi-square's.
    """
    visits = visits_of(num_samples, len(null), rng)
    counts = np.zeros((replicates, null.shape[1]), dtype=np.int64)
    for row in np.flatnonzero(visits):
        share = np.maximum(law[row], 0.0)
        counts += rng.multinomial(int(visits[row]), share / share.sum(), size=replicates)
    computed = cell_power(null, law, visits, ALPHA)
    if visits.sum() <= SHIPPED_TEST:
        rows = np.repeat(null, visits.astype(np.int64), axis=0)
        rejected = [bucket_chi_square(count, rows).p_value <= ALPHA for count in counts]
        return float(np.mean(rejected)), computed, int(visits.sum())
    cell = pool_cells(visits @ null)
    membership = np.eye(int(cell.max()) + 1)[cell]
    cells = null @ membership
    covariance = np.diag(visits @ cells) - (cells * visits[:, None]).T @ cells
    values, vectors = np.linalg.eigh(covariance)
    kept = values > max(1e-3, 1e-9 * float(values[-1]))
    bar = float(stats.chi2.isf(ALPHA, int(kept.sum())))
    along = (counts @ membership - visits @ cells) @ vectors[:, kept]
    rejected = list((along**2 / values[kept]).sum(axis=1) > bar)
    return float(np.mean(rejected)), computed, int(visits.sum())


def measured_power(
    target: Array,
    fault: Array,
    score: Array,
    num_samples: float,
    replicates: int,
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """Share of replicates that the z test rejects, its computed power, and the sample size.

    Draws are spread over the contexts as evenly as whole numbers allow; the computed power is for
    exactly the contexts drawn.
    """
    visits = visits_of(num_samples, len(target), rng)
    deviation, variance = np.zeros(replicates), 0.0
    shift, spread = 0.0, 0.0
    for row in np.flatnonzero(visits):
        null, law, value = target[row], fault[row], score[row]
        mean = float(null @ value)
        variance += visits[row] * float(null @ (value - mean) ** 2)
        drift = float(law @ (value - mean))
        shift += visits[row] * drift
        spread += visits[row] * max(0.0, float(law @ (value - mean) ** 2) - drift**2)
        deviation += score_totals(law, value - mean, int(visits[row]), replicates, rng)
    n = int(visits.sum())
    exact = ScoreShift(shift / n, variance / n, spread / n, np.zeros(0), 0.0)
    bar = float(stats.norm.isf(ALPHA / 2)) * math.sqrt(variance)
    rejected = float((np.abs(deviation) > bar).mean())
    return rejected, score_power(exact, n, ALPHA), n


def score_totals(
    law: Array, score: Array, draws: int, replicates: int, rng: np.random.Generator
) -> Array:
    """[replicates] sums of the score over `draws` independent tokens of the law."""
    if draws <= LOOKED_UP:
        cumulative = np.cumsum(law)
        totals = np.empty(replicates)
        for index in range(replicates):
            at = np.searchsorted(cumulative, rng.random(draws) * cumulative[-1], side="right")
            totals[index] = score[at].sum()
        return totals
    # Descending order lets the conditional binomials end when all draws are placed.
    order = np.argsort(-law, kind="stable")
    sorted_law, sorted_score = law[order] / law.sum(), score[order]
    sorted_law[0] = max(0.0, 1.0 - float(sorted_law[1:].sum()))
    return np.array(
        [float(rng.multinomial(draws, sorted_law) @ sorted_score) for _ in range(replicates)]
    )


def table(num_contexts: int, vocab: int, replicates: int, largest: float, seed: int) -> list[Row]:
    """All rows; power is measured where the best score needs at most `largest` samples."""
    target, draft = synthetic_contexts(num_contexts, vocab, seed)
    scores = score_arrays(target, draft)
    rng = np.random.default_rng(seed + 1)
    rows = []
    for mutant in MUTANTS:
        fault = fault_laws(mutant, target, draft)
        shifts = {name: score_shift(target, fault, score) for name, score in scores.items()}
        row = computed_row(mutant, target, draft, fault, shifts)
        size, score = row["samples"][row["best_score"]], scores[row["best_score"]]
        if size <= largest:
            found = measured_power(target, fault, score, size, replicates, rng)
            row["measured"] = {row["best_score"]: measurement(found, replicates)}
        for name, (cell, count) in cells_of(target).items():
            size = row["samples"][name]
            if name == row["best"] and size <= largest:
                laws = cell_law(target, cell, count), cell_law(fault, cell, count)
                found = measured_cell_power(*laws, size, replicates, rng)
                row.setdefault("measured", {})[name] = measurement(found, replicates)
        rows.append(row)
        print(_line(row), flush=True)
    return rows


def measurement(found: tuple[float, float, int], replicates: int) -> Row:
    """One measured power as JSON values."""
    power, computed, drawn = found
    return {
        "measured_power": power,
        "computed_power": computed,
        "samples": drawn,
        "replicates": replicates,
        "within_five_points": bool(abs(power - computed) <= 0.05),
    }


def markdown(rows: list[Row], facts: Row) -> str:
    """The table for people."""
    names = (*SCORES, *CELLS, *PITS)
    header = (*names, "LR", "floor", "ratio", "measured (computed) power")
    text = [
        "# Power against ten faulty samplers",
        "",
        f"Tokens needed at two-sided level {ALPHA:g} for power {POWER:g}, one token a context"
        f" visit; {facts['contexts']} synthetic contexts of {facts['vocab']:,} tokens, seed"
        f" {facts['seed']}, accept rate {facts['accept_rate']:.2f}. *LR*: the likelihood-ratio"
        " test's own size in the normal approximation; *floor*: no test at all does with fewer"
        " (data processing inequality). *ratio*: best directed statistic (bold) over LR."
        " *measured*: power of the best score, and of cells where they are best, at the"
        " computed size, by drawing tokens; in brackets the power computed for those visits;"
        " **off**: the two are more than five points apart. Cells are pooled as the test pools"
        " them.",
        "",
        "| fault | mean TV | " + " | ".join(header) + " |",
        "|---" * (len(header) + 2) + "|",
    ]
    for row in rows:
        sizes = [
            f"**{_short(row['samples'][name])}**"
            if name == row["best"]
            else _short(row["samples"][name])
            for name in names
        ]
        measured = [
            f"{name} {item['measured_power']:.3f} ({item['computed_power']:.3f})"
            + ("" if item["within_five_points"] else " **off**")
            for name, item in row.get("measured", {}).items()
        ]
        text.append(
            f"| {row['mutant']} | {row['total_variation']:.2%} | "
            + " | ".join(sizes)
            + f" | {_short(row['likelihood_ratio_samples'])} | {_short(row['no_test_below'])}"
            + f" | {row['ratio']:.2f} | "
            + ("; ".join(measured) or "-")
            + " |"
        )
    text += [
        "",
        "Unstructured noise has no direction: one token a context cannot find it near the LR size;"
        " repeated draws of one context, or the white box, can. Made by `python"
        f" tests/benchmarks/power_table.py`, {facts['replicates']} replicates a measured power.",
        "",
    ]
    return "\n".join(text)


def figure(rows: list[Row], path: Path) -> None:
    """Sample sizes by fault on a logarithmic axis."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "power"
    from matplotlib import pyplot

    shown = (*SCORES, "decade cells")
    canvas, axes = pyplot.subplots(figsize=(9, 4.8), layout="constrained")
    height = np.arange(len(rows))[::-1]
    for name, marker in zip(shown, "osD^", strict=True):
        axes.scatter([row["samples"][name] for row in rows], height, marker=marker, label=name)
    ratio = [row["likelihood_ratio_samples"] for row in rows]
    axes.scatter(ratio, height, marker="|", s=240, color="black", label="likelihood ratio")
    axes.set_yticks(height, [f"{row['mutant']} ({row['total_variation']:.2%})" for row in rows])
    axes.set_xscale("log")
    axes.set_xlabel(f"tokens for power {POWER:g} at level {ALPHA:g}")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)
    canvas.savefig(path, metadata={"Date": None})
    pyplot.close(canvas)


def _short(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "never"


def _line(row: Row) -> str:
    measured = "".join(
        f", {name} measured {item['measured_power']:.3f} of {item['computed_power']:.3f}"
        for name, item in row.get("measured", {}).items()
    )
    return (
        f"{row['mutant']}: TV {row['total_variation']:.4f}, {row['best']} "
        f"{row['samples'][row['best']]:.3g}, LR {row['likelihood_ratio_samples']:.3g}, "
        f"ratio {row['ratio']:.2f}{measured}"
    )


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contexts", type=int, default=120)
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--replicates", type=int, default=400)
    parser.add_argument("--largest", type=float, default=1e8, help="measure up to this size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "gallery")
    options = parser.parse_args()
    target, draft = synthetic_contexts(options.contexts, options.vocab, options.seed)
    facts = {
        "alpha": ALPHA,
        "power": POWER,
        "contexts": options.contexts,
        "vocab": options.vocab,
        "seed": options.seed,
        "replicates": options.replicates,
        "accept_rate": float(np.minimum(target, draft).sum(axis=1).mean()),
    }
    rows = table(options.contexts, options.vocab, options.replicates, options.largest, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    values = json.dumps({**facts, "rows": rows}, indent=1)
    (options.out / "power.json").write_text(values.replace("Infinity", "null") + "\n")
    (options.out / "power.md").write_text(markdown(rows, facts))
    figure(rows, options.out / "power.svg")
    if not all(row["met"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
