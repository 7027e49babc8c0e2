"""Sweeps of one node over families of laws, counts and temperatures.

A sweep is a grid of cells; a cell is many random nodes evaluated as one batch. Cells are seeded by
their place in the grid, so results do not depend on how many processes share them.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rheocheck.bounds.families import DEFAULT_FAMILIES, Family, tempered
from rheocheck.bounds.laws import Array, NodeLaws, check_counts
from rheocheck.bounds.node import NODE_RULES, lay_out, layout_acceptance
from rheocheck.errors import InputError
from rheocheck.parallel import in_order

# Values closer than this count as equal: float sums of 50 terms are off by a few 1e-16.
EQUAL = 1e-12
# Nodes evaluated at once; the batch then stays in the cache.
BATCH = 2000


@dataclass(frozen=True, slots=True)
class NodeSweep:
    """A grid of cells; each field is one axis, `nodes_per_cell` aside.

    Attributes:
      families: Families of laws.
      top_ks: Children.
      num_tops: Top children; cells with num_top > top_k are left out.
      support_sizes: Tokens that the draft keeps.
      draft_temperatures: Of the law that probes are drawn from; scores use temperature 1.
      target_temperatures: Of the target.
      vocab: Smallest and largest number of tokens; each node's is uniform between them.
      nodes_per_cell: Random nodes in each cell.
      seed: Of the laws.
    """

    families: tuple[Family, ...] = DEFAULT_FAMILIES
    top_ks: tuple[int, ...] = (3, 4, 5, 6)
    num_tops: tuple[int, ...] = (0, 1, 2)
    support_sizes: tuple[int, ...] = (128,)
    draft_temperatures: tuple[float, ...] = (1.0,)
    target_temperatures: tuple[float, ...] = (1.0,)
    vocab: tuple[int, int] = (6, 50)
    nodes_per_cell: int = 1200
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse an empty axis or a setting out of range.

        Raises:
          InputError: Names the axis or the setting.
        """
        for name in ("families", "top_ks", "num_tops", "support_sizes", "draft_temperatures",
                     "target_temperatures"):  # fmt: skip
            if not getattr(self, name):
                raise InputError(f"{name} is empty; required: at least one value")
        for top_k in self.top_ks:
            check_counts(top_k=top_k)
        for num_top in self.num_tops:
            check_counts(num_top=num_top)
        for support_size in self.support_sizes:
            check_counts(support_size=support_size)
        check_counts(nodes_per_cell=self.nodes_per_cell)
        if not 1 <= self.vocab[0] <= self.vocab[1]:
            raise InputError(f"vocab = {self.vocab}; required: 1 <= smallest <= largest")

    def cells(self) -> list["Cell"]:
        """The grid in order."""
        axes = itertools.product(
            self.families, self.top_ks, self.num_tops, self.support_sizes,
            self.draft_temperatures, self.target_temperatures,
        )  # fmt: skip
        kept = [values for values in axes if values[2] <= values[1]]
        return [Cell(*values) for values in kept]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a grid."""

    family: Family
    top_k: int
    num_top: int
    support_size: int = 128
    draft_temperature: float = 1.0
    target_temperature: float = 1.0

    def row(self) -> dict[str, Any]:
        """Its settings as one row of a table."""
        return {**asdict(self), "family": self.family.name}


def node_sweep(
    sweep: NodeSweep,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Evaluate every cell.

    Args:
      sweep: The grid.
      jobs: Processes.
      progress: Called with (cells done, cells in all).

    Returns:
      One row a cell, see `summarise`.
    """
    cells = sweep.cells()
    tasks = ((sweep, cell, place) for place, cell in enumerate(cells))
    rows: list[dict[str, Any]] = []
    for row in in_order(_run_cell, tasks, jobs):
        rows.append(row)
        if progress is not None:
            progress(len(rows), len(cells))
    return rows


def node_values(laws: NodeLaws, cell: Cell) -> dict[str, Array]:
    """Acceptance of every rule at each node of a batch.

    Args:
      laws: [node, vocab] laws at temperature 1.
      cell: Counts and temperatures.

    Returns:
      [node] arrays: one a rule of NODE_RULES ("merged" is the optimum), "topk" (the first tokens as
      point masses), "t", the target mass off the top, and "overlap", the sum of min(target,
      probe_law).
    """
    kept = _kept(laws.ranking, cell.support_size)
    laws = NodeLaws(
        tempered(laws.target, cell.target_temperature),
        laws.ranking,
        tempered(kept, cell.draft_temperature),
    )
    layout = lay_out(laws, cell.top_k, cell.num_top, cell.support_size)
    values: dict[str, Array] = {
        rule: np.asarray(layout_acceptance(laws, layout, rule)) for rule in NODE_RULES
    }
    values["topk"] = layout.target[..., : cell.top_k].sum(axis=-1)
    values["t"] = 1 - layout.target[..., : cell.num_top].sum(axis=-1)
    values["overlap"] = np.minimum(layout.target, layout.probe_law).sum(axis=-1)
    return values


def summarise(values: dict[str, Array]) -> dict[str, Any]:
    """One row: means, who wins how often, gaps.

    Args:
      values: As `node_values` returns them.

    Returns:
      num_nodes; the mean of each rule and of t; shares of nodes with rheo above rrsw, rrsw above
      rheo, equal, and with rheo at the optimum; largest gaps either way; mean and largest gap of
      rheo and rrsw to the optimum.
    """
    rheo, rrsw, optimum = values["rheo"], values["rrsw"], values["merged"]
    lead = rheo - rrsw
    row: dict[str, Any] = {"num_nodes": len(rheo)}
    row.update({f"mean_{name}": float(found.mean()) for name, found in values.items()})
    row.update(
        rheo_wins=float((lead > EQUAL).mean()),
        rrsw_wins=float((lead < -EQUAL).mean()),
        equal=float((np.abs(lead) <= EQUAL).mean()),
        rheo_is_optimal=float((optimum - rheo <= EQUAL).mean()),
        largest_rheo_lead=float(np.maximum(lead, 0).max()),
        largest_rrsw_lead=float(np.maximum(-lead, 0).max()),
    )
    for name, found in (("rheo", rheo), ("rrsw", rrsw)):
        gap = np.maximum(optimum - found, 0)
        row[f"mean_gap_{name}"], row[f"largest_gap_{name}"] = float(gap.mean()), float(gap.max())
    return row


def cell_values(sweep: NodeSweep, cell: Cell, place: int) -> dict[str, Array]:
    """[node] values of one cell; the laws depend on the sweep's seed and the cell's place only."""
    generator = np.random.default_rng([sweep.seed, place])
    batches = []
    for start in range(0, sweep.nodes_per_cell, BATCH):
        count = min(BATCH, sweep.nodes_per_cell - start)
        sizes = generator.integers(sweep.vocab[0], sweep.vocab[1], count, endpoint=True)
        target, draft = cell.family.draw(generator, sizes, sweep.vocab[1])
        batches.append(node_values(NodeLaws(target, draft, draft), cell))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def combine(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> list[dict[str, Any]]:
    """Pool rows of cells that agree in the columns `by`, weighing by their number of nodes."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    pooled = []
    for key, members in groups.items():
        weights = np.array([member["num_nodes"] for member in members], dtype=np.float64)
        row = dict(zip(by, key, strict=True)) | {"num_nodes": int(weights.sum())}
        for name in members[0]:
            column = [member[name] for member in members]
            if name.startswith("largest_"):
                row[name] = max(column)
            elif name.startswith("mean_") or name in _SHARES:
                row[name] = float(np.average(column, weights=weights))
        pooled.append(row)
    return pooled


_SHARES = ("rheo_wins", "rrsw_wins", "equal", "rheo_is_optimal")


def _run_cell(sweep: NodeSweep, cell: Cell, place: int) -> dict[str, Any]:
    return cell.row() | summarise(cell_values(sweep, cell, place))


def _kept(ranking: Array, support_size: int) -> Array:
    """[node, vocab] draft laws without the tokens past the support, unnormalised."""
    if support_size >= ranking.shape[-1]:
        return ranking
    order = np.argsort(-ranking, axis=-1, kind="stable")[..., :support_size]
    kept = np.zeros_like(ranking)
    np.put_along_axis(kept, order, np.take_along_axis(ranking, order, axis=-1), axis=-1)
    return kept
