"""Stages of the audit of a trace: from what was seen to verdicts before correction."""

from typing import Any

import numpy as np

from rheocheck.audit.findings import StageFindings, num_p_values
from rheocheck.audit.localise import replay_of
from rheocheck.audit.token_stage import TokenRun, token_stage
from rheocheck.audit.token_statistics import statistics
from rheocheck.audit.trace_drafts import DRAW_LAW, IMPOSSIBLE, NOT_BEST, PROBE_LAW
from rheocheck.audit.trace_facts import (
    DECIDED,
    MISDRAWN,
    NODE_LAW,
    NUMERICS,
    OFF_SUPPORT,
    REPEATED,
    SHARED,
)
from rheocheck.audit.trace_seen import Seen
from rheocheck.certificate import StageResult, Verdict
from rheocheck.stats.chi_square import bucket_chi_square
from rheocheck.stats.pit import uniformity
from rheocheck.stats.repeats import SHARED_LEVEL, repeats_p_value
from rheocheck.traces.trees import ROLES

PROBE_KINDS = (IMPOSSIBLE, NOT_BEST, PROBE_LAW, DRAW_LAW, MISDRAWN)


def trace_stages(seen: Seen, replay: str) -> list[StageFindings]:
    """All stages that the trace allows, in the order of the report."""
    found: list[StageFindings] = []
    if seen.alignment.num_rows:
        found.append(_stale(seen, replay))
    if {DECIDED, REPEATED} & seen.violations.keys():
        found.append(_draws(seen, replay))
    if seen.role_laws:
        found.append(_roles(seen, replay))
    if seen.pits or set(PROBE_KINDS) & seen.violations.keys():
        found.append(_probe(seen, replay))
    if seen.num_nodes:
        found.append(_whitebox(seen, replay))
    if seen.distances.tokens:
        found.append(_numerics(seen, replay))
    sampled = _sampled(seen, num_p_values(found), replay)
    return [_support(seen, replay), sampled, *found]


def _exact(
    seen: Seen, name: str, kinds: tuple[str, ...], replay: str, size: int, summary: str,
    **details: Any,
) -> StageResult:  # fmt: skip
    """A stage that is LOSSY where one of its kinds of violation was met."""
    wrong = {kind: seen.violations[kind] for kind in kinds if seen.violations[kind]}
    first = next((kind for kind in wrong), None)
    witness = None if first is None else {"what": first, **seen.localiser.first[first]}
    if wrong:
        summary = "; ".join(f"{count:,} times {kind}" for kind, count in wrong.items())
    return StageResult(
        name=name,
        verdict=Verdict.LOSSY if wrong else Verdict.NO_EVIDENCE,
        statistic=float(sum(wrong.values())),
        threshold=1.0,
        sample_size=size,
        replay=replay_of(replay, witness),
        details={
            "summary": summary,
            "statistic_is": "violations",
            **details,
            **({} if witness is None else {"witness": witness}),
        },
    )


def _support(seen: Seen, replay: str) -> StageFindings:
    summary = f"{seen.tokens:,} emitted tokens, each of positive probability"
    stage = _exact(seen, "support", (OFF_SUPPORT,), replay, seen.tokens, summary)
    return StageFindings(stage)


def _sampled(seen: Seen, other_tests: int, replay: str) -> StageFindings:
    """All statistics of the tokens; INCONCLUSIVE where there are too few to find anything."""
    tests = seen.tests if seen.tests is not None else statistics(False)
    names = {test.name for test in tests}
    # Later shards may lack what the pilot's has.
    pilot = [fault.of(names) for fault in seen.pilot or ()]
    run = TokenRun("", None, seen.tokens, tests, seen.sets, seen.accept, pilot)
    return token_stage([run], other_tests, replay)


def _stale(seen: Seen, replay: str) -> StageFindings:
    """Whether laws stand beside the tokens of another row: which way, if they do."""
    shift = seen.alignment.shift()
    assert shift is not None
    summary = shift.describe()
    if shift.found == 1:
        summary = f"laws are stale by one row: {summary}"
    return StageFindings(
        StageResult(
            name="stale",
            verdict=Verdict.NO_EVIDENCE,
            statistic=shift.log_e[0],
            threshold=-float(np.log(shift.alpha)),
            sample_size=shift.num_rows,
            replay=replay,
            details={
                "summary": summary,
                "statistic_is": "log of the evidence against laws that are in place",
                "shift_found": shift.found,
                "log_e": {str(key): value for key, value in shift.log_e.items()},
                "mean_log_likelihood": {
                    str(key): value for key, value in shift.log_likelihood.items()
                },
            },
        ),
        {"laws in place": shift.p_value(0)},
    )


def _draws(seen: Seen, replay: str) -> StageFindings:
    summary = (
        f"{seen.records:,} rounds, {seen.num_tests:,} decisions made again, {seen.num_rounded:,} "
        "differ within rounding"
    )
    kinds = (DECIDED, REPEATED, SHARED)
    _find_shared(seen)
    return StageFindings(_exact(seen, "draws", kinds, replay, seen.num_tests, summary))


def _find_shared(seen: Seen) -> None:
    """Final draws of two rounds with one uniform, beyond chance; the witness has both records."""
    if not seen.finals or SHARED in seen.violations:
        return
    record, value = np.concatenate(seen.finals, axis=1)
    order = np.argsort(value, kind="stable")
    same = np.flatnonzero(np.diff(value[order]) == 0)
    pairs = len(value) * (len(value) - 1) / 2.0
    if repeats_p_value(value, value[order[same]], pairs) > SHARED_LEVEL:
        same = same[:0]
    seen.violations[SHARED] = len(same)
    if len(same):
        one, other = (int(record[order[same[0] + step]]) for step in (0, 1))
        seen.localiser.first[SHARED] = {
            "record": one,
            "other_record": other,
            "uniform": float(value[order[same[0]]]),
        }


def _roles(seen: Seen, replay: str) -> StageFindings:
    laws = np.concatenate(seen.role_laws)
    found = bucket_chi_square(seen.role_counts, laws)
    expected = laws.sum(axis=0)
    return StageFindings(
        StageResult(
            name="roles",
            verdict=Verdict.NO_EVIDENCE,
            statistic=found.statistic,
            sample_size=len(laws),
            replay=replay,
            details={
                "summary": "roles of the emitted tokens against their probabilities given the tree",
                "statistic_is": f"chi-square with {found.df} degrees of freedom",
                "roles": [
                    {"role": role, "observed": observed, "expected": round(wanted, 2)}
                    for role, observed, wanted in zip(
                        ROLES, seen.role_counts.tolist(), expected.tolist(), strict=True
                    )
                ],
            },
        ),
        {"roles": found.p_value},
    )


def _probe(seen: Seen, replay: str) -> StageFindings:
    pits = np.concatenate(seen.pits) if seen.pits else np.zeros(0)
    fit = uniformity(pits)
    summary = f"{len(pits):,} surviving probes, by rank under the law they were drawn from"
    stage = _exact(
        seen, "probe", PROBE_KINDS, replay, len(pits), summary,
        pit_ks_distance=fit.ks, pit_chi_square=fit.chi_square,
        cannot_see="which trees other identities of the probe would have given",
    )  # fmt: skip
    return StageFindings(stage, {"PIT": fit.p_value} if len(pits) else {})


def _whitebox(seen: Seen, replay: str) -> StageFindings:
    summary = (
        f"{seen.num_nodes:,} nodes, every token that their probes could be: TV of the exact law "
        f"at most {seen.node_distance:.2g}"
    )
    stage = _exact(
        seen, "whitebox", (NODE_LAW,), replay, seen.num_nodes, summary,
        max_tv=seen.node_distance,
        cannot_see="whether survival depends on the probe's identity; see probe",
    )  # fmt: skip
    return StageFindings(stage)


def _numerics(seen: Seen, replay: str) -> StageFindings:
    found = seen.distances
    stage = _exact(
        seen, "numerics", (NUMERICS,), replay, found.tokens, found.sentence(),
        **found.details(),
        cannot_see="what plain passes of other shapes would give; models are not run",
    )  # fmt: skip
    return StageFindings(stage)
