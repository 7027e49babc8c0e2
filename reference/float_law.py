"""The law that floating-point code actually implements, as exact integers.

A float is a dyadic rational and a uniform of b bits is k / 2^b with k one of 2^b equally likely
integers. So an accept test `uniform < acceptance` and a draw from rounded running sums have exact
probabilities: numbers of k over 2^b. Nothing is sampled and nothing is rounded here; floats are
only read. All denominators are powers of two, hence laws are lists of integers over one exponent,
which at 128,256 tokens is several times faster than fractions.

Source: the test is Leviathan, Kalman and Matias (2023), arXiv:2211.17192, Algorithm 1; drawing by
inverting a running sum is Devroye (1986), Non-Uniform Random Variate Generation, section III.2.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rheocheck.errors import InputError
from rheocheck.reference.weighted_counts import weighted_counts

Floats: TypeAlias = NDArray[np.floating[Any]]
UNIFORM_BITS = 53


@dataclass(frozen=True, slots=True)
class DyadicLaw:
    """Masses `numerators / 2^exponent`, not necessarily summing to 1.

    Attributes:
      numerators: [vocab] integers >= 0.
      exponent: Of the common denominator, >= 0.
    """

    numerators: list[int]
    exponent: int

    @property
    def total(self) -> Fraction:
        """Sum of the masses."""
        return Fraction(sum(self.numerators), 1 << self.exponent)

    def fractions(self) -> tuple[Fraction, ...]:
        """[vocab] the masses as they are, not normalised."""
        return tuple(Fraction(mass, 1 << self.exponent) for mass in self.numerators)


@dataclass(frozen=True, slots=True)
class Branch:
    """One outcome of a node's probe, and what verification then does.

    Attributes:
      weight: Uniforms, out of 2^bits, that draw this probe.
      tests: (token, uniforms out of 2^bits that accept it), in order.
      final: Index of the draw made once all tests have failed.
    """

    weight: int
    tests: tuple[tuple[int, int], ...]
    final: int


def read_floats(values: Floats) -> DyadicLaw:
    """Read floats as the dyadic rationals they are.

    Args:
      values: [items] finite and non-negative, float64 or narrower; not necessarily normalised.

    Returns:
      The same numbers as integers over a power of two.

    Raises:
      InputError: A negative, infinite or NaN entry; a type wider than float64.
    """
    wide = _checked(values)
    fraction, exponent = np.frexp(wide)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    shift = exponent.astype(np.int64) - 53
    used = shift[mantissa != 0]
    lowest = min(int(used.min()), 0) if used.size else 0
    shifts = np.where(mantissa != 0, shift - lowest, 0)
    pairs = zip(mantissa.tolist(), shifts.tolist(), strict=True)
    return DyadicLaw([mass << places for mass, places in pairs], -lowest)


def accept_counts(acceptance: Floats, bits: int = UNIFORM_BITS) -> NDArray[np.int64]:
    """For how many uniforms `uniform < acceptance` holds.

    Args:
      acceptance: [tests] thresholds of any float type; NaN never accepts.
      bits: Uniforms are k / 2^bits, 0 <= k < 2^bits; at most 53.

    Returns:
      [tests] counts, 0 for thresholds <= 0, 2^bits for thresholds >= 1.
    """
    wide = np.asarray(acceptance, dtype=np.float64)
    inside = np.where(wide > 0, np.minimum(wide, 1.0), 0.0)
    # Scaling by a power of two is exact, and so is rounding up to an integer.
    return np.ceil(np.ldexp(inside, bits)).astype(np.int64)


def draw_counts(
    running: Floats,
    positive: NDArray[np.bool_],
    bits: int = UNIFORM_BITS,
    *,
    scaled: bool = True,
) -> NDArray[np.int64]:
    """For how many uniforms a draw from running sums returns each item.

    The draw: the first item of positive mass whose running sum exceeds uniform * total, the product
    rounded to the sums' own type; where there is none, the last item of positive mass.

    Args:
      running: [items] running sums as computed, float32 or float64; rounded sums need not be
        monotone.
      positive: [items] True where the item's own mass is positive; True somewhere.
      bits: Uniforms are k / 2^bits; at most the precision of the sums' type (24 or 53).
      scaled: False compares the running sum with the uniform itself, total or not.

    Returns:
      [items] counts, summing to 2^bits; 0 wherever `positive` is False.

    Raises:
      InputError: No positive mass, or uniforms finer than the type of the sums.
    """
    if not positive.any():
        raise InputError("running sums of no positive mass were given; required: some mass")
    limit = np.finfo(running.dtype).nmant + 1
    if bits > limit:
        raise InputError(
            f"bits = {bits} uniforms against sums of {running.dtype}; required: at most {limit}"
        )
    total = running[-1] if scaled else running.dtype.type(1)
    below = np.where(positive, _num_below(running, total, bits), 0)
    reached = np.maximum.accumulate(below)
    last = int(np.flatnonzero(positive)[-1])
    reached[last:] = 1 << bits
    return np.diff(reached, prepend=0)


def node_law(
    branches: Iterable[Branch], finals: Sequence[NDArray[np.int64]], bits: int = UNIFORM_BITS
) -> DyadicLaw:
    """Exact law of the token that follows a node.

    Args:
      branches: Outcomes of the probe; their weights sum to 2^bits. A node without probe has one
        branch of weight 2^bits.
      finals: Draws that branches refer to: [vocab] counts that sum to 2^bits each. Branches whose
        rounded residuals are equal share one, which is what keeps this fast.
      bits: Bits of every uniform.

    Returns:
      [vocab] law; it sums to exactly 1.
    """
    listed = list(branches)
    one = 1 << bits
    longest = max((len(branch.tests) for branch in listed), default=0)
    exponent = bits * (longest + 2)
    law = [0] * len(finals[0])
    weights = [0] * len(finals)
    for branch in listed:
        # `reached` is the mass of coming this far, over 2^(bits * (1 + tests made)).
        reached = branch.weight
        left = exponent - bits
        for token, count in branch.tests:
            left -= bits
            law[token] += (reached * count) << left
            reached *= one - count
        weights[branch.final] += reached << (left - bits)
    for token, mass in enumerate(weighted_counts(weights, finals)):
        law[token] += mass
    return DyadicLaw(law, exponent)


def exact_distance(law: DyadicLaw, ideal: DyadicLaw) -> Fraction:
    """Total variation between two laws, each normalised by its own exact sum.

    Args:
      law: [vocab] masses of positive sum.
      ideal: [vocab] masses of positive sum: weights will do.

    Returns:
      Half the sum of absolute differences, exactly.

    Raises:
      InputError: Different lengths, or a sum of zero.
    """
    if len(law.numerators) != len(ideal.numerators):
        raise InputError(
            f"laws of {len(law.numerators)} and {len(ideal.numerators)} tokens; required: equal"
        )
    mass, ideal_mass = sum(law.numerators), sum(ideal.numerators)
    if mass == 0 or ideal_mass == 0:
        raise InputError("a law without mass was given; required: a positive sum")
    common = math.gcd(mass, ideal_mass)
    scale, ideal_scale = ideal_mass // common, mass // common
    pairs = zip(law.numerators, ideal.numerators, strict=True)
    gap = sum([abs(own * scale - wanted * ideal_scale) for own, wanted in pairs])
    return Fraction(gap, 2 * mass * scale)


def _num_below(running: Floats, total: Any, bits: int) -> NDArray[np.int64]:
    """[items] number of k < 2^bits with rounded(k / 2^bits * total) < running.

    Rounding is monotone, so those k are the smallest ones and bisection counts them.
    """
    if running.dtype == np.float64 and bits == UNIFORM_BITS and total > 0:
        counted = _num_below_nearby(running.astype(np.float64), float(total), bits)
        if counted is not None:
            return counted
    one = np.int64(1) << bits
    with np.errstate(all="ignore"):
        guess = np.ldexp(running.astype(np.float64) / np.float64(total), bits)
    near = np.clip(np.nan_to_num(guess, nan=0.0), 0, float(one)).astype(np.int64)
    # The guess is off by a few units in the last place; the check widens where it is not enough.
    low, high = np.maximum(near - 8, 0), np.minimum(near + 8, one)
    low = np.where((low > 0) & ~_is_below(low - 1, running, total, bits), 0, low)
    high = np.where((high < one) & _is_below(high, running, total, bits), one, high)
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) >> 1
        below = open_ & _is_below(middle, running, total, bits)
        low, high = np.where(below, middle + 1, low), np.where(open_ & ~below, middle, high)


def _num_below_nearby(
    running: NDArray[np.float64], total: float, bits: int
) -> NDArray[np.int64] | None:
    """`_num_below` by looking at six values about the quotient; None where these do not settle it.

    Everything is float64: integers up to 2^53 are, and so is their product with a power of two.
    """
    one, unit = float(1 << bits), 2.0**-bits
    with np.errstate(all="ignore"):
        first = np.clip(np.floor(running / total * one) - 2, 0.0, one - 4)
    if not np.isfinite(first).all():
        return None

    def below(count: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(count * unit * total < running)

    if not (below(first - 1) | (first == 0)).all() or (below(first + 4) & (first < one - 4)).any():
        return None
    count = first.copy()
    for step in range(4):
        count += below(first + step)
    counted: NDArray[np.int64] = count.astype(np.int64)
    return counted


def _is_below(
    count: NDArray[np.int64], running: Floats, total: Any, bits: int
) -> NDArray[np.bool_]:
    uniform = np.ldexp(count.astype(np.float64), -bits).astype(running.dtype)
    return np.asarray(uniform * total < running)


def _checked(values: Floats) -> NDArray[np.float64]:
    given = np.asarray(values)
    if given.dtype.itemsize > 8 or not np.issubdtype(given.dtype, np.floating):
        raise InputError(f"masses of type {given.dtype} were given; required: float64 or narrower")
    bad = np.flatnonzero(~np.isfinite(given) | (given < 0))
    if bad.size:
        index = int(bad[0])
        raise InputError(f"mass[{index}] is {given[index]}; required: finite and at least 0")
    return given.astype(np.float64)
