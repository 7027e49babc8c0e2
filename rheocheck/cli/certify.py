"""`rheocheck certify`: is the scheme lossless, exactly, on a family of small instances?"""

import time
from pathlib import Path
from typing import Any

import typer

from rheocheck.certificate import (
    EXIT_CODES,
    Report,
    StageResult,
    Verdict,
)
from rheocheck.cli.options import refuse_given
from rheocheck.cli.outputs import check_outputs
from rheocheck.errors import InputError
from rheocheck.parallel import num_processes

_SHOWN_LAWS = 12
_OF_SAMPLERS = ("max_paths", "max_seconds", "max_vocab", "tolerance")
_OF_THE_SCHEME = ("all_laws", "full", "max_eager_paths")


def certify(
    context: typer.Context,
    quick: bool = typer.Option(False, "--quick", help="A part of the family, in seconds."),
    seed: int = typer.Option(0, help="Of laws, vocabularies and supports."),
    jobs: int = typer.Option(2, help="Most processes; changes no result."),
    max_eager_paths: int | None = typer.Option(None, help="Most eager paths of an instance."),
    all_laws: bool = typer.Option(
        False, "--all-laws", help="All laws of small shapes too, by cells."
    ),
    full: bool = typer.Option(False, "--full", help="With --all-laws: every cell; an hour."),
    resume: Path | None = typer.Option(None, help="Keep and go on with what is done."),
    sampler: str | None = typer.Option(None, help="Yours instead: package.module:function."),
    max_paths: int = typer.Option(50_000, help="Sampler: most runs an instance."),
    max_seconds: float = typer.Option(300.0, help="Sampler: seconds of the sweep."),
    max_vocab: int = typer.Option(4, help="Sampler: largest vocabulary, 2 to 4."),
    tolerance: str | None = typer.Option(None, help="Sampler: TV that counts as rounding."),
    json_file: Path | None = typer.Option(None, "--json", help="Write the certificate."),
) -> None:
    """Prove the scheme lossless on every instance of a stated family, in exact fractions.

    Two enumerators that share no code must agree: one branches on surviving probes only, one runs
    the sampler once for every outcome of every draw.

    With --sampler any function sampler(target, draft, choose) is checked in the same way.

    Example: rheocheck certify --json certificate.json
    """
    from rich.console import Console

    from rheocheck.audit.certify_report import certify_report
    from rheocheck.audit.exact import exact_stage
    from rheocheck.cli.console import progress_bars
    from rheocheck.cli.resuming import resuming

    if sampler is not None:
        from rheocheck.cli.certify_sampler import certify_sampler

        refuse_given(context, _OF_THE_SCHEME, "with --sampler")
        check_outputs([json_file, resume])
        checked = certify_sampler(
            sampler, quick=quick, seed=seed, max_vocab=max_vocab, max_paths=max_paths,
            max_seconds=max_seconds, tolerance=tolerance, jobs=jobs, resume=resume,
            json_file=json_file,
        )  # fmt: skip
        raise typer.Exit(EXIT_CODES[checked.verdict])
    refuse_given(context, _OF_SAMPLERS, "without --sampler")
    check_outputs([json_file, resume])
    if full and (quick or not all_laws):
        raise InputError("--full was given; required: --all-laws, and not --quick")
    started = time.perf_counter()
    run = {
        "command": "certify", "seed": seed, "quick": quick, "max_eager_paths": max_eager_paths,
        "all_laws": all_laws, "full": full,
    }  # fmt: skip
    words = _words(run, jobs, json_file)
    num_processes(jobs)
    with resuming(run, resume, words) as journal, progress_bars(Console(stderr=True)) as progress:
        stage = exact_stage(quick, seed, jobs, progress, max_eager_paths, journal)
        stages = [stage]
        if all_laws:
            from rheocheck.audit.universal import universal_stage

            stages.append(universal_stage(quick, seed, jobs, progress, full=full, journal=journal))
    report = certify_report(
        stages, quick=quick, seed=seed, all_laws=all_laws, full=full,
        seconds=time.perf_counter() - started,
    )  # fmt: skip
    _print_stage(stage, report)
    if json_file is not None:
        report.write_json(json_file)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _words(run: dict[str, Any], jobs: int, json_file: Path | None) -> list[str]:
    """The command line that starts this run again."""
    words = ["rheocheck", "certify"]
    words += [f"--{name.replace('_', '-')}" for name in ("quick", "all_laws", "full") if run[name]]
    words += ["--seed", str(run["seed"]), "--jobs", str(jobs)]
    if run["max_eager_paths"] is not None:
        words += ["--max-eager-paths", str(run["max_eager_paths"])]
    return [*words, "--json", str(json_file)] if json_file is not None else words


def _print_stage(stage: StageResult, report: Report) -> None:
    """Tables of the groups and edge cases, the counterexample, the claim and the verdict."""
    from rich.console import Console

    from rheocheck.cli.all_laws import print_all_laws
    from rheocheck.cli.console import print_table

    console = Console(highlight=False)
    details = stage.details
    totals = {**details, "name": "all"}
    table = _table("family", [*details["groups"], totals])
    fired = sum(control["fired"] for control in details["controls"])
    in_all = len(details["controls"])
    table.add_row("planted controls", f"{fired} of {in_all}", *"-----")
    print_table(table, console)
    print_table(_table("named edge cases, each under every rule", details["edge_cases"]), console)
    console.print(
        f"cases: instances checked; classes: classes of draws visited; eager: paths run by the "
        f"eager enumerator; not eager: instances above {details['max_eager_paths']:,} paths, where "
        f"only classes ran; defect: the worst, exact; differ: instances on which the two disagree."
    )
    if "counterexample" in details:
        for line in counterexample_lines(details["counterexample"]):
            console.print(line, markup=False, soft_wrap=True)
    console.print(details["summary"], markup=False)
    for other in report.stages:
        if other.name == "all_laws":
            print_all_laws(other, console)
    for claim in report.claims:
        console.print(f"Claim: {claim}", markup=False)
    colour = {Verdict.CERTIFIED: "green", Verdict.LOSSY: "red"}.get(report.verdict, "yellow")
    console.print(
        f"Verdict: [bold {colour}]{report.verdict.name}[/] in {report.seconds or 0:.1f} s "
        f"(replay: {stage.replay})"
    )


def _table(title: str, rows: list[dict[str, Any]]) -> Any:
    from rich.markup import escape

    from rheocheck.cli.console import make_table

    numbers = ("cases", "classes", "eager", "not eager", "defect", "differ")
    table = make_table(("laws",), numbers, title, framed=True)
    for row in rows:
        table.add_row(
            escape(row["name"]),
            f"{row['num_instances']:,}",
            f"{row['num_classes']:,}",
            f"{row['num_eager_paths']:,}",
            f"{row['num_classes_only']:,}",
            row["worst_defect"],
            f"{row['num_disagreements']:,}",
        )
    return table


def counterexample_lines(counterexample: dict[str, Any]) -> list[str]:
    """A counterexample for people: the scheme, the laws asked for, the place, got and wanted.

    Args:
      counterexample: As the exact stage describes it, fractions in strings.

    Returns:
      Lines without markup.
    """
    lines = [f"Counterexample ({counterexample['enumerator'] or 'both enumerators'}):"]
    lines.append(f"  {counterexample['instance']}")
    laws = counterexample["laws"]
    for row in laws[:_SHOWN_LAWS]:
        shown = [f"{name} ({', '.join(row[name])})" for name in _law_names(row)]
        lines.append(f"  after {_path(row['path'])}: {'; '.join(shown)}")
    if len(laws) > _SHOWN_LAWS:
        lines.append(f"  and the laws after {len(laws) - _SHOWN_LAWS} more paths (see --json)")
    if "token" in counterexample:
        lines.append(
            f"  after {_path(counterexample['path'])}, token {counterexample['token']}: got "
            f"{counterexample['got']}, wanted {counterexample['wanted']}"
        )
    if counterexample["disagreement"]:
        lines.append(f"  the two enumerators disagree on: {counterexample['disagreement']}")
    return lines


def _law_names(row: dict[str, Any]) -> list[str]:
    names: list[str] = [name for name in ("target", "ranking", "draft") if name in row]
    if "draft" in row and row["draft"] == row["ranking"]:
        names.remove("ranking")
    return names


def _path(path: list[int]) -> str:
    return f"path ({', '.join(map(str, path))})" if path else "the empty path"
