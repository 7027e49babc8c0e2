"""Laws of one node as arrays: exact rationals or float64, through the same code.

Every formula of this package is written once, on arrays of shape [..., vocab]. An array of dtype
object holds Fractions and gives Fractions; a float64 array gives floats. Laws are validated here,
once; the formulas trust what they are given.
"""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rheocheck.errors import ConfigError, InputError, LawError

Array: TypeAlias = npt.NDArray[Any]
Tokens: TypeAlias = npt.NDArray[np.intp]
Number: TypeAlias = Fraction | float
LawLike: TypeAlias = Sequence[Any] | Array
DraftLike: TypeAlias = LawLike | tuple[LawLike, LawLike]

# A float32 softmax over 128k tokens sums to 1 within about 4e-6. More is a wrong law, not rounding.
SUM_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class NodeLaws:
    """The laws of one node, of one kind and one vocabulary.

    Attributes:
      target: [..., vocab] target law.
      ranking: [..., vocab] draft law that orders and scores tokens.
      draft: [..., vocab] tempered draft law that probes are drawn from.
    """

    target: Array
    ranking: Array
    draft: Array

    @property
    def exact(self) -> bool:
        """Whether the laws are Fractions."""
        return is_exact(self.target)

    def as_rationals(self) -> "NodeLaws":
        """The same laws with each float read as the dyadic rational it is, rescaled to sum to 1."""
        ranking = _as_rationals(self.ranking)
        draft = ranking if self.draft is self.ranking else _as_rationals(self.draft)
        return NodeLaws(_as_rationals(self.target), ranking, draft)


def read_node(target: LawLike, draft: DraftLike) -> NodeLaws:
    """Check the laws of one node.

    Args:
      target: [vocab] target law: Fractions and ints, or floats.
      draft: [vocab] draft law, or a 2-tuple (ranking, tempered draft) of laws. A tuple of two
        numbers is one law on two tokens.

    Returns:
      The laws, all exact or all float64. Float laws are divided by their sum.

    Raises:
      LawError: A mass that is negative, not finite or no number; a sum other than 1 (floats: by
        more than SUM_TOLERANCE); laws of different length; Fractions beside floats.
    """
    if is_pair(draft):
        parts = {"target": target, "ranking": draft[0], "draft": draft[1]}
    else:
        parts = {"target": target, "draft": draft}
    raw = {name: _as_array(values, name) for name, values in parts.items()}
    exact = _common_kind(raw)
    laws = {name: _checked(array, name, exact) for name, array in raw.items()}
    vocab = len(laws["target"])
    for name, law in laws.items():
        if len(law) != vocab:
            raise LawError(
                f"{name} has {len(law)} tokens and target has {vocab}; "
                f"required: one vocabulary for all laws of a node"
            )
    return NodeLaws(laws["target"], laws.get("ranking", laws["draft"]), laws["draft"])


def is_pair(draft: DraftLike) -> bool:
    """Whether `draft` is a 2-tuple of laws; a tuple of two numbers is not."""
    return isinstance(draft, tuple) and len(draft) == 2 and hasattr(draft[0], "__len__")


def is_exact(law: Array) -> bool:
    """Whether an array holds Fractions."""
    return law.dtype == object


def check_counts(**counts: int) -> None:
    """Refuse settings that are out of range.

    Args:
      counts: top_k, support_size, num_drafts (each at least 1), num_top (at least 0).

    Raises:
      ConfigError: Names the setting, its value and the least value allowed.
    """
    for name, value in counts.items():
        least = 0 if name == "num_top" else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ConfigError(f"{name} = {value!r}; required: an integer, at least {least}")


def total(array: Array) -> Any:
    """Sum over the last axis; an empty exact sum is the Fraction 0, not the int 0."""
    return np.add.reduce(array, axis=-1, initial=Fraction(0) if is_exact(array) else 0.0)


def scalar(value: Any, exact: bool) -> Number:
    """One number as users get it: a Fraction or a Python float."""
    assert not (exact and isinstance(value, float)), "a float got into exact arithmetic"
    return Fraction(value) if exact else float(value)


def one_like(array: Array) -> Any:
    """1 of the array's kind: dividing two Python ints would leave exact arithmetic."""
    return Fraction(1) if is_exact(array) else 1.0


def ratio(numerator: Any, denominator: Any) -> Any:
    """numerator / denominator, and 0 wherever the denominator is 0.

    The callers weigh the result by a probability that is 0 there.
    """
    zero = denominator == 0
    if not isinstance(zero, np.ndarray):
        return numerator * 0 if zero else numerator / denominator
    quotient: Array = numerator / np.where(zero, one_like(denominator), denominator)
    return np.where(zero, 0, quotient)


def rank_order(ranking: Array, count: int) -> Tokens:
    """The first tokens of a law by (mass descending, token id ascending).

    Args:
      ranking: [..., vocab] laws.
      count: Tokens to return, at most vocab.

    Returns:
      [..., count] token ids. Tokens of mass 0 come last, in token order.
    """
    if ranking.ndim == 1 and count < ranking.shape[-1]:
        kept = largest(ranking, count)
        return kept[np.argsort(-ranking[kept], kind="stable")]
    return np.argsort(-ranking, axis=-1, kind="stable")[..., :count]


def largest(ranking: Array, count: int) -> Tokens:
    """[count] the same tokens as `rank_order` of a [vocab] law, in token order."""
    vocab = len(ranking)
    if count >= vocab:
        return np.arange(vocab)
    if is_exact(ranking):
        return np.sort(np.argsort(-ranking, kind="stable")[:count])
    # A full sort of 128k floats costs ten times this selection. np.partition finds the least mass
    # that is kept; ties at that mass go to the smaller ids, as in the full sort.
    least = np.partition(ranking, vocab - count)[vocab - count]
    above = np.flatnonzero(ranking > least)
    level = np.flatnonzero(ranking == least)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))


def truncated(laws: NodeLaws, support_size: int) -> NodeLaws:
    """Keep the draft's `support_size` most probable tokens; the target keeps its full support.

    Args:
      laws: [vocab] laws of one node.
      support_size: Most tokens of positive ranking to keep; ties go to the smaller id.

    Returns:
      [vocab] laws, both draft laws zero off the support and renormalised on it. A tempered draft
      without mass on the support is left all zero.
    """
    kept = np.zeros(len(laws.ranking), dtype=bool)
    kept[largest(laws.ranking, support_size)] = True
    kept &= np.asarray(laws.ranking > 0, dtype=bool)

    def restricted(law: Array) -> Array:
        inside = np.where(kept, law, 0)
        return np.asarray(ratio(inside, np.broadcast_to(total(inside), inside.shape)))

    ranking = restricted(laws.ranking)
    same = laws.draft is laws.ranking
    return NodeLaws(laws.target, ranking, ranking if same else restricted(laws.draft))


def _as_array(values: LawLike, name: str) -> Array:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise LawError(
            f"{name} is {_shown(values)}; required: a sequence of numbers, one for each token"
        )
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise LawError(
            f"{name} is not a flat sequence of numbers (shape {array.shape}); required: one mass "
            f"for each token, and for two draft laws a 2-tuple (ranking, tempered draft)"
        )
    if array.size == 0:
        raise LawError(f"{name} is empty; required: at least one token")
    if array.dtype.kind not in "iufO":
        raise LawError(
            f"{name}[0] is {_shown(array[0].item())}; required: Fractions, ints or floats"
        )
    return array


def _common_kind(arrays: dict[str, Array]) -> bool:
    """Whether all laws are exact. Whole numbers go with either kind."""
    kinds = {name: _kind(array, name) for name, array in arrays.items()}
    exact = [name for name, kind in kinds.items() if kind == "fraction"]
    floats = [name for name, kind in kinds.items() if kind == "float"]
    if exact and floats:
        raise LawError(
            f"{exact[0]} holds Fractions and {floats[0]} holds floats; required: one kind, "
            f"because a float would make an exact result inexact"
        )
    return not floats


def _kind(array: Array, name: str) -> str:
    if array.dtype.kind == "f":
        return "float"
    if array.dtype.kind in "iu":
        return "whole"
    kinds = set()
    for token, mass in enumerate(array):
        if isinstance(mass, bool) or not isinstance(mass, numbers.Real):
            raise LawError(f"{name}[{token}] is {_shown(mass)}; required: a Fraction or a float")
        if isinstance(mass, numbers.Integral):
            continue
        kinds.add("fraction" if isinstance(mass, numbers.Rational) else "float")
        if len(kinds) > 1:
            raise LawError(
                f"{name}[{token}] is {_shown(mass)} beside masses of another kind; required: all "
                f"Fractions or all floats"
            )
    return kinds.pop() if kinds else "whole"


def _checked(array: Array, name: str, exact: bool) -> Array:
    law = _fractions(array) if exact else np.asarray(array, dtype=np.float64)
    mass = total(law)
    # Sums and minima cost no temporary array; at 128k tokens those would dominate.
    if not exact and not np.isfinite(mass):
        token = int(np.flatnonzero(~np.isfinite(law))[0]) if not np.isfinite(law).all() else 0
        raise LawError(f"{name}[{token}] is {law[token]}; required: a finite mass, at least 0")
    if law.min() < 0:
        token = int(np.flatnonzero(law < 0)[0])
        raise LawError(f"{name}[{token}] is {law[token]}; required: a mass, at least 0")
    if exact and mass != 1:
        raise LawError(f"{name} sums to {mass}; required: exactly 1")
    if not exact and abs(mass - 1) > SUM_TOLERANCE:
        raise LawError(f"{name} sums to {mass:.9g}; required: 1 within {SUM_TOLERANCE:g}")
    return law if exact or mass == 1 else np.asarray(law / mass)


def _fractions(values: Array) -> Array:
    law = np.empty(len(values), dtype=object)
    law[:] = [Fraction(mass) for mass in values.tolist()]
    return law


def _as_rationals(law: Array) -> Array:
    if is_exact(law):
        return law
    fractions = _fractions(law)
    return np.asarray(fractions / total(fractions))


def exact_array(values: Sequence[Number]) -> Array:
    """[vocab] values as Fractions in an object array, unchecked; floats become dyadic rationals."""
    law = np.empty(len(values), dtype=object)
    law[:] = [Fraction(mass) for mass in values]
    return law


def law_from_weights(weights: Sequence[int]) -> Array:
    """[vocab] exact law proportional to integer weights, not all zero.

    Raises:
      InputError: The weights sum to 0.
    """
    mass = sum(weights)
    if mass == 0:
        raise InputError(f"weights {list(weights)} sum to 0; required: a positive sum")
    return exact_array([Fraction(weight, mass) for weight in weights])


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"
