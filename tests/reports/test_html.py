"""The page: self-contained, escaped, with its figures, for any report."""

import re
from typing import Any

import numpy as np
import pytest

from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.reports import render_html
from rheocheck.reports.figures import figures
from rheocheck.reports.html import is_records, number, value


def full_report(**changes: Any) -> Report:
    levels = np.linspace(0, 1, 11).tolist()
    pit = {
        "temperature": 1.0, "num_samples": 500, "band": 0.07, "levels": levels, "ecdf": levels,
    }  # fmt: skip
    node_tv = [{"temperature": 1.0, "values": [0.0, 1e-16, 3e-16]}]
    cells = {"temperature": 1.0, "observed": [9, 21], "expected": [10.0, 20.0], "spread": [3, 4]}
    distances = {
        "temperature": 1.0, "limit": 1e-3, "floor": 1e-6, "levels": levels,
        "verifier": [0.0, *np.geomspace(1e-8, 1e-6, 10).tolist()], "plain": [0.0] * 11,
    }  # fmt: skip
    rows = [
        {
            "scheme": "Rheo <&>", "temperature": 1.0, "mean_accepted": 2.5, "standard_error": 0.1,
            "num_rounds": 10, "num_prompts": 4,
        }
    ]  # fmt: skip
    stages = [
        StageResult(
            name="whitebox",
            verdict=Verdict.CERTIFIED,
            claim="A claim with <tags>.",
            details={
                "summary": "fine",
                "plot": {"tolerance": 1e-6, "bound": 0.0092, "node_tv": node_tv},
                "per_temperature": [{"temperature": 1.0, "prompts": 3}],
            },
        ),
        StageResult(name="probe", verdict=Verdict.CERTIFIED, details={"plot": {"pit": [pit]}}),
        StageResult(
            name="sampled", verdict=Verdict.NO_EVIDENCE, details={"plot": {"cells": [cells]}}
        ),
        StageResult(
            name="numerics",
            verdict=Verdict.NO_EVIDENCE,
            details={"plot": {"distances": [distances]}},
        ),
    ]
    values: dict[str, Any] = {
        "command": "audit",
        "verdict": Verdict.CERTIFIED,
        "claims": ["A claim with <tags>."],
        "stages": stages,
        "facts": {"acceptance": rows, "acceptance_title": "Accepted"},
        "environment": {"python": "3.11"},
        "seconds": 12.0,
    }
    return Report(**{**values, **changes})


def test_a_full_report_has_its_five_figures_and_no_outside_resource() -> None:
    page = render_html(full_report())
    assert page.count("<svg") == 5
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert not re.search(r"(https?:)?//\w", without_namespaces)
    assert "<script" not in page
    assert "<link" not in page


def test_text_is_escaped() -> None:
    page = render_html(full_report())
    assert "<tags>" not in page
    assert "A claim with &lt;tags&gt;." in page
    assert "Rheo &lt;&amp;&gt;" in page


def test_the_page_is_the_same_twice() -> None:
    assert render_html(full_report()) == render_html(full_report())


def test_figures_take_the_colour_of_the_page() -> None:
    for figure in figures(full_report()):
        assert "currentColor" in figure.svg
        assert not re.search(r"<svg[^>]* (width|height)=", figure.svg)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_its_page(verdict: Verdict) -> None:
    page = render_html(full_report(verdict=verdict, stages=[], facts={}, claims=[]))
    assert verdict.value.replace("_", " ").upper() in page
    assert "<svg" not in page


def test_numbers_and_values_are_short() -> None:
    assert number(1234567) == "1,234,567"
    assert number(0.000123456) == "0.0001235"
    assert value({"a": 1, "b": [0.5, "x"]}) == "a: 1, b: 0.5, x"
    assert value(True) == "true"


def test_lists_of_like_mappings_are_tables() -> None:
    assert is_records([{"a": 1}, {"a": 2}])
    assert not is_records([{"a": 1}, {"b": 2}])
    assert not is_records([])


def test_what_would_turn_a_line_around_is_shown() -> None:
    report = full_report(settings={"target": "a\u202eb\x1bc", "rule": "rheo"})
    page = render_html(report)
    assert "\u202e" not in page and "\x1b" not in page
    assert "a\\u202eb\\x1bc" in page
