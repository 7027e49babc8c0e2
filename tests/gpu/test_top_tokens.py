"""Exact selection of the largest logits: a full stable sort's answer on rows made to mislead it."""

import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from torch import Tensor

from rheocheck.gpu import top_tokens
from rheocheck.gpu.top_tokens import Fault
from rheocheck.gpu.top_tokens import find_fault as plain_find_fault
from rheocheck.gpu.top_tokens import rank_support as plain_rank_support

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
rank_support = jaxtyped(typechecker=beartype)(plain_rank_support)
find_fault = jaxtyped(typechecker=beartype)(plain_find_fault)


def stable_sort(logits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    wide = logits.double() + 0.0
    ranked, index = wide.sort(dim=-1, descending=True, stable=True)
    return index[..., :size], ranked[..., :size]


def misleading_rows(vocab: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """[12, vocab] rows with ties within and across blocks, at both ends, and almost everywhere."""
    token = torch.arange(vocab)
    noise = torch.randn(vocab, generator=generator)
    tiny = torch.finfo(dtype).smallest_normal
    rows = [
        noise,
        torch.zeros(vocab),
        torch.full((vocab,), -INF).index_fill(0, token[-1:], -3.0),
        torch.where(noise > 0, 1.0, 0.5),
        torch.where(token % 8 == 7, 2.0, noise.round()),
        torch.where(token % 64 == 0, 1.0, -1.0),
        torch.where(noise > 0, 0.0, -0.0),
        noise * tiny / 16,
        -token.float(),
        token.float() // 5,
        torch.where(torch.rand(vocab, generator=generator) < 0.99, -INF, noise),
        torch.where(token >= vocab - 3, 9.0, (noise * 2).round() / 2),
    ]
    return torch.stack([row.to(dtype) for row in rows])


# 2047 to 2049: where blocks begin to be used; 32,000 and 4,111: with and without a rest after the
# whole blocks; 65,536 and 70,001: wide blocks.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 7, 2047, 2048, 2049, 4111, 32_000, 65_536, 70_001])
def test_the_support_is_a_full_stable_sorts(vocab: int, dtype: torch.dtype) -> None:
    logits = misleading_rows(vocab, dtype, torch.Generator().manual_seed(vocab))
    whole = stable_sort(logits, vocab)
    for size in {1, 2, 31, 32, 128, min(vocab, 500)}:
        index, ranked = rank_support(logits, size)
        assert torch.equal(index, whole[0][:, :size]), size
        assert torch.equal(ranked, whole[1][:, :size]), size


@settings(deadline=None, max_examples=60)
@given(
    vocab=st.integers(2048, 2600),
    size=st.integers(1, 40),
    levels=st.integers(1, 40),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_random_ties_go_to_the_smaller_token(
    vocab: int, size: int, levels: int, dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(0, levels, (2, vocab), generator=generator).to(dtype)
    index, ranked = rank_support(logits, size)
    expected = stable_sort(logits, size)
    assert torch.equal(index, expected[0]) and torch.equal(ranked, expected[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_float_values_have_their_order(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    values = [info.max, 1.0, info.smallest_normal, info.smallest_normal / 4, 0.0]
    row = torch.tensor([*values, *(-value for value in values[::-1]), -INF], dtype=dtype)
    flipped = row.flip(0).unsqueeze(0)
    index, ranked = rank_support(flipped, 11)
    # -0.0 stands before 0.0 in the row and ties with it.
    assert index.tolist() == [[10, 9, 8, 7, 5, 6, 4, 3, 2, 1, 0]]
    assert ranked[0].tolist() == row.double().tolist()


def test_no_rows_and_many_axes() -> None:
    for shape in ((0, 3000), (2, 0, 40), (3, 2, 3000)):
        logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        index, ranked = rank_support(logits, 16)
        expected = stable_sort(logits, 16)
        assert torch.equal(index, expected[0]) and torch.equal(ranked, expected[1])
        assert find_fault(logits).shape == shape[:-1]


def test_a_view_with_gaps_is_read_right() -> None:
    logits = torch.randn(4, 9000, generator=torch.Generator().manual_seed(1))[::2, 1:8001:2]
    assert not logits.is_contiguous()
    assert torch.equal(rank_support(logits, 50)[0], stable_sort(logits, 50)[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 3000])
def test_faults_are_told_by_row(vocab: int, dtype: torch.dtype) -> None:
    logits = torch.zeros(6, vocab, dtype=dtype)
    logits[1, vocab // 2] = NAN
    logits[2, -1] = INF
    logits[3] = -INF
    logits[4, 1:] = -INF
    logits[5, 0], logits[5, -1] = INF, NAN
    fault = find_fault(logits).tolist()
    assert fault == [
        Fault.NONE, Fault.NAN, Fault.INFINITE, Fault.EMPTY, Fault.NONE, Fault.NAN,
    ]  # fmt: skip
    # Whatever a bad row gives, its indices are tokens and its neighbours are untouched.
    index, _ = rank_support(logits, 2)
    assert bool(((index >= 0) & (index < vocab)).all())
    assert torch.equal(index[[0, 4]], rank_support(logits[[0, 4]], 2)[0])


@pytest.mark.parametrize("bits", [0xFFC00000, 0x7FC00000, 0xFFFFFFFF])
def test_a_nan_of_either_sign_is_a_fault(bits: int) -> None:
    row = torch.zeros(1, 5000)
    row.view(torch.int32)[0, 4321] = bits - 2**32 if bits >= 2**31 else bits
    assert find_fault(row).tolist() == [Fault.NAN]
    assert bool((rank_support(row, 7)[0] < 5000).all())
    row = row[:, 4321:4322].expand(2, 5003).contiguous()
    assert bool((rank_support(row, 70)[0] < 5003).all())


def test_blocks_in_any_order_of_ties_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has teeth: `topk` on the maxima alone takes blocks as it likes."""
    logits = torch.zeros(1, 4096)

    def careless(
        values: Tensor, position: Tensor, size: int, *, in_order: bool
    ) -> tuple[Tensor, Tensor]:
        flipped = values.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :size]
        place = values.shape[-1] - 1 - flipped
        return position.expand(values.shape).gather(-1, place), place

    expected = stable_sort(logits, 8)[0]
    assert torch.equal(rank_support(logits, 8)[0], expected)
    monkeypatch.setattr(top_tokens, "_first_of_few", careless)
    assert not torch.equal(rank_support(logits, 8)[0], expected)
