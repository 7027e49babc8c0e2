"""The EAGLE-3 draft head: three fused target features in, logits on a draft vocabulary out.

One Llama-style decoder layer that reads a token's embedding beside a feature. The feature is the
target's (three hidden states, fused by `fc`) at verified tokens and the head's own last output at
drafted ones. Module names are those of the published checkpoints, so that a state dict needs no
renaming. Attention takes explicit positions, an additive mask and the keys and values of earlier
tokens as plain tensors: the caller decides what a token may see.

Source: Li, Wei, Zhang and Zhang (2025), "EAGLE-3", arXiv:2503.01840, Section 3.1.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rheocheck.gpu.rope import UNSCALED, RopeScaling, rope_frequencies, rotate, widen


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """Shape of a head and the switches in which published formats differ.

    Attributes:
      vocab_size: Target vocabulary.
      draft_vocab_size: Tokens the head can draft; at most vocab_size.
      hidden_size: Width of the head's features and embeddings.
      target_hidden_size: Width of one target hidden state.
      intermediate_size: Width of the feed-forward part.
      num_heads: Query heads.
      num_kv_heads: Key and value heads; divides num_heads.
      head_dim: Width of one head; even.
      rms_norm_eps: Added to the mean square in every norm.
      rope_theta: Base of the rotary frequencies. It is the head's own, never the target's.
      rope_scaling: Stretching of the rotary frequencies.
      aux_layers: The three target hidden states to fuse, increasing, as indices into Hugging Face's
        `hidden_states` (0 = embeddings, i = the stream entering layer i).
      norm_before_residual: The layer's first residual is the normed feature instead of the raw one.
      norm_before_fc: One RMS norm over the concatenated target features.
      fc_norm: One RMS norm for each of the three; excludes norm_before_fc.
      norm_before_lm_head: The final norm stands before lm_head.
      feed_back_normed: The feature handed to the next token is the final norm's output.
    """

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    aux_layers: tuple[int, int, int]
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling = UNSCALED
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_lm_head: bool = True
    feed_back_normed: bool = False


class KeyValues(NamedTuple):
    """Keys and values of some tokens: both [batch, kv_heads, tokens, head_dim], keys rotated."""

    keys: Tensor
    values: Tensor


class HeadOutput(NamedTuple):
    """What the layer says about its query tokens.

    Attributes:
      hidden: [batch, query, hidden] output before the final norm.
      key_values: Keys and values of the query tokens alone.
    """

    hidden: Tensor
    key_values: KeyValues


def default_aux_layers(num_target_layers: int) -> tuple[int, int, int]:
    """The three hidden states that EAGLE-3 fuses unless a checkpoint says otherwise."""
    return (2, num_target_layers // 2, num_target_layers - 3)


class RmsNorm(nn.Module):
    """Root-mean-square norm, computed in float32 or better whatever the dtype of its input."""

    def __init__(self, width: int, eps: float) -> None:
        """All gains start at one."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        wide = widen(hidden)
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(hidden.dtype)


class Attention(nn.Module):
    """The four projections; scores are formed by whoever holds the mask."""

    def __init__(self, config: HeadConfig) -> None:
        """Queries, keys and values read an embedding and a feature side by side."""
        super().__init__()
        double = 2 * config.hidden_size
        self.q_proj = nn.Linear(double, config.num_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(double, config.num_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(double, config.num_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_heads * config.head_dim, config.hidden_size, bias=False)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: HeadConfig) -> None:
        """Three bias-free projections."""
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> [..., hidden]."""
        gated = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        return self.down_proj(gated)  # type: ignore[no-any-return]


class DraftLayer(nn.Module):
    """The head's one decoder layer, split where attention happens."""

    def __init__(self, config: HeadConfig) -> None:
        """Draw PyTorch's default initial weights."""
        super().__init__()
        self.config = config
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.hidden_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def project(
        self, embedding: Tensor, feature: Tensor, position: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Everything before the scores.

        Args:
          embedding: [batch, query, hidden] embeddings of the tokens.
          feature: [batch, query, hidden] fused target features or own outputs.
          position: [batch, query] rotary positions.

        Returns:
          residual [batch, query, hidden]; rotated queries [batch, heads, query, head_dim]; rotated
          keys and plain values [batch, kv_heads, query, head_dim].
        """
        normed = self.hidden_norm(feature)
        pair = torch.cat((self.input_layernorm(embedding), normed), dim=-1)
        residual = normed if self.config.norm_before_residual else feature
        query, key, value = (
            projection(pair).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            for projection in (self.self_attn.q_proj, self.self_attn.k_proj, self.self_attn.v_proj)
        )
        # Not a buffer: a cast of the module to half precision would round the frequencies with it.
        dtype = torch.promote_types(feature.dtype, torch.float32)
        config = self.config
        frequency = rope_frequencies(
            config.head_dim, config.rope_theta, config.rope_scaling, dtype, position.device
        )
        angle = position[:, None, :, None] * frequency
        return residual, rotate(query, angle), rotate(key, angle), value

    def finish(self, residual: Tensor, attended: Tensor) -> Tensor:
        """Everything after the weighted sum.

        Args:
          residual: [batch, query, hidden] from `project`.
          attended: [batch, heads, query, head_dim] weighted values.

        Returns:
          [batch, query, hidden] the layer's output.
        """
        hidden = residual + self.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class Eagle3Head(nn.Module):
    """The whole head.

    Attributes:
      config: Its shape and switches.
      d2t: [draft_vocab] int64; draft token i stands for target token i + d2t[i].
      t2d: [vocab] bool; True at the target tokens that can be drafted.
    """

    def __init__(self, config: HeadConfig) -> None:
        """Draw PyTorch's default initial weights; the map starts as the identity."""
        super().__init__()
        self.config = config
        fused = 3 * config.target_hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.norm_before_fc:
            self.input_norm = RmsNorm(fused, config.rms_norm_eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(
                RmsNorm(config.target_hidden_size, config.rms_norm_eps) for _ in range(3)
            )
        self.fc = nn.Linear(fused, config.hidden_size, bias=False)
        self.midlayer = DraftLayer(config)
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.arange(config.vocab_size) < config.draft_vocab_size)
        self.d2t: Tensor
        self.t2d: Tensor

    @property
    def token_ids(self) -> Tensor:
        """[draft_vocab] int64, strictly increasing: the target token of each draft token."""
        return torch.arange(self.config.draft_vocab_size, device=self.d2t.device) + self.d2t

    def fuse(self, features: Tensor) -> Tensor:
        """Target features to the head's width.

        Args:
          features: [..., 3 * target_hidden] the three hidden states, lowest layer first.

        Returns:
          [..., hidden].
        """
        if self.config.norm_before_fc:
            features = self.input_norm(features)
        elif self.config.fc_norm:
            thirds = features.chunk(3, dim=-1)
            normed = [norm(third) for norm, third in zip(self.fc_norm, thirds, strict=True)]
            features = torch.cat(normed, dim=-1)
        return self.fc(features)  # type: ignore[no-any-return]

    def forward(
        self, token: Tensor, feature: Tensor, position: Tensor, mask: Tensor, past: KeyValues
    ) -> HeadOutput:
        """Run the layer over some tokens.

        Args:
          token: [batch, query] target token ids.
          feature: [batch, query, hidden] of the token *before* each: fused, or an own feedback.
          position: [batch, query] rotary positions.
          mask: [batch, query, past + query] added to the scores: 0 or a very negative number.
          past: Keys and values the mask's first columns stand for; the query tokens' follow.

        Returns:
          The query tokens' outputs, keys and values.
        """
        layer = self.midlayer
        residual, query, key, value = layer.project(self.embed_tokens(token), feature, position)
        keys = spread_heads(torch.cat((past.keys, key), dim=2), self.config)
        values = spread_heads(torch.cat((past.values, value), dim=2), self.config)
        scores = query @ keys.transpose(-1, -2) / math.sqrt(self.config.head_dim)
        weights = (widen(scores) + mask[:, None]).softmax(-1).to(values.dtype)
        return HeadOutput(layer.finish(residual, weights @ values), KeyValues(key, value))

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] outputs of `forward` -> [..., draft_vocab] logits, draft token order."""
        normed = self.norm(hidden) if self.config.norm_before_lm_head else hidden
        return self.lm_head(normed)  # type: ignore[no-any-return]

    def feedback(self, hidden: Tensor) -> Tensor:
        """[..., hidden] outputs of `forward` -> [..., hidden] features for their children."""
        return self.norm(hidden) if self.config.feed_back_normed else hidden

    def empty_key_values(self, batch: int, tokens: int = 0) -> KeyValues:
        """Zero keys and values of `tokens` tokens, in the head's dtype and on its device."""
        shape = (batch, self.config.num_kv_heads, tokens, self.config.head_dim)
        return KeyValues(self.fc.weight.new_zeros(shape), self.fc.weight.new_zeros(shape))


def spread_heads(per_kv_head: Tensor, config: HeadConfig) -> Tensor:
    """[batch, kv_heads, ...] -> [batch, heads, ...]: each key head serves adjacent query heads."""
    return per_kv_head.repeat_interleave(config.num_heads // config.num_kv_heads, dim=1)
