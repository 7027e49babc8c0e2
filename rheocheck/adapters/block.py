"""Block verification of a drafted chain.

Source: Sun et al. (2025), Block Verification Accelerates Speculative Decoding, arXiv:2403.10444,
Algorithm 2. Their M_b and M_s are target and draft; p_i is `weight`, h_i `acceptance`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from rheocheck.adapters.rules import ONE, ZERO, Law, check_positive, excess, normalised
from rheocheck.adapters.single_draft import draft_chain
from rheocheck.errors import InputError
from rheocheck.protocols import Choose, LawFunction, Path


@dataclass(frozen=True, slots=True)
class BlockVerification:
    """Accept the longest prefix that passes its own test; a failed test does not stop the scan.

    Attributes:
      length: Drafted tokens, at least 1.
      residual: "block": max(weight * target - draft, 0), normalised. "token": max(target - draft,
        0), which belongs to the token-wise test and is lossy here from length 2 on.
    """

    length: int = 2
    residual: Literal["block", "token"] = "block"

    def __post_init__(self) -> None:
        """Check the length and the residual's name."""
        check_positive(self.length, "length")
        if self.residual not in ("block", "token"):
            raise InputError(f"residual is {self.residual!r}; required: 'block' or 'token'")

    def smaller(self) -> Iterator["BlockVerification"]:
        """Shorter chains."""
        return (BlockVerification(length, self.residual) for length in range(1, self.length))

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        drafted = draft_chain(draft, self.length, choose)
        weights = [ONE]
        num_accepted = 0
        for position, token in enumerate(drafted):
            ratio = target(drafted[:position])[token] / draft(drafted[:position])[token]
            weights.append(min(ONE, weights[-1] * ratio))
            if choose.bernoulli(
                self._acceptance(target, draft, drafted[: position + 1], weights[-1])
            ):
                num_accepted = position + 1
        path = drafted[:num_accepted]
        if num_accepted == self.length:
            return (*path, choose.categorical(target(path)))
        weight = weights[num_accepted] if self.residual == "block" else ONE
        return (*path, choose.categorical(self._residual(target(path), draft(path), weight)))

    def _acceptance(
        self, target: LawFunction, draft: LawFunction, path: Path, weight: Fraction
    ) -> Fraction:
        if len(path) == self.length:
            return weight
        mass = sum(_excess_weights(target(path), draft(path), weight), ZERO)
        # 0/0: weight 1 and target == draft, where the whole prefix is as likely in both.
        return mass / (mass + 1 - weight) if mass + 1 - weight else ONE

    def _residual(
        self, target: Sequence[Fraction], draft: Sequence[Fraction], weight: Fraction
    ) -> Law:
        law = normalised(_excess_weights(target, draft, weight))
        # Without excess this prefix is kept only if a longer one is, or with its target row.
        return law if law is not None else excess(target, draft) or tuple(target)


def _excess_weights(
    target: Sequence[Fraction], draft: Sequence[Fraction], weight: Fraction
) -> list[Fraction]:
    return [max(weight * t - d, ZERO) for t, d in zip(target, draft, strict=True)]


sampler = BlockVerification()
