"""The power table on small contexts: what it computes is what drawing measures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rheocheck.stats.mutants import MUTANTS
from tests.benchmarks.contexts import synthetic_contexts
from tests.benchmarks.power_table import figure, markdown, score_totals, table


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return list(table(12, 800, 150, 3e5, 0))


def test_measured_power_is_the_computed_one(rows: list[dict[str, Any]]) -> None:
    """150 replicates: five standard errors; faults caught at once are no normal sums and exempt."""
    measured = [
        item for row in rows for item in row.get("measured", {}).values() if item["samples"] > 200
    ]
    assert len(measured) >= 4
    for item in measured:
        error = np.sqrt(item["computed_power"] * (1 - item["computed_power"]) / 150)
        assert abs(item["measured_power"] - item["computed_power"]) <= max(5 * error, 0.03)


def test_a_wrong_size_would_be_seen() -> None:
    """At half the computed size the power is far below: the measurement can fail."""
    from rheocheck.stats.fault_power import score_samples, score_shift
    from rheocheck.stats.scores import draft_score
    from tests.benchmarks.power_table import fault_laws, measured_power

    target, draft = synthetic_contexts(12, 800, 0)
    fault = fault_laws(MUTANTS[1], target, draft)
    score = draft_score(target, draft)
    size = score_samples(score_shift(target, fault, score), 1e-6)
    rng = np.random.default_rng(0)
    assert measured_power(target, fault, score, size / 2, 150, rng)[0] < 0.6


def test_the_table_meets_the_likelihood_ratio_within_four(rows: list[dict[str, Any]]) -> None:
    assert [row["mutant"] for row in rows] == [mutant.name for mutant in MUTANTS]
    assert all(row["met"] for row in rows)


def test_both_ways_of_drawing_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    law, score = np.array([0.5, 0.3, 0.2, 0.0]), np.array([1.0, -2.0, 4.0, 99.0])
    rng = np.random.default_rng(0)
    looked_up = score_totals(law, score, 200, 400, rng)
    monkeypatch.setattr("tests.benchmarks.power_table.LOOKED_UP", 0)
    drawn = score_totals(law, score, 200, 400, rng)
    spread = np.sqrt(200 * (law @ score**2 - (law @ score) ** 2))
    for totals in (looked_up, drawn):
        assert abs(totals.mean() - 200 * (law @ score)) < 5 * spread / 20
        assert totals.std() == pytest.approx(spread, rel=0.2)


def test_the_page_has_a_line_a_fault(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    facts = {"contexts": 12, "vocab": 800, "seed": 0, "accept_rate": 0.7, "replicates": 150}
    text = markdown(rows, facts)
    assert all(f"| {mutant.name} |" in text for mutant in MUTANTS)
    figure(rows, tmp_path / "power.svg")
    assert (tmp_path / "power.svg").read_text().startswith("<?xml")
