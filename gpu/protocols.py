"""What tree growth asks of a draft model, and what a caller may ask of tree growth."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Int64
from torch import Tensor

from rheocheck.gpu.expansion import Logits


@runtime_checkable
class Drafter(Protocol):
    """What `grow` asks of a draft model: logits at the root, then at one frontier after another."""

    @property
    def token_ids(self) -> Tensor | None:
        """[draft vocab] int64 target id of each draft token, strictly increasing, or None.

        None means that the vocabularies agree. Increasing, because ties go by target id.
        """
        ...

    def root(self) -> Logits:
        """Logits at the root of every row.

        Returns:
          [batch, draft vocab] raw logits (no temperature), or a pair (ranking, draft) of them.
          Asked once a round, and not at all where budget or depth is 0.
        """
        ...

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Logits:
        """Logits after appending one token to each of top_k paths.

        Args:
          parent: [batch, top_k] int64 index of each new node's parent in the previous call's
            frontier; 0, the root, in the first call.
          token: [batch, top_k] int64 target ids, in order of rank within the layer; -1 where not
            valid.
          valid: [batch, top_k] False on padding, whose logits are ignored.

        Returns:
          [batch, top_k, draft vocab] raw logits, or a pair of them.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ForcedProbe:
    """One probe a row that is given instead of drawn, for growing the same tree again.

    Attributes:
      layer: [batch] layer of the probe, 1 to depth; 0 forces nothing in that row.
      parent_rank: [batch] rank of its parent in the parent's layer; 0 in layer 1.
      token: [batch] token that takes its place. It must be in the parent's tail: any other token
        leaves the drawn one.
    """

    layer: Int64[Tensor, " batch"]
    parent_rank: Int64[Tensor, " batch"]
    token: Int64[Tensor, " batch"]
