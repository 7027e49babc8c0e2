"""What a run decodes and how long that takes: found out, and said, before it starts."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rheocheck.audit.carry import CARRIED_SCORES
from rheocheck.audit.decoding_runs import DecodingRun, decoding_runs
from rheocheck.audit.detection import Detection, plan_detection
from rheocheck.audit.pair import PairSource
from rheocheck.audit.pilot import Notice, Pace, duration, measure_pace
from rheocheck.audit.prompts import Prompt, read_prompts
from rheocheck.audit.settings import FEWEST_PROMPTS, AuditSettings
from rheocheck.audit.tasks import PROMPTS_PER_TASK
from rheocheck.audit.token_statistics import statistics
from rheocheck.parallel import num_processes

# p-values of a temperature beside those of the emitted tokens' statistics: accept rate, probe PIT.
_OTHER_TESTS = 2


@dataclass(frozen=True, slots=True)
class Preparation:
    """A run that is about to start.

    Attributes:
      runs: What is decoded.
      detections: Sizing of the sampled stage, one a temperature; empty without `detect`.
      expected_seconds: That decoding takes; None where it was not measured.
      pace: By which; None where it was not measured.
    """

    runs: list[DecodingRun]
    detections: list[Detection]
    expected_seconds: float | None = None
    pace: Pace | None = None


def prompts_of(settings: AuditSettings) -> tuple[list[Prompt], int]:
    """All prompts that the run may decode, and how many of them are units of every stage.

    The others are for the emitted tokens alone: those of the file beyond the units, where the
    sampled stage is sized and no number of prompts was asked for.

    Raises:
      InputError: What `read_prompts` refuses, or fewer prompts than were asked for.
    """
    asked = settings.num_prompts is not None
    wanted = settings.wanted_prompts
    count = sys.maxsize if settings.detect is not None and not asked else wanted
    texts = read_prompts(settings.prompts, count, all_of_them=asked)
    return texts, min(len(texts), wanted)


def prepare(
    settings: AuditSettings,
    source: PairSource,
    prompts: Sequence[tuple[int, ...]],
    num_prompts: int,
    carries: bool,
    jobs: int,
    notice: Notice | None,
) -> Preparation:
    """Size the run, and say so where it is large or was asked to be sized.

    Args:
      settings: Of the audit.
      source: Where the models come from.
      prompts: Tokens of all prompts at hand.
      num_prompts: The first so many are units of every stage.
      carries: Evidence is carried, which adds p-values.
      jobs: Processes.
      notice: Told what will be done, or None.
    """
    if settings.detect is None and num_prompts <= FEWEST_PROMPTS:
        return Preparation(decoding_runs(settings, num_prompts), [])
    pace = measure_pace(settings, source, prompts)
    detections: list[Detection] = []
    if settings.detect is not None:
        num_tests = len(statistics()) + _OTHER_TESTS + (len(CARRIED_SCORES) if carries else 0)
        num_tests *= len(settings.temperatures)
        detections = plan_detection(settings, source, prompts, num_prompts, num_tests)
    runs = decoding_runs(settings, num_prompts, [plan.more for plan in detections])
    workers = num_processes(jobs)
    seconds = pace.expected_seconds(runs) / workers
    if notice is not None:
        for plan in detections:
            notice(plan.describe(settings.token_cap, pace.tokens))
        notice(_announcement(settings, num_prompts, seconds, workers))
    return Preparation(runs, detections, seconds, pace)


def _announcement(settings: AuditSettings, num_prompts: int, seconds: float, workers: int) -> str:
    names = " and ".join(f"T = {value:g}" for value in settings.temperatures)
    return (
        f"{num_prompts:,} prompts at {names}, to certify a mean TV of {100 * settings.certify:.12g}"
        f" %: decoding takes about {duration(seconds)} in {workers} process(es), by the pace of the"
        f" first {PROMPTS_PER_TASK} prompts; the other stages take a minute"
    )
