"""What the commands share on a terminal: escaping, progress bars, the tables of a report."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.cli.localisation import print_localisation
from rheocheck.text import visible

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
"""Called with (what is being done, units done, units in all)."""

_STYLES = {
    Verdict.CERTIFIED: "bold green",
    Verdict.NO_EVIDENCE: "green",
    Verdict.SUSPECT: "bold yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.LOSSY: "bold red",
}
_LONGEST_VALUE = 96
_NARROWEST_WORDS = 12


def printable(text: str) -> str:
    """`text` with every character that could act on a terminal written as an escape sequence.

    Model output is arbitrary: see `visible`. A backslash is doubled so that the result is
    unambiguous; a replay line, which is made of visible characters, goes through `visible` alone.
    """
    return visible(text.replace("\\", "\\\\"))


def format_number(value: float | int | None) -> str:
    """A number as a reader wants it: three digits, exponents where they are shorter."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or math.isinf(value) or math.isnan(value):
        return f"{value:g}"
    return f"{value:.3g}"


def format_value(value: Any) -> str:
    """Any JSON value on one line, shortened and safe to print."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return format_number(value)
    text = printable(value if isinstance(value, str) else str(value))
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


@contextmanager
def progress_bars(console: Console) -> Iterator[ProgressCallback | None]:
    """Progress bars while the block runs, on a terminal only.

    Yields:
      A callback, or None where standard error is no terminal.
    """
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(escape(what), total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield advance


def print_report(report: Report, console: Console) -> None:
    """Print a report: verdict, stages, what each says, claims, facts.

    Args:
      report: The finished run.
      console: Where to print.
    """
    table = make_table(("stage", "verdict"), ("statistic", "limit", "p", "n", "power", "s"))
    for stage in report.stages:
        numbers = (stage.statistic, stage.threshold, stage.p_value, stage.sample_size, stage.power)
        table.add_row(
            escape(stage.name),
            f"[{_STYLES[stage.verdict]}]{stage.verdict.name}[/]",
            *(format_number(value) for value in numbers),
            "-" if stage.seconds is None else f"{stage.seconds:.0f}",
        )
    print_table(table, console)
    console.print()
    for stage in report.stages:
        _print_stage(stage, console)
    _print_facts(report.facts, console)
    for lacking in report.facts.get("not_checked", []):
        line = f"Not checked: {escape(printable(str(lacking)))}"
        console.print(line, highlight=False, soft_wrap=True)
    if report.localisation is not None:
        print_localisation(report.localisation, console)
    console.print()
    for claim in report.claims:
        console.print(f"[bold]Claim.[/] {escape(printable(claim))}", highlight=False)
    style = _STYLES[report.verdict]
    seconds = f" in {report.seconds:.0f} s" if report.seconds is not None else ""
    console.print(f"Verdict: [{style}]{report.verdict.name}[/]{seconds}")


def print_error(message: str) -> None:
    """One paragraph on standard error; line breaks in the message are kept."""
    lines = [printable(line) for line in message.split("\n")]
    sys.stderr.write("rheocheck: error: " + "\n".join(lines) + "\n")


def _print_stage(stage: StageResult, console: Console) -> None:
    """The stage's one-sentence summary; its witness and replay line unless it passed."""
    summary = stage.details.get("summary")
    if isinstance(summary, str):
        console.print(
            f"[bold]{escape(stage.name)}[/] {escape(printable(summary))}", highlight=False
        )
    for row in stage.details.get("sizing", []):
        shown = ", ".join(f"{key.replace('_', ' ')} {format_value(row[key])}" for key in row)
        console.print(f"  sized for: {escape(shown)}", highlight=False, soft_wrap=True)
    for number, step in enumerate(stage.details.get("steps", [])):
        shown = ", ".join(f"{key} {format_value(value)}" for key, value in step.items())
        console.print(f"  step {number}: {escape(shown)}", highlight=False, soft_wrap=True)
    if stage.verdict in (Verdict.LOSSY, Verdict.SUSPECT, Verdict.INCONCLUSIVE):
        witness = stage.details.get("witness")
        if isinstance(witness, dict):
            _print_witness(witness, console)
        if stage.replay:
            console.print(
                f"  replay: {escape(visible(stage.replay))}", highlight=False, soft_wrap=True
            )


def _print_witness(witness: dict[str, Any], console: Console) -> None:
    """A witness on one line, its tokens on lines of their own."""
    tokens = witness.get("tokens")
    rows = tokens if isinstance(tokens, list) else []
    shown = ", ".join(
        f"{key} {format_value(value)}"
        for key, value in witness.items()
        if key != "tokens" or not rows
    )
    console.print(f"  witness: {escape(shown)}", highlight=False)
    for row in rows:
        line = ", ".join(f"{key} {format_value(value)}" for key, value in row.items())
        console.print(f"    {escape(line)}", highlight=False, soft_wrap=True)


def _print_facts(facts: dict[str, Any], console: Console) -> None:
    """The acceptance table."""
    rows = facts.get("acceptance")
    if not isinstance(rows, list) or not rows:
        return
    console.print()
    console.print(printable(str(facts.get("acceptance_title", ""))), highlight=False)
    table = make_table(("scheme",), ("T", "accepted", "std. error", "rounds", "prompts"))
    for row in rows:
        table.add_row(
            escape(str(row["scheme"])),
            format_number(row["temperature"]),
            f"{row['mean_accepted']:.3f}",
            f"{row['standard_error']:.3f}",
            format_number(row["num_rounds"]),
            format_number(row["num_prompts"]),
        )
    print_table(table, console)


def make_table(
    words: Sequence[str], numbers: Sequence[str], title: str = "", framed: bool = False
) -> Table:
    """An empty table: words to the left, which may fold; numbers to the right, which may not.

    Args:
      words: Headers of the first columns.
      numbers: Headers of the others.
      title: Printed above it.
      framed: Whether there is a rule below the headers.

    Returns:
      The table, to be printed with `print_table`.
    """
    table = Table(
        title=escape(title) or None,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD if framed else None,
        pad_edge=False,
        padding=(0, 1 if framed else 2, 0, 0),
    )
    for header in words:
        table.add_column(escape(header), overflow="fold")
    for header in numbers:
        table.add_column(escape(header), justify="right", no_wrap=True)
    return table


def print_table(table: Table, console: Console) -> None:
    """Print a table so that no figure is cut.

    Words fold where the terminal is narrow. Where even that is too wide the lines are longer than
    the terminal's, which breaks them but shows all of them.

    Args:
      table: From `make_table`.
      console: Where to print.
    """
    needed = len(table.columns) + 1  # the frame's own lines
    for column in table.columns:
        cells = [Text.from_markup(str(cell)).cell_len for cell in (column.header, *column.cells)]
        widest = max(cells, default=0)
        column.min_width = widest if column.no_wrap else min(widest, _NARROWEST_WORDS)
        needed += column.min_width + table.padding[1]
    width = console.width
    console.width = max(width, needed)
    try:
        console.print(table)
    finally:
        console.width = width
