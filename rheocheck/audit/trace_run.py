"""The audit of a trace that anyone may have written: stages, verdict, where a fault sits.

A trace is what its writer says it is, so nothing here is CERTIFIED: a trace can prove a fault, and
otherwise be found without one, at a stated power.
"""

import shlex
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.findings import LOSSY_LEVEL, StageFindings, settle
from rheocheck.audit.localise import Localiser
from rheocheck.audit.trace_alignment import Alignment
from rheocheck.audit.trace_facts import (
    DECIDED,
    MISDRAWN,
    NODE_LAW,
    NUMERICS,
    NUMERICS_LIMIT,
    OFF_SUPPORT,
    PROBE_LAW,
    REPEATED,
    Facts,
    batch_facts,
    scheme_of,
)
from rheocheck.audit.trace_statistics import Statistic, batch_uniforms, statistics
from rheocheck.certificate import Report, StageResult, Verdict, environment, overall_verdict
from rheocheck.stats.chi_square import bucket_chi_square
from rheocheck.stats.pit import NUM_BINS, uniformity
from rheocheck.stats.power import chi_square_detectable, chi_square_power
from rheocheck.traces.index import Index
from rheocheck.traces.reader import Batch, open_trace, read_batches
from rheocheck.traces.trees import ROLES

# Alternative whose power is printed, and for which the tokens needed are said.
NAMED_TV = 0.05
MOST_TOKENS = 2**40


@dataclass(slots=True)
class Seen:
    """What all batches together showed.

    Attributes:
      seed: Of the randomised PIT.
      tokens: Emitted tokens.
      records: Rounds.
      violations: By kind; kinds that could not be looked at are absent.
      tests: The statistics.
      pits: PIT values of surviving probes.
      roles: Observed roles, and their laws at each token.
      localiser: For the section of the report.
    """

    seed: int
    tokens: int = 0
    records: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    tests: list[Statistic] | None = None
    pits: list[NDArray[np.float64]] = field(default_factory=list)
    role_counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(ROLES)))
    role_laws: list[NDArray[np.float64]] = field(default_factory=list)
    num_tests: int = 0
    num_rounded: int = 0
    num_nodes: int = 0
    node_distance: float = 0.0
    distance_sum: float = 0.0
    distance_max: float = 0.0
    has_draft: bool = True
    localiser: Localiser = field(default_factory=Localiser)
    alignment: Alignment = field(default_factory=Alignment)

    def observe(self, batch: Batch, facts: Facts, run: str) -> None:
        """Take in a batch."""
        laws, uniform = batch.laws, batch_uniforms(self.seed, batch)
        self.tokens += len(batch.token)
        self.records += len(batch.request)
        self.has_draft = self.has_draft and laws.draft is not None
        if self.tests is None:
            self.tests = statistics(True)
        # A statistic of the draft counts only where every shard has the draft's laws.
        self.tests = [test for test in self.tests if self.has_draft or not test.needs_draft]
        for test in self.tests:
            test.observe(laws, uniform)
        for kind, violated in facts.violated.items():
            self.violations[kind] += int(violated.sum())
        if facts.role_law is not None and facts.emitted_role is not None:
            self.role_counts += np.bincount(facts.emitted_role, minlength=len(ROLES))
            self.role_laws.append(facts.role_law)
        if batch.trees is not None and batch.trees.probes is not None:
            probes = batch.trees.probes
            drawn = np.random.default_rng([self.seed, 1, batch.first_record]).random(
                len(probes.mass)
            )
            self.pits.append(np.clip(probes.below + drawn * probes.mass, 0.0, 1.0))
        if facts.distance is not None:
            self.distance_sum += float(facts.distance.sum())
            self.distance_max = max(self.distance_max, float(facts.distance.max(initial=0.0)))
        self.num_tests += facts.num_tests
        self.num_rounded += facts.num_rounded
        self.num_nodes += facts.num_nodes
        self.node_distance = max(self.node_distance, facts.node_distance)
        self.localiser.observe(batch, facts, run)
        self.alignment.observe(batch)


def run_trace_audit(path: Path, seed: int = 0) -> Report:
    """Audit a trace.

    Args:
      path: Its folder, or its index file.
      seed: Of the randomised PIT.

    Returns:
      The report; `localisation` is set where the verdict is LOSSY or SUSPECT.

    Raises:
      TraceError: The trace is not as it must be; the message names record and shard.
      InputError: safetensors is not installed.
    """
    started = time.perf_counter()
    index = open_trace(path)
    seen = Seen(seed)
    for batch in read_batches(index):
        settings = index.runs[batch.run]
        seen.observe(batch, batch_facts(batch, settings), _run_name(index, batch.run))
    replay = f"rheocheck audit --trace {shlex.quote(str(path))} --seed {seed}"
    stages = settle(_stages(seen, replay))
    verdict = overall_verdict(stages, ["support", "sampled"])
    suspicious = verdict in (Verdict.LOSSY, Verdict.SUSPECT)
    return Report(
        command="audit",
        verdict=verdict,
        settings={"trace": str(path), "seed": seed, "vocab": index.vocab, "runs": list(index.runs)},
        stages=stages,
        facts={
            "records": seen.records,
            "tokens": seen.tokens,
            "shards": len(index.shards),
            "written_by": index.versions,
            "not_checked": _not_checked(seen, index),
        },
        localisation=seen.localiser.summary(replay) if suspicious else None,
        environment=environment(),
        seconds=time.perf_counter() - started,
    )


def _run_name(index: Index, run: int) -> str:
    temperature = index.runs[run].get("temperature")
    return str(run) if temperature is None else f"{run} (T={temperature})"


def _stages(seen: Seen, replay: str) -> list[StageFindings]:
    found = [_support(seen, replay), _sampled(seen, replay)]
    if seen.alignment.num_rows:
        found.append(_stale(seen, replay))
    if {DECIDED, REPEATED} & seen.violations.keys():
        found.append(_draws(seen, replay))
    if seen.role_laws:
        found.append(_roles(seen, replay))
    if seen.pits or {PROBE_LAW, MISDRAWN} & seen.violations.keys():
        found.append(_probe(seen, replay))
    if seen.num_nodes:
        found.append(_whitebox(seen, replay))
    if seen.distance_max or NUMERICS in seen.violations:
        found.append(_numerics(seen, replay))
    return found


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
        replay=replay if witness is None else f"{replay} --record {witness['record']}",
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


def _sampled(seen: Seen, replay: str) -> StageFindings:
    """p-values of all statistics; INCONCLUSIVE where there are too few tokens to find anything."""
    tests = seen.tests or []
    level = LOSSY_LEVEL / max(1, len(tests))
    detectable = 1.0 if not seen.tokens else chi_square_detectable(seen.tokens, NUM_BINS - 1, level)
    needed = _tokens_needed(level)
    few = detectable >= 1.0
    return StageFindings(
        StageResult(
            name="sampled",
            verdict=Verdict.INCONCLUSIVE if few else Verdict.NO_EVIDENCE,
            statistic=max((abs(test.shown) for test in tests if "PIT" not in test.name), default=0),
            sample_size=seen.tokens,
            power=chi_square_power(seen.tokens, NUM_BINS - 1, NAMED_TV, level)
            if seen.tokens
            else 0.0,
            replay=replay,
            details={
                "summary": (
                    f"{seen.tokens:,} emitted tokens are too few to find anything at this level; "
                    f"TV {NAMED_TV:g} needs some {needed:,}"
                    if few
                    else f"{seen.tokens:,} emitted tokens; detectable TV {detectable:.3g}; TV "
                    f"{NAMED_TV:g} needs some {needed:,}"
                ),
                "statistic_is": "largest of the statistics below (described; p-values judge)",
                "power_is": f"of a 20-bin PIT test at level {level:.2g} against TV {NAMED_TV:g}",
                "detectable_tv": detectable,
                "tokens_needed": needed,
                "statistics": {test.name: test.shown for test in tests},
            },
        ),
        {test.name: test.p_value for test in tests} if seen.tokens else {},
    )


def _tokens_needed(level: float) -> int:
    """Tokens with which a TV of `NAMED_TV` is detectable: the noncentrality is 4 n TV^2."""
    few = chi_square_detectable(MOST_TOKENS, NUM_BINS - 1, level)
    return int(np.ceil(MOST_TOKENS * (few / NAMED_TV) ** 2))


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
    kinds = (DECIDED, REPEATED)
    return StageFindings(_exact(seen, "draws", kinds, replay, seen.num_tests, summary))


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
        seen, "probe", (PROBE_LAW, MISDRAWN), replay, len(pits), summary,
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
    summary = f"verifier against plain decoding: TV at most {seen.distance_max:.2g}"
    stage = _exact(
        seen, "numerics", (NUMERICS,), replay, seen.tokens, summary,
        numerics_max_tv=seen.distance_max,
        numerics_mean_tv=seen.distance_sum / max(1, seen.tokens),
        numerics_limit=NUMERICS_LIMIT if NUMERICS in seen.violations else None,
    )  # fmt: skip
    return StageFindings(stage)


def _not_checked(seen: Seen, index: Index) -> list[str]:
    """What the trace lacks, and what is therefore not claimed."""
    lacking = ["which trees other identities of a probe would give; models are not run"]
    if not seen.has_draft:
        lacking.append("no draft laws: draft score, PIT by draft/target, stale draft rows")
    if NUMERICS not in seen.violations:
        lacking.append(
            "verifier's law against plain decoding: laws are taken as the target's"
            if not seen.distance_max
            else "verifier's law against plain decoding: reported only, half precision"
        )
    if not seen.role_laws:
        has_rule = all(scheme_of(run) is not None for run in index.runs)
        lacking.append(
            "no complete trees with laws of their probes: accept tests, residuals, roles"
            if has_rule
            else "no trees, or no rule in the settings: accept tests, residuals, roles"
        )
    elif REPEATED not in seen.violations:
        lacking.append("no uniforms: single decisions")
    if not seen.alignment.num_rows:
        lacking.append("laws that are stale by a row: no text of three tokens with complete laws")
    elif seen.alignment.skipped:
        lacking.append(f"stale laws beyond {seen.alignment.num_rows:,} tokens")
    if not seen.pits:
        lacking.append("no probe_below and probe_at: whether survival depends on the probe")
    return lacking
