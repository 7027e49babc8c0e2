"""Sweeps on a real pair: one node over the laws at the roots of rounds, and whole trees.

At one node, all rules and counts are evaluated at the same contexts, so comparisons are controlled:
the published depth-1 comparison (Top-K, Rheo + RRSw, Rheo + RheoVerification on the same laws) is
one cell. Trees are decoded anew for each cell, on the same prompts with the same seed.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rheocheck.bounds.families import Family
from rheocheck.bounds.laws import Array, NodeLaws
from rheocheck.bounds.real import RootLaws, decode_and_integrate
from rheocheck.bounds.sweep import Cell, node_values, summarise
from rheocheck.bounds.tally import Estimate, Tally, estimate, estimates
from rheocheck.config import SamplingConfig, SpeculationConfig

if TYPE_CHECKING:
    from rheocheck.models.registry import Pair

SCHEMES = {
    "topk": "Top-K",
    "onehot": "Rheo + point masses",
    "rrsw": "Rheo + RRSw",
    "rheo": "Rheo + RheoVerification",
    "merged": "Rheo + merged law (optimum)",
}


def root_values(roots: RootLaws, cell: Cell) -> dict[str, Array]:
    """Acceptance of every rule at each context, see `node_values`.

    Args:
      roots: Laws at the roots of rounds.
      cell: Counts and the temperature of the draft; the target keeps the temperature it was
        decoded at, since its rest is lumped.
    """
    return node_values(NodeLaws(roots.target, roots.ranking, roots.ranking), cell)


def depth_one_comparison(roots: RootLaws, cell: Cell) -> list[dict[str, Any]]:
    """The controlled comparison at depth 1: all children survive, every scheme on the same laws.

    Args:
      roots: Laws at the roots of rounds.
      cell: Counts and the temperature of the draft.

    Returns:
      One row a scheme: "scheme", "acceptance" and "lead_over_rrsw", each with standard error and
      95 % interval over prompts.
    """
    values = root_values(roots, cell)
    rows = []
    for name, scheme in SCHEMES.items():
        acceptance = _over_prompts(values[name], roots)
        lead = _over_prompts(values[name] - values["rrsw"], roots)
        rows.append({"rule": name, "scheme": scheme, **_named("acceptance", acceptance),
                     **_named("lead_over_rrsw", lead)})  # fmt: skip
    return rows


def root_sweep(
    roots: RootLaws,
    model: str,
    top_ks: Sequence[int],
    num_tops: Sequence[int],
    support_sizes: Sequence[int],
    draft_temperatures: Sequence[float],
) -> list[dict[str, Any]]:
    """Every combination of counts and draft temperatures at the roots of a real pair's rounds.

    Returns:
      One row a cell, as `node_sweep` gives them; "family" is the model's name.
    """
    rows = []
    for top_k, num_top, support_size, temperature in itertools.product(
        top_ks, num_tops, support_sizes, draft_temperatures
    ):
        if num_top <= top_k:
            cell = Cell(Family("zipf"), top_k, num_top, support_size, temperature)
            row = cell.row() | summarise(root_values(roots, cell))
            rows.append(row | {"family": model, "target_temperature": None})
    return rows


def real_tree_sweep(
    pair: "Pair",
    prompts: Sequence[Sequence[int]],
    configs: Sequence[SpeculationConfig],
    temperatures: Sequence[float],
    max_rounds: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """E[tau] of every rule for each scheme and temperature, on the same prompts.

    Args:
      pair: Target and head.
      prompts: Token ids of each.
      configs: Schemes; num_top >= top_k is plain Top-K.
      temperatures: Of the requests: target and draft alike.
      max_rounds: Rounds a prompt.
      seed: Of the draws.
      progress: Called with (cells done, cells in all).

    Returns:
      One row a cell and rule, as `tree_sweep` gives them.
    """
    rows: list[dict[str, Any]] = []
    cells = list(itertools.product(configs, temperatures))
    for done, (config, temperature) in enumerate(cells, start=1):
        sampling = SamplingConfig(
            temperature=temperature, max_new_tokens=max_rounds * (config.depth + 1), seed=seed
        )
        plain = config.num_top >= config.top_k
        scheme = config if not plain else config.model_copy(update={"rule": "onehot"})
        run = decode_and_integrate(pair, prompts, scheme, sampling, max_rounds)
        for rule, units in run.tallies.items():
            row: dict[str, Any] = {
                **config.model_dump(exclude={"rule"}),
                "temperature": temperature,
                "rule": "topk" if plain else rule,
                "num_prompts": len(units),
            }
            for name, found in estimates(units, config.depth).items():
                row[name], row[f"{name}_error"] = found.value, found.standard_error
            rows.append(row)
        if progress is not None:
            progress(done, len(cells))
    return rows


def _over_prompts(values: Array, roots: RootLaws) -> Estimate:
    """Mean over contexts with prompts as independent units."""
    units: list[Tally] = [
        {"sum": float(values[roots.prompt == prompt].sum()),
         "count": float((roots.prompt == prompt).sum())}
        for prompt in np.unique(roots.prompt)
    ]  # fmt: skip
    return estimate(units, "sum", "count")


def _named(name: str, found: Estimate) -> dict[str, Any]:
    return {
        name: found.value,
        f"{name}_error": found.standard_error,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
    }
