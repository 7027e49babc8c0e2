"""`rheocheck bounds sweep`: from comma-separated axes to grids, random or on a real pair."""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rheocheck.bounds.families import Family, parse_family
from rheocheck.bounds.sweep import NodeSweep
from rheocheck.bounds.sweep_stage import (
    node_figures,
    node_sweep_stage,
    real_sweep_stage,
    tree_sweep_stage,
    write_roots,
    write_trees,
)
from rheocheck.bounds.tree_sweep import TreeSweep
from rheocheck.certificate import StageResult
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.errors import InputError

REAL_AXES = {
    "top-k": (10,), "num-top": (0, 1, 2, 3), "support-size": (8, 16, 32, 64, 128),
    "draft-temperature": (1.0,), "budget": (59,), "depth": (8,), "target-temperature": (1.0,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """A sweep as it was asked for.

    Attributes:
      given: Option -> text, or None where it was not given.
      families: Names of families.
      out: Folder for tables and figures.
      seed: Of everything random.
      jobs: Processes.
    """

    given: dict[str, Any]
    families: tuple[str, ...]
    out: Path | None
    seed: int
    jobs: int

    def axis(self, name: str, default: tuple[Any, ...], kind: type = int) -> tuple[Any, ...]:
        """Values of one axis.

        Raises:
          InputError: A part that is no number.
        """
        text = self.given.get(name)
        if text is None:
            return default
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise InputError(
                f"--{name} is {text!r}; required: numbers separated by commas"
            ) from None

    def vocab(self, default: tuple[int, int]) -> tuple[int, int]:
        """Smallest and largest vocabulary.

        Raises:
          InputError: Not a number or a range.
        """
        text = self.given.get("vocab")
        if text is None:
            return default
        low, _, high = text.partition("-")
        if not text.isascii() or not low.isdigit() or not (high or low).isdigit():
            raise InputError(f"--vocab is {text!r}; required: a number, or a range such as 6-50")
        return int(low), int(high or low)


def run_sweep(
    request: SweepRequest, pair: Any, model: str, rounds: int, replay: str, progress: Any
) -> list[StageResult]:
    """Run a sweep.

    Args:
      request: What was asked for.
      pair: A loaded pair and its prompts' tokens, or None for random laws.
      model: Name of the pair.
      rounds: Rounds a prompt on a pair.
      replay: The command line.
      progress: Progress callback, or None.

    Returns:
      One stage.

    Raises:
      InputError: An option that does not belong to the sweep, or a bad value.
    """
    what = request.given["what"]
    if what not in ("node", "tree"):
        raise InputError(f"--what is {what!r}; required: node or tree")
    for name in ("budget", "depth") if what == "node" else ():
        if request.given[name] is not None:
            raise InputError(f"--{name} is an axis of trees; required: --what tree")
    tell = None if progress is None else (lambda done, n: progress("cells", done, n))
    if pair is not None:
        real = _real_nodes if what == "node" else _real_trees
        models, prompts = pair
        return [real(request, models, prompts, model, rounds, replay, tell)]
    if what == "node":
        return [node_sweep_stage(_node_grid(request), request.jobs, request.out, replay, tell)]
    return [tree_sweep_stage(_tree_grid(request), request.jobs, request.out, replay, tell)]


def _families(request: SweepRequest, default: tuple[Family, ...]) -> tuple[Family, ...]:
    return tuple(parse_family(name) for name in request.families) or default


def _node_grid(request: SweepRequest) -> NodeSweep:
    plain = NodeSweep()
    return NodeSweep(
        families=_families(request, plain.families),
        top_ks=request.axis("top-k", plain.top_ks),
        num_tops=request.axis("num-top", plain.num_tops),
        support_sizes=request.axis("support-size", plain.support_sizes),
        draft_temperatures=request.axis("draft-temperature", plain.draft_temperatures, float),
        target_temperatures=request.axis("target-temperature", plain.target_temperatures, float),
        vocab=request.vocab(plain.vocab),
        nodes_per_cell=request.given["per-cell"] or plain.nodes_per_cell,
        seed=request.seed,
    )


def _tree_grid(request: SweepRequest) -> TreeSweep:
    plain = TreeSweep()
    return TreeSweep(
        families=_families(request, plain.families),
        top_ks=request.axis("top-k", plain.top_ks),
        num_tops=request.axis("num-top", plain.num_tops),
        budgets=request.axis("budget", plain.budgets),
        depths=request.axis("depth", plain.depths),
        support_sizes=request.axis("support-size", plain.support_sizes),
        draft_temperatures=request.axis("draft-temperature", plain.draft_temperatures, float),
        target_temperatures=request.axis("target-temperature", plain.target_temperatures, float),
        vocab=request.vocab((plain.vocab, plain.vocab))[1],
        models_per_cell=request.given["per-cell"] or plain.models_per_cell,
        seed=request.seed,
    )


def _real_nodes(
    request: SweepRequest, pair: Any, prompts: Any, model: str, rounds: int, replay: str, tell: Any
) -> StageResult:
    """Decode once; every cell is evaluated at the roots of the rounds."""
    from rheocheck.bounds.real import decode_and_integrate
    from rheocheck.bounds.real_sweep import depth_one_comparison, root_sweep
    from rheocheck.bounds.sweep import Cell

    started = time.perf_counter()
    (temperature,) = _single(request, "target-temperature")
    config = SpeculationConfig()
    sampling = SamplingConfig(
        temperature=temperature, max_new_tokens=rounds * (config.depth + 1), seed=request.seed
    )
    sizes = request.axis("support-size", REAL_AXES["support-size"])
    run = decode_and_integrate(
        pair, prompts, config, sampling, rounds, max(*sizes, 128), progress=tell
    )
    temperatures = request.axis("draft-temperature", (temperature,), float)
    top_ks = request.axis("top-k", REAL_AXES["top-k"])
    cells = root_sweep(
        run.roots, model, top_ks, request.axis("num-top", REAL_AXES["num-top"]), sizes, temperatures
    )
    cell = Cell(Family("zipf"), top_ks[0], 1, max(sizes), temperatures[0])
    comparison = depth_one_comparison(run.roots, cell)
    files = []
    if request.out is not None:
        files = [
            *write_roots(comparison, cells, request.out),
            *node_figures(run.node_values, request.out),
        ]
    return real_sweep_stage(
        "node sweep on real laws",
        comparison,
        cells,
        f"{model}: laws at the roots of {len(run.roots.prompt):,} rounds of {len(prompts):,} "
        f"prompts; the table is the depth-1 comparison at K = {cell.top_k}, m = 1, N = "
        f"{cell.support_size}; figures of nodes show {len(run.node_values['t']):,} tree nodes",
        files,
        replay,
        started,
    )


def _real_trees(
    request: SweepRequest, pair: Any, prompts: Any, model: str, rounds: int, replay: str, tell: Any
) -> StageResult:
    """Decode anew for every cell."""
    from rheocheck.bounds.real_sweep import real_tree_sweep

    started = time.perf_counter()
    if request.given["draft-temperature"] is not None:
        raise InputError(
            "--draft-temperature was given; a pair decodes target and draft at one temperature, "
            "--target-temperature"
        )
    names = ("top-k", "num-top", "budget", "depth", "support-size")
    defaults = REAL_AXES | {"support-size": (128,), "num-top": (0, 1, 2, 3, 10)}
    axes = [request.axis(name, defaults[name]) for name in names]
    configs = [
        SpeculationConfig(
            top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=size
        )
        for top_k, num_top, budget, depth, size in itertools.product(*axes)
        if num_top <= top_k
    ]
    temperatures = request.axis("target-temperature", (1.0,), float)
    rows = real_tree_sweep(pair, prompts, configs, temperatures, rounds, request.seed, tell)
    files = [] if request.out is None else write_trees(rows, request.out)
    return real_sweep_stage(
        "tree sweep on real laws",
        rows,
        rows,
        f"{model}: {len(prompts):,} prompts, {rounds} rounds each, decoded for each of "
        f"{len(configs) * len(temperatures)} cells; verification integrated exactly; the token "
        f"that ends a round is not counted",
        files,
        replay,
        started,
    )


def _single(request: SweepRequest, name: str) -> tuple[float]:
    values = request.axis(name, REAL_AXES[name], float)
    if len(values) != 1:
        raise InputError(
            f"--{name} has {len(values)} values; required with --model and --what node: one, at "
            f"which the pair decodes"
        )
    return (values[0],)
