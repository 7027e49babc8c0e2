"""How far two laws of one context are apart, and how much of that rounding explains."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rheocheck.audit.laws import total_variation

# Stands for a probability of 0 under a logarithm: mass that the other law lacks costs 708 nats.
SMALLEST = float(np.finfo(np.float64).tiny)


# Two evaluations of one law in single precision differ by some 1e-6; a thousand times that is no
# rounding.
SINGLE_PRECISION = ("torch.float32", "torch.float64")
SINGLE_LIMIT = 1e-3
# Half precision: so many times the null arm's largest distance is no rounding either.
NULL_FACTOR = 6.0
# Nor is less than this called a fault: what neighbouring roundings of logits of 16 make.
LEAST_LOGIT = 16.0
EPS = {"torch.bfloat16": 2.0**-7, "torch.float16": 2.0**-10}


@dataclass(frozen=True, slots=True, eq=False)
class LawDistances:
    """Laws beside the plain ones, one entry a context.

    Attributes:
      total_variation: [contexts] in [0, 1]; 1 where a law is not a number.
      divergence: [contexts] KL(plain || other) in nats, finite: mass where the other law has none
        counts 708 nats.
      margin: [contexts] log of the plain law's largest probability over its second, in nats.
      is_flip: [contexts] whether the most probable token is another.
      gap: [contexts] at a flip: log of the plain law's largest probability over that of the other
        law's most probable token, in nats; else 0.
      rounding: [contexts] nats by which rounding may move one log-weight.
    """

    total_variation: NDArray[np.float64]
    divergence: NDArray[np.float64]
    margin: NDArray[np.float64]
    is_flip: NDArray[np.bool_]
    gap: NDArray[np.float64]
    rounding: NDArray[np.float64]

    def __len__(self) -> int:
        """Contexts."""
        return len(self.gap)

    @property
    def is_unexplained_flip(self) -> NDArray[np.bool_]:
        """[contexts] flips over a gap that rounding, once for each of the two, does not close."""
        explained: NDArray[np.bool_] = self.gap <= 2 * self.rounding
        return self.is_flip & ~explained

    @property
    def rounding_variation(self) -> NDArray[np.float64]:
        """[contexts] the largest total variation that moving each log-weight by `rounding` makes.

        With some log-weights up and the others down by e the log odds of a set move from -e to e at
        the most, which is tanh(e / 2) of mass.
        """
        bound: NDArray[np.float64] = np.tanh(self.rounding / 2)
        return bound


def law_distances(
    other: NDArray[np.float64], plain: NDArray[np.float64], rounding: NDArray[np.float64]
) -> LawDistances:
    """Compare laws.

    Args:
      other: [contexts, vocab] laws; rows that are not numbers are as far away as can be.
      plain: [contexts, vocab] laws of the same contexts by plain decoding.
      rounding: [contexts] nats by which rounding may move one log-weight.

    Returns:
      The distances.
    """
    good = np.asarray(np.isfinite(other + plain).all(axis=1), dtype=np.bool_)
    first = np.where(good[:, None], other, 0.0)
    second = np.where(good[:, None], plain, 0.0)
    terms = special.kl_div(second, np.maximum(first, SMALLEST))
    rows = np.arange(len(plain))
    best, chosen = second.argmax(axis=1), first.argmax(axis=1)
    if plain.shape[1] > 1:
        two = np.partition(second, -2, axis=1)[:, -2:]
    else:
        two = np.stack([np.zeros(len(plain)), second[:, 0]], axis=1)
    top = np.log(np.maximum(two[:, 1], SMALLEST))
    is_flip = (best != chosen) | ~good
    gap = top - np.log(np.maximum(second[rows, chosen], SMALLEST))
    return LawDistances(
        total_variation=np.where(good, total_variation(first, second), 1.0),
        divergence=np.where(good, np.maximum(terms.sum(axis=1), 0.0), -np.log(SMALLEST)),
        margin=np.where(good, top - np.log(np.maximum(two[:, 0], SMALLEST)), 0.0),
        is_flip=is_flip,
        gap=np.where(good, np.where(is_flip, gap, 0.0), -np.log(SMALLEST)),
        rounding=np.asarray(rounding, dtype=np.float64),
    )


def join_distances(parts: Sequence[LawDistances]) -> LawDistances:
    """The distances of several sets of contexts; of none where there is none."""
    if not parts:
        return law_distances(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros(0))
    names = [entry.name for entry in fields(LawDistances)]
    return LawDistances(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def half_least(dtype: str, temperature: float) -> float:
    """Total variation below which no token in half precision is called a fault.

    Args:
      dtype: "torch.bfloat16" or "torch.float16"; any other counts as the coarser one.
      temperature: Above 0.
    """
    eps = EPS.get(dtype, max(EPS.values()))
    return float(np.tanh(LEAST_LOGIT * eps / temperature / 2))
