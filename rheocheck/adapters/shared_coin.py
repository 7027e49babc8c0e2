"""One coin a node for all of its children: the target-only tree rule of SGLang.

The children's target masses are summed in slot order and the node's coin is compared with the sum,
as in an inverse CDF. With distinct siblings and thresholds 1 that is exact; a repeated sibling is
counted twice, and thresholds below 1 accept more than the target gives.

Source: the rule as read in SGLang's tree_speculative_sampling_target_only, written anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.adapters.rules import ONE, ZERO, check_positive
from rheocheck.adapters.trees import ranked_tree
from rheocheck.adapters.uniforms import Uniform, draw_uniform
from rheocheck.errors import InputError
from rheocheck.protocols import Choose, LawFunction, Path, note


@dataclass(frozen=True, slots=True)
class SharedCoin:
    """Deterministic children by rank in the draft, one coin a node, one coin for the last token.

    Attributes:
      slots: Rank of each child in the draft; a repeated rank is a duplicate sibling.
      depth: Levels, at least 1.
      threshold_single: Accept a child of at least this target mass whatever the coin.
      threshold_acc: Divides the summed mass that the coin is compared with.
    """

    slots: tuple[int, ...] = (0, 1)
    depth: int = 1
    threshold_single: Fraction = ONE
    threshold_acc: Fraction = ONE

    def __post_init__(self) -> None:
        """Check the sizes and thresholds."""
        check_positive(self.depth, "depth")
        for name in ("threshold_single", "threshold_acc"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise InputError(f"{name} is {value}; required: a fraction above 0, at most 1")

    def smaller(self) -> Iterator["SharedCoin"]:
        """Shallower trees, and trees without one of the children."""
        for depth in range(1, self.depth + 1):
            for left_out in range(len(self.slots) + 1):
                slots = self.slots[:left_out] + self.slots[left_out + 1 :]
                if slots and (slots, depth) != (self.slots, self.depth):
                    yield SharedCoin(slots, depth, self.threshold_single, self.threshold_acc)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        node = ranked_tree(draft, self.slots, self.depth)
        note(choose, "tree", node.paths())
        struck: list[Fraction] = []
        while node.children:
            law = target(node.path)
            coin = draw_uniform(choose, f"coin at {node.path}")
            summed, struck = ZERO, [ZERO] * len(law)
            for child in node.children:
                token = child.path[-1]
                summed += law[token]
                if coin <= summed / self.threshold_acc or law[token] >= self.threshold_single:
                    node, struck = child, [ZERO] * len(law)
                    break
                struck[token] = law[token]
            else:
                break
        law = target(node.path)
        left = [max(t - d, ZERO) for t, d in zip(law, struck or [ZERO] * len(law), strict=True)]
        return (*node.path, inverse_cdf(left, draw_uniform(choose, "final coin")))


def inverse_cdf(weights: Sequence[Fraction], uniform: Uniform) -> int:
    """First token whose cumulated weight exceeds uniform * sum; the last token if there is none."""
    total = sum(weights, ZERO)
    cumulated = ZERO
    for token, weight in enumerate(weights):
        cumulated += weight
        if uniform * total < cumulated:
            return token
    return len(weights) - 1


sampler = SharedCoin()
