"""Small random targets for tests; scaled so that attention matters to the logits."""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rheocheck.gpu import hf_adapter
from rheocheck.gpu.eagle3 import Eagle3Head, HeadConfig
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
        initializer_range=0.25,
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


def random_head(
    target: TargetModel, *, draft_vocab: int | None = None, seed: int = 1
) -> Eagle3Head:
    """A head with random weights for a random target; drafts the first `draft_vocab` tokens."""
    torch.manual_seed(seed)
    config = HeadConfig(
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab or target.vocab_size,
        hidden_size=16,
        target_hidden_size=target.hidden_size,
        intermediate_size=32,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        aux_layers=(2, 4, 5),
    )
    head = Eagle3Head(config).eval().requires_grad_(False)
    # Peaked draft laws, so that scores spread and trees go deep.
    head.lm_head.weight *= 6
    return head


class OracleDrafter:
    """A drafter that knows the target: its draft law is the target's, up to rounding.

    Nearly everything it drafts is accepted, so that rounds are long and caches move far.
    """

    def __init__(self, target: TargetModel, prompts: list[list[int]], batch: int) -> None:
        self.target = target
        self.texts = [prompt[:1] for prompt in prompts[:batch]]
        self.frontier: list[list[list[int]]] = []

    token_ids = None

    def advance(self, features: torch.Tensor, token: torch.Tensor, count: torch.Tensor) -> None:
        for text, row, new in zip(self.texts, token.tolist(), count.tolist(), strict=True):
            text += row[:new]

    def keep_rows(self, rows: torch.Tensor) -> None:
        self.texts = [self.texts[row] for row in rows.tolist()]

    def root(self) -> torch.Tensor:
        self.frontier = [[text] for text in self.texts]
        return self._logits()[:, 0]

    def extend(
        self, parent: torch.Tensor, token: torch.Tensor, valid: torch.Tensor
    ) -> torch.Tensor:
        self.frontier = [
            [[*self.frontier[row][up], max(new, 0)] for up, new in zip(ups, news, strict=True)]
            for row, (ups, news) in enumerate(zip(parent.tolist(), token.tolist(), strict=True))
        ]
        return self._logits()

    def _logits(self) -> torch.Tensor:
        texts = [text for row in self.frontier for text in row]
        starts = [len(text) - 1 for text in texts]
        logits = torch.cat(self.target.plain_logits(texts, starts, batch_size=256))
        return logits.view(len(self.frontier), -1, self.target.vocab_size)
