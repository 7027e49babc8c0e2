"""Small random targets for tests; scaled so that attention matters to the logits."""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rheocheck.gpu import hf_adapter
from rheocheck.gpu.target import TargetModel

VOCAB = 19


def random_llama(
    *,
    vocab: int = VOCAB,
    hidden: int = 16,
    layers: int = 8,
    attention: str = "sdpa",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    **more: Any,
) -> LlamaForCausalLM:
    """A model with grouped keys, whose logits have a spread of some units."""
    torch.manual_seed(seed)
    # Untyped: the versions of transformers annotate these two classes differently.
    config_class: Any = LlamaConfig
    model_class: Any = LlamaForCausalLM
    config = config_class(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=attention,
        **more,
    )
    model: LlamaForCausalLM = model_class(config).to(dtype)
    return model


def random_target(*, check: bool = True, **settings: Any) -> TargetModel:
    """`random_llama`, wrapped."""
    return TargetModel(hf_adapter.wrap(random_llama(**settings)), check=check)
