"""Figures of a report as inline SVG, drawn from the numbers in it.

Lines and text take the page's colours (`currentColor`), so one drawing serves light and dark.
"""

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from rheocheck.certificate import Report

# Readable on white and on near-black alike.
ACCENT, SECOND, THIRD, WARNING = "#3b82c4", "#d9822b", "#4c9f70", "#cc4b4b"
# Stands for the page's text colour until the SVG is finished.
INK = "#123457"


@dataclass(frozen=True, slots=True)
class Figure:
    """A finished drawing.

    Attributes:
      title: Heading.
      caption: What is shown, and what would be wrong.
      svg: An <svg> element without XML prologue.
    """

    title: str
    caption: str
    svg: str


def figures(report: Report) -> list[Figure]:
    """All figures that the report has numbers for, in the order of the page."""
    drawn = []
    for make in (_pit_figure, _node_figure, _cells_figure, _distance_figure, _acceptance_figure):
        figure = make(report)
        if figure is not None:
            drawn.append(figure)
    return drawn


def _pit_figure(report: Report) -> Figure | None:
    plot = _plot(report, "probe")
    series = plot.get("pit") if plot else None
    if not series:
        return None

    def draw(axes: Axes) -> None:
        for item, colour in zip(series, (ACCENT, SECOND, THIRD), strict=False):
            count, band = item["num_samples"], item["band"]
            levels = item["levels"]
            differences = [found - level for found, level in zip(item["ecdf"], levels, strict=True)]
            label = f"T = {item['temperature']:g}, {count:,} probes"
            axes.plot(levels, differences, color=colour, linewidth=1.6, label=label)
            for side in (-band, band):
                axes.axhline(side, color=colour, linewidth=1, linestyle=(0, (4, 3)))
        axes.axhline(0.0, color=INK, linewidth=0.8)
        axes.set_xlim(0, 1)
        axes.set_xlabel("PIT of the probe under its law")
        axes.set_ylabel("empirical minus uniform")
        _legend(axes)

    return Figure(
        "Probes: is survival independent of identity?",
        "Empirical distribution function of the surviving probes' PIT values, minus the uniform "
        "one. "
        "A lossless tree stays inside the dashed simultaneous 99 % band of its colour.",
        _svg(draw),
    )


def _node_figure(report: Report) -> Figure | None:
    plot = _plot(report, "whitebox")
    series = plot.get("node_tv") if plot else None
    if not plot or not series:
        return None

    def draw(axes: Axes) -> None:
        # Distances of exactly 0 have no place on a log scale and are drawn at its foot.
        foot = 1e-17
        for item, colour in zip(series, (ACCENT, SECOND, THIRD), strict=False):
            values = sorted(max(value, foot) for value in item["values"])
            share = [(index + 1) / len(values) for index in range(len(values))]
            axes.step(values, share, color=colour, where="post", linewidth=1.6,
                      label=f"T = {item['temperature']:g}")  # fmt: skip
        axes.axvline(plot["tolerance"], color=WARNING, linewidth=1.4)
        _note(axes, plot["tolerance"], 0.5, "float tolerance", WARNING)
        axes.axvline(plot["bound"], color=THIRD, linewidth=1.4, linestyle=(0, (4, 3)))
        _note(axes, plot["bound"], 0.7, "99 % bound\non the mean", THIRD)
        axes.set_xscale("log")
        axes.set_xlim(foot, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("total variation of the node law to the target law")
        axes.set_ylabel("share of prompts")
        _legend(axes)

    return Figure(
        "White box: exact node laws",
        "One reached node of each prompt, every outcome of its probe enumerated. Anything to the "
        "right "
        "of the red line is a counterexample. The dashed line is what the number of prompts "
        "allows to "
        "claim for prompts drawn like these.",
        _svg(draw),
    )


def _cells_figure(report: Report) -> Figure | None:
    plot = _plot(report, "sampled")
    cells = plot.get("cells") if plot else None
    if not cells:
        return None

    def draw(axes: Axes) -> None:
        lowest, highest = math.inf, 0.0
        for item, colour in zip(cells, (ACCENT, SECOND, THIRD), strict=False):
            expected, spread = item["expected"], item["spread"]
            residual = [
                (seen - wanted) / width
                for seen, wanted, width in zip(item["observed"], expected, spread, strict=True)
            ]
            # A trace may take runs of several temperatures together.
            temperature = item.get("temperature")
            label = "all tokens" if temperature is None else f"T = {temperature:g}"
            axes.scatter(expected, residual, s=14, color=colour, alpha=0.75, linewidths=0,
                         label=label)  # fmt: skip
            lowest, highest = min(lowest, *expected), max(highest, *expected)
        for side in (-3.0, 0.0, 3.0):
            axes.axhline(
                side, color=INK, linewidth=0.8, linestyle="-" if side == 0 else (0, (4, 3))
            )
        axes.set_xscale("log")
        axes.set_xlim(lowest / 1.3, highest * 1.3)
        axes.set_xlabel("expected count of the cell")
        axes.set_ylabel("(observed - expected) / sd")
        _legend(axes)

    return Figure(
        "Sampled: emitted tokens against plain decoding",
        "One point a token cell (cells that expect fewer than five tokens are pooled by their "
        "known "
        "probability). About 0.3 % of points lie outside the dashed lines by chance.",
        _svg(draw),
    )


def _distance_figure(report: Report) -> Figure | None:
    plot = _plot(report, "numerics")
    curves = plot.get("distances") if plot else None
    if not curves:
        return None

    def draw(axes: Axes) -> None:
        foot = 1e-17
        for item, colour in zip(curves, (ACCENT, SECOND, THIRD), strict=False):
            for key, style in (("verifier", "-"), ("plain", (0, (4, 3)))):
                values = [max(value, foot) for value in item[key]]
                axes.plot(values, item["levels"], color=colour, linewidth=1.6, linestyle=style,
                          label=f"{key}, T = {item['temperature']:g}")  # fmt: skip
        limit = min(item["limit"] for item in curves)
        axes.axvline(min(limit, 1.0), color=WARNING, linewidth=1.4)
        axes.annotate("limit", (min(limit, 1.0), 0.5), (-6, 0), textcoords="offset points",
                      ha="right", color=WARNING, fontsize=9)  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(foot, 1.5)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("total variation to plain decoding's law")
        axes.set_ylabel("share of tokens")
        _legend(axes)

    return Figure(
        "Numerics: verification's laws and plain decoding's",
        "Solid: the law that verification used at each emitted token. Dashed: plain decoding again "
        "at another shape of its passes, which is what rounding does. Right of the red line a "
        "token is a counterexample; a solid curve far right of its dashed one is more than "
        "rounding.",
        _svg(draw),
    )


def _acceptance_figure(report: Report) -> Figure | None:
    rows = report.facts.get("acceptance")
    if not isinstance(rows, list) or not rows:
        return None

    def draw(axes: Axes) -> None:
        places = list(range(len(rows)))[::-1]
        for place, row in zip(places, rows, strict=True):
            mean, error = row["mean_accepted"], row["standard_error"]
            axes.barh(place, mean, height=0.62, color=ACCENT, alpha=0.85)
            axes.errorbar(mean, place, xerr=2 * error, color=INK, capsize=3, linewidth=1.2)
            axes.text(0.03, place, f"{mean:.2f}", color="white", va="center", fontsize=10)
        axes.set_yticks(places, [f"{row['scheme']}, T = {row['temperature']:g}" for row in rows])
        axes.set_xlabel("accepted draft tokens a round (bonus or residual token not counted)")

    return Figure(
        "Accepted tokens",
        "Mean over prompts with two standard errors either way.",
        _svg(draw, height=0.9 + 0.5 * len(rows)),
    )


def _note(axes: Axes, place: float, height: float, text: str, colour: str) -> None:
    """A few words to the right of a vertical line."""
    axes.annotate(
        text, (place, height), (6, 0), textcoords="offset points", color=colour, fontsize=9
    )


def _legend(axes: Axes) -> None:
    """Above the axes, where it hides no data."""
    axes.legend(
        frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.2
    )


def _plot(report: Report, stage_name: str) -> dict[str, Any] | None:
    for stage in report.stages:
        if stage.name == stage_name:
            plot = stage.details.get("plot")
            return plot if isinstance(plot, dict) else None
    return None


def _svg(draw: Callable[[Axes], None], height: float = 3.4) -> str:
    """Draw on fresh axes and return an SVG element that scales with the page."""
    style: Any = {
        "svg.fonttype": "none",
        # Without a salt the ids of clip paths differ from run to run.
        "svg.hashsalt": "rheocheck",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(style):
        drawing = Drawing(figsize=(7.2, height), layout="constrained")
        draw(drawing.add_subplot())
        buffer = io.StringIO()
        drawing.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Width and height in points would stop the drawing from following the page's width.
    head, rest = text.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest
