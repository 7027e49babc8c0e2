"""`rheocheck audit`: is this speculative decoder lossless on real text?"""

import importlib.util
from pathlib import Path

import typer

from rheocheck.cli.audit_trace import audit_trace, finish
from rheocheck.cli.options import refuse_given
from rheocheck.cli.outputs import check_outputs
from rheocheck.errors import InputError


def audit(
    context: typer.Context,
    model: str = typer.Option("tiny", metavar="NAME", help="tiny, llama31, vicuna13b or dsl8b."),
    target: Path | None = typer.Option(None, metavar="DIR", help="Target checkpoint of your own."),
    draft: Path | None = typer.Option(None, metavar="DIR", help="EAGLE-3 head of your own."),
    prompts: Path | None = typer.Option(None, metavar="FILE", help=".jsonl, or text by line."),
    num_prompts: int | None = typer.Option(
        None, metavar="N", help="Default: what --certify needs."
    ),
    certify: float | None = typer.Option(None, metavar="TV", help="Mean TV to certify; 0.01."),
    deep: bool = typer.Option(False, "--deep", help="--certify 0.001: ten times the work."),
    detect: float | None = typer.Option(None, metavar="TV", help="Sample enough to find this TV."),
    token_cap: int = typer.Option(1_000_000, metavar="N", help="Most tokens for --detect."),
    temperature: list[float] = typer.Option([1.0, 0.7], metavar="T", help="Repeatable."),
    top_k: int = typer.Option(10, metavar="K", help="Children of a node."),
    num_top: int = typer.Option(1, metavar="M", help="Deterministic ones of them."),
    budget: int = typer.Option(59, metavar="R", help="Drafted nodes kept."),
    depth: int = typer.Option(8, metavar="D", help="Drafted levels."),
    support_size: int = typer.Option(128, metavar="N", help="Draft tokens kept."),
    rule: str = typer.Option("rheo", metavar="RULE", help="rheo, rrsw or onehot."),
    max_new_tokens: int = typer.Option(16, metavar="N", help="Decoded a prompt."),
    seed: int = typer.Option(0, metavar="N", help="Key of all randomness."),
    jobs: int = typer.Option(2, metavar="N", help="Most processes; changes no result."),
    device: str = typer.Option("cpu", metavar="NAME", help="cpu, cuda, cuda:1, ..."),
    trace: Path | None = typer.Option(None, metavar="DIR", help="Audit a trace; runs no model."),
    record: int | None = typer.Option(None, metavar="N", help="Only this record of the trace."),
    save_trace: Path | None = typer.Option(None, metavar="DIR", help="Keep all rounds there."),
    carry: Path | None = typer.Option(None, metavar="FILE", help="Evidence from run to run."),
    json_file: Path | None = typer.Option(None, "--json", metavar="FILE", help="Write JSON."),
    html_file: Path | None = typer.Option(None, "--html", metavar="FILE", help="Write a page."),
) -> None:
    """Audit a target and its EAGLE-3 head on real prompts.

    Example: rheocheck audit --num-prompts 500 --json audit.json --html audit.html
    """
    # A trace may be given by its index.
    folder = None if trace is None else trace if trace.is_dir() else trace.parent
    check_outputs([json_file, html_file, carry], [prompts, folder, target, draft, save_trace])
    if trace is not None:
        given = [name for name in context.params if _is_given(context, name)]
        audit_trace(trace, record, seed, json_file, html_file, given)
    if deep and certify is not None:
        raise InputError("--deep is --certify 0.001: one of the two is required, not both")
    if detect is None:
        refuse_given(context, ["token_cap"], "without --detect")
    if record is not None:
        raise InputError("--record names a record of a trace; it needs --trace")
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "the audit runs models with torch, which is not installed; install it with "
            "pip install 'rheocheck[torch]' (rheocheck certify needs no torch)"
        )
    from rich.console import Console
    from rich.markup import escape

    from rheocheck.audit.run import run_audit
    from rheocheck.audit.settings import (
        DEEP_CERTIFIED_TV,
        DEFAULT_CERTIFIED_TV,
        AuditSettings,
        make_config,
    )
    from rheocheck.cli.console import progress_bars

    settings = AuditSettings(
        model=model,
        target=target,
        draft=draft,
        prompts=prompts,
        num_prompts=num_prompts,
        certify=DEEP_CERTIFIED_TV if deep else DEFAULT_CERTIFIED_TV if certify is None else certify,
        detect=detect,
        token_cap=token_cap,
        temperatures=tuple(temperature),
        config=make_config(
            top_k=top_k,
            num_top=num_top,
            budget=budget,
            depth=depth,
            support_size=support_size,
            rule=rule,
        ),
        max_new_tokens=max_new_tokens,
        seed=seed,
        jobs=jobs,
        device=device,
        save_trace=save_trace,
    )
    console = Console(stderr=True)

    def notice(text: str) -> None:
        console.print(escape(text), highlight=False)

    with progress_bars(console) as progress:
        report = run_audit(settings, progress, carry, notice)
    finish(report, json_file, html_file)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
