"""The target law against Hugging Face's own processors, and its refusals."""

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from rheocheck.config import SamplingConfig
from rheocheck.errors import InputError
from rheocheck.gpu.processing import check_logits, softmax, target_law

INF, NAN = float("inf"), float("nan")


def huggingface_law(logits: torch.Tensor, sampling: SamplingConfig) -> Any:
    """What transformers samples from: its processors in the order of its own generate()."""
    ids: Any = torch.zeros(len(logits), 1, dtype=torch.int64)
    scores = TemperatureLogitsWarper(sampling.temperature)(ids, cast(Any, logits.double()))
    if sampling.top_k_filter:
        scores = TopKLogitsWarper(sampling.top_k_filter)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    return scores.softmax(-1)


def laws_agree(logits: torch.Tensor, sampling: SamplingConfig) -> bool:
    ours, theirs = target_law(logits, sampling), huggingface_law(logits, sampling)
    # One exp and one division each; the shift by the maximum moves an argument of at most 100.
    return bool(((ours > 0) == (theirs > 0)).all()) and torch.allclose(
        ours, theirs, rtol=1e-13, atol=0
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocab=st.integers(1, 40),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 1000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
)
def test_the_law_is_hugging_faces(
    seed: int, vocab: int, temperature: float, top_k: int, top_p: float
) -> None:
    logits = torch.randn(4, vocab, generator=torch.Generator().manual_seed(seed)) * 3
    sampling = SamplingConfig(temperature=temperature, top_k_filter=top_k, top_p=top_p)
    assert laws_agree(logits, sampling)


@pytest.mark.parametrize("sampling", [SamplingConfig(top_k_filter=2), SamplingConfig(top_p=0.5)])
def test_ties_at_a_filters_cut_go_as_hugging_face_has_them(sampling: SamplingConfig) -> None:
    logits = torch.tensor([[0.0, 1.0, 1.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    assert laws_agree(logits, sampling)


def test_all_tokens_that_tie_with_the_kth_stay() -> None:
    law = target_law(torch.tensor([0.0, 1.0, 1.0, 1.0]), SamplingConfig(top_k_filter=2))
    assert law.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])


def test_top_p_drops_what_totals_at_most_the_rest() -> None:
    logits = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64).log()
    assert target_law(logits, SamplingConfig(top_p=0.75)).tolist() == pytest.approx(
        [0, 1 / 3, 2 / 3]
    )
    assert target_law(logits, SamplingConfig(top_p=1e-9)).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_gives_a_float64_law_of_its_own_values(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.3, -1.7, 2.1], [0.0, -INF, 5.0]]).to(dtype)
    law = target_law(logits, SamplingConfig())
    assert law.dtype == torch.float64
    assert torch.allclose(law, logits.double().softmax(-1), rtol=1e-14, atol=0)
    assert float(law[1, 1]) == 0


def test_temperature_zero_takes_the_first_of_the_largest() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, -INF]])
    sampling = SamplingConfig(temperature=0.0, top_k_filter=1, top_p=0.1)
    assert target_law(logits, sampling).tolist() == [[0, 1, 0, 0]]


def test_a_temperature_near_zero_neither_overflows_nor_divides_zero_by_zero() -> None:
    logits = torch.tensor([[1e30, -1e30, 1e30, 5.0]])
    assert target_law(logits, SamplingConfig(temperature=1e-300)).tolist() == [[0.5, 0, 0.5, 0]]


def test_one_finite_logit_has_probability_exactly_one() -> None:
    assert softmax(torch.tensor([-INF, 700.3, -INF]).double()).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ([0.0, NAN, NAN], "NaN at token 1"),
        ([0.0, 1.0, INF], r"\+inf at token 2"),
        ([-INF, -INF, -INF], "-inf at every token"),
    ],
)
def test_bad_rows_are_refused_by_name(bad: list[float], fault: str) -> None:
    logits = torch.tensor([[[0.0] * 3] * 2, [[0.0] * 3, bad]])
    with pytest.raises(InputError, match=rf"target logits: row 1, position \(1,\) has {fault}"):
        target_law(logits, SamplingConfig())
    law = target_law(logits, SamplingConfig(), check=False)
    assert law[1, 1].tolist() == [0, 0, 0]
    assert torch.allclose(law[0], torch.tensor(1 / 3).double())
    assert not bool(target_law(logits, SamplingConfig(temperature=0.0), check=False).isnan().any())


def test_one_bad_row_of_a_matrix_is_named() -> None:
    with pytest.raises(InputError, match="mine: row 1 has NaN at token 0; every logit must be"):
        check_logits(torch.tensor([[0.0], [NAN]]), "mine")


def test_padding_is_not_checked() -> None:
    check_logits(torch.tensor([[0.0], [NAN]]), "mine", torch.tensor([True, False]))


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="mine: the vocabulary is empty"):
        check_logits(torch.zeros(2, 0), "mine")


def test_a_rows_law_does_not_depend_on_the_number_of_rows_or_threads() -> None:
    """A sum over one long row would be split over threads; the filters' cuts would move with it."""
    values = torch.randn(40, 40_000, generator=torch.Generator().manual_seed(0)).double()
    threads, laws = torch.get_num_threads(), softmax(values)
    try:
        torch.set_num_threads(2)
        assert torch.equal(softmax(values), laws)
        alone = torch.cat([softmax(row.unsqueeze(0)) for row in values])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(alone, laws)
    assert float((laws - values.softmax(-1)).abs().max()) < 1e-15
