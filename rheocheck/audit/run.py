"""The audit of a pair: its stages, their order, and the verdict on the whole."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rheocheck.audit import differential, exact
from rheocheck.audit.acceptance import TITLE, acceptance_row
from rheocheck.audit.carry import (
    CARRIED_SCORES,
    Carry,
    carried,
    claim_of,
    read_carry,
    write_carry,
)
from rheocheck.audit.decoding_runs import (
    DecodingRun,
    ProgressCallback,
    decode_runs,
)
from rheocheck.audit.detection import with_detection
from rheocheck.audit.draws import DrawRun, draws_stage
from rheocheck.audit.emissions import join
from rheocheck.audit.findings import NEEDED_STAGES, StageFindings, num_p_values, run_verdict, settle
from rheocheck.audit.greedy import greedy_stage
from rheocheck.audit.numerics import numerics_stage
from rheocheck.audit.numerics_findings import NumericsFindings, join_numerics
from rheocheck.audit.numerics_judgement import NumericsRun
from rheocheck.audit.numerics_report import report_apart
from rheocheck.audit.pair import PairSource, load_pair
from rheocheck.audit.pilot import Notice
from rheocheck.audit.preparation import prepare, prompts_of
from rheocheck.audit.probe import ProbeRun, probe_stage
from rheocheck.audit.prompts import Prompt
from rheocheck.audit.sampled import SampledRun, sampled_stage
from rheocheck.audit.settings import AuditSettings
from rheocheck.audit.tasks import one_thread
from rheocheck.audit.token_witness import with_texts
from rheocheck.audit.trace_saving import localisation, prepare_folder, save_parts
from rheocheck.audit.whitebox import WhiteboxRun, whitebox_stage
from rheocheck.certificate import Report, StageResult, Verdict, environment
from rheocheck.errors import InputError
from rheocheck.gpu.randomness import check_keys
from rheocheck.models.registry import Pair


def run_audit(
    settings: AuditSettings,
    progress: ProgressCallback | None = None,
    carry: Path | None = None,
    notice: Notice | None = None,
) -> Report:
    """Audit a pair.

    Args:
      settings: What to examine.
      progress: Called with (what, units done, units in all).
      carry: File of evidence from earlier runs, read before this one and written after it.
      notice: Called with a sentence on what is about to be done, where that takes long.

    Returns:
      The report. It does not depend on `settings.jobs`.

    Raises:
      RheocheckError: Missing or damaged weights, a target that fails its start-up check, bad
        prompts, a carry that is damaged, of other settings or counts this run already.
    """
    with one_thread():
        return _run_audit(settings, progress, carry, notice)


def _run_audit(
    settings: AuditSettings,
    progress: ProgressCallback | None,
    carry: Path | None,
    notice: Notice | None,
) -> Report:
    started = time.perf_counter()
    check_keys(settings.config)
    prepare_folder(settings.save_trace)
    source = PairSource.of(settings)
    texts, num_prompts = prompts_of(settings)
    claim = claim_of(settings, [prompt.text for prompt in texts])
    evidence = read_carry(carry, claim) if carry is not None else Carry(claim)
    evidence.check_seed(settings.seed)
    pair = load_pair(source)
    prompts = _encode(texts, settings, pair)
    jobs = settings.jobs if settings.device == "cpu" else 1
    replay = settings.replay()
    prepared = prepare(settings, source, prompts, num_prompts, carry is not None, jobs, notice)
    runs = prepared.runs

    findings = [StageFindings(exact.exact_stage(True, settings.seed, jobs, progress))]
    findings.append(StageFindings(_differential(settings, progress)))
    decoding_seconds = decode_runs(settings, source, prompts, runs, jobs, progress)
    watched = [run for run in runs if run.watch]
    traces = [part.trace for run in watched for part in run.parts if part.trace is not None]
    distances = {
        run.name: join_numerics([part.numerics for part in run.parts if part.numerics is not None])
        for run in watched
    }
    save_parts(settings.save_trace, traces, distances)
    whitebox = _whitebox(watched, settings)
    numerics = _numerics(watched, distances, pair, settings)
    others = [
        _probe(watched, settings, replay),
        StageFindings(_draws(watched, replay)),
        StageFindings(_greedy(settings, source, prompts)),
    ]
    num_carried = len(CARRIED_SCORES) * len(watched) if carry is not None else 0
    # Power is stated at the level of the correction, so the other p-values are counted first.
    other_tests = num_p_values([*findings, whitebox, numerics, *others]) + num_carried
    sampled = _sampled(watched, replay, other_tests)
    if prepared.detections and prepared.pace is not None:
        plans, pace = prepared.detections, prepared.pace.tokens
        sampled = with_detection(sampled, plans, other_tests, settings, pace)
    if carry is not None:
        sampled, evidence = carried(sampled, evidence, settings.seed)
        write_carry(carry, evidence)
    sampled, numerics = report_apart(sampled, numerics, whitebox.result)
    findings += [whitebox, others[0], sampled, numerics, *others[1:]]
    stages = [_with_text(stage, texts, pair) for stage in settle(findings)]
    needed = (*NEEDED_STAGES, "sampled") if prepared.detections else NEEDED_STAGES
    verdict = run_verdict(stages, needed)
    return Report(
        command="audit",
        verdict=verdict,
        claims=[stage.claim for stage in stages if stage.claim] if _passes(verdict) else [],
        settings=settings.as_json(),
        stages=stages,
        facts={
            "acceptance": [_acceptance(run) for run in runs],
            "acceptance_title": TITLE,
            "num_prompts": num_prompts,
            "decoding_seconds": decoding_seconds,
            "expected_decoding_seconds": prepared.expected_seconds,
            "model": pair.paths.name,
        },
        localisation=localisation(settings.save_trace, traces, stages, verdict, distances),
        environment=environment(),
        seconds=time.perf_counter() - started,
    )


def _encode(texts: Sequence[Prompt], settings: AuditSettings, pair: Pair) -> list[tuple[int, ...]]:
    """Tokens of each prompt, checked against the target's limits.

    Raises:
      InputError: A prompt without tokens or too long for the target; its line is named.
    """
    encoded = []
    room = settings.max_new_tokens + settings.config.depth
    for prompt in texts:
        tokens = tuple(pair.tokenizer.encode(prompt.text))
        try:
            pair.target.check_prompts([tokens], room)
        except InputError as error:
            message = str(error).replace("prompt 0", "its prompt")
            raise InputError(f"prompts, line {prompt.line}: {message}") from None
        encoded.append(tokens)
    return encoded


def _differential(settings: AuditSettings, progress: ProgressCallback | None) -> StageResult:
    """The differential stage, with the sentence and the witness that every stage's table shows."""
    total = settings.differential_rounds
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done = min(done + more, total)
        if progress is not None:
            progress("differential", done, total)

    result = differential.differential_stage(total, settings.seed, progress=advance)
    examples = result.details.get("counterexamples") or []
    added: dict[str, Any] = {
        "summary": (
            f"{result.sample_size or 0:,} random rounds, torch against the exact reference draw "
            f"for "
            f"draw: {result.statistic or 0:.0f} unexplained differences, "
            f"{result.details.get('explained_differences', 0)} within rounding"
        ),
        **({"witness": examples[0]} if examples else {}),
    }
    return result.model_copy(update={"details": {**added, **result.details}})


def _draws(runs: Sequence[DecodingRun], replay: str) -> StageResult:
    return draws_stage(
        [
            DrawRun(run.temperature, [part.draws for part in run.parts if part.draws is not None])
            for run in runs
        ],
        replay,
    )


def _greedy(
    settings: AuditSettings, source: PairSource, prompts: Sequence[tuple[int, ...]]
) -> StageResult:
    return greedy_stage(
        source, prompts, settings.config, settings.max_new_tokens, settings.replay()
    )


def _whitebox(runs: Sequence[DecodingRun], settings: AuditSettings) -> StageFindings:
    return whitebox_stage(
        [
            WhiteboxRun(run.temperature, [node for part in run.parts for node in part.nodes])
            for run in runs
        ],
        settings.replay(),
        settings.certify,
    )


def _probe(runs: Sequence[DecodingRun], settings: AuditSettings, replay: str) -> StageFindings:
    config = settings.config
    has_probes = config.num_top < config.top_k and config.budget > 0 and config.depth > 0
    return probe_stage(
        [
            ProbeRun(
                run.temperature,
                np.concatenate([part.pits for part in run.parts]),
                [finding for part in run.parts for finding in part.regrown],
            )
            for run in runs
        ],
        has_probes,
        replay,
    )


def _sampled(runs: Sequence[DecodingRun], replay: str, other_tests: int) -> StageFindings:
    return sampled_stage(
        [
            SampledRun(
                run.temperature,
                join([part.emissions for part in run.parts if part.emissions is not None]),
            )
            for run in runs
        ],
        other_tests,
        replay,
    )


def _numerics(
    runs: Sequence[DecodingRun],
    distances: Mapping[str, NumericsFindings],
    pair: Pair,
    settings: AuditSettings,
) -> StageFindings:
    return numerics_stage(
        [NumericsRun(run.temperature, distances[run.name]) for run in runs],
        str(pair.target.hf.dtype),
        settings.replay(),
        settings.certify,
    )


def _acceptance(run: DecodingRun) -> dict[str, Any]:
    # The further decodings of a sized run repeat prompts, which are then no independent units.
    rounds = [rounds for part in run.parts for rounds in part.rounds][: run.num_prompts]
    return acceptance_row(run.scheme, run.temperature, rounds)


def _with_text(stage: StageResult, texts: Sequence[Prompt], pair: Pair) -> StageResult:
    """Add the prompt's line and the tokens' text to a witness that names them by number.

    The text is whatever the model says; those who show it escape it.
    """
    witness = stage.details.get("witness")
    if not isinstance(witness, dict):
        return stage
    named: dict[str, Any] = {}
    if "prompt" in witness:
        named["prompt_line"] = texts[witness["prompt"] % len(texts)].line
    for key in ("token", "emitted_token", "probe_token", "other_token"):
        if key in witness:
            named[f"{key}_text"] = pair.tokenizer.decode([witness[key]])
    if isinstance(witness.get("tokens"), list):
        words = [pair.tokenizer.decode([row["token"]]) for row in witness["tokens"]]
        named["tokens"] = with_texts(witness["tokens"], words)
    return stage.model_copy(update={"details": {**stage.details, "witness": {**witness, **named}}})


def _passes(verdict: Verdict) -> bool:
    return verdict in (Verdict.CERTIFIED, Verdict.NO_EVIDENCE)
