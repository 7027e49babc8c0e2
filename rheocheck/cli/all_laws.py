"""What the all-laws stage prints: shapes by size, the witness, the claim's scope."""

from typing import Any

from rich.console import Console

from rheocheck.certificate import StageResult
from rheocheck.cli.console import make_table, print_table


def print_all_laws(stage: StageResult, console: Console) -> None:
    """Print the stage: one line for each vocabulary and kind of shape.

    Args:
      stage: The finished stage.
      console: Where to print.
    """
    numbers = ("number", "cells", "points", "miss below", "defects")
    table = make_table(("shapes",), numbers, "all laws of small shapes, cell by cell", framed=True)
    for kind, rows in _kinds(stage.details["rows"]).items():
        table.add_row(
            kind,
            f"{len(rows):,}",
            f"{sum(row['cells_visited'] for row in rows):,}",
            f"{sum(row['points'] for row in rows):,}",
            f"2^{max(row['failure_probability_log2'] for row in rows):.1f}",
            f"{sum(row['defects'] for row in rows):,}",
        )
    print_table(table, console)
    console.print(
        "complete: every sign cell was visited; drawn: so many distinct ones were; miss below: the "
        "probability that a lossy shape shows no defect."
    )
    controls = stage.details["controls"]
    fired = sum(control["fired"] for control in controls)
    console.print(f"planted controls: {fired} of {len(controls)} judged as they must be.")
    witness = stage.details.get("witness")
    if witness is not None:
        for line in witness_lines(witness):
            console.print(line, markup=False, soft_wrap=True)


def witness_lines(witness: dict[str, Any]) -> list[str]:
    """A point with a defect, for people.

    Args:
      witness: As the stage describes it, fractions in strings.

    Returns:
      Lines without markup.
    """
    return [
        f"Lossy: {witness['shape']}, point {witness['point']}, defect {witness['defect']}",
        f"  cell: {witness['cell']}",
        *(f"  {name}: ({', '.join(witness[name])})" for name in ("target", "ranking", "draft")),
    ]


def _kinds(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        vocab, depth = row["vocab"], row["depth"]
        place = "one node" if depth == 1 else "trees"
        if row["complete"]:
            extent = "complete" if row["zero_masses"] else "complete, no zero masses"
        else:
            extent = "drawn"
        kinds.setdefault(f"V = {vocab}, {place}, {extent}", []).append(row)
    return kinds
