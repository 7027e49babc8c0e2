"""The shift detector on real laws: text drawn from the embedded tiny target."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rheocheck.models.tiny_pair import ByteTokenizer, tiny_paths
from rheocheck.stats.stale import detect_shift

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="module")
def drawn() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """[rows, 257] laws of one text of 80 tokens at temperature 1, and its tokens."""
    from transformers import LlamaForCausalLM

    torch.set_num_threads(1)
    model: Any = LlamaForCausalLM.from_pretrained(tiny_paths()[0])
    model.eval().requires_grad_(False)
    rng = np.random.default_rng(1)
    text = ByteTokenizer().encode("The history of ")
    laws: list[NDArray[np.float64]] = []
    tokens: list[int] = []
    for _ in range(80):
        logits = model(torch.tensor([text + tokens])).logits[0, -1]
        law = torch.softmax(logits.double(), dim=-1).numpy()
        tokens.append(int(rng.choice(len(law), p=law / law.sum())))
        laws.append(law)
    return np.array(laws), np.array(tokens)


def test_laws_in_place_are_in_place(drawn: tuple[Any, Any]) -> None:
    assert detect_shift(*drawn).found == 0


@pytest.mark.parametrize("shift", [1, -1])
def test_eighty_tokens_place_shifted_laws(drawn: tuple[Any, Any], shift: int) -> None:
    laws, token = drawn
    found = detect_shift(np.roll(laws, shift, axis=0), token)
    assert found.found == shift and found.p_value(0) < 1e-9
