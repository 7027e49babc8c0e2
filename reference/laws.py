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

from rheocheck.errors import InputError, LawError

Law: TypeAlias = tuple[Fraction, ...]
Path: TypeAlias = tuple[int, ...]
LawLike: TypeAlias = Sequence[Any] | NDArray[Any]
Target: TypeAlias = Callable[[Path], LawLike]
Draft: TypeAlias = Callable[[Path], LawLike]
ZERO, ONE = Fraction(0), Fraction(1)


def as_law(values: LawLike, vocab: int | None = None, name: str = "law") -> Law:
    """Check one law and return it as Fractions.

    Args:
      values: [vocab] probabilities: ints, Fractions or other exact rationals, in any sequence
        (tuple, list, object array). Zeros are legal.
      vocab: Length required; None accepts any positive length.
      name: What to call the law in an error.

    Returns:
      [vocab] probabilities, summing to exactly 1.

    Raises:
      LawError: A float or another inexact entry, a negative entry, the wrong length, no entry at
        all, or a sum other than 1.
    """
    unordered = isinstance(values, str | bytes | Mapping | Set | KeysView)
    if unordered or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise LawError(
            f"{name} is {_shown(values)}; required: a sequence of exact rationals, one a token"
        )
    law = tuple(as_exact(mass, f"{name}[{index}]") for index, mass in enumerate(values))
    if vocab is not None and len(law) != vocab:
        raise LawError(f"{name} has {len(law)} tokens; required: {vocab}, one a vocabulary token")
    if not law:
        raise LawError(f"{name} is empty; required: at least one token")
    total = exact_sum(law)
    if total != 1:
        raise LawError(f"{name} sums to {total}; required: exactly 1")
    return law


def as_draft(values: LawLike, vocab: int | None = None, name: str = "draft") -> tuple[Law, Law]:
    """Check what a draft gives at one path and return its two laws.

    Args:
      values: One law, or a 2-tuple of laws (ranking, tempered draft). A tuple of two numbers is one
        law on two tokens.
      vocab: Length required of each law.
      name: What to call it in an error.

    Returns:
      ranking: [vocab] law that orders and scores tokens.
      draft: [vocab] law that probes are drawn from; the same object when one law was given.

    Raises:
      LawError: Either law is not one; the two differ in length.
    """
    if isinstance(values, tuple) and len(values) == 2 and hasattr(values[0], "__len__"):
        ranking = as_law(values[0], vocab, f"{name}, ranking law")
        return ranking, as_law(values[1], len(ranking), f"{name}, tempered law")
    law = as_law(values, vocab, name)
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


class Models:
    """A target and a draft, checked once a path and remembered.

    Both enumerators read laws through this class: it is all they share.
    """

    def __init__(self, target: Target, draft: Draft) -> None:
        """Remember two callables; nothing is asked yet.

        Args:
          target: path -> [vocab] law.
          draft: path -> [vocab] law, or a 2-tuple of laws (ranking, tempered draft).

        Raises:
          InputError: Either is not callable.
        """
        check_callable(target, "target")
        check_callable(draft, "draft")
        self._target = target
        self._draft = draft
        self._target_laws: dict[Path, Law] = {}
        self._draft_laws: dict[Path, tuple[Law, Law]] = {}
        self._vocab: int | None = None

    @property
    def vocab(self) -> int:
        """Number of tokens: the length of the target law at the root."""
        return len(self.target(())) if self._vocab is None else self._vocab

    def target(self, path: Path) -> Law:
        """[vocab] target law after `path`, which may have target probability 0."""
        law = self._target_laws.get(path)
        if law is None:
            law = as_law(self._target(path), self._vocab, f"target({path})")
            self._target_laws[path] = law
            self._vocab = len(law)
        return law

    def draft(self, path: Path) -> tuple[Law, Law]:
        """[vocab] ranking law and [vocab] tempered draft after `path`."""
        laws = self._draft_laws.get(path)
        if laws is None:
            laws = as_draft(self._draft(path), self.vocab, f"draft({path})")
            self._draft_laws[path] = laws
        return laws


def check_callable(value: object, name: str) -> None:
    """Refuse a `value` that cannot be asked for laws.

    Raises:
      InputError: It is not callable.
    """
    if not callable(value):
        raise InputError(
            f"{name} is {_shown(value)}; required: a callable that takes a path (a tuple of "
            f"tokens) and returns the law of the next token"
        )


def as_exact(value: Any, name: str) -> Fraction:
    """Check one probability or weight.

    Args:
      value: An int, Fraction or other exact rational.
      name: What to call it in an error.

    Returns:
      The value as a Fraction, at least 0.

    Raises:
      LawError: It is a float or another inexact number, or negative.
    """
    if type(value) is Fraction:
        fraction = value
    elif isinstance(value, numbers.Rational):
        # NumPy's integers are Rational but keep their width: int() frees them of overflow.
        fraction = Fraction(int(value.numerator), int(value.denominator))
    else:
        raise LawError(
            f"{name} is {_shown(value)}; required: an exact rational such as Fraction(1, 3)"
        )
    if fraction.numerator < 0:
        raise LawError(f"{name} is {fraction}; required: a probability, at least 0")
    return fraction


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"
