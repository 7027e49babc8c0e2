"""Target mass of rows of logits in one pass: block sums, and the listed tokens by themselves.

A row's law is read as weights exp((logit - highest) / temperature). The listed tokens (a node's
draft support and children) are taken out before anything is summed and weighed in float64; the
other tokens are summed in blocks of consecutive ids. A row that has nothing outside its list thus
has sums of exactly 0 there, and no rounding of a large sum reaches the listed masses.

Rounding of the block sums: a float32 shift and a float32 product err by half a unit in the last
place each and exp2 by about one, so a weight at distance d = (highest - logit) / temperature is off
by a factor of at most 1 + (2 d + 2) * 2**-24, with independent signs; sums are float64.

Source: two-pass softmax with the largest logit taken out; Blanchard, Higham, Higham (2021),
"Accurately computing the log-sum-exp and softmax functions", IMA J. Numer. Anal. 41(4).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

BLOCK = 256
"""Consecutive token ids that are summed together."""

Process: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits [rows, vocab], row [rows] of the batch, path [rows, depth] drafted tokens from the root
to the node, -1 beyond it) -> processed logits [rows, vocab], before the temperature. The logits
are float32, or float64 where they were given so, and may not be changed in place."""

# Logits that one step of the pass holds: small enough for a CPU's second-level cache.
_CACHED_LOGITS = 2**17
# Other devices take so large a share of all rows in one step; a step needs about three times its
# rows, so that extra memory stays below a tenth.
_ROWS_SHARE = 32
# exp2's factor may be off by this much, relatively, before it is made of two float32 numbers.
_SCALE_WITHIN = 2.0**-26


@dataclass(frozen=True, slots=True, eq=False)
class RowMass:
    """Weights of rows of logits relative to their largest logit.

    Attributes:
      highest: [rows] largest logit; NaN or infinite in a row from which no law can be made, whose
        weights are all 0.
      listed: [rows, listed] weight of each listed token; 0 on padding.
      rest: [rows, blocks] weights of all other tokens, summed by block.
    """

    highest: Float64[Tensor, " rows"]
    listed: Float64[Tensor, "rows listed"]
    rest: Float64[Tensor, "rows blocks"]


def read_rows(
    logits: Float[Tensor, "all vocab"],
    index: Int64[Tensor, " rows"] | None,
    listed: Int64[Tensor, "rows listed"],
    temperature: float,
    *,
    process: Process | None = None,
    row: Int64[Tensor, " rows"] | None = None,
    path: Int64[Tensor, "rows depth"] | None = None,
) -> RowMass:
    """Weights of some rows, each read once.

    Args:
      logits: [all, vocab] of any float dtype.
      index: [rows] which rows of `logits`; None: all, in order.
      listed: [rows, listed] token ids, -1 on padding; no token twice in a row. A width that is a
        multiple of 16 keeps a row's last digits independent of the number of rows.
      temperature: >= 0; at 0 the whole weight is on the first largest logit.
      process: Changes the logits first.
      row: [rows] batch row of each, for `process`.
      path: [rows, depth] drafted tokens before each, for `process`.

    Returns:
      Weights in float64.
    """
    count = listed.shape[0]
    step = rows_per_step(logits)
    parts = []
    for begin in range(0, max(count, 1), step):
        part = slice(begin, min(begin + step, count))
        values = logits[part] if index is None else logits.index_select(0, index[part])
        values = wide_enough(values)
        if process is not None:
            assert row is not None and path is not None
            values = process(values, row[part], path[part])
        parts.append(_read(values, listed[part], temperature))
    if len(parts) == 1:
        return parts[0]
    return RowMass(
        *(
            torch.cat([getattr(part, name) for part in parts])
            for name in ("highest", "listed", "rest")
        )
    )


def rows_per_step(logits: Float[Tensor, "all vocab"]) -> int:
    """Rows that are read at a time; it does not change what is read."""
    if logits.device.type == "cpu":
        return max(1, _CACHED_LOGITS // max(1, logits.shape[1]))
    return max(1, logits.shape[0] // _ROWS_SHARE)


def wide_enough(logits: Float[Tensor, "*axes vocab"]) -> Float[Tensor, "*axes vocab"]:
    """Logits in float32, or as they are in float64."""
    return logits if logits.dtype == torch.float64 else logits.float()


def block_weights(
    values: Float[Tensor, "rows block"], highest: Float64[Tensor, "rows 1"], temperature: float
) -> Float64[Tensor, "rows block"]:
    """Weights of single tokens in float64, by the same definition.

    Args:
      values: [rows, block] logits; minus infinity gives 0.
      highest: [rows, 1] largest logit of each row, finite.
      temperature: >= 0; at 0 the first of the largest has weight 1, if it is among the given.

    Returns:
      [rows, block] weights in [0, 1].
    """
    shifted = values.double() - highest
    if temperature == 0:
        is_best = shifted == 0
        return (is_best & (is_best.cumsum(-1) == 1)).double()
    return (shifted / temperature).exp()


def _read(values: Tensor, listed: Tensor, temperature: float) -> RowMass:
    """`read_rows` of rows that are in hand."""
    highest = values.amax(-1, keepdim=True)
    is_listed = listed >= 0
    token = listed.clamp_min(0)
    # A row's NaN or infinity makes its largest logit one; its weights are blotted out at the end.
    usable = highest.isfinite()
    shift = torch.where(usable, highest, 0.0)
    if temperature == 0:
        best = values.argmax(-1, keepdim=True)
        weights = torch.zeros_like(values).scatter_(-1, best, 1.0)
        own = (token == best).double()
    else:
        weights = _weights(values - shift, temperature)
        own = block_weights(values.gather(-1, token), shift.double(), temperature)
    missing = -weights.shape[-1] % BLOCK
    if missing:
        weights = torch.nn.functional.pad(weights, (0, missing))
    # Padding writes 0 where another listed token does, or writes what is there.
    largest = listed.amax(-1, keepdim=True) if listed.shape[-1] else listed
    spare = largest.clamp_min(0)
    kept = torch.where(largest >= 0, 0.0, weights.gather(-1, spare))
    weights.scatter_(-1, torch.where(is_listed, token, spare), kept.expand(token.shape))
    rest = weights.view(len(weights), weights.shape[1] // BLOCK, BLOCK).sum(-1, dtype=torch.float64)
    return RowMass(
        highest=highest.squeeze(-1).double(),
        listed=torch.where(usable & is_listed, own, 0.0),
        rest=torch.where(usable, rest, 0.0),
    )


def _weights(shifted: Tensor, temperature: float) -> Tensor:
    """exp(shifted / temperature) of the tensor's dtype, in its memory where possible."""
    scale, remainder = _exp2_scale(temperature, shifted.dtype)
    missing = -shifted.shape[-1] % BLOCK
    if missing:
        # exp2 of whole vectors only: the last few of a row would be rounded otherwise.
        shifted = torch.nn.functional.pad(shifted, (0, missing), value=-torch.inf)
    if remainder == 0:
        return shifted.mul_(scale).exp2_()
    return (shifted * scale).add_(shifted, alpha=remainder).exp2_()


def _exp2_scale(temperature: float, dtype: torch.dtype) -> tuple[float, float]:
    """log2(e) / temperature as a number of the dtype and what it misses, 0 where that is little."""
    largest = 2.0**126 if dtype == torch.float32 else 2.0**1000
    scale = math.log2(math.e) / temperature if temperature > 2.0**-1000 else largest
    # Never 0, which minus infinity must not be multiplied by.
    scale = max(min(scale, largest), 2.0**-149)
    if dtype == torch.float64:
        return scale, 0.0
    mantissa, exponent = math.frexp(scale)
    nearest = math.ldexp(float(round(mantissa * 2**24)), exponent - 24)
    if abs(scale - nearest) <= _SCALE_WITHIN * scale or scale < 2.0**-90:
        return nearest, 0.0
    # Rounded down, so that minus infinity is not multiplied by numbers of two signs.
    below = math.ldexp(float(math.floor(mantissa * 2**24)), exponent - 24)
    return below, scale - below
