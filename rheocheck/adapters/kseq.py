"""K-SEQ: several independent drafts against one scaled test, with the residual that belongs to it.

Source: Sun et al. (2023), SpecTr, arXiv:2310.15141, Algorithm 3 and Section 5. Their p and q are
draft and target; rho is `scale` here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from rheocheck.adapters.rules import ONE, ZERO, Law, check_positive, excess, normalised
from rheocheck.errors import InputError
from rheocheck.protocols import Choose, LawFunction, Path


@dataclass(frozen=True, slots=True)
class KSeq:
    """`width` independent chains; at each position those that agree with the accepted prefix race.

    Candidate x of n is accepted with min(1, target(x) / (scale * draft(x))), scale = n.

    Attributes:
      width: Chains, at least 1.
      depth: Length of each chain, at least 1.
      residual: "kseq": target minus the exact law of the accepted token. "single": max(target -
        draft, 0) normalised, which belongs to one draft and is lossy with several.
    """

    width: int = 2
    depth: int = 1
    residual: Literal["kseq", "single"] = "kseq"

    def __post_init__(self) -> None:
        """Check the sizes and the residual's name."""
        check_positive(self.width, "width")
        check_positive(self.depth, "depth")
        if self.residual not in ("kseq", "single"):
            raise InputError(f"residual is {self.residual!r}; required: 'kseq' or 'single'")

    def smaller(self) -> Iterator["KSeq"]:
        """Fewer and shorter chains."""
        for depth in range(1, self.depth + 1):
            for width in range(1, self.width + 1):
                if (width, depth) != (self.width, self.depth):
                    yield KSeq(width, depth, self.residual)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        chains = [self._drafted(draft, choose) for _ in range(self.width)]
        path: Path = ()
        while len(path) < self.depth:
            wanted, proposed = target(path), draft(path)
            tokens = [chain[len(path)] for chain in chains if chain[: len(path)] == path]
            scale = Fraction(len(tokens))
            for token in tokens:
                if choose.bernoulli(min(ONE, wanted[token] / (scale * proposed[token]))):
                    path = (*path, token)
                    break
            else:
                return (*path, choose.categorical(self._residual(wanted, proposed, len(tokens))))
        return (*path, choose.categorical(target(path)))

    def _drafted(self, draft: LawFunction, choose: Choose) -> Path:
        chain: Path = ()
        while len(chain) < self.depth:
            chain = (*chain, choose.categorical(draft(chain)))
        return chain

    def _residual(self, target: Sequence[Fraction], draft: Sequence[Fraction], count: int) -> Law:
        if self.residual == "single":
            # A rejection is possible with target == draft; this rule then has nothing to offer.
            return excess(target, draft) or tuple(target)
        return kseq_residual(target, draft, count, Fraction(count))


def kseq_residual(
    target: Sequence[Fraction], draft: Sequence[Fraction], count: int, scale: Fraction
) -> Law:
    """Law of the token emitted when all `count` candidates were rejected.

    Args:
      target: [vocab] target law.
      draft: [vocab] law of each candidate.
      count: Candidates, at least 1.
      scale: Divides the ratio in the accept test, between 1 and `count`.

    Returns:
      [vocab] target minus the law of an accepted token, normalised. An accepted token is x with
      min(draft, target / scale)(x) * (1 - (1 - b)^count) / b, b the sum of those minima.

    Raises:
      InputError: `scale` is so small that the residual is negative somewhere, or has no mass.
    """
    kept = [min(d, t / scale) for t, d in zip(target, draft, strict=True)]
    one = sum(kept, ZERO)
    factor = (1 - (1 - one) ** count) / one if one else ZERO
    left = [t - k * factor for t, k in zip(target, kept, strict=True)]
    worst = min(range(len(left)), key=left.__getitem__)
    if left[worst] < 0:
        raise InputError(
            f"scale is {scale}: the residual of token {worst} is {left[worst]}; required: a scale "
            f"of at least the acceptance ratio, such as count = {count}"
        )
    law = normalised(left)
    if law is None:
        raise InputError(
            f"scale is {scale} with {count} candidates, which are then never all rejected; "
            f"required: a scale above the acceptance ratio, such as count = {count}"
        )
    return law


sampler = KSeq()
