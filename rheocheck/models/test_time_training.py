"""EAGLE-3's training-time test: the head is trained on its own features, several steps deep.

Step 0 reads fused target features. Step s reads the features of step s - 1, as drafting does, and
predicts one token further on. Position t of step s stands for the chain that branches off the text
after t: it sees the verified prefix (step 0's keys up to t) and its own earlier links (the keys of
steps 1..s at t), so every step is one batched pass and no tree is built.

Source: Li, Wei, Zhang and Zhang (2025), "EAGLE-3", arXiv:2503.01840, Section 3.2 and Figure 6.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rheocheck.gpu.eagle3 import Eagle3Head, spread_heads


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One step of the training-time test.

    Attributes:
      logits: [batch, length, draft_vocab] of the head.
      target: [batch, length, draft_vocab] the target's law on the draft vocabulary, renormalised.
      counted: [batch, length] whether the position enters the loss: its target law exists in the
        window, and the target's favourite token can be drafted.
      favourite: [batch, length] the target's favourite token, a target id.
      present: [batch, length] whether the position's target law exists in the window.
    """

    logits: Tensor
    target: Tensor
    counted: Tensor
    favourite: Tensor
    present: Tensor


def unroll(
    head: Eagle3Head, tokens: Tensor, features: Tensor, target_logits: Tensor, steps: int
) -> Iterator[StepOutput]:
    """Run the steps one after another; gradients flow through all of them.

    Args:
      head: The head.
      tokens: [batch, length] text.
      features: [batch, length, 3 * target_hidden] the target's, at these tokens.
      target_logits: [batch, length, vocab] the target's, at these tokens.
      steps: How many, at least 1.

    Yields:
      Step s pairs (feature after t, token t + 1 + s) with the target's law after token t + 1 + s.
    """
    batch, length = tokens.shape
    position = torch.arange(length).expand(batch, length)
    future = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
    favourite, kept = target_logits.argmax(-1), target_logits[..., head.token_ids]
    feature, keys, values = head.fuse(features), [], []
    for step in range(steps):
        token = shift_left(tokens, step + 1)
        layer = head.midlayer
        residual, query, key, value = layer.project(
            head.embed_tokens(token), feature, position + step
        )
        keys.append(spread_heads(key, head.config))
        values.append(spread_heads(value, head.config))
        prefix = query @ keys[0].transpose(-1, -2)
        links = [(query * k).sum(-1, keepdim=True) for k in keys[1:]]
        scores = torch.cat((prefix, *links), dim=-1) / math.sqrt(head.config.head_dim)
        scores[..., :length] += future
        weights = scores.softmax(-1)
        attended = weights[..., :length] @ values[0]
        for link, link_value in enumerate(values[1:]):
            attended = attended + weights[..., length + link, None] * link_value
        hidden = layer.finish(residual, attended)
        present = (torch.arange(length) < length - 1 - step).expand(batch, length)
        chosen = shift_left(favourite, step + 1)
        yield StepOutput(
            logits=head.logits(hidden),
            target=shift_left(kept, step + 1).softmax(-1),
            counted=present & head.t2d[chosen],
            favourite=chosen,
            present=present,
        )
        feature = head.feedback(hidden)


def test_time_loss(
    head: Eagle3Head,
    tokens: Tensor,
    features: Tensor,
    target_logits: Tensor,
    steps: int,
    decay: float,
) -> Tensor:
    """Sum over steps of decay^s times the soft cross-entropy to the target's law.

    Args:
      head: The head.
      tokens: [batch, length] text.
      features: [batch, length, 3 * target_hidden].
      target_logits: [batch, length, vocab].
      steps: How many steps.
      decay: Weight of a step relative to the one before.

    Returns:
      [] the loss. Each step's mean is over all positions, those not counted included.
    """
    total = torch.zeros(())
    for step, output in enumerate(unroll(head, tokens, features, target_logits, steps)):
        cross_entropy = -(output.target * output.logits.log_softmax(-1)).sum(-1)
        total = total + decay**step * (cross_entropy * output.counted).mean()
    return total


def agreement(
    head: Eagle3Head, tokens: Tensor, features: Tensor, target_logits: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """How often the head's favourite token is the target's, and how much mass their laws share.

    Args:
      head: The head.
      tokens: [batch, length] text.
      features: [batch, length, 3 * target_hidden].
      target_logits: [batch, length, vocab].
      steps: How many steps.

    Returns:
      [steps] share of agreeing positions; [steps] mean of sum min(target, draft) at temperature 1
      over the whole vocabulary, which is the acceptance of a single drafted token.
    """
    agreeing, overlaps = [], []
    full = target_logits.softmax(-1)[..., head.token_ids]
    for step, output in enumerate(unroll(head, tokens, features, target_logits, steps)):
        same = head.token_ids[output.logits.argmax(-1)] == output.favourite
        overlap = torch.minimum(output.logits.softmax(-1), shift_left(full, step + 1)).sum(-1)
        agreeing.append(same[output.present].double().mean())
        overlaps.append(overlap[output.present].double().mean())
    return torch.stack(agreeing), torch.stack(overlaps)


def shift_left(values: Tensor, places: int) -> Tensor:
    """[batch, length, ...] moved `places` to the left along the length, zeros at the right."""
    kept = values[:, places:]
    return torch.cat((kept, torch.zeros_like(values[:, : values.shape[1] - kept.shape[1]])), dim=1)
