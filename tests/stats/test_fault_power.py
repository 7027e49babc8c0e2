"""Power computed before the run is the power measured in it."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from rheocheck.errors import InputError, LawError
from rheocheck.stats.eprocess import EProcess, chernoff_p
from rheocheck.stats.fault_power import (
    ScoreShift,
    chernoff_samples,
    detectable_share,
    e_value_bar,
    e_value_power,
    expected_stop,
    likelihood_ratio,
    noncentrality_samples,
    pit_noncentrality,
    score_power,
    score_samples,
    score_shift,
)
from rheocheck.stats.mutants import draft_leak
from rheocheck.stats.pit import draft_target_order, randomised_pit
from rheocheck.stats.power import chi_square_detectable
from rheocheck.stats.scores import TILTS, ScoreSums, draft_score, score_terms
from rheocheck.stats.sizing import size_run

Array = NDArray[np.float64]


def contexts(count: int, vocab: int, seed: int) -> tuple[Array, Array, Array]:
    """Target, draft and the law of a sampler that leaks four in ten of its drafts."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(vocab, 0.5), size=count)
    draft = target**0.9 * np.exp(rng.normal(0, 0.8, target.shape))
    draft /= draft.sum(axis=1, keepdims=True)
    leak = np.array([draft_leak(p, q, 0, 0.4) for p, q in zip(target, draft, strict=True)])
    return target, draft, leak


def draw(laws: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    above = rng.random(len(laws))[:, None] > laws.cumsum(axis=1)
    return np.asarray(above.sum(axis=1).clip(max=laws.shape[1] - 1), dtype=np.int64)


def test_the_shift_by_hand() -> None:
    shift = score_shift(np.array([[0.5, 0.5]]), np.array([[0.6, 0.4]]), np.array([[1.0, 0.0]]))
    assert shift.shift == pytest.approx(0.1)
    assert (shift.null_variance, shift.fault_variance) == pytest.approx((0.25, 0.24))
    assert shift.total_variation == pytest.approx(0.1)
    expected = (4.8916 * 0.5 + 1.6449 * math.sqrt(0.24)) ** 2 / 0.01
    needed = score_samples(shift, 1e-6)
    assert needed == pytest.approx(expected, rel=1e-4)
    assert score_power(shift, needed, 1e-6) == pytest.approx(0.95, abs=1e-6)
    assert detectable_share(shift, 1.0001 * needed, 1e-6) == pytest.approx(1.0, abs=1e-3)
    assert detectable_share(shift, 4 * needed, 1e-6) == pytest.approx(0.5, abs=0.01)
    assert detectable_share(shift, needed / 2, 1e-6) == math.inf


def test_score_and_stopping_time_against_simulation() -> None:
    """300 runs: z test and Chernoff test at their sizes within 5 points, mean stop within 15 %."""
    target, draft, leak = contexts(50, 20, 0)
    score = draft_score(target, draft)
    shift = score_shift(target, leak, score)
    rng = np.random.default_rng(1)
    rejected = {"z": 0, "chernoff": 0}
    stops = []
    for name, size in (
        ("z", score_samples(shift, 1e-4)),
        ("chernoff", chernoff_samples(shift, 1e-4)),
    ):
        rows = np.arange(int(size)) % 50
        for _ in range(300):
            terms = score_terms(target[rows], score[rows], draw(leak[rows], rng))
            sums = terms.total()
            p_value = sums.normal_p if name == "z" else chernoff_p(sums)
            rejected[name] += p_value <= 1e-4
    rows = np.arange(int(4 * expected_stop(shift, 1e-4))) % 50
    for _ in range(80):
        state = EProcess(1e-4).observe(
            score_terms(target[rows], score[rows], draw(leak[rows], rng))
        )
        stops.append(state.crossed_at or len(rows))
    assert rejected["z"] / 300 == pytest.approx(0.95, abs=0.05)
    assert 0.90 <= rejected["chernoff"] / 300
    assert np.mean(stops) == pytest.approx(expected_stop(shift, 1e-4), rel=0.15)


def test_pit_noncentrality_is_that_of_the_binned_values() -> None:
    target, draft, leak = contexts(40, 20, 2)
    order = draft_target_order(target, draft)
    rows = np.arange(400_000) % 40
    rng = np.random.default_rng(3)
    token = draw(leak[rows], rng)
    pit = randomised_pit(target[rows], token, rng.random(len(rows)), order[rows])
    shares = np.histogram(pit, 20, (0, 1))[0] / len(rows)
    # The histogram's own noise adds 19/n on average.
    measured = float((20 * (shares - 0.05) ** 2).sum()) - 19 / len(rows)
    assert pit_noncentrality(target, leak, order) == pytest.approx(measured, rel=0.1)
    assert pit_noncentrality(target, target, order) == pytest.approx(0.0, abs=1e-12)


def test_noncentrality_samples_invert_the_detectable_distance() -> None:
    needed = noncentrality_samples(4 * 0.01**2, 63, 1e-6)
    assert chi_square_detectable(round(needed), 63, 1e-6) == pytest.approx(0.01, rel=1e-3)
    assert noncentrality_samples(0.0, 63, 1e-6) == math.inf


def test_no_statistic_beats_the_likelihood_ratio() -> None:
    target, draft, _ = contexts(50, 20, 6)
    leak = 0.95 * target + 0.05 * draft
    best = likelihood_ratio(target, leak, 1e-6)
    assert best.bound <= best.samples
    rng = np.random.default_rng(7)
    for score in (draft_score(target, draft), leak / target, rng.random(target.shape)):
        shift = score_shift(target, leak, score)
        assert score_samples(shift, 1e-6) > 0.9 * best.samples
        assert chernoff_samples(shift, 1e-6) > best.samples
    own = score_shift(target, leak, leak / target)
    assert score_samples(own, 1e-6) == pytest.approx(best.samples, rel=0.15)


def test_edges_of_the_likelihood_ratio() -> None:
    half = np.array([[0.5, 0.5, 0.0]])
    assert likelihood_ratio(half, half, 1e-6).samples == math.inf
    assert likelihood_ratio(half, np.array([[0.5, 0.4, 0.1]]), 1e-6).samples == 1.0
    # Half of the support lost: n coins all heads, 2^-n <= alpha; the bound is near that.
    lost = likelihood_ratio(half, np.array([[1.0, 0.0, 0.0]]), 1e-6)
    assert lost.bound == pytest.approx(12.93 / math.log(2), rel=0.01)


def test_a_score_that_does_not_move_finds_nothing() -> None:
    still = score_shift(np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]))
    assert score_samples(still, 1e-6) == chernoff_samples(still, 1e-6) == math.inf
    assert expected_stop(still, 1e-6) == math.inf
    assert score_power(still, 0, 0.1) == 0.0
    sure = ScoreShift(0.1, 0.0, 0.0, still.cumulant * 0, 0.1)
    assert score_power(sure, 5, 1e-6) == 1.0
    with pytest.raises(InputError, match="contexts needed"):
        score_shift(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2)))
    with pytest.raises(InputError, match="a law or score has shape"):
        score_shift(np.ones((1, 2)) / 2, np.ones((1, 3)) / 3, np.zeros((1, 2)))


def test_a_run_is_sized_for_what_it_must_find() -> None:
    target, draft, _ = contexts(30, 40, 8)
    sizing = size_run(target, draft, 0.01, 1e-6)
    leak, heat, even = sizing.faults
    assert leak.best == "draft score"
    assert heat.best == "surprisal"
    assert even.samples["PIT draft/target"] == pytest.approx(
        noncentrality_samples(4e-4, 19, 1e-6), rel=1e-6
    )
    assert sizing.num_samples >= max(fault.samples[fault.best] for fault in sizing.faults)
    assert size_run(target, draft, 0.02, 1e-6).num_samples == pytest.approx(
        sizing.num_samples / 4, rel=0.1
    )


def test_a_fault_that_cannot_be_that_large_is_left_out() -> None:
    target, _, _ = contexts(5, 10, 9)
    names = [fault.fault for fault in size_run(target, target, 0.01, 1e-6).faults]
    assert not any("draft" in name and "unverified" in name for name in names)
    point = np.eye(4)[:2]
    only = size_run(point, np.zeros((2, 4)), 0.01, 1e-6).faults
    assert [fault.fault for fault in only] == ["spread evenly over the PIT's bins"]


def test_bad_sizes_are_refused() -> None:
    law = np.array([[0.5, 0.5]])
    with pytest.raises(InputError, match="no contexts"):
        size_run(np.zeros((0, 2)), np.zeros((0, 2)), 0.01, 1e-6)
    with pytest.raises(InputError, match="draft has shape"):
        size_run(law, np.zeros((2, 2)), 0.01, 1e-6)
    with pytest.raises(InputError, match="detect = 0"):
        size_run(law, law, 0.0, 1e-6)
    with pytest.raises(InputError, match=r"power = 0.5"):
        size_run(law, law, 0.1, 1e-6, 0.5)
    with pytest.raises(LawError, match="row 0"):
        size_run(2 * law, law, 0.1, 1e-6)


def test_the_bar_of_an_e_value_is_where_it_reaches_the_level() -> None:
    cumulant = 400.0 * 0.5 * TILTS**2
    for sign in (1.0, -1.0):
        bar = e_value_bar(cumulant, 1e-6, sign)
        assert ScoreSums(400, sign * bar, 400.0, cumulant).p_value == pytest.approx(1e-6, rel=1e-3)
    assert e_value_bar(np.zeros_like(TILTS), 1e-6) == math.inf


def test_the_power_of_an_e_value_is_that_met_in_samples() -> None:
    """300 runs of 600 tokens; 0.12 is four standard errors."""
    target, draft, leak = contexts(600, 20, 2)
    score = draft_score(target, draft)
    shift = score_shift(target, leak, score)
    rng = np.random.default_rng(3)
    level = 1e-3
    hits = [score_terms(target, score, draw(leak, rng)).total().p_value < level for _ in range(300)]
    computed = e_value_power(shift, 600, level)
    assert abs(float(np.mean(hits)) - computed) < 0.12
    assert 0.05 < computed
    assert e_value_power(shift, 0, level) == 0.0
