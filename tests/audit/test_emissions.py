"""Emitted tokens against plain passes, and the three statistical stages on made-up findings."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rheocheck.audit.acceptance import PromptRounds, acceptance_row, compared_schemes
from rheocheck.audit.emissions import Emitted, compare, join
from rheocheck.audit.findings import settle
from rheocheck.audit.node_law import NodeFinding
from rheocheck.audit.probe import ProbeRun, probe_stage
from rheocheck.audit.regrow import RegrowFinding
from rheocheck.audit.sampled import SampledRun, sampled_stage
from rheocheck.audit.token_power import NAMED_TV
from rheocheck.audit.whitebox import WhiteboxRun, whitebox_stage
from rheocheck.certificate import Verdict
from rheocheck.config import SpeculationConfig

VOCAB = 30
CONFIG = SpeculationConfig(top_k=4, num_top=1)


def emitted(num_tokens: int, seed: int = 0, mix: float = 0.0) -> tuple[dict[int, Emitted], Any]:
    """Rows whose tokens follow the plain law, mixed with `mix` of the draft's."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(num_tokens, VOCAB)) * 1.5
    plain = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    draft = rng.dirichlet(np.full(VOCAB, 0.5), size=num_tokens)
    output = (1 - mix) * plain + mix * draft
    token = (
        (rng.random(num_tokens)[:, None] > output.cumsum(axis=1)).sum(axis=1).clip(max=VOCAB - 1)
    )
    row = Emitted(
        start=1,
        text=[0, *token.tolist()],
        verified=list(plain),
        draft=list(draft),
        uniform=rng.random(num_tokens).tolist(),
        place=[(index, 0) for index in range(num_tokens)],
    )
    padded = np.concatenate([logits, logits[:1]])

    def plain_logits(texts: Any, starts: Any) -> list[torch.Tensor]:
        assert [len(text) for text in texts] == [num_tokens + 1]
        assert starts == [0]
        return [torch.as_tensor(padded)]

    return {4: row}, plain_logits


def sampled(num_tokens: int = 3000, pilot_tv: float | None = None, **more: Any) -> Any:
    rows, plain_logits = emitted(num_tokens, **more)
    run = SampledRun(1.0, compare(rows, plain_logits, 1.0, CONFIG, pilot_tv))
    return settle([sampled_stage([run], 5, "replay")])[0]


def test_right_tokens_are_no_evidence_and_say_what_would_be_seen() -> None:
    """20 seeds at 1e-3: the expected number of wrong suspicions is 0.02."""
    for seed in range(20):
        assert sampled(seed=seed).verdict is Verdict.NO_EVIDENCE
    result = sampled(pilot_tv=NAMED_TV)
    details = result.details["per_temperature"][0]
    assert 0.02 < details["detectable_tv"] < 0.2
    assert 0 < result.power < 1
    assert abs(details["plug_in_tv_z"]) < 5
    assert details["plug_in_tv_null_mean"] > 0


def test_leaked_draft_mass_is_lossy() -> None:
    """A third of the draft mixed in: TV about 0.2 on 3,000 tokens, power above 1 - 1e-6."""
    result = sampled(mix=0.33)
    assert result.verdict is Verdict.LOSSY
    assert result.details["p_values"]["draft score T=1"]["adjusted"] < 1e-6


def test_a_token_of_probability_zero_is_lossy_at_once() -> None:
    rows, plain_logits = emitted(50)
    token = rows[4].text[1 + 9]

    def without(texts: Any, starts: Any) -> list[torch.Tensor]:
        (logits,) = plain_logits(texts, starts)
        logits = logits.clone()
        logits[9, token] = -torch.inf
        return [logits]

    result = sampled_stage([SampledRun(1.0, compare(rows, without, 1.0, CONFIG))], 5, "").result
    assert result.verdict is Verdict.LOSSY
    assert result.details["witness"]["token"] == token


def test_parts_join_to_the_whole() -> None:
    parts = []
    for seed in (1, 2):
        rows, plain_logits = emitted(40, seed=seed)
        parts.append(compare(rows, plain_logits, 1.0, CONFIG))
    whole = join(parts)
    assert whole.num_tokens == 80


def nodes(values: list[float]) -> list[NodeFinding]:
    return [NodeFinding(i, 0, 0, 5, value, 3, 0.5, 0.25, None) for i, value in enumerate(values)]


def test_459_exact_nodes_are_certified_and_458_are_not() -> None:
    for count, verdict in ((459, Verdict.CERTIFIED), (458, Verdict.INCONCLUSIVE)):
        result = whitebox_stage([WhiteboxRun(1.0, nodes([1e-16] * count))], "").result
        assert result.verdict is verdict
        assert (result.claim is not None) == (verdict is Verdict.CERTIFIED)
        assert result.details["prompts_needed"] == 459


def test_one_node_off_by_more_than_rounding_is_lossy() -> None:
    result = whitebox_stage([WhiteboxRun(0.7, nodes([1e-16] * 500 + [2e-6]))], "").result
    assert result.verdict is Verdict.LOSSY
    assert result.details["witness"]["prompt"] == 500
    assert result.claim is None


def test_the_worse_temperature_decides() -> None:
    runs = [WhiteboxRun(1.0, nodes([0.0] * 500)), WhiteboxRun(0.7, nodes([0.0] * 50))]
    result = whitebox_stage(runs, "").result
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.statistic is not None and result.statistic > 0.05


def regrown(count: int, violations: int = 0, rounded: int = 0) -> list[RegrowFinding]:
    return [
        RegrowFinding(i, 0, 1, 10, rounded, {"probe_token": 1} if i < violations else None)
        for i in range(count)
    ]


def probe(findings: list[RegrowFinding], pits: NDArray[np.float64] | None = None) -> Any:
    values = np.random.default_rng(0).random(2000) if pits is None else pits
    return settle([probe_stage([ProbeRun(1.0, values, findings)], True, "")])[0]


def test_44_regrown_prompts_are_enough_and_43_are_not() -> None:
    assert probe(regrown(44)).verdict is Verdict.CERTIFIED
    assert probe(regrown(43)).verdict is Verdict.INCONCLUSIVE


def test_one_violation_is_lossy() -> None:
    result = probe(regrown(60, violations=1))
    assert result.verdict is Verdict.LOSSY
    assert result.details["witness"]["probe_token"] == 1


def test_prompts_that_rounding_hides_do_not_count() -> None:
    assert probe(regrown(60, rounded=6)).verdict is Verdict.INCONCLUSIVE
    assert probe(regrown(60, rounded=5)).verdict is Verdict.CERTIFIED


def test_pit_values_that_are_not_uniform_are_lossy() -> None:
    """Squares of 2,000 uniforms: a KS distance of 1/4."""
    skewed = np.random.default_rng(1).random(2000) ** 2
    assert probe(regrown(60), skewed).verdict is Verdict.LOSSY


def test_a_scheme_without_probes_has_nothing_to_show() -> None:
    result = probe_stage([ProbeRun(1.0, np.zeros(0), [])], False, "").result
    assert result.verdict is Verdict.CERTIFIED
    assert result.sample_size == 0


def test_acceptance_is_a_ratio_with_prompts_as_units() -> None:
    row = acceptance_row("x", 1.0, [PromptRounds(2, 6), PromptRounds(4, 6)])
    assert row["mean_accepted"] == 2.0
    # Deviations 6 - 2*2 = 2 and 6 - 2*4 = -2; sqrt(2/1 * 8) / 6.
    assert row["standard_error"] == pytest.approx(4.0 / 6.0)
    assert acceptance_row("x", 1.0, [])["mean_accepted"] == 0.0


def test_the_compared_schemes_share_the_budget() -> None:
    config = SpeculationConfig(top_k=4, num_top=4, budget=9, depth=3, rule="onehot")
    schemes = compared_schemes(config)
    assert schemes["EAGLE Top-K (one-hot)"] == config
    assert {scheme.budget for scheme in schemes.values()} == {9}
    assert schemes["Rheo + RRSw"].num_top == 3
