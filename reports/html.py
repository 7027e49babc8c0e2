"""One self-contained HTML page for a report: no scripts, no network, light and dark."""

import json
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from rheocheck.certificate import Report, Verdict
from rheocheck.reports.figures import Figure, figures
from rheocheck.text import visible

VERDICT_TEXT: dict[Verdict, str] = {
    Verdict.CERTIFIED: "Every claim below is proved or bounded at the stated level.",
    Verdict.NO_EVIDENCE: "Tests of the stated power found nothing; nothing is certified.",
    Verdict.SUSPECT: "A test came out in the grey zone; this is not a pass.",
    Verdict.LOSSY: "The output is not the target's: see the witness.",
    Verdict.INCONCLUSIVE: "A required stage could not decide; this is not a pass.",
}


def render_html(report: Report) -> str:
    """The page as text, every string in it escaped.

    Args:
      report: The finished run. Figures are drawn from the numbers in its stages' details; a report
        that lacks them gets fewer figures.

    Returns:
      A complete HTML document.
    """
    environment = Environment(
        loader=PackageLoader("rheocheck.reports", "templates"),
        autoescape=select_autoescape(["html", "j2"], default=True),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["number"] = number
    environment.filters["value"] = value
    environment.filters["is_records"] = is_records
    return environment.get_template("report.html.j2").render(
        report=report,
        verdict_text=VERDICT_TEXT[report.verdict],
        figures=[_embed(figure) for figure in figures(report)],
        shown=_shown_details(report),
    )


def _visible(given: Any) -> Any:
    """Text of a page: what would act on a reader's terminal, or turn the line around, is shown.

    What is markup already, such as a figure, stays.
    """
    if not isinstance(given, str) or isinstance(given, Markup):
        return given
    return visible(given, keep="\n\t")


def number(given: float | int | None) -> str:
    """A number for a table cell; a dash for null."""
    if given is None:
        return "–"  # noqa: RUF001 - an en dash is what a table cell without a value shows
    if isinstance(given, int):
        return f"{given:,}"
    return f"{given:.4g}"


def value(given: Any) -> str:
    """Any JSON value as one readable line; an empty list or mapping is "none"."""
    if given is None or (isinstance(given, (int, float)) and not isinstance(given, bool)):
        return number(given)
    if isinstance(given, (Mapping, list, tuple)) and not given:
        return "none"
    if isinstance(given, Mapping):
        return ", ".join(f"{key}: {value(item)}" for key, item in given.items())
    if isinstance(given, (list, tuple)):
        return ", ".join(value(item) for item in given)
    return given if isinstance(given, str) else json.dumps(given)


def is_records(given: Any) -> bool:
    """Whether a value is a list of mappings with the same keys, to be shown as a table."""
    if not isinstance(given, list) or not given or not isinstance(given[0], Mapping):
        return False
    return all(isinstance(item, Mapping) and item.keys() == given[0].keys() for item in given)


def _shown_details(report: Report) -> dict[str, dict[str, Any]]:
    """Details of each stage without the arrays that only figures need."""
    return {
        stage.name: {
            key: item for key, item in stage.details.items() if key not in ("plot", "summary")
        }
        for stage in report.stages
    }


def _embed(figure: Figure) -> dict[str, Any]:
    # The SVG is our own drawing; text inside it was escaped by matplotlib.
    return {"title": figure.title, "caption": figure.caption, "svg": Markup(figure.svg)}
