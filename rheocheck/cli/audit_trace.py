"""`rheocheck audit --trace`: the audit of what another engine wrote down."""

from collections.abc import Sequence
from pathlib import Path

import typer

from rheocheck.certificate import EXIT_CODES, Report
from rheocheck.errors import InputError


def audit_trace(
    trace: Path,
    record: int | None,
    seed: int,
    json_file: Path | None,
    html_file: Path | None,
    given: Sequence[str],
) -> None:
    """Audit a trace, or one record of it, print the report and exit with its verdict's code.

    Args:
      trace: Folder or index file.
      record: Number of the record, or None for all.
      seed: Of the randomised PIT.
      json_file: Written if not None.
      html_file: Written if not None.
      given: Options on the command line; those that only matter to a run of models are refused.

    Raises:
      InputError: An option without effect, a trace that is not as it must be.
    """
    allowed = {"trace", "record", "seed", "json_file", "html_file"}
    for name in given:
        if name not in allowed:
            option = name.replace("_", "-")
            raise InputError(f"--{option} has no effect with --trace, which runs no model")
    if not 0 <= seed < 2**63:
        raise InputError(f"--seed {seed}: must be from 0 to 2^63 - 1")
    if record is not None and record < 0:
        raise InputError(f"--record {record}: must be 0 or more")
    if record is None:
        from rheocheck.audit.trace_run import run_trace_audit

        finish(run_trace_audit(trace, seed), json_file, html_file)
    else:
        from rheocheck.audit.trace_record import run_record

        finish(run_record(trace, record), json_file, html_file)


def finish(report: Report, json_file: Path | None, html_file: Path | None) -> None:
    """Print the report, write the files that were asked for, exit with the verdict's code.

    Raises:
      Exit: Always.
    """
    from rich.console import Console

    from rheocheck.cli.console import print_report

    print_report(report, Console())
    if json_file is not None:
        report.write_json(json_file)
    if html_file is not None:
        from rheocheck.reports import render_html

        html_file.write_text(render_html(report), encoding="utf-8", errors="backslashreplace")
    raise typer.Exit(EXIT_CODES[report.verdict])
