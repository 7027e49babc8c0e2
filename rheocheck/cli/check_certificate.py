"""`rheocheck check-certificate`: is a certificate what its instances give when computed again?"""

import time
from pathlib import Path

import typer

from rheocheck.certificate import EXIT_CODES, Report, StageResult, Verdict, environment


def check_certificate(
    file: Path = typer.Argument(help="What `rheocheck certify --json` wrote."),
    jobs: int = typer.Option(2, help="Worker processes; the result does not depend on it."),
    max_eager_paths: int | None = typer.Option(
        None, help="Most paths of an instance to run eagerly; default: the certificate's own."
    ),
    sample: int | None = typer.Option(None, help="Check so many instances only, drawn by --seed."),
    seed: int = typer.Option(0, help="Draws the sample, and other laws for --all-laws."),
    json_file: Path | None = typer.Option(None, "--json", help="Write the outcome as JSON."),
) -> None:
    """Compute every instance of a certificate again, by the enumerator that did not make it.

    A certificate that was changed is rejected with the instance (exit 1); a file that is none is an
    input error (exit 2). Instances beyond the other enumerator's bound are counted and named by
    group; they are computed again by the same one.

    Example: rheocheck check-certificate certificate.json
    """
    from rich.console import Console

    from rheocheck.audit.certificate_check import check_certificate as check
    from rheocheck.audit.instance_certificate import CertificateFile
    from rheocheck.cli.console import progress_bars
    from rheocheck.cli.options import checked_seed
    from rheocheck.cli.outputs import check_outputs

    check_outputs([json_file], [file])
    checked_seed(seed)
    started = time.perf_counter()
    read = CertificateFile.read(file)
    with progress_bars(Console(stderr=True)) as progress:
        stage = check(read, jobs, max_eager_paths, sample, seed, progress)
    report = Report(
        command="check-certificate",
        verdict=stage.verdict,
        claims=[stage.claim] if stage.claim else [],
        settings={"file": str(file), "sample": sample, "seed": seed},
        stages=[stage],
        environment=environment(),
        seconds=time.perf_counter() - started,
    )
    _print(stage, report)
    if json_file is not None:
        report.write_json(json_file)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _print(stage: StageResult, report: Report) -> None:
    """Where the certificate was made, what was compared, what differs, the verdict."""
    from rich.console import Console

    from rheocheck.cli.console import printable

    console = Console(highlight=False)
    details = stage.details
    made = ", ".join(f"{name} {version}" for name, version in details["versions"].items())
    console.print(printable(f"made with {made}"), markup=False)
    console.print(printable(details["summary"]), markup=False)
    for problem in details["problems"]:
        where = problem["instance"] or "the file"
        console.print(printable(f"  {where}: {problem['what']}"), markup=False, soft_wrap=True)
    hidden = details["num_problems"] - len(details["problems"])
    if hidden:
        console.print(f"  and {hidden:,} more (see --json)", markup=False)
    for claim in report.claims:
        console.print(printable(f"Claim: {claim}"), markup=False)
    colour = {Verdict.CERTIFIED: "green", Verdict.LOSSY: "red"}.get(stage.verdict, "yellow")
    outcome = "REJECTED" if details["num_problems"] else stage.verdict.name
    console.print(f"Verdict: [bold {colour}]{outcome}[/] in {report.seconds or 0:.1f} s")
