"""Figures of bounds, each written as SVG and as PNG from the numbers that the JSON holds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rheocheck.bounds.laws import Array
from rheocheck.errors import InputError

COLOURS = {
    "rheo": "#3b82c4", "rrsw": "#d9822b", "onehot": "#8a8f98", "merged": "#4c9f70",
    "topk": "#a05fb4",
}  # fmt: skip
LABELS = {
    "rheo": "probe first (RheoVerification)",
    "rrsw": "recursive rejection (RRSw)",
    "onehot": "point masses on the same candidates",
    "merged": "optimum (merged-law probe first)",
    "topk": "Top-K",
}
NUM_BINS = 20
# Fewer nodes than this in a bin say nothing about its mean.
LEAST_IN_BIN = 5


def acceptance_against_t(values: Mapping[str, Array], path: Path) -> list[Path]:
    """Mean acceptance of each rule against t, the target mass off the top tokens.

    Args:
      values: [node] arrays as `node_values` returns them.
      path: Where to write, without suffix.

    Returns:
      The files written.
    """

    def draw(axes: Any) -> None:
        for name in ("merged", "rheo", "rrsw", "topk", "onehot"):
            centres, means = binned_means(values["t"], values[name])
            # The optimum often lies on another line; thicker, it shows behind it.
            width = 3.2 if name == "merged" else 1.6
            axes.plot(centres, means, color=COLOURS[name], label=LABELS[name], linewidth=width)
        axes.set_xlabel("t: target mass off the top tokens")
        axes.set_ylabel("acceptance at one node")
        axes.set_xlim(0, 1)
        axes.set_ylim(top=1.01)
        axes.legend(frameon=False, fontsize=8)

    return _write(draw, path)


def gap_to_optimum(values: Mapping[str, Array], path: Path) -> list[Path]:
    """Share of nodes whose gap to the optimum exceeds each size, for both rules.

    Args:
      values: [node] arrays as `node_values` returns them.
      path: Where to write, without suffix.
    """
    sizes = np.logspace(-6, 0, 121)

    def draw(axes: Any) -> None:
        for name in ("rheo", "rrsw", "onehot"):
            gap = np.sort(values["merged"] - values[name])
            share = 1 - np.searchsorted(gap, sizes, side="right") / len(gap)
            axes.plot(sizes, share, color=COLOURS[name], label=LABELS[name], linewidth=1.6)
        axes.set_xscale("log")
        axes.set_xlabel("gap to the optimal acceptance")
        axes.set_ylabel("share of nodes with a larger gap")
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, fontsize=8)

    return _write(draw, path)


def phase_map(values: Mapping[str, Array], path: Path) -> list[Path]:
    """Who wins where: mean lead of rheo over rrsw by t and overlap, and each node where rrsw wins.

    Args:
      values: [node] arrays as `node_values` returns them.
      path: Where to write, without suffix.
    """
    lead = values["rheo"] - values["rrsw"]
    edges = np.linspace(0, 1, NUM_BINS + 1)
    across, up = values["t"], values["overlap"]
    counts, _, _ = np.histogram2d(across, up, bins=(edges, edges))
    sums, _, _ = np.histogram2d(across, up, bins=(edges, edges), weights=lead)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    lost = lead < -1e-12

    def draw(axes: Any) -> None:
        reach = max(float(np.nanmax(np.abs(means))), 1e-3) if counts.any() else 1e-3
        mesh = axes.pcolormesh(edges, edges, means.T, cmap="RdBu", vmin=-reach, vmax=reach)
        axes.scatter(across[lost], up[lost], s=6, color="#222222", linewidths=0,
                     label=f"rrsw wins ({int(lost.sum()):,} of {len(lead):,} nodes)")  # fmt: skip
        axes.figure.colorbar(mesh, ax=axes, label="mean of rheo - rrsw")
        axes.set_xlabel("t: target mass off the top tokens")
        axes.set_ylabel("sum of min(target, probe law)")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, fontsize=8, loc="upper left")

    return _write(draw, path)


def curves(
    rows: Sequence[Mapping[str, Any]],
    across: str,
    up: str,
    path: Path,
    by: str = "rule",
    labels: tuple[str, str] | None = None,
) -> list[Path]:
    """One column of a table against another, one line for each value of a third.

    Args:
      rows: Rows of a sweep. An error column `up` + "_error" is drawn as bars where it exists.
      across: Column of the horizontal axis.
      up: Column of the vertical axis; rows without a value are left out.
      path: Where to write, without suffix.
      by: Column that tells lines apart.
      labels: What to write at the axes instead of the columns' names.

    Raises:
      InputError: A column that no row has.
    """
    for name in (across, up, by):
        if not any(name in row for row in rows):
            raise InputError(f"column {name!r} is in no row of the sweep")
    # Falling order draws the optimum first, so that the others are seen on top of it.
    kept = sorted(
        (row for row in rows if row.get(up) is not None), key=lambda row: row[by] != "merged"
    )

    def draw(axes: Any) -> None:
        for value in dict.fromkeys(row[by] for row in kept):
            line = sorted((row for row in kept if row[by] == value), key=lambda row: row[across])
            axes.errorbar(
                [row[across] for row in line], [row[up] for row in line],
                yerr=[row.get(f"{up}_error") or 0.0 for row in line], marker="o", markersize=3,
                linewidth=2.8 if value == "merged" else 1.4, capsize=2,
                color=COLOURS.get(value), label=LABELS.get(value, value),
            )  # fmt: skip
        if all(isinstance(row[across], int) for row in kept):
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(labels[0] if labels else across)
        axes.set_ylabel(labels[1] if labels else up)
        if len(dict.fromkeys(row[by] for row in kept)) > 1:
            axes.legend(frameon=False, fontsize=8)

    return _write(draw, path)


def binned_means(across: Array, up: Array) -> tuple[list[float], list[float]]:
    """Means of `up` in NUM_BINS equal bins of `across` in [0, 1], without bins of few values.

    Returns:
      Means of `across` and of `up` in each bin that is kept.
    """
    place = np.clip((across * NUM_BINS).astype(int), 0, NUM_BINS - 1)
    centres, means = [], []
    for index in range(NUM_BINS):
        inside = place == index
        if inside.sum() >= LEAST_IN_BIN:
            centres.append(float(across[inside].mean()))
            means.append(float(up[inside].mean()))
    return centres, means


def _write(draw: Callable[[Any], None], path: Path) -> list[Path]:
    """Draw once and save as SVG and PNG; the same numbers give the same files."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "rheocheck", "font.size": 9}):
        figure = Figure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        draw(axes)
        files = [path.with_name(path.name + suffix) for suffix in (".svg", ".png")]
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], dpi=160, metadata={"Software": None})
    return files
