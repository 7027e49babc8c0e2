"""From what stages found to verdicts: p-values of the whole run are corrected together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rheocheck.certificate import StageResult, Verdict, overall_verdict
from rheocheck.stats.multiplicity import holm

# Chance that a run without fault is called LOSSY, and SUSPECT, by its p-values together.
LOSSY_LEVEL = 1e-6
SUSPECT_LEVEL = 1e-3


@dataclass(frozen=True, slots=True)
class StageFindings:
    """A stage's result before the run's correction.

    Attributes:
      result: With the verdict that the stage's exact evidence alone gives.
      p_values: By test, unadjusted; names are unique within the stage.
      suspicions: More of them, which make a stage SUSPECT and never LOSSY: what they test is not
        the output.
      evidence: Details that are shown where the p-values reject; exact evidence goes before it.
    """

    result: StageResult
    p_values: dict[str, float] = field(default_factory=dict)
    suspicions: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)


def num_p_values(findings: Iterable[StageFindings]) -> int:
    """How many p-values stages give to the run's correction."""
    return sum(len(_tests(finding)) for finding in findings)


def settle(findings: Sequence[StageFindings]) -> list[StageResult]:
    """Apply Holm's correction over all p-values of a run and set the stages' verdicts.

    Args:
      findings: One entry a stage; stage names are unique.

    Returns:
      The results in the same order. A stage that is LOSSY by a counterexample stays so; an adjusted
      p <= 1e-6 makes it LOSSY; one in (1e-6, 1e-3] makes any other verdict SUSPECT, and so does a
      suspicion up to 1e-3. `p_value` is the stage's smallest unadjusted one of the output's tests,
      `details.p_values` has all, with their adjusted values.
    """
    adjusted = holm(
        {
            f"{finding.result.name}/{test}": value
            for finding in findings
            for test, value in _tests(finding).items()
        }
    )
    return [_settled(finding, adjusted) for finding in findings]


def _tests(finding: StageFindings) -> dict[str, float]:
    return {**finding.p_values, **finding.suspicions}


def _settled(finding: StageFindings, adjusted: dict[str, float]) -> StageResult:
    """One stage with the corrected p-values of the whole run."""
    result, tests = finding.result, _tests(finding)
    if not tests:
        return result
    shown = {
        test: {"p": value, "adjusted": adjusted[f"{result.name}/{test}"]}
        for test, value in tests.items()
    }
    smallest = min((shown[test]["adjusted"] for test in finding.p_values), default=1.0)
    suspicion = min((shown[test]["adjusted"] for test in finding.suspicions), default=1.0)
    verdict = _with_p_value(result.verdict, smallest)
    if verdict is not Verdict.LOSSY and suspicion <= SUSPECT_LEVEL:
        verdict = Verdict.SUSPECT
    evidence = finding.evidence if smallest <= SUSPECT_LEVEL else {}
    return result.model_copy(
        update={
            "p_value": min(finding.p_values.values(), default=result.p_value),
            "verdict": verdict,
            "details": {**evidence, **result.details, "p_values": shown},
        }
    )


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a stage from those of its parts: the first of the list that occurs."""
    order = (
        Verdict.LOSSY,
        Verdict.INCONCLUSIVE,
        Verdict.SUSPECT,
        Verdict.NO_EVIDENCE,
        Verdict.CERTIFIED,
    )
    found = set(verdicts)
    return next((verdict for verdict in order if verdict in found), Verdict.INCONCLUSIVE)


def _with_p_value(verdict: Verdict, adjusted: float) -> Verdict:
    if verdict is Verdict.LOSSY or adjusted <= LOSSY_LEVEL:
        return Verdict.LOSSY
    if adjusted <= SUSPECT_LEVEL:
        return Verdict.SUSPECT
    return verdict


# Each of these certifies a part of losslessness; together they certify the run.
CERTIFYING_STAGES = ("exact", "whitebox", "probe")
# Certify no part by themselves, but without the first nothing says that the torch code is the
# scheme, and without the second nothing says that verification's laws are the target's.
NEEDED_STAGES = ("differential", "numerics")


def run_verdict(stages: Sequence[StageResult], needed: Sequence[str] = NEEDED_STAGES) -> Verdict:
    """Verdict of an audit.

    Args:
      stages: Settled results.
      needed: Stages that certify nothing and must not be inconclusive.

    Returns:
      LOSSY if any stage is; else INCONCLUSIVE if a certifying or needed stage is, or did not run;
      else SUSPECT if any is; else CERTIFIED if every certifying stage is; else NO_EVIDENCE.
    """
    verdict = overall_verdict(stages, CERTIFYING_STAGES)
    by_name = {stage.name: stage.verdict for stage in stages}
    found = [by_name.get(name, Verdict.INCONCLUSIVE) for name in needed]
    if verdict is not Verdict.LOSSY and Verdict.INCONCLUSIVE in found:
        return Verdict.INCONCLUSIVE
    return verdict
