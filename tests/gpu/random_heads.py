"""Small random EAGLE-3 heads for tests, and the head's arithmetic once more, one token at a time.

`PathByPath` shares no code with the module under test: plain loops over a state dict, keys and
values in Python lists, rotations as complex numbers. What a token sees is what was fed before it.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rheocheck.gpu.eagle3 import Eagle3Head, HeadConfig

VOCAB, DRAFT_VOCAB, TARGET_HIDDEN = 13, 9, 8
KEPT = (0, 2, 3, 5, 6, 8, 9, 11, 12)


def head_config(**changes: Any) -> HeadConfig:
    """Grouped keys, a draft vocabulary below the target's, widths that all differ."""
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "hidden_size": 12,
        "target_hidden_size": TARGET_HIDDEN,
        "intermediate_size": 20,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 6,
        "aux_layers": (2, 4, 5),
    }
    return HeadConfig(**{**shape, **changes})


def random_head(config: HeadConfig | None = None, seed: int = 0) -> Eagle3Head:
    """Weights large enough that attention, norms and positions all move the logits; float64."""
    torch.manual_seed(seed)
    head = Eagle3Head(config or head_config()).double().requires_grad_(False)
    for name, weight in head.named_parameters():
        if weight.ndim == 1:
            weight.uniform_(0.5, 1.5)
        else:
            weight.normal_(0, 3.0 if "q_proj" in name else 0.7)
    if head.config.draft_vocab_size == DRAFT_VOCAB < head.config.vocab_size:
        head.d2t.copy_(torch.tensor(KEPT) - torch.arange(DRAFT_VOCAB))
        head.t2d.zero_()[list(KEPT)] = True
    return head


class PathByPath:
    """The head fed one token after the other along a single path."""

    def __init__(self, head: Eagle3Head) -> None:
        """Nothing fed yet."""
        self.config = head.config
        self.weights: dict[str, Tensor] = {
            name: value.double() for name, value in head.state_dict().items()
        }
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.output = torch.zeros(head.config.hidden_size, dtype=torch.float64)

    def norm(self, values: Tensor, name: str) -> Tensor:
        """Root-mean-square norm of one vector."""
        size = torch.sqrt(values @ values / len(values) + self.config.rms_norm_eps)
        return values / size * self.weights[name + ".weight"]

    def linear(self, values: Tensor, name: str) -> Tensor:
        """One matrix-vector product."""
        return self.weights[name + ".weight"] @ values

    def turn(self, head: Tensor, position: int) -> Tensor:
        """Rotate the pairs (i, i + half) of one head."""
        half = len(head) // 2
        speed = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        phase = torch.polar(torch.ones_like(speed), position * speed)
        turned = torch.complex(head[:half], head[half:]) * phase
        return torch.cat((turned.real, turned.imag))

    def feed_verified(self, features: Tensor, token: int) -> Tensor:
        """Feed a token with target features [3 * target_hidden]; its draft logits."""
        if self.config.norm_before_fc:
            features = self.norm(features, "input_norm")
        if self.config.fc_norm:
            thirds = features.chunk(3)
            features = torch.cat([self.norm(t, f"fc_norm.{i}") for i, t in enumerate(thirds)])
        return self._feed(self.linear(features, "fc"), token)

    def feed_drafted(self, token: int) -> Tensor:
        """Feed a token with the path's own last output as its feature; its draft logits."""
        back = self.config.feed_back_normed
        return self._feed(self.norm(self.output, "norm") if back else self.output, token)

    def logits(self) -> Tensor:
        """[draft_vocab] after the last token."""
        before = self.config.norm_before_lm_head
        return self.linear(self.norm(self.output, "norm") if before else self.output, "lm_head")

    def _feed(self, feature: Tensor, token: int) -> Tensor:
        config, position = self.config, len(self.keys)
        embedding = self.weights["embed_tokens.weight"][token]
        normed = self.norm(feature, "midlayer.hidden_norm")
        pair = torch.cat((self.norm(embedding, "midlayer.input_layernorm"), normed))
        attention = "midlayer.self_attn."
        query = self.linear(pair, attention + "q_proj").reshape(config.num_heads, -1)
        key = self.linear(pair, attention + "k_proj").reshape(config.num_kv_heads, -1)
        value = self.linear(pair, attention + "v_proj").reshape(config.num_kv_heads, -1)
        self.keys.append(torch.stack([self.turn(k, position) for k in key]))
        self.values.append(value)
        seen = []
        for index in range(config.num_heads):
            group = index * config.num_kv_heads // config.num_heads
            asked = self.turn(query[index], position)
            scores = torch.stack([asked @ k[group] for k in self.keys]) / config.head_dim**0.5
            weights = scores.exp() / scores.exp().sum()
            seen.append(sum(w * v[group] for w, v in zip(weights, self.values, strict=True)))
        residual = normed if config.norm_before_residual else feature
        middle = residual + self.linear(torch.cat(seen), attention + "o_proj")
        inner = self.norm(middle, "midlayer.post_attention_layernorm")
        gate = self.linear(inner, "midlayer.mlp.gate_proj")
        opened = gate * gate.sigmoid() * self.linear(inner, "midlayer.mlp.up_proj")
        self.output = middle + self.linear(opened, "midlayer.mlp.down_proj")
        return self.logits()


def path_logits(
    head: Eagle3Head, features: Tensor, tokens: Sequence[int], drafted: Sequence[int]
) -> Tensor:
    """[draft_vocab] logits after verified pairs and then a drafted path, all recomputed.

    Args:
      head: The head.
      features: [pairs, 3 * target_hidden].
      tokens: [pairs].
      drafted: The path below the root.
    """
    path = PathByPath(copy.deepcopy(head))
    for feature, token in zip(features, tokens, strict=True):
        path.feed_verified(feature, token)
    for token in drafted:
        path.feed_drafted(token)
    return path.logits()
