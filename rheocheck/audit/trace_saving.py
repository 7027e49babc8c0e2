"""What an audit of models makes of its own traces: one to keep, and where a fault sits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rheocheck.audit.localise import Localiser
from rheocheck.audit.numerics_findings import NumericsFindings
from rheocheck.audit.trace_facts import NUMERICS, batch_facts
from rheocheck.audit.trace_numerics import PLAIN_NOISE
from rheocheck.audit.trace_recorder import LARGEST_FLOAT64, TraceRecorder, join_parts, part_folder
from rheocheck.certificate import StageResult, Verdict, environment
from rheocheck.errors import InputError, TraceError
from rheocheck.text import shell_word
from rheocheck.traces.reader import open_trace, read_batches


@dataclass(frozen=True, slots=True)
class TracePart:
    """The trace of one task.

    Attributes:
      run: Name of the task's run.
      settings: Of that run.
      folder: Where it was saved, or None.
      num_records: Rounds in it.
      localiser: What its rounds show by themselves.
      refused: Why the audit's own reader refused it, or None: the rounds are then malformed.
    """

    run: str
    settings: dict[str, Any]
    folder: Path | None
    num_records: int
    localiser: Localiser
    refused: str | None


def trace_part(
    recorder: TraceRecorder,
    run: str,
    name: str,
    save: Path | None,
    settings: dict[str, Any],
    plain: dict[int, Any],
) -> TracePart:
    """Write a task's rounds, read them back as anyone would, and see what they show.

    Args:
      recorder: Its rounds.
      run: Name of the run.
      name: Of the part; unique in the audit.
      save: Folder of the whole trace, or None.
      settings: Of the run.
      plain: By request, the laws by plain decoding.

    Returns:
      The part. Without `save`, laws on more than 8,192 tokens are not looked at again.
    """
    localiser, refused, count = Localiser(), None, 0
    if save is None and recorder.vocab > LARGEST_FLOAT64:
        reason = "no trace was saved (--save-trace), and these laws are large"
        return TracePart(run, settings, None, 0, localiser, reason)
    with part_folder(save, name) as folder:
        count = recorder.write(folder, settings, plain)
        try:
            for batch in read_batches(open_trace(folder)):
                localiser.observe(batch, batch_facts(batch, settings), run)
        except TraceError as error:
            refused = str(error)
        return TracePart(run, settings, None if save is None else folder, count, localiser, refused)


def prepare_folder(save: Path | None) -> None:
    """Make the folder of a trace that is to be saved.

    Raises:
      InputError: It is there and not empty, or cannot be made.
    """
    if save is None:
        return
    try:
        save.mkdir(exist_ok=True)
        occupied = any(save.iterdir())
    except OSError as error:
        raise InputError(f"cannot save a trace in {save}: {error.strerror}") from None
    if occupied:
        raise InputError(f"cannot save a trace in {save}: the folder is not empty")


def save_parts(
    save: Path | None, parts: Sequence[TracePart], numerics: Mapping[str, NumericsFindings]
) -> None:
    """Make one trace of the saved parts; by run, `numerics` says what plain passes differ by."""
    if save is None:
        return
    runs: dict[str, dict[str, Any]] = {}
    for part in parts:
        noise = {}
        if part.run in numerics and numerics[part.run].null:
            noise = {PLAIN_NOISE: numerics[part.run].null_max}
        runs.setdefault(part.run, {**part.settings, **noise})
    names = list(runs)
    folders = [(part.folder, names.index(part.run)) for part in parts if part.folder is not None]
    join_parts(save, folders, list(runs.values()), environment())


def localisation(
    save: Path | None,
    parts: Sequence[TracePart],
    stages: Sequence[StageResult],
    verdict: Verdict,
    numerics: Mapping[str, NumericsFindings],
) -> dict[str, Any] | None:
    """The report's section; None unless the verdict is LOSSY or SUSPECT.

    Args:
      save: Folder of the saved trace, or None.
      parts: In the order of the records.
      stages: Settled.
      verdict: Of the run.
      numerics: By run; tokens beyond the numerics stage's limit are counted where the trace does
        not judge them, as in half precision.

    Returns:
      `Localiser.summary` of all parts, with the stages that are LOSSY or SUSPECT.
    """
    if verdict not in (Verdict.LOSSY, Verdict.SUSPECT):
        return None
    whole, first = Localiser(), 0
    for part in parts:
        whole.merge(part.localiser, first)
        first += part.num_records
    if not any(kind == NUMERICS for kind, _, _ in whole.looked):
        limits = _limits(stages)
        for (run, found), limit in zip(numerics.items(), limits, strict=False):
            _note_numerics(whole, run, found, limit)
    replay = None if save is None else f"rheocheck audit --trace {shell_word(str(save))}"
    return {
        "stages": [
            {
                "stage": stage.name,
                "verdict": stage.verdict.value,
                "summary": stage.details.get("summary", ""),
            }
            for stage in stages
            if stage.verdict in (Verdict.LOSSY, Verdict.SUSPECT)
        ],
        **whole.summary(replay),
        "refused": next((part.refused for part in parts if part.refused is not None), None),
    }


def _limits(stages: Sequence[StageResult]) -> list[float]:
    """The numerics stage's limit of each run, in their order."""
    rows = [
        row
        for stage in stages
        if stage.name == "numerics"
        for row in stage.details.get("per_temperature", [])
    ]
    return [float(row["limit"]) for row in rows]


def _note_numerics(whole: Localiser, run: str, found: NumericsFindings, limit: float) -> None:
    """Count tokens beyond a limit by depth, round, run and request; roles are not known here."""
    wrong = found.distances.total_variation > limit
    labels = {
        "run": np.full(len(wrong), run, dtype=object),
        "depth": found.position,
        "round": found.round,
        "request": found.prompt,
    }
    for dimension, values in labels.items():
        for counter, chosen in ((whole.looked, values), (whole.wrong, values[wrong])):
            for value, count in Counter(chosen.tolist()).items():
                counter[NUMERICS, dimension, str(value)] += count
    for row in np.flatnonzero(wrong).tolist():
        key = NUMERICS, run, int(found.prompt[row])
        place = int(found.round[row]), int(found.position[row]), "unknown", -1
        whole.origin[key] = min(place, whole.origin.get(key, place))
