"""The numerics stage on made-up laws: what is rounding, what is a fault, what cannot be said."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rheocheck.audit.emissions import Emitted
from rheocheck.audit.findings import StageFindings, settle
from rheocheck.audit.law_distance import LawDistances, join_distances, law_distances
from rheocheck.audit.numerics import numerics_stage
from rheocheck.audit.numerics_findings import (
    NumericsFindings,
    compare_laws,
    join_numerics,
    plain_pass,
)
from rheocheck.audit.numerics_judgement import NumericsRun
from rheocheck.audit.numerics_report import report_apart
from rheocheck.certificate import StageResult, Verdict

VOCAB = 30
BF16_NOISE = 0.06


def laws(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits)
    found: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return found


def always(logits: torch.Tensor, texts: Any, starts: Any) -> list[torch.Tensor]:
    """A plain pass over one text."""
    return [logits]


def findings(
    num_prompts: int = 40,
    noise: float = 1e-6,
    null_noise: float = 1e-6,
    tokens: int = 12,
    seed: int = 0,
) -> NumericsFindings:
    """Prompts whose verifier has noise on its logits, and one null shape with noise of its own."""
    rng = np.random.default_rng(seed)
    parts = []
    for prompt in range(num_prompts):
        logits = rng.normal(size=(tokens, VOCAB)) * 3
        plain, rounding = laws(logits), np.full(tokens, BF16_NOISE)
        other = laws(logits + noise * rng.normal(size=logits.shape))
        null = laws(logits + null_noise * rng.normal(size=logits.shape))
        row = Emitted(1, [0, *range(tokens)], list(other), [], [], [(0, t) for t in range(tokens)])
        padded = torch.as_tensor(np.vstack([logits, logits[:1]]))
        noise_of = BF16_NOISE / float(np.abs(logits).max())
        pass_of = plain_pass({prompt: row}, partial(always, padded), 1.0, noise_of)
        found = compare_laws({prompt: row}, pass_of)
        arm = {"shape": law_distances(null, plain, rounding)}
        parts.append(replace(found, null=arm, null_prompts=1))
    return join_numerics(parts)


def stage(found: NumericsFindings, dtype: str = "torch.float32") -> StageResult:
    """The stage, settled by itself."""
    return settle([numerics_stage([NumericsRun(1.0, found)], dtype, "replay")])[0]


def planted(found: NumericsFindings, distance: float, every: int = 0) -> NumericsFindings:
    """The same with a distance put at one token, or at every so-many-th."""
    values = found.distances.total_variation.copy()
    values[7 :: every or len(values)] = distance
    worst = {**(found.worst or {}), "total_variation": distance, "prompt": 0, "position": 7}
    distances = replace(found.distances, total_variation=values)
    return replace(found, distances=distances, worst=worst)


def test_rounding_of_single_precision_is_no_fault_and_500_prompts_bound_its_mean() -> None:
    few, many = stage(findings()), stage(findings(500, tokens=2))
    assert few.verdict is Verdict.NO_EVIDENCE and few.claim is None
    assert few.threshold == 1e-3 and few.statistic is not None and few.statistic < 1e-5
    assert many.verdict is Verdict.CERTIFIED
    assert many.claim is not None and "0.92%" in many.claim


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.float64"])
def test_a_distance_above_a_thousandth_is_lossy_in_single_precision(dtype: str) -> None:
    result = stage(findings(noise=0.01), dtype)
    assert result.verdict is Verdict.LOSSY
    witness = result.details["witness"]
    assert witness["total_variation"] == result.statistic
    assert witness["total_variation"] > 1e-3
    assert {"prompt", "round", "position", "token", "verifier", "plain"} <= witness.keys()
    assert witness["verifier"] != witness["plain"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("null_noise", [0.02, 0.01])
def test_noise_like_the_null_arms_is_no_fault_in_half_precision(
    seed: int, null_noise: float
) -> None:
    """Also where verification's kernels are twice as noisy as the plain ones."""
    result = stage(findings(noise=0.02, null_noise=null_noise, seed=seed), "torch.bfloat16")
    assert result.verdict is Verdict.NO_EVIDENCE
    (row,) = result.details["per_temperature"]
    assert 0.001 < row["noise_floor"] < row["noise_max_tv"] < 0.03
    assert row["mean_above_floor_p"] == 1.0


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_one_token_far_beyond_the_null_arm_is_lossy_in_half_precision(dtype: str) -> None:
    """The distance that earlier passed unjudged in half precision."""
    result = stage(planted(findings(noise=0.02, null_noise=0.02), 0.4), dtype)
    assert result.verdict is Verdict.LOSSY
    assert result.details["witness"]["position"] == 7
    assert "too far apart for rounding" in result.details["witness"]["what"]


def test_many_tokens_above_the_floor_are_lossy_though_none_is_by_itself() -> None:
    """Every token 3 % off: below the token limit of 6 %, above a floor of 1 %."""
    found = planted(findings(200, noise=0.02, null_noise=0.02), 0.03, every=1)
    result = stage(found, "torch.bfloat16")
    assert result.statistic is not None and result.threshold is not None
    assert result.statistic <= result.threshold
    assert result.verdict is Verdict.LOSSY
    assert "mean over prompts" in result.details["witness"]["what"]
    (row,) = result.details["per_temperature"]
    assert row["mean_tv_lower_bound"] > row["noise_floor"] + 0.002
    few = stage(planted(findings(12, noise=0.02, null_noise=0.02), 0.03, every=1), "torch.bfloat16")
    assert few.verdict is Verdict.SUSPECT


def test_a_mean_below_the_tolerance_is_no_fault() -> None:
    found = findings(200, noise=0.02, null_noise=0.02)
    (row,) = stage(found, "torch.bfloat16").details["per_temperature"]
    result = stage(planted(found, row["noise_floor"] + 0.0015, every=1), "torch.bfloat16")
    assert result.verdict is Verdict.NO_EVIDENCE


def test_the_floor_is_the_noisiest_shapes_95_percent_quantile() -> None:
    found = findings(noise=0.02, null_noise=0.02)
    arm = found.null["shape"]
    quiet = replace(arm, total_variation=np.zeros(len(arm)))
    result = stage(replace(found, null={"quiet": quiet, "shape": arm}), "torch.bfloat16")
    (row,) = result.details["per_temperature"]
    assert row["noise_floor"] == pytest.approx(np.quantile(arm.total_variation, 0.95))
    assert [item["shape"] for item in result.details["null_arm"]] == ["quiet", "shape"]


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_no_tokens_are_inconclusive(dtype: str) -> None:
    none = np.zeros(0, dtype=np.int64)
    found = NumericsFindings(none, none, none, join_distances([]), None, None, {}, 0)
    result = stage(found, dtype)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no tokens were emitted" in result.details["summary"]
    assert numerics_stage([], dtype, "").result.verdict is Verdict.INCONCLUSIVE


def test_plain_passes_that_differ_from_plain_passes_are_inconclusive_and_say_so() -> None:
    single = stage(findings(null_noise=0.01))
    assert single.verdict is Verdict.INCONCLUSIVE
    assert "plain passes differ from plain passes" in single.details["summary"]
    half = stage(findings(noise=0.02, null_noise=0.5), "torch.bfloat16")
    assert half.verdict is Verdict.INCONCLUSIVE
    # A fault far above even that is still one.
    both = stage(planted(findings(null_noise=0.01), 0.9))
    assert both.verdict is Verdict.LOSSY


def test_a_floor_of_few_tokens_is_inconclusive_unless_no_rounding_does_it() -> None:
    found = findings(2, noise=0.02, null_noise=0.02)
    result = stage(found, "torch.bfloat16")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "needs 100 tokens of plain passes and had 24" in result.details["summary"]
    assert stage(planted(found, 0.4), "torch.bfloat16").verdict is Verdict.LOSSY


def test_a_law_that_is_not_a_number_is_as_far_as_can_be() -> None:
    plain = laws(np.random.default_rng(0).normal(size=(3, VOCAB)))
    other = plain.copy()
    other[1, 4] = np.nan
    found = law_distances(other, plain, np.zeros(3))
    assert found.total_variation.tolist() == [0.0, 1.0, 0.0]
    assert found.is_unexplained_flip.tolist() == [False, True, False]
    assert np.isfinite(found.divergence).all()


def test_a_flip_within_rounding_is_explained_and_one_beyond_is_lossy() -> None:
    plain = np.array([[0.5, 0.48, 0.02], [0.5, 0.3, 0.2]])
    other = np.array([[0.49, 0.491, 0.019], [0.39, 0.4, 0.21]])
    found = law_distances(other, plain, np.full(2, 0.03))
    assert found.is_flip.tolist() == [True, True]
    assert found.gap == pytest.approx([np.log(0.5 / 0.48), np.log(0.5 / 0.3)])
    assert found.margin == pytest.approx(found.gap)
    assert found.is_unexplained_flip.tolist() == [False, True]
    quiet = findings(noise=0.0)
    flip = {"prompt": 3, "round": 0, "position": 1, "gap": 0.5, "rounding": 0.06}
    result = stage(replace(quiet, flip=flip), "torch.bfloat16")
    assert result.verdict is Verdict.LOSSY
    assert result.details["witness"]["gap"] == 0.5
    assert "most probable token" in result.details["witness"]["what"]


def test_divergence_by_hand_with_zeros_on_either_side() -> None:
    plain = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    other = np.array([[0.25, 0.5, 0.25], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    found = law_distances(other, plain, np.zeros(3))
    assert found.divergence[:2] == pytest.approx([0.5 * np.log(2), np.log(2)])
    # Half the plain mass where the other law has none: finite, and large.
    assert 350 < found.divergence[2] < 360
    assert found.total_variation == pytest.approx([0.25, 0.5, 0.5])


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(0, 3))
@settings(max_examples=60, deadline=None)
def test_distances_obey_pinsker_and_the_bound_on_rounding(
    seed: int, vocab: int, rounding: float
) -> None:
    """TV <= sqrt(KL / 2), and log-weights moved by e change a law by at most tanh(e / 2)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(8, vocab)) * 4
    moved = logits + rounding * rng.choice([-1.0, 1.0], size=logits.shape)
    found = law_distances(laws(moved), laws(logits), np.full(8, rounding))
    variation = found.total_variation
    assert (variation <= np.sqrt(found.divergence / 2) + 1e-12).all()
    assert (variation <= found.rounding_variation + 1e-12).all()
    assert not found.is_unexplained_flip[found.gap < 2 * rounding - 1e-9].any()
    assert (found.divergence >= 0).all() and (found.margin >= 0).all()


def test_a_law_moved_by_opposite_roundings_reaches_the_bound() -> None:
    logits = np.array([[0.15, -0.15]])
    found: LawDistances = law_distances(laws(-logits), laws(logits), np.array([0.3]))
    assert found.total_variation[0] == pytest.approx(found.rounding_variation[0])


def test_both_terms_are_reported_apart_and_the_details_are_json() -> None:
    per_temperature = [{"max_tv": 1e-16, "mean_tv_bound": 0.0092}]
    whitebox = StageResult(
        name="whitebox",
        verdict=Verdict.CERTIFIED,
        sample_size=500,
        details={"per_temperature": per_temperature},
    )
    other = StageFindings(StageResult(name="sampled", verdict=Verdict.NO_EVIDENCE))
    found = numerics_stage([NumericsRun(1.0, findings())], "torch.float32", "")
    for reported in report_apart(other, found, whitebox):
        first, second = reported.result.details["two_terms"]
        assert first["largest"] == 1e-16 and 1e-7 < second["largest"] < 1e-5
        summary = reported.result.details["summary"]
        assert "TV(output, verifier's law) at most 1e-16 at 500 nodes" in summary
        assert "TV(verifier's law, plain) at most" in summary
        json.dumps(reported.result.details, allow_nan=False)
    unseen = whitebox.model_copy(update={"sample_size": 0})
    assert (
        "not measured (no nodes)" in report_apart(other, found, unseen)[0].result.details["summary"]
    )


def test_findings_of_parts_join_to_the_whole() -> None:
    one, two = findings(3, seed=1), findings(4, seed=2)
    whole: Any = join_numerics([one, two])
    assert len(whole.distances) == len(one.distances) + len(two.distances)
    assert len(whole.null["shape"]) == len(whole.distances)
    assert whole.null_prompts == 7
    assert whole.worst["total_variation"] == whole.distances.total_variation.max()
