"""A drafter that remembers its logits, so that an audit can make every law again by itself."""

import copy
from typing import Any

import torch
from torch import Tensor

from rheocheck.errors import InputError
from rheocheck.gpu.decoding import RoundDrafter
from rheocheck.gpu.tree import Tree


class RecordingDrafter:
    """Passes every call on and keeps this round's logits.

    Attributes:
      inner: The drafter under audit.
    """

    def __init__(self, inner: RoundDrafter) -> None:
        """Wrap `inner`."""
        self.inner = inner
        self._layers: list[Tensor] = []

    @property
    def token_ids(self) -> Tensor | None:
        """[draft vocab] int64 target id of each draft token; None: the vocabularies agree."""
        return self.inner.token_ids

    def root(self) -> Tensor:
        """[batch, draft vocab] logits at the root; starts a new record."""
        logits = _single(self.inner.root())
        self._layers = [logits.unsqueeze(1)]
        return logits

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        """[batch, top_k, draft vocab] logits one layer deeper."""
        logits = _single(self.inner.extend(parent, token, valid))
        self._layers.append(logits)
        return logits

    def advance(self, features: Tensor, token: Tensor, count: Tensor) -> None:
        """Take in verified tokens."""
        self.inner.advance(features, token, count)

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with some rows only."""
        self.inner.keep_rows(rows)

    def of_row(self, row: int) -> RoundDrafter:
        """A drafter in the same state with one row only.

        The states of a drafter are values, so a shallow copy that goes its own way is independent.
        """
        alone = copy.copy(self.inner)
        alone.keep_rows(torch.full((1,), row, dtype=torch.int64, device=self._layers[0].device))
        return alone

    def node_logits(self, tree: Tree, row: int, node: int) -> Tensor | None:
        """Logits that this round's expansion of a node was made from.

        Args:
          tree: The round's tree.
          row: Row of the batch.
          node: 0 for the root, else survivor + 1.

        Returns:
          [draft vocab] logits, or None where the node was not expanded.
        """
        layer = 0 if node == 0 else int(tree.layer[row, node - 1])
        rank = 0 if node == 0 else int(tree.rank_in_layer[row, node - 1])
        if layer >= len(self._layers) or rank >= self._layers[layer].shape[1]:
            return None
        return self._layers[layer][row, rank]


def _single(logits: Any) -> Tensor:
    """The logits, where ranking and draft are one law.

    Raises:
      InputError: A pair of logits; the audit's own laws are made from single ones.
    """
    if isinstance(logits, tuple):
        raise InputError(
            "the audit takes drafters with one law a node, not a (ranking, draft) pair"
        )
    assert isinstance(logits, Tensor)
    return logits
