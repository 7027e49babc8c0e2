"""`rheocheck bench`: where the time of a round goes, on random laws and with a real pair."""

import importlib.util
import time
from pathlib import Path
from typing import Any

import typer

from rheocheck.certificate import EXIT_CODES, Report, StageResult, Verdict, environment
from rheocheck.errors import InputError
from rheocheck.text import shell_word


def bench(
    vocab: int = typer.Option(32_000, metavar="V", help="Tokens of the random laws."),
    batch: int = typer.Option(8, metavar="B", help="Rows decoded together."),
    rounds: int = typer.Option(5, metavar="N", help="Timed rounds on random laws."),
    top_k: int = typer.Option(10, metavar="K", help="Children of a node."),
    num_top: int = typer.Option(1, metavar="M", help="Deterministic ones of them."),
    budget: int = typer.Option(59, metavar="R", help="Drafted nodes that survive."),
    depth: int = typer.Option(8, metavar="D", help="Drafted levels."),
    support_size: int = typer.Option(128, metavar="N", help="Draft tokens kept a node."),
    temperature: float = typer.Option(1.0, metavar="T", help="Of all requests, above 0."),
    num_prompts: int = typer.Option(32, metavar="N", help="Prompts of the pair; 0 runs no pair."),
    model: str = typer.Option("tiny", help="Pair: tiny, llama31, vicuna13b or dsl8b."),
    seed: int = typer.Option(0, help="Key of laws and draws."),
    json_file: Path | None = typer.Option(None, "--json", help="Write the figures as JSON."),
) -> None:
    """Time drafting, tree growth, the target and verification; one torch thread.

    Random laws: the draft's phase is a table look-up, so tree and verify are what is measured. All
    dynamic schemes run on trees of one shape; the static trees of the literature are 4, 2, 2, 1
    children wide and verify dense laws. Nothing is judged: the exit code is 0.

    Example: rheocheck bench --vocab 128256 --batch 1 --num-prompts 0 --json bench.json
    """
    from rich.console import Console

    from rheocheck.cli.options import checked_seed
    from rheocheck.cli.outputs import check_outputs
    from rheocheck.config import SamplingConfig, SpeculationConfig

    check_outputs([json_file])
    for name, value, least in (
        ("vocab", vocab, 1), ("batch", batch, 1), ("rounds", rounds, 1),
        ("num_prompts", num_prompts, 0),
    ):  # fmt: skip
        if value < least:
            raise InputError(f"{name} = {value}; required: at least {least}")
    config = SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=support_size
    )
    sampling = SamplingConfig(temperature=temperature, max_new_tokens=32, seed=checked_seed(seed))
    if temperature == 0:
        raise InputError("temperature = 0.0; required: above 0, where probes are random")
    if importlib.util.find_spec("torch") is None:
        raise InputError("bench runs torch, which is not installed: pip install 'rheocheck[torch]'")
    settings: dict[str, Any] = {
        "vocab": vocab, "batch": batch, "rounds": rounds, "top-k": top_k, "num-top": num_top,
        "budget": budget, "depth": depth, "support-size": support_size,
        "temperature": temperature, "num-prompts": num_prompts, "model": model, "seed": seed,
    }  # fmt: skip
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    replay = " ".join(["rheocheck bench", *map(shell_word, words)])
    started = time.perf_counter()
    stages = _run(settings, config, sampling, replay)
    from rheocheck.bench.stages import peak_memory

    report = Report(
        command="bench",
        verdict=Verdict.NO_EVIDENCE,
        settings=settings,
        stages=stages,
        facts={"peak_memory_bytes": peak_memory()},
        environment=environment(),
        seconds=time.perf_counter() - started,
    )
    _print(report, Console(highlight=False))
    if json_file is not None:
        report.write_json(json_file)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _run(settings: dict[str, Any], config: Any, sampling: Any, replay: str) -> list[StageResult]:
    """All schemes on random laws, then the dynamic ones with the pair."""
    import torch
    from rich.console import Console

    from rheocheck.bench.random_laws import Workload
    from rheocheck.bench.stages import dynamic_schemes, pair_stage, random_stage, schemes
    from rheocheck.cli.console import progress_bars

    torch.set_num_threads(1)
    pair, prompts = None, []
    if settings["num-prompts"]:
        from rheocheck.audit.prompts import read_prompts
        from rheocheck.models.registry import load_pair

        texts = read_prompts(None, settings["num-prompts"])
        pair = load_pair(settings["model"])
        prompts = [pair.tokenizer.encode(prompt.text) for prompt in texts]
    workload = Workload(
        settings["vocab"], settings["batch"], settings["rounds"], sampling.temperature,
        sampling.seed,
    )  # fmt: skip
    found, total = [], len(schemes(config)) + (3 if pair else 0)
    with progress_bars(Console(stderr=True)) as progress:
        for name, scheme in schemes(config).items():
            found.append(random_stage(name, scheme, workload, replay))
            if progress is not None:
                progress("schemes", len(found), total)
        for name, dynamic in dynamic_schemes(config).items() if pair else ():
            found.append(pair_stage(name, dynamic, pair, prompts, sampling, workload.batch, replay))
            if progress is not None:
                progress("schemes", len(found), total)
    return found


def _print(report: Report, console: Any) -> None:
    """One table a kind of laws, one line a scheme: milliseconds a round and row by phase."""
    from rich.table import Table

    stages = report.stages
    for laws in dict.fromkeys(stage.name.partition(": ")[0] for stage in stages):
        rows = [stage for stage in stages if stage.name.startswith(f"{laws}: ")]
        phases = list(dict.fromkeys(p for row in rows for p in row.details["milliseconds_a_round"]))
        table = Table(
            title=f"{laws}, milliseconds a round and row",
            box=None,
            pad_edge=False,
            title_justify="left",
        )
        table.add_column("scheme", overflow="fold")
        for name in (*phases, "rounds/s", "accepted", "nodes"):
            table.add_column(name, justify="right", overflow="fold")
        for row in rows:
            times, rate = row.details["milliseconds_a_round"], row.details["rounds_a_second"]
            table.add_row(
                row.name.partition(": ")[2], *[f"{times.get(phase, 0):.3g}" for phase in phases],
                f"{rate:.3g}" if rate else "-", f"{row.details['accepted']:.2f}",
                f"{row.details['nodes']:.1f}",
            )  # fmt: skip
        console.print(table)
        console.print()
    peak = report.facts["peak_memory_bytes"]
    console.print(
        f"Peak memory of the process {peak / 2**20:,.0f} MiB. Accepted draft tokens a round; the "
        "token that ends it is not counted."
    )
