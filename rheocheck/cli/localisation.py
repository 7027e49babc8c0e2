"""Prints where in decoding a fault sits."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from rheocheck.text import visible


def print_localisation(found: dict[str, Any], console: Console) -> None:
    """Violations by category, the largest deviations, the token set, and the replay of one."""
    from rheocheck.cli.console import format_number, format_value, printable

    def line(text: str) -> None:
        console.print(escape(printable(text)), highlight=False, soft_wrap=True)

    console.print("\n[bold]Where[/]", highlight=False)
    for item in found["violations"]:
        if item["dimension"] in ("request", "run"):
            continue
        examined = item["examined"]
        share = "" if examined is None else f" of {examined:,}"
        line(
            f"  {item['what']}: {item['dimension']} {item['category']}, "
            f"{item['violations']:,}{share}"
        )
    for item in found["origins"][:5]:
        line(
            f"  first in its request: role {item['role']}, depth {item['depth']}, node "
            f"{item['node']}, from round {item['earliest_round']}: {item['requests']:,} requests"
        )
    for item in found["deviations"][:5]:
        counts = ""
        if item["observed"] is not None:
            counts = f"{format_number(item['observed'])} for {format_number(item['expected'])}, "
        line(
            f"  {item['statistic']} by {item['dimension']} {item['category']}: {counts}"
            f"z {format_number(item['z'])}, adjusted p {format_number(item['adjusted_p'])}"
        )
    if found["deviations"]:
        line(f"  ({found['multiplicity']})")
    tokens = found["token_set"]
    if tokens is not None:
        line(
            f"  emitted too often: tokens {format_value(tokens['tokens'])}, "
            f"{format_number(tokens['observed'])} for {format_number(tokens['expected'])}, "
            f"z {format_number(tokens['z'])} on records that did not choose them"
        )
    if found["first"] is not None:
        shown = ", ".join(f"{key} {format_value(value)}" for key, value in found["first"].items())
        line(f"  first: {shown}")
    if found.get("refused"):
        line(f"  rounds that are malformed: {found['refused']}")
    if found["replay"]:
        shown = escape(visible(found["replay"]))
        console.print(f"  replay: {shown}", highlight=False, soft_wrap=True)
    else:
        line("  --save-trace DIR keeps the rounds, to look at one by itself")
