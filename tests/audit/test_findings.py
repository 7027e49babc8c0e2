"""Verdicts: Holm over the run, exact evidence first, inconclusive never passes."""

import pytest

from rheocheck.audit.findings import StageFindings, run_verdict, settle, worst_verdict
from rheocheck.certificate import StageResult, Verdict


def stage(name: str, verdict: Verdict = Verdict.NO_EVIDENCE) -> StageResult:
    return StageResult(name=name, verdict=verdict)


PASSING = [
    stage("exact", Verdict.CERTIFIED),
    stage("differential"),
    stage("whitebox", Verdict.CERTIFIED),
    stage("probe", Verdict.CERTIFIED),
    stage("sampled"),
    stage("numerics"),
]


def with_verdict(name: str, verdict: Verdict) -> list[StageResult]:
    return [stage(name, verdict) if found.name == name else found for found in PASSING]


@pytest.mark.parametrize(
    ("p_value", "verdict"),
    [
        (4e-7, Verdict.LOSSY),
        (6e-7, Verdict.SUSPECT),
        (4e-4, Verdict.SUSPECT),
        (6e-4, Verdict.NO_EVIDENCE),
    ],
)
def test_two_tests_halve_the_levels(p_value: float, verdict: Verdict) -> None:
    findings = [
        StageFindings(stage("probe"), {"PIT": p_value}),
        StageFindings(stage("sampled"), {"PIT": 1.0}),
    ]
    first, second = settle(findings)
    assert (first.verdict, second.verdict) == (verdict, Verdict.NO_EVIDENCE)
    assert first.p_value == p_value
    assert first.details["p_values"]["PIT"]["adjusted"] == pytest.approx(2 * p_value)


def test_a_counterexample_needs_no_p_value() -> None:
    found = StageFindings(stage("probe", Verdict.LOSSY), {"PIT": 0.9})
    assert settle([found])[0].verdict is Verdict.LOSSY


def test_a_certificate_with_a_suspect_p_value_is_suspect() -> None:
    found = StageFindings(stage("probe", Verdict.CERTIFIED), {"PIT": 1e-5})
    assert settle([found])[0].verdict is Verdict.SUSPECT


def test_a_stage_without_p_values_is_left_alone() -> None:
    assert settle([StageFindings(stage("exact", Verdict.CERTIFIED))]) == [PASSING[0]]


def test_samples_that_find_nothing_do_not_demote_a_certificate() -> None:
    assert run_verdict(PASSING) is Verdict.CERTIFIED


@pytest.mark.parametrize("name", [found.name for found in PASSING])
def test_one_lossy_stage_makes_the_run_lossy(name: str) -> None:
    assert run_verdict(with_verdict(name, Verdict.LOSSY)) is Verdict.LOSSY


@pytest.mark.parametrize("name", ["exact", "differential", "whitebox", "probe", "numerics"])
def test_an_inconclusive_or_missing_stage_never_passes(name: str) -> None:
    assert run_verdict(with_verdict(name, Verdict.INCONCLUSIVE)) is Verdict.INCONCLUSIVE
    rest = [found for found in PASSING if found.name != name]
    assert run_verdict(rest) is Verdict.INCONCLUSIVE


def test_a_suspect_stage_makes_the_run_suspect() -> None:
    assert run_verdict(with_verdict("sampled", Verdict.SUSPECT)) is Verdict.SUSPECT


def test_without_the_probe_stage_nothing_is_certified() -> None:
    assert run_verdict(with_verdict("probe", Verdict.NO_EVIDENCE)) is Verdict.NO_EVIDENCE


def test_the_worst_temperature_decides_a_stage() -> None:
    assert worst_verdict([Verdict.CERTIFIED, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert worst_verdict([]) is Verdict.INCONCLUSIVE
