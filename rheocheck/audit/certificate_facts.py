"""What a certificate file says about itself: every statement that follows from others must.

Nothing here computes a law. A count that contradicts another, a claim that is not that of the
counts, a setting that is not the certificate's: each is a problem, whoever sealed the file.
"""

from collections.abc import Iterator
from typing import Any

from rheocheck.audit.controls import controls_json, controls_text
from rheocheck.audit.exact import (
    DEFAULT_MAX_EAGER_PATHS,
    QUICK_MAX_EAGER_PATHS,
    GroupTotals,
    claim_of,
    family_json,
    replay_of,
    summary_of,
)
from rheocheck.audit.exact_controls import exact_controls
from rheocheck.audit.file_seal import SEAL
from rheocheck.audit.instance_certificate import CertificateFile
from rheocheck.certificate import Verdict, overall_verdict
from rheocheck.reference.edge_cases import EDGE_CASES
from rheocheck.reference.families import EDGE_GROUP
from rheocheck.text import as_fraction

_COUNTS = (
    "num_instances", "num_classes", "num_eager_instances", "num_eager_paths", "num_disagreements",
)  # fmt: skip
NOT_AGAIN = "counts of classes, seconds, versions"


def fact_problems(file: CertificateFile) -> Iterator[str]:
    """What contradicts itself in a file.

    Yields:
      Sentences.
    """
    if not file.sealed:
        yield "the seal of the whole file is missing or another"
    if file.certificate.sha256 != file.certificate.seal(file.stage):
        yield "the file's own SHA-256 is another"
    yield from _report_problems(file)
    totals = group_totals(file.stage.details.get("groups"))
    edges = group_totals(file.stage.details.get("edge_cases"))
    if totals is None or edges is None:
        yield "the exact stage has no tables of its groups and edge cases"
        return
    yield from _stage_problems(file, totals, edges)


def group_totals(rows: Any) -> list[GroupTotals] | None:
    """A table read back; None if it is none, or if a row of it contradicts itself."""
    if not isinstance(rows, list):
        return None
    found = []
    for row in rows:
        try:
            totals = GroupTotals(row["name"], worst_defect=as_fraction(row["worst_defect"]))
            for name in _COUNTS:
                setattr(totals, name, row[name])
            if totals.as_json() != row:
                return None
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None
        found.append(totals)
    return found


def _report_problems(file: CertificateFile) -> Iterator[str]:
    report, certificate = file.report, file.certificate
    names = [stage.name for stage in report.stages]
    if names not in (["exact"], ["exact", "all_laws"]):
        yield f"its stages are {names}; a certificate has exact, and perhaps all_laws"
    overall = overall_verdict(report.stages, names)
    if report.verdict is not overall:
        yield f"the report says {report.verdict}, its stages {overall}"
    if report.claims != [stage.claim for stage in report.stages if stage.claim is not None]:
        yield "the report's claims are not its stages'"
    full = report.settings.get("full")
    wanted = {
        "quick": certificate.quick, "seed": certificate.seed,
        "max_eager_paths": certificate.max_eager_paths, "all_laws": len(names) > 1, "full": full,
    }  # fmt: skip
    if (
        report.settings != wanted
        or not isinstance(full, bool)
        or (full and (certificate.quick or len(names) < 2))
    ):
        yield "the report's settings are not the certificate's"
    if report.environment != certificate.versions:
        yield "the report's versions are not the certificate's"
    if set(report.facts) - {SEAL}:
        yield "the report states facts that no certificate has"


def _stage_problems(
    file: CertificateFile, groups: list[GroupTotals], edges: list[GroupTotals]
) -> Iterator[str]:
    certificate, stage, details = file.certificate, file.stage, file.stage.details
    total = _sum("all", groups)
    in_edges = _sum(EDGE_GROUP, edges)
    if [group for group in groups if group.name == EDGE_GROUP] != [in_edges] and edges:
        yield "the named edge cases do not add up to their group"
    names = [edge.name for edge in edges]
    if len(set(names)) < len(names) or not set(names) <= set(EDGE_CASES):
        yield "the named edge cases are not those that have a name"
    if {g.name: g.num_instances for g in groups} != {
        group.name: group.num_instances for group in certificate.groups
    }:
        yield "the stage's groups are not the certificate's"
    kinds = set(certificate.exceptions.values())
    verdict = Verdict("lossy" if "lossy" in kinds else "inconclusive" if kinds else "certified")
    certified = verdict is Verdict.CERTIFIED
    controls = exact_controls()
    quick, seed, bound = certificate.quick, certificate.seed, certificate.max_eager_paths
    usual = QUICK_MAX_EAGER_PATHS if quick else DEFAULT_MAX_EAGER_PATHS
    replays = [replay_of(quick, seed, bound)] + [replay_of(quick, seed, None)] * (bound == usual)
    wanted = {
        "verdict": (stage.verdict, verdict),
        "number of instances": (stage.sample_size, certificate.num_instances),
        "claim": (stage.claim, claim_of(total, quick, seed) if certified else None),
        "statistic": (stage.statistic, float(total.worst_defect)),
        "defects": (bool(total.worst_defect), "lossy" in kinds),
        "disagreements": (bool(total.num_disagreements) and not kinds, False),
        "threshold": (stage.threshold, 0.0),
        "replay": (stage.replay in replays, True),
        "p-value and power": ((stage.p_value, stage.power), (None, None)),
        "bound": (details.get("max_eager_paths"), bound),
        "family": (details.get("family"), family_json(quick, seed)),
        "controls": (details.get("controls"), controls_json(controls)),
        "summary": (
            details.get("summary"), f"{summary_of(total, verdict)} {controls_text(controls)}",
        ),
        "totals": (
            {name: details.get(name) for name in total.as_json() if name != "name"},
            {name: value for name, value in total.as_json().items() if name != "name"},
        ),
        "counterexample": ("counterexample" in details, not certified),
        "witness": ("witness" in details, not certified),
    }  # fmt: skip
    for name, (stated, own) in wanted.items():
        if stated != own:
            yield f"the {name} of the exact stage is {_short(stated)}, the rest says {_short(own)}"


def _sum(name: str, parts: list[GroupTotals]) -> GroupTotals:
    total = GroupTotals(name)
    for part in parts:
        for count in _COUNTS:
            setattr(total, count, getattr(total, count) + getattr(part, count))
        total.worst_defect = max(total.worst_defect, part.worst_defect)
    return total


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
