"""Rotary positions of the draft head (Su et al. 2021, arXiv:2104.09864), half-split pairs."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched; `kind` "none" leaves them alone.

    Attributes:
      kind: "linear" divides every frequency by `factor`; "llama3" only the slow ones, with a smooth
        passage between `low_frequency` and `high_frequency` turns over `original_length` tokens.
      factor: The divisor.
      low_frequency: Turns below which a frequency is divided ("llama3" only).
      high_frequency: Turns above which it is kept ("llama3" only).
      original_length: Context length of the unscaled model ("llama3" only).
    """

    kind: Literal["none", "linear", "llama3"] = "none"
    factor: float = 1.0
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    original_length: int = 8192


UNSCALED = RopeScaling()


def widen(values: Tensor) -> Tensor:
    """The same numbers in float32, or in float64 if they already are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def rope_frequencies(
    head_dim: int,
    theta: float,
    scaling: RopeScaling,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Speeds of rotation.

    Args:
      head_dim: Width of one head; even.
      theta: Base: the slowest pair turns by about 1 / theta.
      scaling: How the speeds are stretched.
      dtype: Of the result.
      device: Where they are computed; nothing is copied there.

    Returns:
      [head_dim / 2] radians a position, after scaling.
    """
    frequency = theta ** -(torch.arange(0, head_dim, 2, dtype=dtype, device=device) / head_dim)
    if scaling.kind == "linear":
        return frequency / scaling.factor
    if scaling.kind == "llama3":
        turns = scaling.original_length * frequency / (2 * math.pi)
        span = scaling.high_frequency - scaling.low_frequency
        keep = ((turns - scaling.low_frequency) / span).clamp(0, 1)
        return keep * frequency + (1 - keep) * frequency / scaling.factor
    return frequency


def rotate(heads: Tensor, angle: Tensor) -> Tensor:
    """Rotate the pairs (i, i + head_dim / 2) of each head.

    Args:
      heads: [batch, heads, tokens, head_dim].
      angle: [batch, 1, tokens, head_dim / 2] radians.

    Returns:
      [batch, heads, tokens, head_dim], same dtype.
    """
    first, second = widen(heads).chunk(2, dim=-1)
    cosine, sine = angle.cos(), angle.sin()
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(heads.dtype)
