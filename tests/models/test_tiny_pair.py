"""The shipped pair: its files are what the card says, and the head knows its target."""

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rheocheck.audit
from rheocheck.gpu.eagle3 import Eagle3Head
from rheocheck.gpu.eagle3_loading import load_head
from rheocheck.models import tiny_recipe as recipe
from rheocheck.models.test_time_training import agreement
from rheocheck.models.tiny_pair import VOCAB_SIZE, ByteTokenizer, tiny_paths

os.environ["HF_HUB_OFFLINE"] = "1"
CARD = tiny_paths()[0].parent / "MODEL_CARD.md"
torch.set_num_threads(1)


@cache
def load_target() -> Any:
    from transformers import LlamaForCausalLM

    # No dtype is named on purpose: the plain call must give the model that the card describes.
    model: Any = LlamaForCausalLM.from_pretrained(tiny_paths()[0])
    return model.eval().requires_grad_(False)


@cache
def load_draft() -> Eagle3Head:
    embedding = load_target().get_input_embeddings().weight
    return load_head(tiny_paths()[1], embedding=embedding, num_target_layers=recipe.NUM_LAYERS)


def held_out_windows(count: int = 48, length: int = 80) -> torch.Tensor:
    """[windows, length] the committed prompts, joined by spaces; training never saw their files."""
    path = Path(rheocheck.audit.__file__).parent / "data" / "prompts.jsonl"
    prompts = [json.loads(line)["prompt"] for line in path.read_text().splitlines()]
    tokens = ByteTokenizer().encode(" ".join(prompts))[: count * length]
    return torch.tensor(tokens).reshape(count, length)


def agreement_on_prompts(head: Eagle3Head) -> list[float]:
    windows = held_out_windows()
    seen = recipe.run_target(load_target(), windows)
    agreeing, _ = agreement(head, windows, seen.features, seen.logits, recipe.TEST_TIME_STEPS)
    return [float(share) for share in agreeing]


def test_the_files_are_those_of_the_card() -> None:
    listed = re.findall(r"^\| (\S+/\S+) \| ([\d,]+) \| ([0-9a-f]{64}) \|$", CARD.read_text(), re.M)
    assert sorted(name for name, _, _ in listed) == [
        "draft/config.json",
        "draft/model.safetensors",
        "target/config.json",
        "target/model.safetensors",
    ]
    for name, size, digest in listed:
        content = (CARD.parent / name).read_bytes()
        assert len(content) == int(size.replace(",", ""))
        assert hashlib.sha256(content).hexdigest() == digest


def test_the_pair_weighs_at_most_8_megabytes() -> None:
    assert sum(p.stat().st_size for p in CARD.parent.rglob("*") if p.is_file()) <= 8_000_000


def test_the_target_is_a_plain_float32_llama() -> None:
    target: nn.Module = load_target()
    assert {p.dtype for p in target.parameters()} == {torch.float32}
    assert 1_000_000 <= sum(p.numel() for p in target.parameters()) <= 2_000_000
    config = load_target().config
    assert config.vocab_size == VOCAB_SIZE
    assert config.num_hidden_layers >= 8
    assert config.eos_token_id == ByteTokenizer.eos_id


def test_the_draft_vocabulary_lies_between_the_support_and_the_target() -> None:
    assert 128 < load_draft().config.draft_vocab_size < VOCAB_SIZE
    assert ByteTokenizer.eos_id in load_draft().token_ids.tolist()


def test_the_target_halves_the_cost_of_single_bytes() -> None:
    """Against the entropy of the bytes taken one by one, in the same text."""
    windows = held_out_windows()
    share = torch.bincount(windows.flatten()) / windows.numel()
    entropy = float(torch.special.entr(share).sum())
    assert float(recipe.next_token_loss(load_target(), windows)) < 0.55 * entropy


def test_the_head_agrees_with_its_target_at_every_step() -> None:
    assert min(agreement_on_prompts(load_draft())) > 0.5


@pytest.mark.parametrize(
    "fused", [(1, 3, 4), (3, 5, 6), (4, 2, 5)], ids=["one low", "one high", "order"]
)
def test_wrongly_fused_layers_are_seen(
    monkeypatch: pytest.MonkeyPatch, fused: tuple[int, int, int]
) -> None:
    """An off-by-one in the layers costs agreement silently; here it is large enough to test."""
    right = agreement_on_prompts(load_draft())
    monkeypatch.setattr(recipe, "default_aux_layers", lambda layers: fused)
    assert agreement_on_prompts(load_draft())[0] < right[0] - 0.03
