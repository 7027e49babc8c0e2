"""Plain decoding that is made to say a text has the logits of plain passes over it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.gpu import hf_adapter
from rheocheck.gpu.plain_decoding import cached_logits
from rheocheck.gpu.target_check import relative_deviation
from tests.gpu.random_models import random_target

TARGET = random_target()
TEXTS = [[(5 * row + 3 * place) % 19 for place in range(1 + (4 * row) % 11)] for row in range(9)]
# The last position, the first one and some in between.
STARTS = [len(text) - 1 if row % 3 == 0 else row % len(text) for row, text in enumerate(TEXTS)]


@pytest.mark.parametrize("batch_size", [1, 4, 32])
@pytest.mark.parametrize("piece", [1, 3, None])
def test_any_shape_of_pass_gives_the_plain_logits(batch_size: int, piece: int | None) -> None:
    plain = TARGET.plain_logits(TEXTS, STARTS)
    found = cached_logits(TARGET, TEXTS, STARTS, batch_size, piece)
    assert [len(part) for part in found] == [len(part) for part in plain]
    for logits, others in zip(found, plain, strict=True):
        assert relative_deviation(logits, others) <= TARGET.logit_noise()


def test_decoding_feeds_one_token_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the comparison is with what decoding does, and not with one pass under another name."""
    widths: list[int] = []
    right = hf_adapter.plain_step

    def noted(hf: Any, token: Tensor, *given: Any) -> Tensor:
        widths.append(token.shape[1])
        return right(hf, token, *given)

    monkeypatch.setattr(hf_adapter, "plain_step", noted)
    cached_logits(TARGET, [[1, 2, 3, 4, 5]], [1])
    assert widths == [2, 1, 1, 1]


def test_a_shifted_position_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = hf_adapter.plain_step

    def wrong(hf: Any, token: Tensor, position: Tensor, *given: Any) -> Tensor:
        return right(hf, token, position + (position > 2), *given)

    monkeypatch.setattr(hf_adapter, "plain_step", wrong)
    (found,) = cached_logits(TARGET, [[1, 2, 3, 4, 5]], [1])
    (plain,) = TARGET.plain_logits([[1, 2, 3, 4, 5]], [1])
    assert torch.equal(found[:1], plain[:1]) or relative_deviation(found[:1], plain[:1]) < 1e-4
    assert relative_deviation(found, plain) > 0.01


def test_no_sequences_have_no_logits() -> None:
    assert cached_logits(TARGET, [], []) == []
