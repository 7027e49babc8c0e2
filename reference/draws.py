"""The three kinds of draw in a round, and the oracle that branches on them."""

from fractions import Fraction
from typing import NamedTuple, Protocol

from rheocheck.reference.choices import Choose
from rheocheck.reference.laws import Law


class NodeKey(NamedTuple):
    """Place of a node in its tree, whatever its token.

    Attributes:
      layer: Distance from the root, which is layer 0.
      parent_rank: Rank of its parent in the parent's layer, from 0.
      slot: Place among its siblings, from 0.
    """

    layer: int
    parent_rank: int
    slot: int


ROOT = NodeKey(0, 0, 0)


class Draws(Protocol):
    """Where a round gets its randomness from. Keys say which draw is asked for."""

    def probe(self, weights: Law, key: NodeKey) -> int:
        """Draw a probe.

        Args:
          weights: [tail] probe law in rank order.
          key: The probe's node.

        Returns:
          Index into `weights`, of a positive one.
        """
        ...

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        """Decide one accept test, true with `probability`, of the child `key`."""
        ...

    def final(self, weights: Law, key: NodeKey) -> int:
        """Draw the last token of the round.

        Args:
          weights: [vocab] law of the token, in token-id order.
          key: The node where the round ends.

        Returns:
          The token, of positive weight.
        """
        ...


class OracleDraws:
    """Draws that branch: a round under the choice oracle."""

    def __init__(self, choose: Choose) -> None:
        """Draw everything through `choose`."""
        self._choose = choose

    def probe(self, weights: Law, key: NodeKey) -> int:
        """Branch on the probe's place in the tail."""
        return self._choose.categorical(weights)

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        """Branch on the accept test."""
        return self._choose.bernoulli(probability)

    def final(self, weights: Law, key: NodeKey) -> int:
        """Branch on the last token."""
        return self._choose.categorical(weights)
