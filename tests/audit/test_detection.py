"""`--detect`: runs sized for a total variation, with repeated prompts, and shortage that shows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rheocheck.audit import decoding_runs as runs
from rheocheck.audit.choices import run_seed
from rheocheck.audit.detection import Detection, decodings_for, with_detection
from rheocheck.audit.drawn_tokens import Drawn
from rheocheck.audit.findings import NEEDED_STAGES, StageFindings, run_verdict
from rheocheck.audit.pair import PairSource
from rheocheck.audit.pilot import duration, pilot_task
from rheocheck.audit.preparation import prompts_of
from rheocheck.audit.settings import AuditSettings
from rheocheck.audit.tasks import Task
from rheocheck.audit.token_pilot import pilot_faults
from rheocheck.audit.token_power import BinPower, PilotFault
from rheocheck.audit.token_statistics import statistics
from rheocheck.certificate import Report, StageResult, Verdict
from rheocheck.errors import InputError
from rheocheck.stats.sizing import faults_of_size
from rheocheck.traces.laws import Laws
from tests.audit.small_audit import audit, share_exact_stage, small_settings

LEVEL = 1e-7


@pytest.fixture(autouse=True)
def _share(monkeypatch: pytest.MonkeyPatch) -> None:
    share_exact_stage(monkeypatch)


def sampled_of(report: Report) -> StageResult:
    return next(stage for stage in report.stages if stage.name == "sampled")


def small(**changes: Any) -> dict[str, Any]:
    return {"regrow_prompts": 0, "max_new_tokens": 6, "differential_rounds": 64, **changes}


def test_a_sized_run_decodes_what_it_needs_and_prints_it() -> None:
    """Four prompts, again and again: units of the white box they stay four."""
    report = audit(num_prompts=4, detect=0.4, **small())
    sampled = sampled_of(report)
    rows = sampled.details["sizing"]
    assert {row["temperature"] for row in rows} == {0.7}
    assert "spread evenly over the PIT's bins" in rows[-1]["fault"]
    needed = max(row["tokens_needed"] for row in rows)
    assert rows[0]["tokens"] == sampled.sample_size >= needed
    assert sampled.verdict is Verdict.NO_EVIDENCE
    assert sampled.power == min(row["power"] for row in rows) >= 0.95
    assert "sized for TV 0.4: power" in sampled.details["summary"]
    others = {stage.name: stage for stage in report.stages}
    assert others["whitebox"].sample_size == 4
    assert report.facts["acceptance"][0]["num_prompts"] == report.facts["num_prompts"] == 4
    assert "--detect 0.4 --token-cap 1000000" in (sampled.replay or "")


def test_a_cap_below_what_is_needed_is_inconclusive_and_says_what_would_do() -> None:
    said: list[str] = []
    from rheocheck.audit.run import run_audit

    settings = small_settings(num_prompts=4, detect=0.1, token_cap=100, **small())
    report = run_audit(settings, notice=said.append)
    sampled = sampled_of(report)
    assert (report.verdict, sampled.verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    needed = max(row["tokens_needed"] for row in sampled.details["sizing"])
    assert needed > 100
    assert f"The cap is 100 tokens: --token-cap {needed} would do" in sampled.details["summary"]
    # Nothing is decoded for a power that cannot be reached.
    assert sampled.sample_size is not None and sampled.sample_size < 80
    assert len(said) == 2
    assert "a TV of 0.1 at T = 0.7 is found with power 0.95 on" in said[0]
    assert "none are decoded for it" in said[0]


def test_an_inconclusive_sampled_stage_matters_only_where_it_was_sized() -> None:
    stages = [
        StageResult(name=name, verdict=verdict)
        for name, verdict in {
            "exact": Verdict.CERTIFIED,
            "whitebox": Verdict.CERTIFIED,
            "probe": Verdict.CERTIFIED,
            **dict.fromkeys(NEEDED_STAGES, Verdict.NO_EVIDENCE),
            "sampled": Verdict.INCONCLUSIVE,
        }.items()
    ]
    assert run_verdict(stages) is Verdict.CERTIFIED
    assert run_verdict(stages, (*NEEDED_STAGES, "sampled")) is Verdict.INCONCLUSIVE


def plan_of(needed: int | None, more: int = 0) -> Detection:
    fault = PilotFault("it is large", 0.2, {"PIT": BinPower(0.16, 19, 3)})
    return Detection(1.0, 0.2, (fault,), (needed,), 10.0, more)


def concluded(plan: Detection, tokens: int, verdict: Verdict = Verdict.NO_EVIDENCE) -> StageResult:
    details = {"summary": "seen", "per_temperature": [{"temperature": 1.0, "tokens": tokens}]}
    stage = StageFindings(StageResult(name="sampled", verdict=verdict, details=details), {"a": 0.5})
    return with_detection(stage, [plan], 9, AuditSettings(detect=0.2), 0.1).result


def test_a_run_that_came_short_of_its_plan_is_inconclusive() -> None:
    """Planted: texts that end early, so that fewer tokens come than were planned."""
    needed = plan_of(1).faults[0].tokens_needed(1e-7)
    assert needed is not None
    assert concluded(plan_of(needed), needed).verdict is Verdict.NO_EVIDENCE
    short = concluded(plan_of(needed), needed // 2)
    assert short.verdict is Verdict.INCONCLUSIVE
    assert f"{needed // 2:,} tokens came where {needed:,} were planned" in short.details["summary"]
    assert concluded(plan_of(needed), needed // 2, Verdict.LOSSY).verdict is Verdict.LOSSY
    never = concluded(plan_of(None), 10)
    assert never.verdict is Verdict.INCONCLUSIVE
    assert "No number of tokens would do" in never.details["summary"]


@pytest.mark.parametrize("tokens", [1, 130, 5000])
def test_the_decodings_that_are_planned_have_the_tokens(tokens: int) -> None:
    """2,000 plans from 32 lengths each; fewer tokens than needed in at most 1 %."""
    rng = np.random.default_rng(tokens)

    def lengths(count: int) -> NDArray[np.int64]:
        return 1 + rng.poisson(2, size=count) * rng.integers(0, 3, size=count)

    made = [(decodings_for(tokens, lengths(32).tolist())) for _ in range(2000)]
    short = sum(lengths(count).sum() < tokens for count in made)
    assert short <= 20
    assert max(made) <= tokens
    # Lengths that are all alike leave nothing to chance.
    assert decodings_for(100, [10] * 32) == 10


def test_beyond_the_cap_a_larger_distance_is_named_that_fits_it() -> None:
    plan = plan_of(4_000_000)
    assert plan.beyond(1_000_000, 0.05) == (
        "The cap is 1,000,000 tokens: --token-cap 4000000 would do, some 5.6 h of one process, or "
        f"--detect {0.2 * 4.4**0.5:.2g}"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.4, "40 s"), (840, "14 min"), (11520, "3.2 h"), (0.2, "0 s")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def tasks_of(monkeypatch: pytest.MonkeyPatch, settings: AuditSettings, more: int) -> list[Task]:
    taken: list[Task] = []

    def record(tasks: Sequence[Task], jobs: int) -> Iterator[Any]:
        taken.extend(tasks)
        return iter(())

    monkeypatch.setattr(runs, "run_tasks", record)
    prompts = [(token,) for token in range(70)]
    made = runs.decoding_runs(settings, 40, [more] * len(settings.temperatures))
    runs.decode_runs(settings, PairSource.of(settings), prompts, made, 1, None)
    return taken


def test_further_decodings_take_the_other_prompts_and_then_all_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = AuditSettings(compare_schemes=False, temperatures=(1.0, 0.5))
    tasks = tasks_of(monkeypatch, settings, 100)
    for temperature in settings.temperatures:
        own = [task for task in tasks if task.temperature == temperature]
        request = [number for task in own for number in task.requests]
        assert request == list(range(140))
        assert [p for task in own for p in task.prompts] == [(r % 70,) for r in request]
        units = [r for task in own if not task.tokens_alone for r in task.requests]
        assert units == list(range(40))
        assert max(len(task.requests) for task in own) == 32
    regrown = {r for task in tasks for r in task.regrow}
    assert regrown == set(range(40))
    # No two tasks share a key of their draws, and no pilot shares one with a task.
    keys = [(task.seed, request) for task in tasks for request in task.requests]
    assert len(set(keys)) == len(keys)
    pilots = [pilot_task(settings, tasks[0].pair, [(1,)], 1.0, n).seed for n in range(4)]
    assert not set(pilots) & {run_seed(settings.seed, n) for n in range(1000)}


def test_no_further_decodings_leave_the_tasks_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AuditSettings(compare_schemes=False)
    tasks = tasks_of(monkeypatch, settings, 0)
    assert [task.requests for task in tasks] == 2 * [tuple(range(32)), tuple(range(32, 40))]
    assert not any(task.tokens_alone for task in tasks)


def test_the_rest_of_the_file_is_at_hand_unless_a_number_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"prompt {n}\n" for n in range(600)), encoding="utf-8")

    def sizes(**changes: Any) -> tuple[int, int]:
        texts, units = prompts_of(AuditSettings(prompts=path, **changes))
        return len(texts), units

    assert sizes() == (500, 500)
    assert sizes(detect=0.1) == (600, 500)
    assert sizes(detect=0.1, num_prompts=7) == (7, 7)
    assert sizes(detect=0.1, certify=0.001) == (600, 600)
    with pytest.raises(InputError, match="has 600 prompts, 601 were asked for"):
        sizes(num_prompts=601)


def contexts(rng: np.random.Generator, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    target = rng.dirichlet(np.full(12, 0.5), size=count)
    draft = target * np.exp(0.7 * rng.standard_normal(target.shape))
    return target, draft / draft.sum(axis=1, keepdims=True)


def drawn_of(target: NDArray[Any], draft: NDArray[Any], law: NDArray[Any], seed: int) -> Drawn:
    """Tokens drawn by `law` at contexts that should emit `target`."""
    rng = np.random.default_rng(seed)
    token = (law.cumsum(axis=1) > rng.random(len(law))[:, None]).argmax(axis=1)
    place = np.stack([np.zeros(len(law)), np.arange(len(law)), *np.zeros((2, len(law)))], axis=1)
    return Drawn(
        laws=Laws(None, target, draft, None, None, token, np.zeros(len(law))),
        uniform=rng.random(len(law)),
        place=place.astype(np.int64),
        num_top=1,
        num_candidates=4,
    )


@pytest.mark.parametrize("detect", [1e-6, 0.5, 0.999])
def test_distances_at_both_ends_are_sized_or_said_to_be_out_of_reach(detect: float) -> None:
    target, draft = contexts(np.random.default_rng(5), 20)
    pilot = pilot_faults(drawn_of(target, draft, target, 1), detect)
    if detect > 0.9:
        assert pilot == ()
    for fault in pilot:
        assert fault.total_variation == pytest.approx(detect, rel=1e-2)
        needed = fault.tokens_needed(LEVEL)
        assert needed is None or needed > 0


def test_the_tokens_that_are_asked_for_find_the_fault() -> None:
    """60 replicates of power 0.95: fewer than 45 rejections have a chance of 1e-8."""
    target, draft = contexts(np.random.default_rng(5), 200)
    pilot = pilot_faults(drawn_of(target, draft, target, 1), 0.1, contexts=200)
    laws = dict(faults_of_size(target, draft, 0.1))
    assert {fault.name for fault in pilot} == set(laws) and len(laws) == 2
    for fault in pilot:
        needed = fault.tokens_needed(LEVEL)
        assert needed is not None
        rejected = honest = 0
        for seed in range(60):
            row = np.random.default_rng(seed).integers(0, len(target), needed)
            for law, is_fault in ((laws[fault.name], True), (target, False)):
                drawn = drawn_of(target[row], draft[row], law[row], seed + 1000)
                smallest = 1.0
                for statistic in statistics():
                    if statistic.name in ("surprisal", "draft score"):
                        statistic.observe(drawn)
                        smallest = min(smallest, statistic.p_value)
                rejected += is_fault and smallest <= LEVEL
                honest += not is_fault and smallest <= LEVEL
        assert rejected >= 45
        assert honest == 0
