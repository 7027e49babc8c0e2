"""The audit of a trace that anyone may have written: stages, verdict, where a fault sits.

A trace is what its writer says it is, so nothing here is CERTIFIED: a trace can prove a fault, and
otherwise be found without one, at a stated power.
"""

import time
from pathlib import Path

from rheocheck.audit.findings import settle
from rheocheck.audit.trace_facts import (
    REPEATED,
    batch_facts,
    scheme_of,
)
from rheocheck.audit.trace_numerics import PLAIN_NOISE
from rheocheck.audit.trace_seen import Seen
from rheocheck.audit.trace_stages import trace_stages
from rheocheck.certificate import Report, Verdict, environment, overall_verdict
from rheocheck.text import shell_word
from rheocheck.traces.index import Index
from rheocheck.traces.reader import open_trace, read_batches


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
        seen.observe(batch, batch_facts(batch, settings), _run_name(index, batch.run), settings)
    seen.check_places()
    replay = f"rheocheck audit --trace {shell_word(str(path))} --seed {seed}"
    stages = settle(trace_stages(seen, replay))
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


def _not_checked(seen: Seen, index: Index) -> list[str]:
    """What the trace lacks, and what is therefore not claimed."""
    lacking = ["which trees other identities of a probe would give; models are not run"]
    if not seen.has_draft:
        lacking.append("no draft laws: draft score, PIT by draft/target, drafted children")
    if not seen.distances.tokens:
        lacking.append("verifier's law against plain decoding: laws are taken as the target's")
    elif seen.distances.unjudged:
        lacking.append(
            "verifier's law against plain decoding: reported only, half precision without "
            f"{PLAIN_NOISE} in the settings"
        )
    if not seen.role_laws:
        has_rule = all(scheme_of(run) is not None for run in index.runs)
        lacking.append(
            "no complete trees with laws of their probes: accept tests, residuals, roles"
            if has_rule
            else "no trees, or no rule of one probe in the settings: accept tests, residuals, roles"
        )
    elif REPEATED not in seen.violations:
        lacking.append("no uniforms: single decisions")
    if seen.role_laws and seen.partial:
        lacking.append(
            f"decisions at {seen.partial:,} of {seen.tokens:,} tokens: their laws are not whole, or"
            " the draft's best tokens are tied"
        )
    if not seen.alignment.num_rows:
        lacking.append("laws that are stale by a row: no complete laws")
    elif seen.alignment.skipped:
        lacking.append(f"stale laws beyond {seen.alignment.num_rows:,} tokens")
    if not seen.pits:
        lacking.append("no probe_below and probe_at: whether survival depends on the probe")
    return lacking
