"""Speculative sampling with one drafted chain.

Source: Leviathan, Kalman and Matias (2023), arXiv:2211.17192, Algorithm 1; Chen et al. (2023),
arXiv:2302.01318, Algorithm 2. Their p is `target` here and their q is `draft`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rheocheck.adapters.rules import acceptance, check_positive, excess
from rheocheck.protocols import Choose, LawFunction, Path


@dataclass(frozen=True, slots=True)
class SingleDraft:
    """Draft a chain, keep its longest accepted prefix, then one residual or bonus token.

    Attributes:
      length: Drafted tokens of a round, at least 1.
    """

    length: int = 2

    def __post_init__(self) -> None:
        """Check the length."""
        check_positive(self.length, "length")

    def smaller(self) -> Iterator["SingleDraft"]:
        """Shorter chains."""
        return (SingleDraft(length) for length in range(1, self.length))

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        drafted = draft_chain(draft, self.length, choose)
        for position, token in enumerate(drafted):
            path = drafted[:position]
            wanted, proposed = target(path), draft(path)
            if not choose.bernoulli(acceptance(wanted[token], proposed[token])):
                residual = excess(wanted, proposed)
                assert residual is not None  # a rejection means target < draft somewhere
                return (*path, choose.categorical(residual))
        return (*drafted, choose.categorical(target(drafted)))


def draft_chain(draft: LawFunction, length: int, choose: Choose) -> Path:
    """Draw a chain of `length` tokens from the draft."""
    drafted: Path = ()
    for _ in range(length):
        drafted = (*drafted, choose.categorical(draft(drafted)))
    return drafted


sampler = SingleDraft()
