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

# Logits that one step of the pass holds on a CPU: they stay in its caches.
_CACHED_LOGITS = 2**18
# ... and, where they are more than so many, at most such a share of all rows: a step needs three
# times its float32 logits.
_FEW_LOGITS, _ROWS_SHARE_CPU = 2**15, 60
# Temperatures beyond 2 to this power either way are read in float64.
_EXTREME = 60
# Other devices take so large a share of all rows in one step; a step needs about three times its
# rows, so that extra memory stays below a tenth.
_ROWS_SHARE = 32


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


@dataclass(frozen=True, slots=True, eq=False)
class Scratch:
    """Memory of one step of the pass, written again by the next.

    Fresh memory of this size comes as pages that the system has to clear, which takes longer than
    the arithmetic on them.

    Attributes:
      weights: [step, padded] of the dtype that rows are read in; whole blocks.
      wide: [step, padded] float64, for sums on a CPU; None where a sum converts as it goes.
    """

    weights: Float[Tensor, "step padded"]
    wide: Float64[Tensor, "step padded"] | None

    @classmethod
    def of(
        cls,
        logits: Float[Tensor, "all vocab"],
        most_rows: int,
        temperature: float,
        process: Process | None = None,
    ) -> "Scratch":
        """Room for at most `most_rows` rows of `logits` at a time.

        It is float64 where logits are, where they are processed (what comes of float32 logits may
        be float64), and at temperatures so extreme that differences of float32 logits over them
        leave the range of float32.
        """
        step = max(1, min(most_rows, rows_per_step(logits)))
        is_extreme = temperature != 0 and not 2.0**-_EXTREME < temperature < 2.0**_EXTREME
        is_wide = process is not None or is_extreme or logits.dtype == torch.float64
        dtype = torch.float64 if is_wide else torch.float32
        weights = logits.new_empty(step, -(-logits.shape[1] // BLOCK) * BLOCK, dtype=dtype)
        converts = dtype == torch.float64 or logits.device.type != "cpu"
        if converts or torch.compiler.is_compiling():
            return cls(weights, None)
        return cls(weights, torch.empty_like(weights, dtype=torch.float64))


def read_rows(
    logits: Float[Tensor, "all vocab"],
    index: Int64[Tensor, " rows"] | None,
    listed: Int64[Tensor, "rows listed"],
    temperature: float,
    *,
    process: Process | None = None,
    row: Int64[Tensor, " rows"] | None = None,
    path: Int64[Tensor, "rows depth"] | None = None,
    scratch: Scratch | None = None,
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
      scratch: Made for rows of this width, temperature and `process`; None: made here.

    Returns:
      Weights in float64.
    """
    count = listed.shape[0]
    if scratch is None:
        scratch = Scratch.of(logits, count, temperature, process)
    step, vocab = scratch.weights.shape[0], logits.shape[1]
    not_listed, token = listed < 0, listed.clamp_min(0)
    parts = []
    for begin in range(0, max(count, 1), step):
        part = slice(begin, min(begin + step, count))
        weights = scratch.weights[: part.stop - begin]
        values = weights[:, :vocab]
        if index is not None and process is None and _is_like(values, logits):
            torch.index_select(logits, 0, index[part], out=values)
        else:
            given = logits[part] if index is None else logits.index_select(0, index[part])
            if process is not None:
                assert row is not None and path is not None
                given = process(wide_enough(given), row[part], path[part])
            values.copy_(given)
        parts.append(_read(scratch, weights, vocab, token[part], not_listed[part], temperature))
    highest, own, rest = (
        columns[0] if len(columns) == 1 else torch.cat(columns)
        for columns in zip(*parts, strict=True)
    )
    # A row's NaN or infinity makes its largest logit one, and so the difference NaN; its weights
    # are blotted out.
    unusable = highest - highest != 0
    return RowMass(
        highest=highest.squeeze(-1),
        listed=own.masked_fill_(unusable | not_listed, 0.0),
        rest=rest.masked_fill_(unusable, 0.0),
    )


def rows_per_step(logits: Float[Tensor, "all vocab"]) -> int:
    """Rows that are read at a time; it does not change what is read."""
    if logits.device.type == "cpu":
        width = max(1, logits.shape[1])
        share = max(logits.shape[0] // _ROWS_SHARE_CPU, _FEW_LOGITS // width)
        return max(1, min(_CACHED_LOGITS // width, share))
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


def _is_like(values: Tensor, logits: Tensor) -> bool:
    """Whether rows of `logits` can be written to `values` as they are, in one step."""
    return values.dtype == logits.dtype and values.is_contiguous() and not logits.requires_grad


def _read(
    scratch: Scratch,
    weights: Tensor,
    vocab: int,
    token: Tensor,
    not_listed: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Largest logit, listed weights and block sums of rows whose logits are in `weights`."""
    values = weights[:, :vocab]
    largest = values.amax(-1, keepdim=True)
    highest = largest.double()
    if temperature == 0:
        best = values.argmax(-1, keepdim=True)
        own = (token == best).double()
        weights.zero_().scatter_(-1, best, 1.0)
    else:
        own = block_weights(values.gather(-1, token), highest, temperature)
        values.sub_(largest)
        weights[:, vocab:] = -torch.inf
        _weigh(weights, temperature)
    # Exactly 0 is left of what is listed; padding subtracts 0 from the first token.
    weights.scatter_add_(-1, token, weights.gather(-1, token).neg_().masked_fill_(not_listed, 0.0))
    if scratch.wide is not None:
        weights = scratch.wide[: len(weights)].copy_(weights)
    rest = weights.view(len(weights), -1, BLOCK) if len(weights) else weights.unsqueeze(-1)
    return highest, own, rest.sum(-1, dtype=torch.float64)


def _weigh(shifted: Tensor, temperature: float) -> None:
    """exp(shifted / temperature) in place, for whole blocks.

    exp2 of whole vectors only: the last few of a row would be rounded otherwise.
    """
    power, excess = _exp2_scale(temperature, shifted.dtype)
    if power != 1:
        shifted.mul_(power)
    if excess > 0:
        shifted.add_(shifted, alpha=excess)
    shifted.exp2_()


def _exp2_scale(temperature: float, dtype: torch.dtype) -> tuple[float, float]:
    """log2(e) / temperature as power * (1 + excess): a power of 2, and an excess in [0, 1).

    The power is exact and rounding the excess to the dtype changes the factor by half as much, at
    most, as rounding the factor itself. Neither is negative, nor the power 0, so minus infinity
    stays what it is.
    """
    largest = 2.0**126 if dtype == torch.float32 else 2.0**1000
    scale = math.log2(math.e) / temperature if temperature > 2.0**-1000 else largest
    mantissa, exponent = math.frexp(max(min(scale, largest), 2.0**-149))
    return math.ldexp(1.0, exponent - 1), 2 * mantissa - 1
