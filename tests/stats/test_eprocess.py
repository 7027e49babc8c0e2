"""The e-process: exact expectation, a monitored null, stopping under faults, states that replay."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats import eprocess
from rheocheck.stats.eprocess import EProcess, chernoff_p
from rheocheck.stats.mutants import draft_leak, residual_is_target, tempered
from rheocheck.stats.scores import (
    TILTS,
    ScoreTerms,
    above_target,
    draft_score,
    score_moments,
    score_terms,
    surprisal,
)

Array = NDArray[np.float64]


def draw(laws: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    above = rng.random(len(laws))[:, None] > laws.cumsum(axis=1)
    return np.asarray(above.sum(axis=1).clip(max=laws.shape[1] - 1), dtype=np.int64)


def pair(contexts: int, vocab: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(vocab, 0.5), size=contexts)
    draft = target**0.9 * np.exp(rng.normal(0, 0.8, target.shape))
    return target, draft / draft.sum(axis=1, keepdims=True)


def monitored_crossings(
    law: Array, score: Array, drawn: Array, runs: int, looks: int, seed: int
) -> tuple[int, int]:
    """Runs that cross 1/0.05 and 1/0.01 when each of `looks` samples is looked at.

    All runs advance together, context by context in a cycle.
    """
    rng = np.random.default_rng(seed)
    mean, _, cumulant = score_moments(law, score)
    cumulative = drawn.cumsum(axis=1)
    deviation, spent = np.zeros(runs), np.zeros(len(TILTS))
    largest = np.full(runs, -np.inf)
    for look in range(looks):
        row = look % len(law)
        token = np.searchsorted(cumulative[row], rng.random(runs)).clip(max=law.shape[1] - 1)
        deviation += score[row, token] - mean[row]
        spent += cumulant[row]
        wealth = np.exp(np.minimum(deviation[:, None] * TILTS - spent, 300.0)).mean(axis=1)
        np.maximum(largest, wealth, out=largest)
    return int((largest >= 20).sum()), int((largest >= 100).sum())


def binomial_limit(runs: int, rate: float) -> float:
    """Crossings that a rate of at most `rate` exceeds with probability 1e-9."""
    return float(stats.binom.isf(1e-9, runs, rate))


def test_crossings_of_a_monitored_null_stay_within_the_level() -> None:
    """2,000 runs, 400 looks each, vocabulary 12; the same monitor crosses under a leaking draft."""
    target, draft = pair(40, 12, 0)
    score = draft_score(target, draft)
    at_5, at_1 = monitored_crossings(target, score, target, 2000, 400, 1)
    assert at_5 <= binomial_limit(2000, 0.05)
    assert at_1 <= binomial_limit(2000, 0.01)
    leaking = 0.5 * target + 0.5 * draft
    assert monitored_crossings(target, score, leaking, 2000, 400, 1)[0] > 1000


def test_an_understated_cumulant_is_caught_by_the_monitored_null() -> None:
    """The planted fault: cumulants of a score of half the size. Crossings pass the limit."""
    target, draft = pair(40, 12, 0)
    score = draft_score(target, draft)
    rng = np.random.default_rng(1)
    crossed = 0
    for _ in range(300):
        token = draw(np.tile(target, (10, 1)), rng)
        terms = score_terms(np.tile(target, (10, 1)), np.tile(score, (10, 1)), token)
        wrong = ScoreTerms(terms.deviation, terms.variance, terms.cumulant / 4)
        crossed += EProcess(0.05).observe(wrong).rejects
    assert crossed > binomial_limit(300, 0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["surprisal", "draft", "above"])
def test_ten_thousand_monitored_null_runs(kind: str) -> None:
    """10,000 runs, a look after each of 3,000 samples."""
    target, draft = pair(60, 12, 2)
    score = {
        "surprisal": surprisal(target),
        "draft": draft_score(target, draft),
        "above": above_target(target, draft),
    }[kind]
    at_5, at_1 = monitored_crossings(target, score, target, 10_000, 3000, 3)
    assert at_5 <= binomial_limit(10_000, 0.05)
    assert at_1 <= binomial_limit(10_000, 0.01)


@pytest.mark.nightly
def test_a_monitored_null_at_a_large_vocabulary() -> None:
    """1,000 runs, a look after each of 1,200 samples of 120 unlike contexts of 32,000 tokens."""
    from tests.benchmarks.contexts import synthetic_contexts

    target, draft = synthetic_contexts(120, 32_000, 4)
    for score in (surprisal(target), draft_score(target, draft)):
        at_5, at_1 = monitored_crossings(target, score, target, 1000, 1200, 5)
        assert at_5 <= binomial_limit(1000, 0.05)
        assert at_1 <= binomial_limit(1000, 0.01)


def test_batches_do_not_matter_and_the_crossing_is_the_first() -> None:
    target, draft = pair(900, 10, 6)
    token = draw(0.7 * target + 0.3 * draft, np.random.default_rng(7))
    terms = score_terms(target, draft_score(target, draft), token)
    whole = EProcess(1e-3).observe(terms)
    one, at = EProcess(1e-3), None
    for index in range(900):
        part = slice(index, index + 1)
        one = one.observe(
            ScoreTerms(terms.deviation[part], terms.variance[part], terms.cumulant[part])
        )
        if at is None and one.log_e >= np.log(1e3):
            at = index + 1
    assert whole.rejects and whole.crossed_at == one.crossed_at == at
    assert whole.samples_at_max == one.samples_at_max
    assert whole.log_max == pytest.approx(one.log_max, rel=1e-9)
    assert whole.log_e == pytest.approx(one.log_e, rel=1e-9)
    assert whole.p_value <= 1e-3


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = pair(500, 10, 8)
    token = draw(draft, np.random.default_rng(9))
    terms = score_terms(target, draft_score(target, draft), token)
    whole = EProcess(0.01).observe(terms)
    monkeypatch.setattr(eprocess, "_CHUNK", 7)
    parts = EProcess(0.01).observe(terms)
    assert (parts.crossed_at, parts.samples_at_max) == (whole.crossed_at, whole.samples_at_max)
    assert parts.log_max == pytest.approx(whole.log_max)


def test_faults_are_stopped_early() -> None:
    """Level 1e-6, 6,000 samples at most: no residual by the draft score, heat by surprisal."""
    target, draft = pair(6000, 20, 10)
    rng = np.random.default_rng(11)
    mutant = np.array([residual_is_target(p, q) for p, q in zip(target, draft, strict=True)])
    terms = score_terms(target, draft_score(target, draft), draw(mutant, rng))
    state = EProcess(1e-6).observe(terms)
    assert state.crossed_at is not None and state.crossed_at < 3000
    hot = np.array([tempered(p, q, 0, 1.3) for p, q in zip(target, draft, strict=True)])
    state = EProcess(1e-6).observe(score_terms(target, surprisal(target), draw(hot, rng)))
    assert state.crossed_at is not None and state.crossed_at < 3000


def test_a_state_survives_json_and_goes_on() -> None:
    target, draft = pair(300, 8, 12)
    terms = score_terms(
        target, above_target(target, draft), draw(target, np.random.default_rng(13))
    )
    state = EProcess(0.01).observe(terms)
    back = eprocess.from_json(json.loads(json.dumps(state.as_json())))
    assert back.as_json() == state.as_json()
    assert back.observe(terms).as_json() == state.observe(terms).as_json()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("state_version", 2, "version 2"),
        ("tilts", [0.1], "tilts"),
        ("cumulant", [0.0], "cumulants"),
        ("cumulant", "x", "could not convert"),
        ("alpha", 2.0, "alpha = 2.0"),
        ("alpha", None, "e-process state"),
        ("num_samples", -1, "contradict"),
        ("crossed_at", 10**9, "contradict"),
        ("log_max", -1.0, "contradict"),
        ("deviation", float("nan"), "contradict"),
    ],
)
def test_a_damaged_state_is_refused(field: str, value: object, text: str) -> None:
    values = {**EProcess(0.01).as_json(), field: value}
    with pytest.raises(InputError, match=text):
        eprocess.from_json(values)
    values.pop(field)
    with pytest.raises(InputError, match=f"'{field}' is missing"):
        eprocess.from_json(values)


def test_no_samples_and_certain_ones_are_no_evidence() -> None:
    none = ScoreTerms(np.zeros(0), np.zeros(0), np.zeros((0, len(TILTS))))
    state = EProcess(0.5).observe(none)
    assert state == EProcess(0.5)
    certain = score_terms(np.array([[1.0, 0.0]] * 3), np.ones((3, 2)), np.zeros(3, np.int64))
    state = state.observe(certain)
    assert (state.log_e, state.log_max, state.p_value, state.rejects) == (0.0, 0.0, 1.0, False)
    assert chernoff_p(state.sums) == 1.0


def test_what_is_not_finite_is_named() -> None:
    bad = ScoreTerms(np.array([0.0, np.nan]), np.zeros(2), np.zeros((2, len(TILTS))))
    with pytest.raises(InputError, match="sample 1"):
        EProcess(0.1).observe(bad)
    with pytest.raises(InputError, match="cumulant has shape"):
        EProcess(0.1).observe(ScoreTerms(np.zeros(2), np.zeros(2), np.zeros((2, 3))))
    with pytest.raises(InputError, match="alpha = 0"):
        EProcess(0.0)


def test_chernoff_p_is_valid_exactly_and_beats_the_mixture() -> None:
    """All 3^6 outcomes of six draws: P(p <= a) <= a for every a that occurs."""
    law, score = np.array([[0.6, 0.3, 0.1]] * 6), np.array([[0.0, 1.0, 3.0]] * 6)
    outcomes = np.array(list(np.ndindex(*(3,) * 6)))
    chance = law[0][outcomes].prod(axis=1)
    p = np.array([chernoff_p(score_terms(law, score, token).total()) for token in outcomes])
    for level in np.unique(p):
        assert chance[p <= level].sum() <= level * (1 + 1e-9)
    target, draft = pair(4000, 10, 14)
    sums = score_terms(
        target,
        draft_score(target, draft),
        draw(
            np.array([draft_leak(p, q, 0, 0.2) for p, q in zip(target, draft, strict=True)]),
            np.random.default_rng(15),
        ),
    ).total()
    assert sums.normal_p < chernoff_p(sums) < sums.p_value
