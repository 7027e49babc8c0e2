"""The draw that ends a round: inverse CDF over the vocabulary in token id order, in two levels.

The block of token ids is drawn from block sums that the pass over the row left behind; the token is
drawn inside that block, whose logits alone are read again. Both levels are float64.

Source: inversion of a running sum, Devroye (1986), Non-Uniform Random Variate Generation, III.2.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from rheocheck.gpu.randomness import inverse_cdf
from rheocheck.gpu.row_mass import BLOCK, block_weights

_LARGEST_UNIFORM = 1.0 - 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The law of the token that ends a round, one row each.

    Attributes:
      listed: [rows, listed] token ids; -1 on padding.
      mass: [rows, listed] their masses.
      rest: [rows, blocks] masses of all other tokens, summed by block.
      scale: [rows] mass of such a token over its weight exp((logit - highest) / temperature).
      highest: [rows] largest logit.
    """

    listed: Int64[Tensor, "rows listed"]
    mass: Float64[Tensor, "rows listed"]
    rest: Float64[Tensor, "rows blocks"]
    scale: Float64[Tensor, " rows"]
    highest: Float64[Tensor, " rows"]

    def replace(self, row: Int64[Tensor, " some"], new: "Residual") -> None:
        """Replace, in place, the laws of some rows by those of `new`, one each."""
        self.listed.index_copy_(0, row, new.listed)
        self.mass.index_copy_(0, row, new.mass)
        self.rest.index_copy_(0, row, new.rest)
        self.scale.index_copy_(0, row, new.scale)
        self.highest.index_copy_(0, row, new.highest)


def block_masses(residual: Residual) -> Float64[Tensor, "rows blocks"]:
    """[rows, blocks] mass of each block of token ids, listed tokens included."""
    return residual.rest.scatter_add(1, residual.listed.clamp_min(0) // BLOCK, residual.mass)


def split_uniform(
    masses: Float64[Tensor, "rows blocks"], uniform: Float64[Tensor, " rows"]
) -> tuple[Int64[Tensor, " rows"], Float64[Tensor, " rows"]]:
    """Draw a block, and make the uniform of the draw inside it.

    Args:
      masses: [rows, blocks] masses, not necessarily normalised.
      uniform: [rows] in [0, 1).

    Returns:
      block: [rows] index of a block with mass; -1 in a row without any.
      inside: [rows] in [0, 1): where uniform * total falls between the block's running sums.
    """
    block = inverse_cdf(masses, uniform)
    at = block.clamp_min(0).unsqueeze(1)
    running = masses.cumsum(1)
    below = torch.nn.functional.pad(running, (1, 0)).gather(1, at).squeeze(1)
    share = masses.gather(1, at).squeeze(1)
    inside = (uniform * running[:, -1] - below) / torch.where(share > 0, share, 1.0)
    return block, inside.clamp(0.0, _LARGEST_UNIFORM)


def token_masses(
    residual: Residual,
    block: Int64[Tensor, " rows"],
    values: Float[Tensor, "rows block"],
    temperature: float,
) -> Float64[Tensor, "rows block"]:
    """Masses of the tokens of one block of each row.

    Args:
      residual: The law.
      block: [rows] block of each row, >= 0.
      values: [rows, BLOCK] logits of the block's tokens; minus infinity beyond the vocabulary.
      temperature: Of the request.

    Returns:
      [rows, BLOCK] masses in token id order.
    """
    usable = residual.highest.isfinite().unsqueeze(1)
    highest = torch.where(usable, residual.highest.unsqueeze(1), 0.0)
    values = torch.where(usable, values.double(), -torch.inf)
    own = block_weights(values, highest, temperature) * residual.scale.unsqueeze(1)
    place = residual.listed - block.unsqueeze(1) * BLOCK
    here = (residual.listed >= 0) & (place >= 0) & (place < BLOCK)
    # Listed tokens of other blocks go to one spare column.
    spare = torch.nn.functional.pad(own, (0, 1))
    return spare.scatter(1, torch.where(here, place, BLOCK), residual.mass)[:, :BLOCK]


def dense_residual(
    residual: Residual, target: Float64[Tensor, "rows vocab"]
) -> Float64[Tensor, "rows vocab"]:
    """The law over the whole vocabulary, for audits: block sums shared out as the draw does.

    Args:
      residual: The law.
      target: [rows, vocab] target law at the same nodes.

    Returns:
      [rows, vocab] probabilities that sum to 1; all zero in a row without mass.
    """
    vocab = target.shape[1]
    column = torch.where(residual.listed >= 0, residual.listed, vocab)
    blocks = residual.rest.shape[1]
    wide = torch.nn.functional.pad(target, (0, blocks * BLOCK - vocab + 1))
    spare = wide.scatter(1, column, 0.0)[:, :-1].reshape(-1, blocks, BLOCK)
    share = spare.sum(2)
    factor = residual.rest / torch.where(share > 0, share, 1.0)
    law = torch.nn.functional.pad((spare * factor.unsqueeze(2)).flatten(1), (0, 1))
    place = torch.where(residual.listed >= 0, residual.listed, blocks * BLOCK)
    law = law.scatter_add(1, place, residual.mass)[:, :vocab]
    total = law.sum(1, keepdim=True)
    return law / torch.where(total > 0, total, 1.0)


def draw_final(
    residual: Residual,
    logits: Float[Tensor, "all vocab"],
    index: Int64[Tensor, " rows"],
    uniform: Float64[Tensor, " rows"],
    temperature: float,
) -> Int64[Tensor, " rows"]:
    """Draw the token that ends each row's round.

    Args:
      residual: Its law.
      logits: [all, vocab] logits, already processed.
      index: [rows] the row of `logits` where each round ends.
      uniform: [rows] draws in [0, 1).
      temperature: Of the request.

    Returns:
      [rows] token ids, never one without mass; -1 where the law has no mass.
    """
    vocab = logits.shape[1]
    block, inside = split_uniform(block_masses(residual), uniform)
    start = block.clamp_min(0) * BLOCK
    token = start.unsqueeze(1) + torch.arange(BLOCK, device=logits.device)
    values = logits[index.unsqueeze(1), token.clamp_max(vocab - 1)]
    values = torch.where(token < vocab, values, -torch.inf)
    chosen = inverse_cdf(token_masses(residual, block.clamp_min(0), values, temperature), inside)
    return torch.where((block >= 0) & (chosen >= 0), start + chosen, -1)
