"""Sweeps of whole trees over random models: E[tau], probe survival, and how often rrsw wins.

A random model has an independent pair of laws at every path, seeded by the path. All cells of a
sweep see the same models, so that differences between cells are not differences between models.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rheocheck.bounds.families import Family, tempered
from rheocheck.bounds.growth import DraftModel, Path, sample_tree
from rheocheck.bounds.laws import Array, check_counts
from rheocheck.bounds.tally import Tally, estimates, tally_tree
from rheocheck.bounds.tree import TargetModel, expected_by_rule, tree_acceptance
from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.parallel import in_order

EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class TreeSweep:
    """A grid of tree cells; each field is one axis, the last four aside.

    Attributes:
      families: Families of laws.
      top_ks: Children.
      num_tops: Top children; cells with num_top > top_k are left out, num_top = top_k is plain
        Top-K.
      budgets: Surviving nodes.
      depths: Layers.
      support_sizes: Tokens that the draft keeps.
      draft_temperatures: Of the law that probes are drawn from.
      target_temperatures: Of the target.
      vocab: Tokens of each law.
      models_per_cell: Random models, one tree each.
      seed: Of the models and the draws.
    """

    families: tuple[Family, ...] = (Family("zipf-near", 1.0),)
    top_ks: tuple[int, ...] = (10,)
    num_tops: tuple[int, ...] = (0, 1, 2, 3, 10)
    budgets: tuple[int, ...] = (59,)
    depths: tuple[int, ...] = (8,)
    support_sizes: tuple[int, ...] = (128,)
    draft_temperatures: tuple[float, ...] = (1.0,)
    target_temperatures: tuple[float, ...] = (1.0,)
    vocab: int = 64
    models_per_cell: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse an empty axis or a setting out of range.

        Raises:
          InputError: Names the axis or the setting.
        """
        for name in ("families", "top_ks", "num_tops", "budgets", "depths", "support_sizes",
                     "draft_temperatures", "target_temperatures"):  # fmt: skip
            if not getattr(self, name):
                raise InputError(f"{name} is empty; required: at least one value")
        check_counts(models_per_cell=self.models_per_cell, vocab=self.vocab)
        self.cells()

    def cells(self) -> list["TreeCell"]:
        """The grid in order.

        Raises:
          ConfigError: A setting out of range.
        """
        axes = itertools.product(
            self.families, self.top_ks, self.num_tops, self.budgets, self.depths,
            self.support_sizes, self.draft_temperatures, self.target_temperatures,
        )  # fmt: skip
        return [
            TreeCell(
                family,
                SpeculationConfig(
                    top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=support
                ),
                draft_temperature,
                target_temperature,
            )
            for (
                family, top_k, num_top, budget, depth, support, draft_temperature,
                target_temperature,
            ) in axes
            if num_top <= top_k
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TreeCell:
    """One cell of a grid."""

    family: Family
    config: SpeculationConfig
    draft_temperature: float = 1.0
    target_temperature: float = 1.0

    def row(self) -> dict[str, Any]:
        """Its settings as one row of a table."""
        config = self.config.model_dump(exclude={"rule"})
        return {
            "family": self.family.name,
            **config,
            "draft_temperature": self.draft_temperature,
            "target_temperature": self.target_temperature,
        }


def random_model(
    family: Family,
    vocab: int,
    seed: tuple[int, ...],
    draft_temperature: float = 1.0,
    target_temperature: float = 1.0,
) -> tuple[TargetModel, DraftModel]:
    """A target and a draft with independent laws at every path.

    Args:
      family: Where each pair of laws comes from.
      vocab: Tokens.
      seed: Non-negative integers; the same seed and path give the same laws at temperature 1.
      draft_temperature: Of the law that probes are drawn from; the ranking law stays at 1.
      target_temperature: Of the target.
    """
    known: dict[Path, tuple[Array, Array]] = {}

    def laws(path: Path) -> tuple[Array, Array]:
        if path not in known:
            # The length keeps (1,) and (1, 0) apart, which a seed sequence pads alike.
            generator = np.random.default_rng([*seed, len(path), *path])
            target, draft = family.draw(generator, np.array([vocab]), vocab)
            known[path] = tempered(target[0], target_temperature), draft[0]
        return known[path]

    def draft_at(path: Path) -> tuple[Array, Array]:
        ranking = laws(path)[1]
        return ranking, tempered(ranking, draft_temperature)

    return lambda path: laws(path)[0], draft_at


def tree_sweep(
    sweep: TreeSweep, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> list[dict[str, Any]]:
    """Evaluate every cell.

    Args:
      sweep: The grid.
      jobs: Processes.
      progress: Called with (cells done, cells in all).

    Returns:
      One row a cell and rule: settings, "rule", and for E[tau], acceptance by depth and role and
      probe survival the estimate and its standard error over models.
    """
    cells = sweep.cells()
    rows: list[dict[str, Any]] = []
    tasks = ((sweep, cell) for cell in cells)
    for done, found in enumerate(in_order(_run_cell, tasks, jobs), start=1):
        rows.extend(found)
        if progress is not None:
            progress(done, len(cells))
    return rows


@dataclass(frozen=True, slots=True)
class Frequency:
    """How often each rule has the larger E[tau] over random models.

    Attributes:
      num_models: Models, each integrated exactly over all draws.
      rheo_wins: Share with rheo above rrsw.
      rrsw_wins: Share with rrsw above rheo.
      equal: The rest.
      largest_rheo_lead: Largest E[tau] of rheo less that of rrsw.
      largest_rrsw_lead: The other way.
      mean_lead: Mean of rheo - rrsw.
    """

    num_models: int
    rheo_wins: float
    rrsw_wins: float
    equal: float
    largest_rheo_lead: float
    largest_rrsw_lead: float
    mean_lead: float


def tree_frequency(
    family: Family, config: SpeculationConfig, vocab: int, num_models: int, seed: int = 0
) -> Frequency:
    """Compare E[tau] of rheo and rrsw on random models, every draw enumerated.

    Args:
      family: Of the laws.
      config: A small scheme; fillers are absent if top_k = num_top + 1.
      vocab: Tokens.
      num_models: Models.
      seed: Of the models.
    """
    check_counts(num_models=num_models, vocab=vocab)
    leads = []
    for number in range(num_models):
        target, draft = random_model(family, vocab, (seed, number))
        found = expected_by_rule(target, draft, config, ("rheo", "rrsw"))
        leads.append(float(found["rheo"]) - float(found["rrsw"]))
    lead = np.array(leads)
    return Frequency(
        num_models,
        float((lead > EQUAL).mean()),
        float((lead < -EQUAL).mean()),
        float((np.abs(lead) <= EQUAL).mean()),
        float(np.maximum(lead, 0).max()),
        float(np.maximum(-lead, 0).max()),
        float(lead.mean()),
    )


def _run_cell(sweep: TreeSweep, cell: TreeCell) -> list[dict[str, Any]]:
    plain = cell.config.num_top >= cell.config.top_k
    rules: tuple[Rule, ...] = ("onehot",) if plain else RULES
    tallies: dict[Rule, list[Tally]] = {rule: [] for rule in rules}
    for number in range(sweep.models_per_cell):
        target, draft = random_model(
            cell.family, sweep.vocab, (sweep.seed, number),
            cell.draft_temperature, cell.target_temperature,
        )  # fmt: skip
        generator = np.random.default_rng([sweep.seed, number, 2**31])
        tree = sample_tree(draft, cell.config, generator)
        laws = [np.asarray(target(path)) for path in tree.paths()]
        for rule in rules:
            tallies[rule].append(tally_tree(tree, tree_acceptance(tree, laws, rule)))
    rows = []
    for rule, units in tallies.items():
        row = cell.row() | {"rule": rule, "num_models": len(units)}
        for name, found in estimates(units, cell.config.depth).items():
            row[name], row[f"{name}_error"] = found.value, found.standard_error
        rows.append(row)
    return rows
