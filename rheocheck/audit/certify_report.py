"""The report of `rheocheck certify`, sealed."""

from rheocheck.audit.file_seal import seal_report
from rheocheck.audit.instance_certificate import KEY
from rheocheck.certificate import Report, StageResult, overall_verdict


def certify_report(
    stages: list[StageResult],
    *,
    quick: bool,
    seed: int,
    all_laws: bool = False,
    full: bool = False,
    seconds: float | None = None,
) -> Report:
    """Put the stages of a run into one sealed report.

    Args:
      stages: The exact stage, and the all-laws stage if it ran.
      quick: As the stages were run.
      seed: As the stages were run.
      all_laws: Whether the second one ran.
      full: As it was run.
      seconds: Wall time.

    Returns:
      The report; its seal is of everything in it.
    """
    details = stages[0].details
    report = Report(
        command="certify",
        verdict=overall_verdict(stages, [stage.name for stage in stages]),
        claims=[stage.claim for stage in stages if stage.claim],
        settings={
            "quick": quick,
            "seed": seed,
            "max_eager_paths": details["max_eager_paths"],
            "all_laws": all_laws,
            "full": full,
        },
        stages=stages,
        environment=dict(details[KEY]["versions"]),
        seconds=seconds,
    )
    seal_report(report)
    return report
