"""The shapes that the all-laws stage visits."""

from collections.abc import Iterator
from dataclasses import dataclass

from rheocheck.config import RULES, SpeculationConfig

NODE_BITS = 32
# Drawn cells pay a union over draws, and deeper trees have larger degrees.
TREE_BITS = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: a vocabulary and a scheme.

    Attributes:
      vocab: Number of tokens.
      config: The scheme.
      enumerated: All cells of the root are visited once (depth 1); otherwise cells are drawn.
      zeros: Cells where some mass is zero are included.
      num_points: Points to draw; not used where cells are enumerated.
      bits: Coordinates come from {1..2^bits}.
    """

    vocab: int
    config: SpeculationConfig
    enumerated: bool
    zeros: bool = True
    num_points: int = 0
    bits: int = NODE_BITS

    @property
    def name(self) -> str:
        """One word for people; also seeds the shape's laws."""
        config = self.config
        return (
            f"V{self.vocab}-K{config.top_k}-m{config.num_top}-R{config.budget}-D{config.depth}"
            f"-N{config.support_size}-{config.rule}"
            f"{'' if self.zeros else '-positive'}{'' if self.enumerated else '-drawn'}"
        )


def shapes_of(quick: bool, full: bool) -> Iterator[Shape]:
    """The stage's own list.

    Args:
      quick: One node up to three tokens with all faces, four tokens without; few points on trees.
      full: One node up to five tokens with all faces.

    Yields:
      One-node shapes, then trees. Without `quick` and `full`: five tokens and all faces of three
      schemes of four; the other faces are drawn.
    """
    for vocab in range(1, 5 if quick else 6):
        zeros = vocab <= 3 or full
        yield from node_shapes(vocab, zeros, small=vocab <= 3 and not quick)
    if not quick and not full:
        for shape in node_shapes(4, zeros=True, small=False):
            if (shape.config.top_k, shape.config.num_top) in ((2, 0), (2, 1), (3, 1)):
                yield shape
        yield from face_shapes(4, num_points=100)
        yield from face_shapes(5, num_points=100)
    yield from tree_shapes(num_points=40 if quick else 1000 if full else 200)


def node_shapes(vocab: int, zeros: bool, small: bool) -> Iterator[Shape]:
    """One node, every number of children and of top tokens.

    At depth 1 the survivors are the first children in slot order, so a budget below top_k gives
    the same trees as a smaller top_k.

    Args:
      vocab: Number of tokens.
      zeros: Whether cells with zero masses are included.
      small: Also budgets below top_k and supports smaller than the vocabulary.

    Yields:
      The shapes.
    """
    for top_k in range(1, vocab + 1):
        for num_top in range(min(top_k, vocab - 1) + 1):
            if num_top == top_k > 2:
                continue  # plain Top-K once more
            for budget in range(1, top_k + 1) if small else (top_k,):
                for support_size in range(1, vocab + 1) if small else (vocab,):
                    for rule in RULES:
                        config = SpeculationConfig(
                            top_k=top_k, num_top=num_top, budget=budget, depth=1,
                            support_size=support_size, rule=rule,
                        )  # fmt: skip
                        yield Shape(vocab, config, enumerated=True, zeros=zeros)


def face_shapes(vocab: int, num_points: int) -> Iterator[Shape]:
    """One node again, with cells drawn from all faces where enumerating them takes too long."""
    for shape in node_shapes(vocab, zeros=True, small=False):
        yield Shape(vocab, shape.config, enumerated=False, num_points=num_points, bits=TREE_BITS)


def tree_shapes(num_points: int) -> Iterator[Shape]:
    """Trees of two and three layers under budgets that cut them."""
    for vocab, top_k, num_top, budget, depth in (
        (2, 2, 0, 3, 2),
        (2, 2, 1, 4, 3),
        (3, 2, 0, 4, 3),
        (3, 2, 1, 3, 2),
        (3, 2, 1, 5, 3),
        (3, 3, 1, 5, 2),
        (4, 2, 1, 4, 3),
        (4, 3, 1, 5, 2),
        (4, 3, 2, 6, 3),
        (5, 3, 1, 4, 2),
    ):
        for rule in RULES:
            for support_size in (vocab, vocab - 1):
                config = SpeculationConfig(
                    top_k=top_k, num_top=num_top, budget=budget, depth=depth,
                    support_size=support_size, rule=rule,
                )  # fmt: skip
                yield Shape(vocab, config, enumerated=False, num_points=num_points, bits=TREE_BITS)
