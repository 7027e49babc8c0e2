"""The law of the token after a node, summed over all outcomes of its probe, without dense rows.

All outcomes share the target's logits, and off the listed tokens their residuals differ by a factor
a block of token ids. So the row is read once, and the vocabulary is gone through once, whatever the
number of outcomes.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.gpu import verification
from rheocheck.gpu.final_draw import Residual
from rheocheck.gpu.node_law import NodeLaw, Nodes
from rheocheck.gpu.row_mass import BLOCK, RowMass, read_rows

Values = NDArray[np.float64]


def emitted_law(
    logits: Tensor,
    nodes: Nodes,
    child_token: Tensor,
    weights: Values,
    target_law: Values,
    temperature: float,
) -> Values:
    """Law of the emitted token: accept tests and residuals of the code under test, added up.

    Args:
      logits: [vocab] processed target logits, the same for all outcomes.
      nodes: The node with the children of each outcome, one row each.
      child_token: [outcomes, top_k] tokens in slot order; -1 where there is no child.
      weights: [outcomes] probabilities.
      target_law: [vocab] target law, which shares out the block sums as the last draw does.
      temperature: Of the request.

    Returns:
      [vocab] law; it sums to 1 up to rounding if the weights do.
    """
    law, residual = verification.law_of_rows(_read(logits, nodes.listed, temperature), nodes)
    emitted, left = _accepted(law, child_token, weights, len(target_law))
    return emitted + _rejected(residual, left, target_law)


def _read(logits: Tensor, listed: Tensor, temperature: float) -> RowMass:
    """`read_rows` of one row under each list; once, where the lists hold the same tokens."""
    rows = len(listed)
    in_order, place = listed.sort(dim=1)
    if not torch.equal(in_order, in_order[:1].expand(rows, -1)):
        return read_rows(logits.expand(rows, -1), None, listed, temperature)
    first = read_rows(logits.unsqueeze(0), None, listed[:1], temperature)
    weight = first.listed.gather(1, place[:1]).expand(rows, -1)
    return RowMass(
        highest=first.highest.expand(rows),
        listed=torch.empty_like(weight).scatter_(1, place, weight),
        rest=first.rest.expand(rows, -1),
    )


def _accepted(
    law: NodeLaw, child_token: Tensor, weights: Values, vocab: int
) -> tuple[Values, Values]:
    """[vocab] mass of accepted children, and [outcomes] what is left once all were rejected."""
    token = np.take_along_axis(child_token.cpu().numpy(), law.order.cpu().numpy(), axis=1)
    acceptance = law.acceptance.cpu().numpy()
    present = token >= 0
    # What is left before each test; a test of an absent child takes nothing.
    passed = np.cumprod(np.where(present, 1.0 - acceptance, 1.0), axis=1)
    before = np.column_stack([np.ones(len(token)), passed])
    taken = weights[:, None] * before[:, :-1] * np.where(present, acceptance, 0.0)
    mass = np.bincount(token[present], taken[present], minlength=vocab)
    return np.asarray(mass, dtype=np.float64), weights * before[:, -1]


def _rejected(residual: Residual, left: Values, target_law: Values) -> Values:
    """[vocab] mass of last tokens: `dense_residual` of each outcome, times `left`, added up.

    Args:
      residual: Laws of the last token, one row an outcome.
      left: [outcomes] their probabilities.
      target_law: [vocab] target law.
    """
    vocab = len(target_law)
    listed, mass, rest = (
        part.cpu().numpy() for part in (residual.listed, residual.mass, residual.rest)
    )
    emitted = np.zeros(vocab)
    # Outcomes that list the same tokens leave the same others; mostly all do.
    sorts = np.sort(listed, axis=1)
    kinds, kind = sorts[:1], np.zeros(len(listed), dtype=np.int64)
    if (sorts != sorts[0]).any():
        kinds, kind = np.unique(sorts, axis=0, return_inverse=True)
    for number, tokens in enumerate(kinds):
        rows = kind.reshape(-1) == number
        others = target_law.copy()
        others[tokens[tokens >= 0]] = 0.0
        share = np.add.reduceat(others, np.arange(0, vocab, BLOCK))
        blocks = np.where(share > 0, rest[rows], 0.0)
        total = mass[rows].sum(axis=1) + blocks.sum(axis=1)
        scale = left[rows] / np.where(total > 0, total, 1.0)
        factor = (scale[:, None] * blocks).sum(axis=0) / np.where(share > 0, share, 1.0)
        others *= np.repeat(factor, BLOCK)[:vocab]
        emitted += others
        there = listed[rows] >= 0
        own = (scale[:, None] * mass[rows])[there]
        emitted += np.bincount(listed[rows][there], own, minlength=vocab)
    return emitted
