"""The sampled stage on made-up tokens: witness, accept rate, too few tokens, level stated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rheocheck.audit.findings import StageFindings, settle
from rheocheck.audit.token_stage import TokenRun, token_stage
from rheocheck.audit.token_statistics import merged
from rheocheck.audit.token_witness import RATIOS, SHOWN_TOKENS, WitnessSets, with_texts
from rheocheck.certificate import StageResult, Verdict
from rheocheck.stats.scores import NO_SCORES, ScoreSums, rate_sums
from tests.audit.test_token_statistics import (
    Array,
    contexts,
    drawn,
    leaked,
    observed,
    one_id,
)


def run_of(output: Array, target: Array, draft: Array, accept: ScoreSums = NO_SCORES) -> TokenRun:
    tokens = drawn(target, draft, output, 3)
    sets = WitnessSets()
    sets.observe(tokens)
    found = list(observed(tokens).values())
    return TokenRun(" T=1", 1.0, len(target), found, sets, accept, ())


def concluded(run: TokenRun, others: int = 0) -> StageResult:
    return settle([token_stage([run], others, "replay")])[0]


def test_leaked_drafts_have_a_witness_of_the_draft() -> None:
    """Three tenths of the tokens are drafts: TV 0.087 on 4,000 tokens."""
    target, draft = contexts(3)
    output = leaked(target, draft)
    result = concluded(run_of(output, target, draft))
    assert result.verdict is Verdict.LOSSY
    found = result.details["witness"]
    true = 0.5 * np.abs(output - target).sum(axis=1).mean()
    assert 0.01 < found["tv_lower_bound"] < true
    assert "the draft gives more than" in found["set"]
    assert found["observed"] > found["expected"]
    assert found["wrong_with_probability"] == 1e-6
    assert 1 <= len(found["tokens"]) <= SHOWN_TOKENS


def test_a_token_that_comes_too_often_is_the_witness() -> None:
    """One token in twenty is token 7; the set found is that token and hardly any other."""
    target, draft = contexts(3)
    output = one_id(target, draft)
    result = concluded(run_of(output, target, draft))
    found = result.details["witness"]
    true = 0.5 * np.abs(output - target).sum(axis=1).mean()
    assert 0.01 < found["tv_lower_bound"] < true
    assert found["tokens"][0]["token"] == 7
    assert found["tokens"][0]["observed"] > found["tokens"][0]["expected"]


def test_sound_tokens_have_no_witness() -> None:
    target, draft = contexts(3)
    run = run_of(target, target, draft)
    assert concluded(run).verdict is Verdict.NO_EVIDENCE
    assert "witness" not in concluded(run).details
    assert token_stage([run], 0, "").evidence["witness"]["tv_lower_bound"] == 0.0


def test_the_named_sets_are_what_they_are_called() -> None:
    target, draft = contexts(4)
    tokens = drawn(target, draft, target, 4)
    sets = WitnessSets()
    sets.observe(tokens)
    rows, even = np.arange(len(target)), tokens.place[:, 1] % 2 == 0
    for index, ratio in enumerate(RATIOS):
        inside = draft > ratio * target
        hits = inside[rows, tokens.laws.column]
        assert sets.sums[0, 0, index] == hits[even].sum()
        assert sets.sums[1, 1, index] == pytest.approx((target * inside)[~even].sum())
    largest = target.argmax(axis=1) == tokens.laws.column
    assert sets.sums[:, 0, len(RATIOS)].sum() == largest.sum()
    assert sets.sums[:, 1, len(RATIOS)].sum() == pytest.approx(target.max(axis=1).sum())
    without = replace(tokens, laws=replace(tokens.laws, draft=None))
    none = WitnessSets()
    none.observe(without)
    assert not none.sums[:, :, : len(RATIOS)].any()


def test_texts_of_a_witness_are_cut() -> None:
    rows = with_texts([{"token": 3, "observed": 1, "expected": 0.0}], ["x" * 99])
    assert rows == [{"token": 3, "text": "x" * 16, "observed": 1, "expected": 0.0}]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_next_to_no_tokens_are_inconclusive_and_say_what_would_do(count: int) -> None:
    target, draft = contexts(3)
    run = run_of(target[:count], target[:count], draft[:count])
    result = concluded(run)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert f"{count} emitted tokens are too few" in result.details["summary"]
    assert "TV 0.05 needs some 8," in result.details["summary"]
    assert token_stage([], 0, "").result.verdict is Verdict.INCONCLUSIVE


def accepts(count: int, rate: float, true: float) -> ScoreSums:
    rng = np.random.default_rng(4)
    return rate_sums(np.full(count, rate), rng.random(count) < true)


def test_a_wrong_accept_rate_is_suspect_and_never_lossy() -> None:
    """70 % where 60 % is exact, at 5,000 nodes: z = 14."""
    target, draft = contexts(3)
    result = concluded(run_of(target, target, draft, accepts(5000, 0.6, 0.7)))
    assert result.verdict is Verdict.SUSPECT
    assert result.details["p_values"]["accept rate T=1"]["adjusted"] < 1e-6
    assert result.details["accept_rate"][0]["z"] > 10
    assert "the accept rate is not the rule's (T=1: z = 1" in result.details["summary"]
    # What rejects is not the output, so nothing is a witness of a wrong output.
    assert "witness" not in result.details
    sound = concluded(run_of(target, target, draft, accepts(5000, 0.6, 0.6)))
    assert sound.verdict is Verdict.NO_EVIDENCE


def test_a_suspicion_does_not_soften_a_proof() -> None:
    stage = StageResult(name="sampled", verdict=Verdict.LOSSY)
    settled = settle([StageFindings(stage, {}, {"accept rate": 1e-30}, {"witness": {"set": "x"}})])
    assert settled[0].verdict is Verdict.LOSSY
    assert settled[0].p_value is None


def test_evidence_stands_behind_an_exact_witness() -> None:
    exact: dict[str, Any] = {"witness": {"what": "emitted a token of probability 0"}}
    stage = StageResult(name="sampled", verdict=Verdict.LOSSY, details=exact)
    settled = settle([StageFindings(stage, {"PIT": 0.0}, {}, {"witness": {"set": "x"}})])
    assert settled[0].details["witness"] == exact["witness"]


def test_power_is_stated_at_the_level_of_the_correction() -> None:
    target, draft = contexts(3)
    run = run_of(target, target, draft, accepts(50, 0.5, 0.5))
    result = concluded(run, others=6)
    assert len(result.details["p_values"]) == 11
    assert result.details["num_tests"] == 17
    assert "at level 5.9e-08 (1e-6 over 17 p-values)" in result.details["power_is"]
    assert len(merged([run.statistics])) == 10
