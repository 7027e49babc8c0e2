"""`rheocheck bounds sweep`: tables and figures of a grid, written to a folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rheocheck.bounds.figures import acceptance_against_t, curves, gap_to_optimum, phase_map
from rheocheck.bounds.files import write_table
from rheocheck.bounds.laws import Array
from rheocheck.bounds.real_sweep import SCHEMES
from rheocheck.bounds.sweep import NodeSweep, cell_values, combine, node_sweep
from rheocheck.bounds.tree_sweep import TreeSweep, tree_sweep
from rheocheck.certificate import StageResult, Verdict

Progress = Callable[[int, int], None] | None
NODE_AXES = ("top_k", "num_top", "support_size", "draft_temperature", "target_temperature")
TREE_AXES = (
    "num_top", "top_k", "budget", "depth", "support_size", "draft_temperature",
    "target_temperature", "temperature",
)  # fmt: skip
AXIS_LABELS = {
    "top_k": "K: children", "num_top": "m: top children", "budget": "R: surviving nodes",
    "depth": "D: layers", "support_size": "N: draft support",
    "draft_temperature": "temperature of the draft",
    "target_temperature": "temperature of the target", "temperature": "temperature",
}  # fmt: skip
# Nodes in the figures that show every node.
SHOWN_NODES = 40_000


def node_sweep_stage(
    sweep: NodeSweep, jobs: int, folder: Path | None, replay: str, progress: Progress = None
) -> StageResult:
    """A sweep of random nodes.

    Args:
      sweep: The grid.
      jobs: Processes.
      folder: Where tables and figures go; None writes none.
      replay: The command line.
      progress: Called with (cells done, cells in all).

    Returns:
      NO_EVIDENCE: a sweep claims nothing. `details` has "rows" (cells pooled by family), "cells"
      and "files".
    """
    started = time.perf_counter()
    cells = node_sweep(sweep, jobs, progress)
    seconds = time.perf_counter() - started
    files: list[Path] = []
    if folder is not None:
        files += write_table(cells, folder / "node_sweep")
        files += node_figures(_shown_values(sweep), folder)
        files += _node_axis_figures(cells, folder)
    return _stage(
        "node sweep",
        sum(row["num_nodes"] for row in cells),
        f"{sum(row['num_nodes'] for row in cells):,} random nodes in {len(cells)} cells, "
        f"{seconds:.1f} s",
        combine(cells, ("family",)),
        cells,
        files,
        replay,
        started,
    )


def tree_sweep_stage(
    sweep: TreeSweep, jobs: int, folder: Path | None, replay: str, progress: Progress = None
) -> StageResult:
    """A sweep of trees over random models; arguments and result as in `node_sweep_stage`."""
    started = time.perf_counter()
    rows = tree_sweep(sweep, jobs, progress)
    files = [] if folder is None else write_trees(rows, folder)
    return _stage(
        "tree sweep",
        sweep.models_per_cell,
        f"{sweep.models_per_cell} random models in each cell, verification integrated exactly "
        f"over one tree each; the token that ends a round is not counted",
        rows,
        rows,
        files,
        replay,
        started,
    )


def real_sweep_stage(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    summary: str,
    files: Sequence[Path],
    replay: str,
    started: float,
) -> StageResult:
    """A finished sweep on a real pair as a stage."""
    return _stage(name, len(cells), summary, rows, cells, files, replay, started)


def write_trees(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Table and figures of a tree sweep: E[tau] along each varied axis, survival of probes by m."""
    files = write_table(rows, folder / "tree_sweep")
    for axis in _varied(rows, TREE_AXES):
        shown = _along(rows, axis, TREE_AXES)
        files += curves(
            shown, axis, "expected_accepted", folder / f"expected_accepted_by_{axis}", by="line",
            labels=(AXIS_LABELS[axis], "E[tau], accepted draft tokens a round"),
        )  # fmt: skip
    if "num_top" in _varied(rows, TREE_AXES):
        one_rule = [row for row in _along(rows, "num_top", TREE_AXES) if row["rule"] == "rheo"]
        files += curves(
            one_rule, "num_top", "probe_survival", folder / "probe_survival_by_num_top",
            labels=(AXIS_LABELS["num_top"], "share of probes that survive"),
        )  # fmt: skip
    return files


def node_figures(values: Mapping[str, Array], folder: Path) -> list[Path]:
    """The three figures that show every node."""
    return [
        *acceptance_against_t(values, folder / "acceptance_against_t"),
        *gap_to_optimum(values, folder / "gap_to_optimum"),
        *phase_map(values, folder / "phase_map"),
    ]


def write_roots(
    comparison: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]], folder: Path
) -> list[Path]:
    """Tables and figures of the depth-1 comparison and of a sweep at a real pair's roots."""
    return [
        *write_table(comparison, folder / "depth_one_comparison"),
        *write_table(cells, folder / "root_sweep"),
        *_node_axis_figures(cells, folder),
    ]


def _node_axis_figures(cells: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Mean acceptance of every scheme along each varied axis, the others pooled."""
    files: list[Path] = []
    for axis in _varied(cells, NODE_AXES):
        pooled = combine([dict(row) for row in cells], (axis,))
        long = [
            {axis: row[axis], "rule": rule, "acceptance": row[f"mean_{rule}"]}
            for row in pooled
            for rule in SCHEMES
        ]
        files += curves(
            long, axis, "acceptance", folder / f"acceptance_by_{axis}",
            labels=(AXIS_LABELS[axis], "mean acceptance at one node"),
        )  # fmt: skip
    return files


def _shown_values(sweep: NodeSweep) -> dict[str, Array]:
    """[node] values of the cells with top tokens and fillers, where the rules differ most."""
    cells = list(enumerate(sweep.cells()))
    chosen = [(n, cell) for n, cell in cells if 1 <= cell.num_top < cell.top_k - 1] or cells
    parts = []
    for place, cell in chosen:
        parts.append(cell_values(sweep, cell, place))
        if sum(len(part["t"]) for part in parts) >= SHOWN_NODES:
            break
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _varied(rows: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> list[str]:
    return [axis for axis in axes if len({row.get(axis) for row in rows}) > 1]


def _along(
    rows: Sequence[Mapping[str, Any]], axis: str, axes: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows along one axis, one line a rule and num_top; the other axes at their first value."""
    others = [other for other in axes if other not in (axis, "num_top", "rule")]
    first = {other: rows[0].get(other) for other in others}
    kept = [row for row in rows if all(row.get(other) == first[other] for other in others)]
    by_num_top = axis != "num_top" and len({row["num_top"] for row in kept}) > 1
    lines = []
    for row in kept:
        line = f"{row['rule']}, m = {row['num_top']}" if by_num_top else row["rule"]
        lines.append({**row, "line": line})
    return lines


def _stage(
    name: str, sample_size: int, summary: str, rows: Any, cells: Any, files: Any, replay: str,
    started: float,
) -> StageResult:  # fmt: skip
    return StageResult(
        name=name,
        verdict=Verdict.NO_EVIDENCE,
        sample_size=sample_size,
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": summary,
            "rows": list(rows),
            "cells": list(cells),
            "files": [str(path) for path in files],
        },
    )
