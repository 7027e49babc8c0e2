"""`rheocheck bounds`: what any verifier could accept, and what each rule does accept."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rheocheck.cli.bounds_options import (
    Budget,
    Depth,
    Device,
    DraftFolder,
    FamilyName,
    Jobs,
    JsonFile,
    Model,
    NumPrompts,
    NumTop,
    Prompts,
    Rounds,
    Seed,
    Support,
    TargetFolder,
    Temperature,
    TopK,
    is_real,
    make_folder,
    positive,
    refuse_for_source,
    scheme_of,
    span,
)
from rheocheck.cli.bounds_run import Run, decode, load
from rheocheck.cli.options import checked_seed, refuse_given

bounds = typer.Typer(
    name="bounds",
    help="What any lossless verifier could accept, and what each rule does accept.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@bounds.command()
def node(
    context: typer.Context,
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

    real_pair = is_real(model, target, draft, laws)
    refuse_for_source(context, real_pair, laws, ("family", "num_nodes", "vocab"))
    if real_pair:
        refuse_given(context, ["num_drafts"], "with --model")
    run = Run("node", json_file, seed, laws, {
        "top-k": top_k, "num-top": num_top, "support-size": support_size,
        "num-drafts": num_drafts, "temperature": temperature if laws is None else None,
    })  # fmt: skip
    settings = NodeSettings(top_k, num_top, support_size, num_drafts)
    if real_pair:
        from rheocheck.bounds.real_stage import comparison_stage

        real = decode(run, model, target, draft, prompts, num_prompts, rounds, device, temperature,
                       scheme_of(top_k, num_top, 59, 8, support_size), seed)  # fmt: skip
        stage = comparison_stage(
            real.roots, top_k, num_top, support_size, temperature, run.model, run.replay
        )
        run.finish([stage], print_comparison)
    if laws is not None:
        nodes = read_nodes(laws)
    else:
        run.options.update({"family": family, "num-nodes": num_nodes, "vocab": vocab})
        nodes = random_nodes(
            parse_family(family), positive("num_nodes", num_nodes), span(vocab), checked_seed(seed),
            temperature, temperature,
        )  # fmt: skip
    run.finish([node_stage(nodes, settings, run.replay)], print_rules)


@bounds.command()
def tree(
    context: typer.Context,
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

    config = scheme_of(top_k, num_top, budget, depth, support_size)
    real_pair = is_real(model, target, draft, laws)
    refuse_for_source(context, real_pair, laws, ("family", "num_models", "vocab"))
    run = Run("tree", json_file, seed, laws, {
        "top-k": top_k, "num-top": num_top, "budget": budget, "depth": depth,
        "support-size": support_size, "temperature": temperature if laws is None else None,
    })  # fmt: skip
    if real_pair:
        from rheocheck.bounds.tree_stage import TOP_K, real_tree_stage

        plain = config.model_copy(update={"num_top": top_k, "rule": "onehot"})
        runs = {
            name: decode(run, model, target, draft, prompts, num_prompts, rounds, device,
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
        seed=checked_seed(seed),
    )  # fmt: skip
    run.finish([random_tree_stage(sweep, positive("jobs", jobs), run.replay)], print_tree)


@bounds.command()
def sweep(
    context: typer.Context,
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
    real_pair = is_real(model, target, draft, None)
    refuse_for_source(context, real_pair, None, ("family", "per_cell", "vocab"))
    run = Run("sweep", json_file, seed, None, given | {"out": out})
    if out is not None:
        make_folder(out)
    request = SweepRequest(
        given, tuple(family or ()), out, checked_seed(seed), positive("jobs", jobs)
    )
    run.options.update({"family": family, "rounds": rounds if model else None})
    pair: tuple[Any, list[list[int]]] | None = None
    if real_pair:
        pair = load(run, model, target, draft, prompts, num_prompts, device)
    with run.bars() as progress:
        stages = run_sweep(request, pair, run.model, rounds, run.replay, progress)
    run.finish(stages, print_sweep)


@bounds.command()
def dominance(
    context: typer.Context,
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

    real_pair = is_real(model, target, draft, None)
    refuse_for_source(context, real_pair, None, ())
    if not real_pair:
        refuse_given(context, ["temperature"], "without --model")
    run = Run("dominance", json_file, seed, None, {
        "max-denominator": max_denominator, "num-nodes": num_nodes, "num-models": num_models,
        "num-instances": num_instances,
    })  # fmt: skip
    positive("num_models", num_models)
    positive("num_instances", num_instances)
    real = None
    if real_pair:
        real = decode(run, model, target, draft, prompts, num_prompts, rounds, device, temperature,
                       scheme_of(10, 1, 59, 8, 128), seed)  # fmt: skip
    found = [
        stages.no_filler_stage(max_denominator, run.replay),
        stages.filler_stage(max_denominator, run.replay),
        stages.tree_stage(max_denominator, run.replay),
        stages.merged_stage(num_instances, checked_seed(seed), run.replay),
        stages.frequency_stage(
            num_nodes, num_models, seed, positive("jobs", jobs), run.replay
        ),
    ]  # fmt: skip
    if real is not None:
        found.append(stages.real_frequency_stage(real.node_values, run.model, run.replay))
    run.finish(found, print_dominance)
