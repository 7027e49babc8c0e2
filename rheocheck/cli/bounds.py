"""`rheocheck bounds`: what any verifier could accept, and what each rule does accept."""

import importlib.util
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rheocheck.certificate import EXIT_CODES, Report, StageResult, environment, overall_verdict
from rheocheck.errors import InputError

if TYPE_CHECKING:
    from rheocheck.bounds.real import RealRun
    from rheocheck.config import SpeculationConfig
    from rheocheck.models.registry import Pair

bounds = typer.Typer(
    name="bounds",
    help="What any lossless verifier could accept, and what each rule does accept.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonFile: TypeAlias = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")
]
Seed: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Of laws, models and draws.")]
Jobs: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Processes; changes no result.")]
FamilyName: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="dirichlet:A, zipf or zipf-near:S.")
]
Model: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Real pair: tiny, llama31, vicuna13b, dsl8b.")
]
TargetFolder: TypeAlias = Annotated[
    Path | None, typer.Option("--target", metavar="DIR", help="Target checkpoint of your own.")
]
DraftFolder: TypeAlias = Annotated[
    Path | None, typer.Option("--draft", metavar="DIR", help="EAGLE-3 head of your own.")
]
Prompts: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --model: .jsonl, or text by line.")
]
NumPrompts: TypeAlias = Annotated[int, typer.Option(metavar="N", help="With --model.")]
Rounds: TypeAlias = Annotated[int, typer.Option(metavar="N", help="With --model: a prompt.")]
Device: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="With --model.")]
Temperature: TypeAlias = Annotated[
    float, typer.Option(metavar="T", help="Of target and draft; scores stay at 1.")
]
TopK: TypeAlias = Annotated[int, typer.Option(metavar="K", help="Children of a node.")]
NumTop: TypeAlias = Annotated[int, typer.Option(metavar="M", help="Deterministic ones of them.")]
Budget: TypeAlias = Annotated[int, typer.Option(metavar="R", help="Drafted nodes kept.")]
Depth: TypeAlias = Annotated[int, typer.Option(metavar="D", help="Drafted levels.")]
Support: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Draft tokens kept.")]


@bounds.command()
def node(
    laws: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Laws: .json or .npz; else random.")
    ] = None,
    family: FamilyName = "zipf-near:1",
    num_nodes: Annotated[int, typer.Option(metavar="N", help="Random nodes.")] = 100,
    vocab: Annotated[
        str, typer.Option(metavar="N", help="Tokens of random nodes: 50, or 6-50.")
    ] = "6-50",
    model: Model = None,
    target: TargetFolder = None,
    draft: DraftFolder = None,
    prompts: Prompts = None,
    num_prompts: NumPrompts = 64,
    rounds: Rounds = 8,
    device: Device = "cpu",
    temperature: Temperature = 1.0,
    top_k: TopK = 10,
    num_top: NumTop = 1,
    support_size: Support = 128,
    num_drafts: Annotated[
        int | None, typer.Option(metavar="N", help="Candidates of other rules; K if not given.")
    ] = None,
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Every rule and every optimum at one node, with certificates.

    With --model: the depth-1 comparison on the laws at the roots of a real pair's rounds.

    Example: rheocheck bounds node laws.json --top-k 3 --json node.json
    """  # fmt: skip
    from rheocheck.bounds.families import parse_family
    from rheocheck.bounds.files import read_nodes
    from rheocheck.bounds.node_stage import NodeSettings, node_stage, random_nodes
    from rheocheck.cli.bounds_tables import print_comparison, print_rules

    run = _Run("node", json_file, seed, laws, {
        "top-k": top_k, "num-top": num_top, "support-size": support_size,
        "num-drafts": num_drafts, "temperature": temperature,
    })  # fmt: skip
    settings = NodeSettings(top_k, num_top, support_size, num_drafts)
    if _is_real(model, target, draft, laws):
        from rheocheck.bounds.real_stage import comparison_stage

        real = _decode(run, model, target, draft, prompts, num_prompts, rounds, device, temperature,
                       _config(top_k, num_top, 59, 8, support_size), seed)  # fmt: skip
        stage = comparison_stage(
            real.roots, top_k, num_top, support_size, temperature, run.model, run.replay
        )
        run.finish([stage], print_comparison)
    if laws is not None:
        nodes = read_nodes(laws)
    else:
        run.options.update({"family": family, "num-nodes": num_nodes, "vocab": vocab})
        nodes = random_nodes(
            parse_family(family), _positive("num_nodes", num_nodes), _span(vocab), _seed(seed),
            temperature, temperature,
        )  # fmt: skip
    run.finish([node_stage(nodes, settings, run.replay)], print_rules)


@bounds.command()
def tree(
    laws: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Laws by path, .json; else random.")
    ] = None,
    family: FamilyName = "zipf-near:1",
    num_models: Annotated[int, typer.Option(metavar="N", help="Random models.")] = 50,
    vocab: Annotated[int, typer.Option(metavar="N", help="Tokens of random models.")] = 64,
    model: Model = None,
    target: TargetFolder = None,
    draft: DraftFolder = None,
    prompts: Prompts = None,
    num_prompts: NumPrompts = 64,
    rounds: Rounds = 8,
    device: Device = "cpu",
    temperature: Temperature = 1.0,
    top_k: TopK = 10,
    num_top: NumTop = 1,
    budget: Budget = 59,
    depth: Depth = 8,
    support_size: Support = 128,
    seed: Seed = 0,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
) -> None:
    """Expected accepted draft tokens a round, by rule, depth and role.

    A given model is enumerated exactly; keep R and D small. Random and real models are integrated
    exactly over verification, given each drawn tree. The token that ends a round is not counted.

    Example: rheocheck bounds tree --model tiny --num-prompts 64
    """
    from rheocheck.bounds.files import read_model
    from rheocheck.bounds.tree_stage import exact_tree_stage, random_tree_stage
    from rheocheck.cli.bounds_tables import print_tree

    config = _config(top_k, num_top, budget, depth, support_size)
    run = _Run("tree", json_file, seed, laws, {
        "top-k": top_k, "num-top": num_top, "budget": budget, "depth": depth,
        "support-size": support_size, "temperature": temperature,
    })  # fmt: skip
    if _is_real(model, target, draft, laws):
        from rheocheck.bounds.tree_stage import TOP_K, real_tree_stage

        plain = config.model_copy(update={"num_top": top_k, "rule": "onehot"})
        runs = {
            name: _decode(run, model, target, draft, prompts, num_prompts, rounds, device,
                          temperature, scheme, seed)
            for name, scheme in (("rheo", config), (TOP_K, plain))
            if name == "rheo" or num_top < top_k
        }  # fmt: skip
        run.finish([real_tree_stage(runs, config, run.model, run.replay)], print_tree)
    if laws is not None:
        given = read_model(laws)
        run.finish([exact_tree_stage(*given, config, run.replay)], print_tree)
    from rheocheck.bounds.families import parse_family
    from rheocheck.bounds.tree_sweep import TreeSweep

    run.options.update({"family": family, "num-models": num_models, "vocab": vocab})
    sweep = TreeSweep(
        families=(parse_family(family),), top_ks=(top_k,),
        num_tops=tuple(dict.fromkeys((num_top, top_k))), budgets=(budget,), depths=(depth,),
        support_sizes=(support_size,), draft_temperatures=(temperature,),
        target_temperatures=(temperature,), vocab=vocab, models_per_cell=num_models,
        seed=_seed(seed),
    )  # fmt: skip
    run.finish([random_tree_stage(sweep, _positive("jobs", jobs), run.replay)], print_tree)


@bounds.command()
def sweep(
    what: Annotated[
        str, typer.Option(metavar="node|tree", help="One node, or whole trees.")
    ] = "node",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Tables (CSV, JSON), figures (SVG, PNG).")
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Repeatable; seven by default.")
    ] = None,
    per_cell: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes (1200) or models (50) in each cell.")
    ] = None,
    vocab: Annotated[str | None, typer.Option(metavar="N", help="50, or 6-50 for nodes.")] = None,
    top_k: Annotated[str | None, typer.Option(metavar="K,K,..", help="Children.")] = None,
    num_top: Annotated[str | None, typer.Option(metavar="M,M,..", help="Top children.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="R,R,..", help="For trees.")] = None,
    depth: Annotated[str | None, typer.Option(metavar="D,D,..", help="For trees.")] = None,
    support_size: Annotated[
        str | None, typer.Option(metavar="N,N,..", help="Draft tokens.")
    ] = None,
    draft_temperature: Annotated[
        str | None, typer.Option(metavar="T,T,..", help="Of probes; scores stay at 1.")
    ] = None,
    target_temperature: Annotated[
        str | None, typer.Option(metavar="T,T,..", help="With --model trees: of both.")
    ] = None,
    model: Model = None,
    target: TargetFolder = None,
    draft: DraftFolder = None,
    prompts: Prompts = None,
    num_prompts: NumPrompts = 64,
    rounds: Rounds = 8,
    device: Device = "cpu",
    seed: Seed = 0,
    jobs: Jobs = 2,
    json_file: JsonFile = None,
) -> None:
    """A grid of counts, temperatures and families; tables and figures.

    Example: rheocheck bounds sweep --what tree --num-top 0,1,2,3,10 --out sweep
    """  # fmt: skip
    from rheocheck.cli.bounds_sweep import SweepRequest, run_sweep
    from rheocheck.cli.bounds_tables import print_sweep

    given = {
        "what": what, "vocab": vocab, "per-cell": per_cell, "top-k": top_k, "num-top": num_top,
        "budget": budget, "depth": depth, "support-size": support_size,
        "draft-temperature": draft_temperature, "target-temperature": target_temperature,
    }  # fmt: skip
    run = _Run("sweep", json_file, seed, None, given | {"out": out})
    if out is not None:
        _make_folder(out)
    request = SweepRequest(given, tuple(family or ()), out, _seed(seed), _positive("jobs", jobs))
    run.options.update({"family": family})
    pair: tuple[Any, list[list[int]]] | None = None
    if _is_real(model, target, draft, None):
        pair = _pair(run, model, target, draft, prompts, num_prompts, device)
    with run.bars() as progress:
        stages = run_sweep(request, pair, run.model, rounds, run.replay, progress)
    run.finish(stages, print_sweep)


@bounds.command()
def dominance(
    max_denominator: Annotated[
        int, typer.Option(metavar="N", help="Largest common denominator of exhausted laws.")
    ] = 8,
    num_nodes: Annotated[int, typer.Option(metavar="N", help="Random nodes in each cell.")] = 1200,
    num_models: Annotated[int, typer.Option(metavar="N", help="Random small trees.")] = 200,
    num_instances: Annotated[
        int, typer.Option(metavar="N", help="Pruned trees to certify merged verification on.")
    ] = 60,
    model: Model = None,
    target: TargetFolder = None,
    draft: DraftFolder = None,
    prompts: Prompts = None,
    num_prompts: NumPrompts = 64,
    rounds: Rounds = 8,
    device: Device = "cpu",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    jobs: Jobs = 2,
    json_file: JsonFile = None,
) -> None:
    """Where probe-first verification beats recursive rejection, and where it does not.

    Example: rheocheck bounds dominance --model tiny --json dominance.json
    """  # fmt: skip
    from rheocheck.bounds import dominance_stage as stages
    from rheocheck.cli.bounds_tables import print_dominance

    run = _Run("dominance", json_file, seed, None, {
        "max-denominator": max_denominator, "num-nodes": num_nodes, "num-models": num_models,
        "num-instances": num_instances,
    })  # fmt: skip
    _positive("num_models", num_models), _positive("num_instances", num_instances)
    found = [
        stages.no_filler_stage(max_denominator, run.replay),
        stages.filler_stage(max_denominator, run.replay),
        stages.tree_stage(max_denominator, run.replay),
        stages.merged_stage(num_instances, _seed(seed), run.replay),
        stages.frequency_stage(
            num_nodes, num_models, seed, _positive("jobs", jobs), run.replay
        ),
    ]  # fmt: skip
    if _is_real(model, target, draft, None):
        real = _decode(run, model, target, draft, prompts, num_prompts, rounds, device, temperature,
                       _config(10, 1, 59, 8, 128), seed)  # fmt: skip
        found.append(stages.real_frequency_stage(real.node_values, run.model, run.replay))
    run.finish(found, print_dominance)


class _Run:
    """One run of a command: its replay line, its report, its exit."""

    def __init__(
        self,
        command: str,
        json_file: Path | None,
        seed: int,
        file: Path | None,
        options: dict[str, Any],
    ) -> None:
        _check_writable(json_file)
        self.started = time.perf_counter()
        self.command = command
        self.json_file = json_file
        self.seed = _seed(seed)
        self.file = file
        self.options = dict(options)
        self.model = ""

    @property
    def replay(self) -> str:
        """A shell line that repeats the run."""
        words = ["rheocheck", "bounds", self.command, *([str(self.file)] if self.file else [])]
        for name, value in (self.options | {"seed": self.seed}).items():
            for item in value if isinstance(value, list) else [value]:
                words += [] if item is None else [f"--{name}", str(item)]
        return shlex.join(words)

    def bars(self) -> Any:
        """Progress bars on standard error."""
        from rich.console import Console

        from rheocheck.cli.console import progress_bars

        return progress_bars(Console(stderr=True))

    def finish(
        self, stages: Sequence[StageResult], show: Callable[[Sequence[StageResult], Any], None]
    ) -> None:
        """Print, write and exit.

        Raises:
          Exit: Always, with the verdict's code.
        """
        from rich.console import Console

        from rheocheck.cli.bounds_tables import print_verdicts

        required = [stage.name for stage in stages if stage.claim is not None]
        report = Report(
            command=f"bounds {self.command}",
            verdict=overall_verdict(stages, required),
            claims=[stage.claim for stage in stages if stage.claim is not None],
            settings={name: _plain(value) for name, value in self.options.items()}
            | {"seed": self.seed},
            stages=list(stages),
            environment=environment(),
            seconds=time.perf_counter() - self.started,
        )
        console = Console(highlight=False)
        show(stages, console)
        print_verdicts(report, console)
        if self.json_file is not None:
            report.write_json(self.json_file)
        raise typer.Exit(EXIT_CODES[report.verdict])


def _decode(
    run: _Run, model: str | None, target: Path | None, draft: Path | None, prompts: Path | None,
    num_prompts: int, rounds: int, device: str, temperature: float, config: "SpeculationConfig",
    seed: int,
) -> "RealRun":  # fmt: skip
    from rheocheck.bounds.real import decode_and_integrate
    from rheocheck.config import SamplingConfig

    pair, texts = _pair(run, model, target, draft, prompts, num_prompts, device)
    _positive("rounds", rounds)
    run.options.update({"rounds": rounds, "temperature": temperature})
    sampling = SamplingConfig(
        temperature=temperature, max_new_tokens=rounds * (config.depth + 1), seed=seed
    )
    with run.bars() as progress:
        told = None if progress is None else _labelled(progress, "prompts decoded")
        return decode_and_integrate(
            pair, texts, config, sampling, rounds, config.support_size, progress=told
        )


def _pair(
    run: _Run, model: str | None, target: Path | None, draft: Path | None, prompts: Path | None,
    num_prompts: int, device: str,
) -> tuple["Pair", list[list[int]]]:  # fmt: skip
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "--model runs models with torch, which is not installed; install it with "
            "pip install 'rheocheck[torch]' (given and random laws need no torch)"
        )
    from rheocheck.audit.prompts import read_prompts
    from rheocheck.models.registry import load_pair

    texts = read_prompts(prompts, _positive("num_prompts", num_prompts))
    pair = load_pair(model or "tiny", target=target, draft=draft, device=device)
    run.model = pair.paths.name
    run.options.update({
        "model": model or "tiny", "target": target, "draft": draft, "prompts": prompts,
        "num-prompts": num_prompts, "device": device,
    })  # fmt: skip
    return pair, [pair.tokenizer.encode(prompt.text) for prompt in texts]


def _is_real(model: str | None, target: Path | None, draft: Path | None, laws: Path | None) -> bool:
    real = not (model is None and target is None and draft is None)
    if real and laws is not None:
        raise InputError(f"{laws} and --model were given; required: one source of laws")
    return real


def _labelled(progress: Any, label: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(label, done, total)


def _config(
    top_k: int, num_top: int, budget: int, depth: int, support_size: int
) -> "SpeculationConfig":
    from rheocheck.config import SpeculationConfig

    return SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=support_size
    )


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdigit() or not (high or low).isdigit() or not 1 <= int(low) <= int(high or low):
        raise InputError(
            f"vocab = {text!r}; required: a number such as 50, or a range such as 6-50"
        )
    return int(low), int(high or low)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{name} = {value}; required: at least 1")
    return value


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**63:
        raise InputError(f"seed = {seed}; required: at least 0 and below 2**63")
    return seed


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}") from None


def _check_writable(path: Path | None) -> None:
    """Refuse an output path before the work, not after.

    Raises:
      InputError: The folder does not exist, or the path is a folder.
    """
    if path is not None and not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path is not None and path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
