"""Arithmetic on laws that the rules in this folder share, in exact rationals."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from rheocheck.errors import InputError

Law: TypeAlias = tuple[Fraction, ...]
ZERO, ONE = Fraction(0), Fraction(1)


def normalised(weights: Sequence[Fraction]) -> Law | None:
    """[vocab] weights over their sum; None if they are all 0."""
    total = sum(weights, ZERO)
    return tuple(weight / total for weight in weights) if total else None


def excess(target: Sequence[Fraction], draft: Sequence[Fraction]) -> Law | None:
    """[vocab] max(target - draft, 0), normalised; None if target <= draft everywhere."""
    return normalised([max(t - d, ZERO) for t, d in zip(target, draft, strict=True)])


def without(law: Sequence[Fraction], token: int) -> Law | None:
    """[vocab] law with `token` struck out, normalised; None if nothing else has mass."""
    return normalised([ZERO if index == token else mass for index, mass in enumerate(law)])


def acceptance(target: Fraction, draft: Fraction) -> Fraction:
    """min(1, target / draft) for a token that was drafted, so that its draft mass is positive."""
    return min(ONE, target / draft)


def ranked(law: Sequence[Fraction]) -> list[int]:
    """Tokens of positive mass by (mass descending, id ascending)."""
    positive = [token for token, mass in enumerate(law) if mass]
    return sorted(positive, key=lambda token: (-law[token], token))


def check_positive(value: object, name: str) -> None:
    """Refuse a size of an adapter that is no int of at least 1.

    Raises:
      InputError: It is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r}; required: an int, at least 1")
