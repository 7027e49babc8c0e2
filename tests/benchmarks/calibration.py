"""Calibration: null runs of the functions of rheocheck.stats, and coverage of every bound.

    python tests/benchmarks/calibration.py --runs 10000 --out reports/gallery

writes calibration.json, calibration.md and calibration.svg: rejection rates at 1e-2 and 1e-3 with
what a binomial with the nominal rate would give, distances of the p-values from uniform, and for
the continuous ones the difference between their distribution function and the diagonal inside its
simultaneous band. Exit code 1 if anything is out of its band.
"""

import argparse
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from rheocheck.stats.pit import ecdf_band  # noqa: E402
from tests.benchmarks.calibration_cases import FAMILIES, LEVELS, Family, Kind  # noqa: E402

# Runs of one family that share a generator.
CHUNK = 500
# Chance that a sound statistic is out of one band; some 80 bands are looked at.
BAND_LEVEL = 1e-4
# Curves of the plot leave their band anywhere with this probability.
PLOT_ALPHA = 0.01


# Families whose laws and tables this process has prepared.
_PREPARED: dict[type[Family], Family] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """One statistic.

    Attributes:
      name: Of the statistic.
      kind: What was expected of it.
      runs: Null runs.
      rejected: Number of p-values at most 1e-2, and at most 1e-3.
      allowed: Smallest and largest number that a nominal rate would give, at each level.
      ks_distance: Largest difference between the p-values' distribution function and uniform.
      ks_p: Of that distance.
      sound: Within what is expected of its kind; None for descriptions.
    """

    name: str
    kind: Kind
    runs: int
    rejected: tuple[int, int]
    allowed: tuple[tuple[int, int], tuple[int, int]]
    ks_distance: float
    ks_p: float
    sound: bool | None


def null_p_values(
    runs: int,
    seed: int,
    families: Any = FAMILIES,
    jobs: int = 1,
    folder: Path | None = None,
) -> dict[str, NDArray[np.float64]]:
    """[runs] p-values of every case, by name; the same for every number of jobs.

    Finished chunks are kept in `folder`, where one is given, and a run that was cut off goes on.
    """
    tasks = [
        (family, (seed, index, start), min(CHUNK, runs - start), folder)
        for start in range(0, runs, CHUNK)
        for index, family in enumerate(families)
    ]
    parts = Parallel(n_jobs=jobs)(delayed(_null_chunk)(*task) for task in tasks)
    found: dict[str, list[NDArray[np.float64]]] = {}
    for part in parts:
        for name, values in part.items():
            found.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in found.items()}


def _null_chunk(
    family: type[Family], seed: tuple[int, ...], runs: int, folder: Path | None
) -> dict[str, NDArray[np.float64]]:
    name = f"{family.__name__}-{'-'.join(map(str, seed))}-{runs}.npz"
    if folder is not None and (folder / name).exists():
        with np.load(folder / name) as kept:
            return {case: kept[case] for case in kept.files}
    if family not in _PREPARED:
        _PREPARED[family] = family()
    case, rng = _PREPARED[family], np.random.default_rng(seed)
    results = [case.run(rng) for _ in range(runs)]
    found = {name: np.array([result[name] for result in results]) for name in case.cases}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"partial-{name}"
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **found)
        partial.rename(folder / name)
    return found


def judge(
    name: str, kind: Kind, p_values: NDArray[np.float64], band_level: float = BAND_LEVEL
) -> Row:
    """Compare null p-values with what their kind promises.

    Args:
      name: Of the statistic.
      kind: "exact" and "limit" must reject within the binomial band at both levels and be uniform;
        "conservative" and "bound" must not reject more often than the band allows.
      p_values: [runs] null p-values.
      band_level: Chance that a sound statistic is out of one two-sided band.
    """
    runs = len(p_values)
    allowed = tuple(
        (
            int(stats.binom.ppf(band_level / 2, runs, level)),
            int(stats.binom.isf(band_level / 2, runs, level)),
        )
        for level in LEVELS
    )
    rejected = tuple(int((p_values <= level).sum()) for level in LEVELS)
    ks = stats.kstest(p_values, "uniform")
    not_more = all(count <= high for count, (_, high) in zip(rejected, allowed, strict=True))
    not_fewer = all(count >= low for count, (low, _) in zip(rejected, allowed, strict=True))
    sound: bool | None = not_more
    if kind in ("exact", "limit"):
        sound = not_more and not_fewer and bool(ks.pvalue > band_level)
    elif kind == "description":
        sound = None
    return Row(
        name,
        kind,
        runs,
        (rejected[0], rejected[1]),
        (allowed[0], allowed[1]),
        float(ks.statistic),
        float(ks.pvalue),
        sound,
    )


def kinds() -> dict[str, Kind]:
    """What is expected of each case, by name."""
    return {name: case.kind for family in FAMILIES for name, case in family.cases.items()}


def markdown(rows: list[Row], runs: int, seed: int) -> str:
    """The table as text."""
    lines = [
        "# Calibration of the statistics",
        "",
        f"{runs:,} null runs each, seed {seed}; `python tests/benchmarks/calibration.py`. A count",
        "is of p-values at most the level; its band holds what the nominal rate gives with",
        f"probability {1 - BAND_LEVEL:g}. exact, limit: must lie within the band and be uniform.",
        "conservative, bound: must not exceed it (a bound's count is of misses at that alpha).",
        "description: printed beside others and judged by nobody. KS: distance of the p-values",
        "from uniform; its p-value means something for continuous ones only (exact, limit).",
        "",
        "| statistic | kind | at 1e-2 | band | at 1e-3 | band | KS | KS p | sound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        uniform = row.kind in ("exact", "limit", "description")
        verdict = {True: "yes", False: "NO", None: "-"}[row.sound]
        lines.append(
            f"| {row.name} | {row.kind} | {row.rejected[0]} | {row.allowed[0][0]}..."
            f"{row.allowed[0][1]} | {row.rejected[1]} | {row.allowed[1][0]}...{row.allowed[1][1]} "
            f"| {row.ks_distance:.4f} | {f'{row.ks_p:.3g}' if uniform else '-'} | {verdict} |"
        )
    return "\n".join(lines) + "\n"


def draw_plot(p_values: dict[str, NDArray[np.float64]], path: Path) -> None:
    """Distribution functions less the diagonal, inside the simultaneous band."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "rheocheck", "svg.fonttype": "none"})
    groups = {
        "exact or by a limiting law": ("exact", "limit"),
        "conservative by design (not above the band)": ("conservative",),
    }
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 8), sharex=True)
    expected = kinds()
    grid = np.linspace(0.0, 1.0, 251)
    for axis, (title, members) in zip(axes, groups.items(), strict=True):
        names = [name for name in p_values if expected[name] in members]
        for index, name in enumerate(names):
            values = np.sort(p_values[name])
            share = np.searchsorted(values, grid, side="right") / len(values)
            style = ("-", "--", ":")[index // 10 % 3]
            axis.plot(grid, share - grid, style, linewidth=1, label=name)
        band = ecdf_band(len(next(iter(p_values.values()))), PLOT_ALPHA)
        axis.axhspan(-band, band, color="0.85", label=f"simultaneous {1 - PLOT_ALPHA:.0%} band")
        axis.set_title(title, fontsize=10)
        axis.set_ylabel("share of p-values at most u, less u")
        axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[1].set_xlabel("u")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def main() -> int:
    """Run, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="folder of finished chunks, kept and reused")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "gallery")
    given = parser.parse_args()
    begin = time.perf_counter()
    p_values = null_p_values(given.runs, given.seed, jobs=given.jobs, folder=given.resume)
    expected = kinds()
    rows = [judge(name, expected[name], values) for name, values in p_values.items()]
    given.out.mkdir(parents=True, exist_ok=True)
    text = markdown(rows, given.runs, given.seed)
    (given.out / "calibration.md").write_text(text)
    record = {
        "runs": given.runs,
        "seed": given.seed,
        "band_level": BAND_LEVEL,
        "levels": LEVELS,
        # Chunks that were kept from earlier took time of their own.
        "seconds": None if given.resume else round(time.perf_counter() - begin, 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "rows": [asdict(row) for row in rows],
    }
    (given.out / "calibration.json").write_text(json.dumps(record, indent=1) + "\n")
    draw_plot(p_values, given.out / "calibration.svg")
    print(text)
    return 1 if any(row.sound is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
