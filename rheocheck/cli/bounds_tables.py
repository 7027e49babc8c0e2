"""Tables of `rheocheck bounds` on a terminal; the JSON file holds the same numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.cli.console import make_table, print_table
from rheocheck.text import visible

_COLOURS = {Verdict.CERTIFIED: "green", Verdict.LOSSY: "red", Verdict.NO_EVIDENCE: "green"}
# Fractions longer than this are shown as decimals.
_LONGEST_FRACTION = 15
_MOST_ROWS = 40
_TREE_LINES = {
    "expected_accepted": "E[tau]",
    "acceptance_depth_1": "at depth 1",
    "acceptance_depth_2": "at depth 2",
    "acceptance_depth_3": "at depth 3",
    "acceptance_depth_4": "at depth 4",
    "acceptance_top": "top tests",
    "acceptance_probe": "probe tests",
    "acceptance_filler": "filler tests",
    "probe_survival": "probes kept",
}


def print_rules(stages: Sequence[StageResult], console: Any) -> None:
    """Rules of a node, their acceptances and optima."""
    headers = ("rule", "candidates", "accept test", "membership", "optimum", "gap")
    table = _table("acceptance at a node", headers, 2)
    notes = []
    for row in stages[0].details["rows"]:
        numbers = [_number(row[name]) for name in ("accept_test", "membership", "optimum", "gap")]
        table.add_row(row["rule"], row["candidates"], *numbers)
        if row["note"]:
            notes.append(f"{row['rule']}: {row['note']}.")
    print_table(table, console)
    for note in notes:
        console.print(note, markup=False)
    proofs = stages[0].details["certificates"]
    if len(proofs) == 1:
        proof = proofs[0]
        dual = ", ".join(map(str, proof["dual_set"][:12]))
        more = len(proof["dual_set"]) - 12
        console.print(
            f"Certificate of the dual-identity optimum: the plan attains {proof['lower']}, the "
            f"dual set {{{dual}{f' and {more} more' if more > 0 else ''}}} bounds by "
            f"{proof['upper']}.",
            markup=False,
        )


def print_comparison(stages: Sequence[StageResult], console: Any) -> None:
    """The depth-1 comparison of schemes."""
    table = _table("acceptance at depth 1", ("scheme", "acceptance", "±", "lead over RRSw", "±"), 1)
    for row in stages[0].details["rows"]:
        table.add_row(
            row["scheme"], *_with_error(row, "acceptance"), *_with_error(row, "lead_over_rrsw")
        )
    print_table(table, console)


def print_tree(stages: Sequence[StageResult], console: Any) -> None:
    """E[tau] by scheme; acceptance by depth and role where it was estimated."""
    from rich.markup import escape

    details = stages[0].details
    rows = details["rows"]
    table = _table("E[tau], and shares of tests accepted", ("", *map(_scheme, rows)), 1)
    for name, label in _TREE_LINES.items():
        if any(name in row for row in rows):
            table.add_row(escape(label), *(_cell(row, name) for row in rows))
    print_table(table, console)
    for name, lead in details.get("leads", {}).items():
        if lead["value"] is not None:
            error = lead["standard_error"] or 0.0
            console.print(f"{name}, on the same trees: {lead['value']:+.4f} ± {error:.4f}")
    ratios = details.get("variance")
    if ratios and ratios["expected_accepted"] and ratios["lead"]:
        console.print(
            f"Counting accepted tokens has {ratios['expected_accepted']:.1f} times the variance "
            f"for E[tau], and {ratios['lead']:.0f} times for rheo - rrsw.",
            markup=False,
        )


def print_sweep(stages: Sequence[StageResult], console: Any) -> None:
    """The pooled rows of a sweep, and the files written."""
    details = stages[0].details
    rows = details["rows"]
    if rows and "scheme" in rows[0]:
        print_comparison(stages, console)
    elif rows and "expected_accepted" in rows[0]:
        _print_tree_rows(rows, console)
    else:
        print_frequencies(rows, "random nodes", console)
    for file in details["files"]:
        console.print(f"wrote {file}", markup=False, soft_wrap=True)


def print_frequencies(rows: Sequence[Mapping[str, Any]], title: str, console: Any) -> None:
    """Who wins how often."""
    # Shares won, the largest leads seen, and mean gaps to the optimum.
    headers = ("laws", "nodes", "rheo %", "rrsw %", "rheo by", "rrsw by", "rheo gap",
               "rrsw gap")  # fmt: skip
    table = _table(title, headers, 1)
    for row in rows:
        table.add_row(
            str(row["family"]), f"{row['num_nodes']:,}",
            *(f"{100 * row[name]:.2f}" for name in ("rheo_wins", "rrsw_wins")),
            *(f"{row[name]:.4f}" for name in ("largest_rheo_lead", "largest_rrsw_lead",
                                              "mean_gap_rheo", "mean_gap_rrsw")),
        )  # fmt: skip
    print_table(table, console)


def print_dominance(stages: Sequence[StageResult], console: Any) -> None:
    """Witnesses and frequencies."""
    for stage in stages:
        rows = stage.details.get("rows", [])
        if stage.name.startswith("frequency"):
            print_frequencies(rows, stage.name, console)
        for row in rows:
            witness = row.get("witness")
            if witness and "acceptance" in witness:
                console.print(
                    f"V={row['vocab']} K={row['top_k']} m={row['num_top']}: target "
                    f"({', '.join(witness['target'])}), draft ({', '.join(witness['draft'])}): "
                    f"{_pairs(witness['acceptance'])}", markup=False, soft_wrap=True,
                )  # fmt: skip
            elif witness:
                console.print(
                    f"V={row['vocab']} K=2 m=1 R={row['budget']} D={row['depth']}: E[tau] "
                    f"{_pairs(witness['expected_accepted'])}", markup=False, soft_wrap=True,
                )  # fmt: skip
                for name, laws in witness["model"].items():
                    shown = "; ".join(
                        f"{path or 'root'}: ({', '.join(law)})" for path, law in laws.items()
                    )
                    console.print(f"  {name}  {shown}", markup=False, soft_wrap=True)
        for found in stage.details.get("counterexamples", []):
            console.print(
                f"merged if {found['condition']}: after {found['path']}, token {found['token']}: "
                f"got {found['got']}, wanted {found['wanted']}", markup=False, soft_wrap=True,
            )  # fmt: skip


def print_verdicts(report: Report, console: Any) -> None:
    """Summaries, claims and the verdict."""
    for stage in report.stages:
        console.print(f"{stage.name}: {stage.details['summary']}", markup=False, soft_wrap=True)
    for claim in report.claims:
        console.print(f"Claim: {claim}", markup=False, soft_wrap=True)
    colour = _COLOURS.get(report.verdict, "yellow")
    replay = visible(report.stages[0].replay or "")
    console.print(
        f"Verdict: [bold {colour}]{report.verdict.name}[/] in {report.seconds or 0:.1f} s"
    )
    console.print(f"Replay: {replay}", markup=False, soft_wrap=True)


def _print_tree_rows(rows: Sequence[Mapping[str, Any]], console: Any) -> None:
    axes = ("family", "top_k", "num_top", "budget", "depth", "support_size", "temperature",
            "draft_temperature", "target_temperature")  # fmt: skip
    varied = [a for a in axes if len({row.get(a) for row in rows}) > 1]
    table = _table(
        "expected accepted draft tokens a round",
        (*varied, "rule", "E[tau]", "±", "probes kept"),
        0,
    )
    for row in rows[:_MOST_ROWS]:
        table.add_row(
            *(str(row.get(axis)) for axis in varied), row["rule"],
            *_with_error(row, "expected_accepted"), _plain(row.get("probe_survival")),
        )  # fmt: skip
    print_table(table, console)
    if len(rows) > _MOST_ROWS:
        console.print(f"and {len(rows) - _MOST_ROWS} more rows (see --json or --out)")


def _table(title: str, headers: Sequence[str], num_left: int) -> Table:
    return make_table(headers[:num_left], headers[num_left:], title, framed=True)


def _number(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    exact = cell.get("exact")
    return (
        exact if exact is not None and len(exact) <= _LONGEST_FRACTION else f"{cell['value']:.9f}"
    )


def _with_error(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    error = row.get(f"{name}_error")
    return _plain(row.get(name)), "-" if error is None else f"{error:.4f}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _cell(row: Mapping[str, Any], name: str) -> str:
    """An estimate with its error, from either form of row."""
    found = row.get(name)
    if isinstance(found, Mapping):
        if "exact" in found or "standard_error" not in found:
            return _number(found)
        found, error = found["value"], found["standard_error"]
    else:
        error = row.get(f"{name}_error")
    if found is None:
        return "-"
    return f"{found:.3f}" + ("" if error is None else f"±{error:.3f}")


def _scheme(row: Mapping[str, Any]) -> str:
    if "scheme" in row:
        return str(row["scheme"])
    return "Top-K" if row["num_top"] >= row["top_k"] else str(row["rule"])


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
