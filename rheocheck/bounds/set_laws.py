"""Laws of candidate sets, written out: what the linear programme and the exact flow work on."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, permutations
from typing import Any

import numpy as np

from rheocheck.bounds.laws import SUM_TOLERANCE, Array, Tokens, exact_array, is_exact
from rheocheck.bounds.node import NodeLayout, merged_law
from rheocheck.bounds.without_replacement import RemainingMass
from rheocheck.errors import BudgetExceededError, LawError

# 500,500 sets (a thousand tokens, two drafts) keep HiGHS busy for half a minute.
MAX_SETS = 1_000_000


@dataclass(frozen=True, slots=True)
class SetLaw:
    """A law of candidate sets, stored row after row.

    Attributes:
      tokens: [edge] tokens of the first set, then of the second, ...
      starts: [sets + 1] where each set's tokens begin in `tokens`; the last entry is their number.
      masses: [sets] probability of each set, Fractions or floats, summing to 1.
    """

    tokens: Tokens
    starts: Tokens
    masses: Array

    def __len__(self) -> int:
        """Number of sets."""
        return len(self.masses)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """The sets, each with its mass."""
        for row, mass in enumerate(self.masses):
            yield tuple(self.tokens[self.starts[row] : self.starts[row + 1]].tolist()), mass

    @property
    def owners(self) -> Tokens:
        """[edge] which set each token belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def within(self, dual_set: Sequence[int] | frozenset[int], vocab: int) -> Any:
        """Probability that every candidate is in `dual_set`."""
        chosen = np.zeros(vocab, dtype=bool)
        chosen[list(dual_set)] = True
        hits = np.bincount(self.owners, weights=chosen[self.tokens], minlength=len(self))
        return self.masses[hits == np.diff(self.starts)].sum()


def set_law(masses: Mapping[Any, Any]) -> SetLaw:
    """Check a law of candidate sets.

    Args:
      masses: Set of tokens (a tuple or a frozenset) -> probability. A set given twice, in two
        orders, is one set.

    Returns:
      The law, exact if every mass is a Fraction or an int. Float masses are divided by their sum.

    Raises:
      LawError: No set; a set with a repeated or negative token; a mass that is negative, not finite
        or no number; a sum other than 1.
    """
    merged: dict[tuple[int, ...], Any] = {}
    for given, mass in masses.items():
        candidates = tuple(sorted(given))
        if len(set(candidates)) != len(candidates) or any(token < 0 for token in candidates):
            raise LawError(f"set {candidates}; required: distinct tokens, each at least 0")
        if not isinstance(mass, int | float | Fraction) or not mass >= 0 or mass == math.inf:
            raise LawError(f"set {candidates} has mass {mass!r}; required: a finite mass, >= 0")
        merged[candidates] = merged.get(candidates, 0) + mass
    whole = sum(merged.values())
    exact = not any(isinstance(mass, float) for mass in merged.values())
    if not merged or (whole != 1 if exact else abs(whole - 1) > SUM_TOLERANCE):
        raise LawError(f"the masses of {len(merged)} sets sum to {whole}; required: 1")
    return _packed({key: mass if exact else mass / whole for key, mass in merged.items()}, exact)


def rheo_sets(layout: NodeLayout) -> SetLaw:
    """Candidates of one dual-identity node: the core and Z, at most vocab - top_k + 1 sets."""
    always = layout.tokens[: layout.core_size].tolist()
    merged = merged_law(layout)
    exact = is_exact(merged)
    masses = {
        (*always, int(layout.tokens[position])): merged[position]
        for position in np.flatnonzero(np.asarray(merged > 0, dtype=bool))
    }
    return _packed(masses or {tuple(always): Fraction(1) if exact else 1.0}, exact)


def independent_sets(draft: Array, num_drafts: int) -> SetLaw:
    """Sets of tokens among `num_drafts` independent draws from a [vocab] law.

    Raises:
      BudgetExceededError: More than MAX_SETS sets.
    """
    support = np.flatnonzero(np.asarray(draft > 0, dtype=bool))
    _check_size(math.comb(len(support) + num_drafts - 1, num_drafts))
    if num_drafts == 2 and not is_exact(draft):
        return _independent_pairs(draft, support)
    masses: dict[tuple[int, ...], Any] = {}
    for draws in combinations_with_replacement(support.tolist(), num_drafts):
        counts = Counter(draws)
        orders = math.factorial(num_drafts)
        for count in counts.values():
            orders //= math.factorial(count)
        candidates = tuple(sorted(counts))
        mass = math.prod(draft[token] for token in draws) * orders
        masses[candidates] = masses.get(candidates, 0) + mass
    return _packed(masses, is_exact(draft))


def sequential_sets(draft: Array, num_drafts: int) -> SetLaw:
    """Sets of tokens among `num_drafts` draws without replacement from a [vocab] law.

    Raises:
      BudgetExceededError: More than MAX_SETS orders of draws.
    """
    support = np.flatnonzero(np.asarray(draft > 0, dtype=bool)).tolist()
    num_drafts = min(num_drafts, len(support))
    _check_size(math.perm(len(support), num_drafts))
    remaining = RemainingMass(draft, num_drafts - 1)
    known: dict[tuple[int, ...], Array] = {}

    def after(removed: tuple[int, ...]) -> Any:
        before = tuple(sorted(removed[:-1]))
        if before not in known:
            known[before] = remaining.without(before)
        return known[before][removed[-1]]

    masses: dict[tuple[int, ...], Any] = {}
    for candidates in combinations(support, num_drafts):
        mass = draft[support[0]] * 0
        for draws in permutations(candidates):
            factors = [draft[draws[0]]]
            for step in range(1, num_drafts):
                factors.append(draft[draws[step]] / after(draws[:step]))
            mass = mass + math.prod(factors)
        masses[candidates] = mass
    return _packed(masses, is_exact(draft))


def _independent_pairs(draft: Array, support: Tokens) -> SetLaw:
    first, second = np.triu_indices(len(support), k=1)
    mass = draft[support]
    pairs = np.stack([support[first], support[second]], axis=1).ravel()
    starts = np.concatenate([np.arange(len(support)), len(support) + 2 * np.arange(len(first) + 1)])
    masses = np.concatenate([mass**2, 2 * mass[first] * mass[second]])
    return SetLaw(np.concatenate([support, pairs]), starts, masses)


def _packed(masses: Mapping[tuple[int, ...], Any], exact: bool) -> SetLaw:
    lengths = [len(candidates) for candidates in masses]
    tokens = [token for candidates in masses for token in candidates]
    values = list(masses.values())
    return SetLaw(
        np.array(tokens, dtype=np.intp),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.intp),
        exact_array(values) if exact else np.array(values, dtype=np.float64),
    )


def _check_size(num_sets: int) -> None:
    if num_sets > MAX_SETS:
        raise BudgetExceededError(
            f"the set law has {num_sets} entries; at most {MAX_SETS} are written out. Use a "
            f"smaller vocabulary, or the sorted prefix, which needs no sets"
        )
