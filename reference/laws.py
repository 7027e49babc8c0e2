"""Laws as exact rationals: what is accepted at the public edge, and the draft's truncation.

A law is a tuple of Fractions that sums to 1. Nothing here rounds: a float is refused, because a
float that looks like 1/3 is not 1/3, and a certificate about it would be about another law.
"""

import math
import numbers
from collections.abc import Callable, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from numpy.typing import NDArray

from rheocheck.errors import (
    InputError,
    LawError,
    RheocheckError,
    shown,
    shown_error,
    shown_with_type,
)

Law: TypeAlias = tuple[Fraction, ...]
Path: TypeAlias = tuple[int, ...]
LawLike: TypeAlias = Sequence[Any] | NDArray[Any]
Target: TypeAlias = Callable[[Path], LawLike]
Draft: TypeAlias = Callable[[Path], LawLike]
ZERO, ONE = Fraction(0), Fraction(1)


def as_law(
    values: LawLike,
    vocab: int | None = None,
    name: object = "law",
    like: object = "one a vocabulary token",
) -> Law:
    """Check one law and return it as Fractions.

    Args:
      values: [vocab] probabilities: ints, Fractions or other exact rationals, in any sequence
        (tuple, list, object array). Zeros are legal.
      vocab: Length required; None accepts any positive length.
      name: What to call the law in an error; its text is made only then.
      like: Why that length is required, likewise.

    Returns:
      [vocab] probabilities, summing to exactly 1.

    Raises:
      LawError: A float, a bool or another entry that is no exact number, a negative entry, the
        wrong length, no entry at all, or a sum other than 1.
    """
    unordered = isinstance(values, str | bytes | Mapping | Set | KeysView)
    if unordered or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise LawError(
            f"{name} is {shown_with_type(values)}; required: a sequence of exact rationals, one a "
            f"token"
        )
    try:
        entries = tuple(values)
    except RheocheckError:
        raise
    except Exception as error:  # a sequence of the user's own
        raise LawError(
            f"{name} cannot be read ({shown_error(error)}); required: a sequence of exact "
            f"rationals, one a token"
        ) from error
    law = tuple(
        [
            mass
            if type(mass) is Fraction and mass.numerator >= 0
            else as_exact(mass, f"{name}[{index}]")
            for index, mass in enumerate(entries)
        ]
    )
    if vocab is not None and len(law) != vocab:
        raise LawError(f"{name} has {len(law)} tokens; required: {vocab}, {like}")
    if not law:
        raise LawError(f"{name} is empty; required: at least one token")
    total = exact_sum(law)
    if total != 1:
        raise LawError(f"{name} sums to {shown(total)}; required: exactly 1")
    return law


def as_draft(
    values: LawLike,
    vocab: int | None = None,
    name: object = "draft",
    like: object = "one a vocabulary token",
) -> tuple[Law, Law]:
    """Check what a draft gives at one path and return its two laws.

    Args:
      values: One law, or a 2-tuple of laws (ranking, tempered draft). A tuple of two numbers is one
        law on two tokens.
      vocab: Length required of each law.
      name: What to call it in an error; its text is made only then.
      like: Why that length is required, likewise.

    Returns:
      ranking: [vocab] law that orders and scores tokens.
      draft: [vocab] law that probes are drawn from; the same object when one law was given.

    Raises:
      LawError: Either law is not one; the two differ in length.
    """
    if isinstance(values, tuple) and len(values) == 2 and hasattr(values[0], "__len__"):
        ranking = as_law(values[0], vocab, f"{name}, ranking law", like)
        if vocab is None:
            like = "as its ranking law has"
        return ranking, as_law(values[1], len(ranking), f"{name}, tempered law", like)
    law = as_law(values, vocab, name, like)
    return law, law


@dataclass(frozen=True, slots=True)
class Support:
    """A truncated draft: its tokens in rank order, and both laws on them.

    Attributes:
      tokens: [rank] token ids by (ranking descending, id ascending), all of positive ranking.
      ranking: [rank] ranking law restricted to `tokens`, renormalised: positive, sums to 1.
      draft: [rank] tempered draft restricted to `tokens`, renormalised; all zero where it has no
        mass on any of them.
    """

    tokens: tuple[int, ...]
    ranking: Law
    draft: Law


def truncate(ranking: Law, draft: Law, support_size: int) -> Support:
    """Keep the draft's `support_size` most probable tokens.

    Ties go to the smaller token id; tokens of ranking 0 are never kept, so the support may be
    smaller than `support_size`. Both laws are restricted to the same tokens.

    Args:
      ranking: [vocab] law that decides which tokens stay.
      draft: [vocab] law that probes are drawn from.
      support_size: Most tokens to keep, at least 1.

    Returns:
      The support, never empty.

    Source: Hu, Weng and Zhang (2026), arXiv:2609.21827; truncation before the softmax of both laws.
    """
    shares, _ = numerators(ranking)
    # A stable sort: equal shares keep the order of their token ids.
    ranked = sorted(range(len(shares)), key=shares.__getitem__, reverse=True)
    tokens = tuple(token for token in ranked[:support_size] if shares[token])
    kept = normalised([ranking[token] for token in tokens])
    drawn = kept if draft is ranking else normalised([draft[token] for token in tokens])
    return Support(tokens, kept, drawn)


def numerators(masses: Sequence[Fraction]) -> tuple[list[int], int]:
    """Bring Fractions to one denominator: integers compare and add without a gcd each time.

    Returns:
      [item] integer numerators.
      Their common denominator.
    """
    scale = math.lcm(*(mass.denominator for mass in masses))
    return [mass.numerator * (scale // mass.denominator) for mass in masses], scale


def exact_sum(masses: Sequence[Fraction]) -> Fraction:
    """Sum of `masses`; 0 if there are none."""
    shares, scale = numerators(masses)
    return Fraction(sum(shares), scale)


def normalised(masses: Sequence[Fraction]) -> Law:
    """`masses` over their sum; all zero where the sum is 0."""
    shares, _ = numerators(masses)
    total = sum(shares)
    return tuple(Fraction(share, total) if share else ZERO for share in shares)


def as_exact(value: Any, name: str) -> Fraction:
    """Check one probability or weight.

    Args:
      value: An int, Fraction or other exact rational.
      name: What to call it in an error.

    Returns:
      The value as a Fraction, at least 0.

    Raises:
      LawError: It is a float or another inexact number, a bool, or negative.
    """
    if type(value) is Fraction:
        fraction = value
    elif isinstance(value, numbers.Rational) and not isinstance(value, bool):
        # NumPy's integers are Rational but keep their width: int() frees them of overflow.
        fraction = Fraction(int(value.numerator), int(value.denominator))
    else:
        raise LawError(
            f"{name} is {shown_with_type(value)}; required: an exact rational such as "
            f"Fraction(1, 3)"
        )
    if fraction.numerator < 0:
        raise LawError(f"{name} is {shown(fraction)}; required: a probability, at least 0")
    return fraction


def check_count(value: object, name: str, least: int = 0) -> None:
    """Refuse a `value` that is no count.

    Raises:
      InputError: It is below `least`, or no int.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        # np.int64(5) and Fraction(5) print as an int would: the type is what is wrong with them.
        unlike = isinstance(value, numbers.Rational) and not isinstance(value, int)
        text = shown_with_type(value) if unlike else shown(value)
        raise InputError(f"{name} is {text}; required: an int, at least {least}")


def check_bound(value: object, name: str) -> None:
    """Refuse a `value` that bounds nothing: neither None nor an int of at least 1.

    Raises:
      InputError: It is something else.
    """
    if value is not None:
        check_count(value, name, 1)
