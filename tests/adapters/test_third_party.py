"""Hugging Face's and EAGLE's verifiers run as they stand, in rationals and in floats."""

from fractions import Fraction
from typing import Any

import pytest

from rheocheck.adapters.eagle import Eagle
from rheocheck.adapters.eagle_rule import EagleRule
from rheocheck.adapters.huggingface import HuggingFace
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.certificate import Verdict
from rheocheck.errors import InputError
from rheocheck.protocols import Sampler
from rheocheck.reference import exact_law
from tests.adapters.standard_laws import EXACT, distances, draft, target

torch = pytest.importorskip("torch")
TABLES = [
    EagleRule((0, 1), 2),
    EagleRule((0, 1, 2), 1),
    EagleRule((0, 0), 2),
    EagleRule((0, 0, 1), 2),
    EagleRule((1, 0, 1), 1),
    EagleRule((0, 1), 1, sampled=True),
]
# What float64 and float32 laws may differ by at these sizes: a few units in the last place.
ROUNDING = {"float64": 1e-15, "float32": 1e-6}


@pytest.fixture
def hugging_face() -> None:
    pytest.importorskip("transformers")


@pytest.fixture
def original_eagle() -> None:
    """EAGLE's own function; put a checkout of SafeAILab/EAGLE on PYTHONPATH to run its tests."""
    pytest.importorskip("transformers")
    pytest.importorskip("eagle.model.utils")


def point_mass_verifier(logits: Any, candidates: Any, processor: Any) -> Any:
    """EAGLE's interface over the point-mass rule in torch: a stand-in for the original in tests.

    Returns the best row, how many candidates were accepted, and the law of the last token.
    """
    import random

    row, depth = 0, 0
    while True:
        prefix = candidates[row, : depth + 1]
        residual = torch.softmax(processor(None, logits[row, depth][None])[0], dim=0)
        if depth + 1 == candidates.shape[1]:
            return row, depth, residual
        same = (candidates[:, : depth + 1] == prefix).all(dim=1).tolist()
        tried = {-1}
        accepted = None
        for other, matches in enumerate(same):
            token = int(candidates[other, depth + 1])
            if not matches or token in tried:
                continue
            tried.add(token)
            if residual[token] > random.random():
                accepted = other
                break
            residual = residual.clone()
            residual[token] = 0
            residual = residual / residual.sum()
        if accepted is None:
            return row, depth, residual
        row, depth = accepted, depth + 1


def emitted(sampler: Sampler) -> dict[Any, Fraction]:
    return exact_law(lambda choose: sampler(target, draft, choose))


@pytest.mark.usefixtures("hugging_face")
@pytest.mark.parametrize("length", [1, 2, 3])
def test_hugging_face_is_lossless_in_rationals(length: int) -> None:
    assert distances(HuggingFace(length)) == EXACT


@pytest.mark.usefixtures("hugging_face")
@pytest.mark.parametrize("arithmetic", ROUNDING)
def test_hugging_face_in_floats_is_off_by_rounding_only(arithmetic: Any) -> None:
    sampler = HuggingFace(2, arithmetic)
    _, joint = distances(sampler)
    assert 0 < joint < ROUNDING[arithmetic]
    assert joint < sampler.tolerance


@pytest.mark.usefixtures("hugging_face")
def test_hugging_face_is_certified_and_accepts_zero_probability_at_zero() -> None:
    stage = sampler_stage(HuggingFace(), "hf", quick=True, max_vocab=2)
    assert stage.verdict is Verdict.CERTIFIED
    (found, *_) = stage.details["endpoint_findings"]
    assert found["finding"] == "accepts zero probability at u = 0"
    assert found["probability"] == str(Fraction(1, 2**53))


@pytest.mark.usefixtures("hugging_face")
def test_hugging_face_with_an_ensemble_weight_is_lossy_by_an_exact_figure() -> None:
    import inspect

    from transformers.generation import utils

    if "assistant_ensemble_weight" not in inspect.signature(utils._speculative_sampling).parameters:
        pytest.skip("this transformers has no assistant_ensemble_weight")
    assert distances(HuggingFace(2, ensemble_weight=0.5)) == (Fraction(5, 24), Fraction(61, 288))
    assert distances(HuggingFace(2, ensemble_weight=1.0)) == EXACT
    stage = sampler_stage(HuggingFace(1, ensemble_weight=0.5), "hf", quick=True, max_vocab=2)
    assert stage.verdict is Verdict.LOSSY


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_the_eagle_adapter_has_the_law_of_the_rule_written_anew(table: EagleRule) -> None:
    assert emitted(Eagle(table, function=point_mass_verifier)) == emitted(table)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_the_eagle_adapter_in_float64_is_off_by_rounding_only(table: EagleRule) -> None:
    _, joint = distances(Eagle(table, "float64", point_mass_verifier))
    assert joint < ROUNDING["float64"]


def test_an_eagle_verifier_that_keeps_a_tried_sibling_is_found() -> None:
    def forgetful(logits: Any, candidates: Any, processor: Any) -> Any:
        row, depth, _ = point_mass_verifier(logits, candidates, processor)
        return row, depth, torch.softmax(logits[row, depth], dim=0)

    lossy = Eagle(EagleRule((0, 1), 1), function=forgetful)
    assert distances(lossy)[1] > 0
    stage = sampler_stage(lossy, "forgetful", quick=True, max_vocab=2)
    assert stage.verdict is Verdict.LOSSY


@pytest.mark.usefixtures("original_eagle")
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_the_original_eagle_has_the_law_of_the_rule_written_anew(table: EagleRule) -> None:
    assert emitted(Eagle(table)) == emitted(table)
    assert distances(Eagle(table)) == EXACT


@pytest.mark.usefixtures("original_eagle")
@pytest.mark.parametrize("arithmetic", ROUNDING)
def test_the_original_eagle_in_floats_is_off_by_rounding_only(arithmetic: Any) -> None:
    _, joint = distances(Eagle(TABLES[0], arithmetic))
    assert joint < ROUNDING[arithmetic]


@pytest.mark.usefixtures("original_eagle")
def test_the_original_eagle_accepts_zero_probability_at_zero() -> None:
    stage = sampler_stage(Eagle(), "eagle", quick=True, max_vocab=2)
    assert stage.verdict is Verdict.CERTIFIED
    assert stage.details["endpoint_findings"][0]["probability"] == str(Fraction(1, 2**53))


def test_an_unknown_arithmetic_is_refused() -> None:
    with pytest.raises(InputError, match="arithmetic is 'float8'; required: one of exact"):
        HuggingFace(arithmetic="float8")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="arithmetic is 'float8'"):
        Eagle(arithmetic="float8")  # type: ignore[arg-type]


def test_a_missing_eagle_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    from rheocheck.adapters import eagle

    monkeypatch.setitem(sys.modules, "eagle.model.utils", None)
    eagle._evaluate_posterior.cache_clear()
    with pytest.raises(InputError, match="required: a checkout of"):
        eagle._evaluate_posterior()
    importlib.invalidate_caches()
