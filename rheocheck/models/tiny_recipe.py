"""What the tiny pair is made of: both shapes, both training stages, and how they are measured."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rheocheck.gpu.eagle3 import Eagle3Head, HeadConfig, default_aux_layers
from rheocheck.models.stages import Stage
from rheocheck.models.test_time_training import agreement, test_time_loss
from rheocheck.models.tiny_pair import END_OF_TEXT, VOCAB_SIZE

# Eight layers, so that the three fused hidden states differ.
NUM_LAYERS = 8
DRAFT_VOCAB = 160
TEST_TIME_STEPS, TEST_TIME_DECAY = 5, 0.8

SHARED_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": END_OF_TEXT,
    "pad_token_id": None,
    # The files hold half precision; the models are defined as their float32 images.
    "torch_dtype": "float32",
}
TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    **SHARED_CONFIG,
    "num_hidden_layers": NUM_LAYERS,
    "attention_bias": False,
    "mlp_bias": False,
    "initializer_range": 0.05,
    "use_cache": True,
}
DRAFT_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    **SHARED_CONFIG,
    "draft_vocab_size": DRAFT_VOCAB,
    "num_hidden_layers": 1,
}
TARGET_STAGE = Stage(
    "target", steps=1800, learning_rate=3e-3, clip=1.0, weight_decay=0.05, batch=8, length=256
)
HEAD_STAGE = Stage(
    "head", steps=900, learning_rate=1.5e-3, clip=0.5, weight_decay=0.0, batch=8, length=256
)


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """What the head needs of the target.

    Attributes:
      logits: [batch, length, vocab].
      features: [batch, length, 3 * hidden] the fused hidden states, lowest layer first.
    """

    logits: Tensor
    features: Tensor


@dataclass(frozen=True, slots=True)
class Figures:
    """Held-out measurements of a pair.

    Attributes:
      nats: Mean negative log likelihood of the target, a token (a byte, or an end of text).
      agreement: Of each test-time step, how often the head's favourite is the target's.
      overlap: Of each step, mean of sum min(target, draft) at temperature 1.
      tokens: Predicted tokens behind `nats`.
    """

    nats: float
    agreement: list[float]
    overlap: list[float]
    tokens: int


def build_target(seed: int) -> nn.Module:
    """A Llama with fresh weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    model: nn.Module = LlamaForCausalLM(LlamaConfig.from_dict(TARGET_CONFIG))
    return model


def build_head(embedding: Tensor, token_ids: Tensor, seed: int) -> Eagle3Head:
    """A head with fresh weights, a frozen embedding and a draft vocabulary.

    Args:
      embedding: [vocab, hidden] the trained target's.
      token_ids: [draft_vocab] increasing target tokens.
      seed: Of the initial weights.
    """
    vocab, width = embedding.shape
    torch.manual_seed(seed)
    head = Eagle3Head(
        HeadConfig(
            vocab_size=vocab,
            draft_vocab_size=len(token_ids),
            hidden_size=width,
            target_hidden_size=width,
            intermediate_size=DRAFT_CONFIG["intermediate_size"],
            num_heads=DRAFT_CONFIG["num_attention_heads"],
            num_kv_heads=DRAFT_CONFIG["num_key_value_heads"],
            head_dim=width // DRAFT_CONFIG["num_attention_heads"],
            aux_layers=default_aux_layers(NUM_LAYERS),
            rms_norm_eps=DRAFT_CONFIG["rms_norm_eps"],
            rope_theta=DRAFT_CONFIG["rope_theta"],
        )
    )
    head.d2t.copy_(token_ids - torch.arange(len(token_ids)))
    head.t2d.zero_()[token_ids] = True
    head.embed_tokens.weight.data.copy_(embedding)
    head.embed_tokens.requires_grad_(False)
    return head


def frequent_tokens(tokens: NDArray[np.int64], count: int) -> Tensor:
    """[count] the most frequent tokens of a stream, ties by lowest id, in increasing order."""
    frequency = np.bincount(tokens, minlength=VOCAB_SIZE)
    chosen = np.argsort(-frequency, kind="stable")[:count]
    return torch.from_numpy(np.sort(chosen))


def next_token_loss(target: nn.Module, window: Tensor) -> Tensor:
    """Mean nats a token of a [batch, length] window, its first token excepted."""
    logits = target(input_ids=window, use_cache=False).logits
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), window[:, 1:].flatten())


@torch.no_grad()
def run_target(target: nn.Module, window: Tensor) -> TargetOutput:
    """One frozen pass over a [batch, length] window."""
    output = target(input_ids=window, use_cache=False, output_hidden_states=True)
    fused = [output.hidden_states[layer] for layer in default_aux_layers(NUM_LAYERS)]
    return TargetOutput(output.logits, torch.cat(fused, dim=-1))


def head_loss(target: nn.Module, head: Eagle3Head, window: Tensor) -> Tensor:
    """The training-time test's loss on a [batch, length] window; the target is not trained."""
    seen = run_target(target, window)
    return test_time_loss(
        head, window, seen.features, seen.logits, TEST_TIME_STEPS, TEST_TIME_DECAY
    )


@torch.no_grad()
def evaluate(
    target: nn.Module, head: Eagle3Head, tokens: NDArray[np.int64], windows: int
) -> Figures:
    """Measure a pair on windows spread evenly over a held-out stream, 16 at a time.

    Args:
      target: The target.
      head: Its head.
      tokens: [tokens] stream, at least a window long.
      windows: How many; a multiple of 16.
    """
    length = TARGET_STAGE.length
    starts = np.linspace(0, len(tokens) - length, windows).astype(np.int64)
    losses, agreements, overlaps = [], [], []
    for chunk in np.split(starts, windows // 16):
        window = torch.from_numpy(tokens[chunk[:, None] + np.arange(length)])
        seen = run_target(target, window)
        losses.append(next_token_loss(target, window).item())
        agreeing, overlap = agreement(head, window, seen.features, seen.logits, TEST_TIME_STEPS)
        agreements.append(agreeing)
        overlaps.append(overlap)
    return Figures(
        nats=float(np.mean(losses)),
        agreement=torch.stack(agreements).mean(0).tolist(),
        overlap=torch.stack(overlaps).mean(0).tolist(),
        tokens=windows * (length - 1),
    )
