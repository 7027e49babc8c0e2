"""Statistics of emitted tokens: each catches the fault that it is meant for, and parts join.

Levels: sound tokens must keep every p-value above 1e-9 (fixed seeds); each fault is planted at a
size whose computed power at 1e-6 is above 1 - 1e-3, and the seeds are fixed too.
"""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from rheocheck.audit.drawn_tokens import Drawn
from rheocheck.audit.token_pilot import pilot_faults
from rheocheck.audit.token_power import count_bars
from rheocheck.audit.token_statistics import Statistic, merged, statistics
from rheocheck.stats.mutants import tempered
from rheocheck.stats.token_calibration import poisson_log_p
from rheocheck.traces.laws import Laws

Array = NDArray[np.float64]
VOCAB, TOKENS, A_REQUEST = 24, 4000, 20
QUIET, LOUD = 1e-9, 1e-6


def contexts(seed: int, count: int = TOKENS) -> tuple[Array, Array]:
    """Target and draft laws; the draft has a support of its own, and every ninth row is none."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(VOCAB, 0.5), size=count)
    draft = target**0.7 * np.exp(rng.normal(0, 0.8, target.shape))
    draft[draft < np.quantile(draft, 0.3, axis=1, keepdims=True)] = 0.0
    draft /= draft.sum(axis=1, keepdims=True)
    draft[::9] = 0.0
    return target, draft


def drawn(
    target: Array, draft: Array, output: Array, seed: int, uniform: Array | None = None
) -> Drawn:
    """One token of each row of `output`, in requests of twenty, two tokens a round."""
    rng = np.random.default_rng((seed, 1))
    coin = rng.random(len(target)) if uniform is None else uniform
    token = (coin[:, None] > output.cumsum(axis=1)).sum(axis=1).clip(max=VOCAB - 1)
    number = np.arange(len(target))
    request, at = number // A_REQUEST, number % A_REQUEST
    return Drawn(
        laws=Laws(None, target, draft, None, None, token, np.zeros(len(target))),
        uniform=rng.random(len(target)),
        place=np.stack([np.zeros_like(number), request, at // 2, at % 2], axis=1),
        num_top=1,
        num_candidates=4,
    )


def observed(tokens: Drawn) -> dict[str, Statistic]:
    found = statistics()
    for statistic in found:
        statistic.observe(tokens)
    return {statistic.name: statistic for statistic in found}


def hot(target: Array, draft: Array) -> Array:
    return np.array([tempered(law, law, 0, 1.3) for law in target])


def leaked(target: Array, draft: Array) -> Array:
    mixed = 0.7 * target + 0.3 * draft
    return np.where(draft.any(axis=1, keepdims=True), mixed, target)


def second_for_first(target: Array, draft: Array) -> Array:
    """A fifth of the likeliest token's mass goes to the next one."""
    order = np.argsort(-target, axis=1)
    output, rows = target.copy(), np.arange(len(target))
    moved = 0.2 * target[rows, order[:, 0]]
    output[rows, order[:, 0]] -= moved
    output[rows, order[:, 1]] += moved
    return output


def fillers_for_tops(target: Array, draft: Array) -> Array:
    """The draft's first token is emitted too seldom, its next three too often."""
    order = np.argsort(-draft, axis=1, kind="stable")
    output, rows = target.copy(), np.flatnonzero(draft.any(axis=1))
    moved = 0.4 * target[rows, order[rows, 0]]
    output[rows, order[rows, 0]] -= moved
    for rank in (1, 2, 3):
        output[rows, order[rows, rank]] += moved / 3
    return output


def one_id(target: Array, draft: Array) -> Array:
    """One token in twenty is token 7."""
    output = 0.95 * target
    output[:, 7] += 0.05
    return output


@pytest.mark.parametrize("seed", range(3))
def test_sound_tokens_are_quiet(seed: int) -> None:
    target, draft = contexts(seed)
    found = observed(drawn(target, draft, target, seed))
    assert len(found) == 10
    assert min(test.p_value for test in found.values()) > QUIET
    for test in found.values():
        smallest = test.detectable(1e-6)
        assert smallest is not None and smallest > 0
        # A laxer level detects less.
        laxer = test.detectable(1e-2)
        assert laxer is not None and laxer < smallest


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (hot, ["surprisal", "PIT by target", "ranks"]),
        (leaked, ["draft score", "above target", "PIT by draft/target"]),
        (second_for_first, ["ranks"]),
        (fillers_for_tops, ["roles"]),
        (one_id, ["tokens"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_caught_by_the_statistic_that_is_meant_for_it(
    fault: Callable[[Array, Array], Array], names: list[str]
) -> None:
    target, draft = contexts(5)
    found = observed(drawn(target, draft, fault(target, draft), 5))
    for name in names:
        assert found[name].p_value < LOUD, name


def test_a_shared_coin_shows_in_the_pairs_alone() -> None:
    """Every second token is drawn with the uniform of the one before, in the order of the PIT."""
    target, draft = contexts(6)
    coin = np.repeat(np.random.default_rng(6).random(TOKENS // 2), 2)
    order = np.argsort(np.where(target > 0, draft / target, np.inf), axis=1, kind="stable")
    running = np.take_along_axis(target, order, axis=1).cumsum(axis=1)
    place = (coin[:, None] > running).sum(axis=1).clip(max=VOCAB - 1)
    tokens = drawn(target, draft, target, 6)
    token = order[np.arange(TOKENS), place]
    laws = Laws(None, target, draft, None, None, token, np.zeros(TOKENS))
    shared = Drawn(laws, tokens.uniform, tokens.place, 1, 4)
    found = observed(shared)
    assert found["pairs"].p_value < LOUD
    # Two tokens a round here, so the shared coin is within rounds.
    assert min(test.p_value for name, test in found.items() if name != "pairs") > QUIET
    # Moved by one, each round begins with the coin that ended the round before.
    later = shared.place.copy()
    later[:, 3] = 1 - later[:, 3]
    later[:, 2] += np.arange(TOKENS) % 2
    across = observed(Drawn(laws, tokens.uniform, later, 1, 4))
    assert across["pairs across rounds"].p_value < LOUD


def part_of(tokens: Drawn, rows: slice) -> Drawn:
    laws = tokens.laws
    assert laws.draft is not None
    cut = Laws(
        None, laws.target[rows], laws.draft[rows], None, None, laws.column[rows], laws.rest[rows]
    )
    return Drawn(cut, tokens.uniform[rows], tokens.place[rows], 1, 4)


def test_parts_from_other_processes_join_to_the_whole_and_stay_what_they_are() -> None:
    target, draft = contexts(7)
    tokens = drawn(target, draft, leaked(target, draft), 7)
    whole = observed(tokens)
    parts = []
    for begin in range(0, TOKENS, 1000):
        found = list(observed(part_of(tokens, slice(begin, begin + 1000))).values())
        parts.append(pickle.loads(pickle.dumps(found)))
    for _ in range(2):
        joined = merged(parts)
        assert [test.name for test in joined] == list(whole)
        for test in joined:
            assert test.p_value == pytest.approx(whole[test.name].p_value, rel=1e-9, abs=1e-300)
            assert test.shown == pytest.approx(whole[test.name].shown, rel=1e-9)


def test_what_a_part_keeps_does_not_grow_with_the_vocabulary_times_its_tokens() -> None:
    target, draft = contexts(8)
    found = list(observed(drawn(target, draft, target, 8)).values())
    # Four PITs (8 bytes each), places (32), two cells with their laws (16 + 80).
    assert len(pickle.dumps(found)) < TOKENS * (4 * 8 + 2 * 32 + 96) + 10_000


def test_nothing_seen_is_no_evidence_and_can_find_nothing() -> None:
    for test in [*statistics(), *merged([])]:
        assert test.p_value == 1.0
        assert test.shown == 0.0
        assert test.detectable(1e-6) is None


def test_without_a_draft_its_statistics_are_left_out() -> None:
    names = {test.name for test in statistics(False)}
    assert names == {
        "surprisal",
        "PIT by target",
        "ranks",
        "tokens",
        "pairs",
        "pairs across rounds",
    }


def test_the_computed_power_is_the_power_that_is_met() -> None:
    """Share of 200 samples of 900 tokens in which each statistic rejects at 1e-3."""
    count, runs, level = 900, 200, 1e-3
    target, draft = contexts(9, count)
    faults = pilot_faults(drawn(target, draft, target, 9))
    assert len(faults) == 2
    leak = next(fault for fault in faults if "drafts" in fault.name)
    share = float(leak.name.split("%")[0]) / 100
    output = target + share * np.where(draft.any(axis=1, keepdims=True), draft - target, 0.0)
    computed = leak.powers(count, level)
    hits = dict.fromkeys(computed, 0)
    for run in range(runs):
        found = observed(drawn(target, draft, output, 1000 + run))
        for name in hits:
            hits[name] += found[name].p_value <= level
    for name in ("draft score", "above target", "ranks", "roles"):
        # Five standard errors of 200 runs, the pilot's 64 contexts, and the normal approximation.
        assert abs(hits[name] / runs - computed[name]) < 0.22, name
    # Of three tests the PIT's power counts one, of all tokens the calibration's counts the best.
    for name in ("PIT by draft/target", "tokens"):
        assert hits[name] / runs > computed[name] - 0.22, name


@pytest.mark.parametrize("expected", [5.0, 40.0, 3e4])
def test_bars_of_counts_are_where_the_test_rejects(expected: float) -> None:
    mean = np.array([expected])
    for level in (1e-3, 1e-9):
        lower, upper = count_bars(mean, level)
        edge = np.log(level)
        assert poisson_log_p(upper, mean)[0] == pytest.approx(edge, rel=1e-6)
        if lower[0] >= 0:
            assert poisson_log_p(lower, mean)[0] == pytest.approx(edge, rel=1e-6)
        else:
            assert poisson_log_p(np.zeros(1), mean)[0] > edge
