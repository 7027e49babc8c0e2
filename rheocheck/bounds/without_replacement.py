"""Drafts drawn one after another without replacement: their set law and their recursive rejection.

Sums here are of positive terms only: real draft laws put all but 1e-10 of their mass on one token,
and then 1 - draft[x] has no correct digit left in floating point.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheocheck.bounds.laws import Array, exact_array, is_exact, largest, ratio, total


class RemainingMass:
    """Mass of a draft law after some of its tokens were removed, without cancellation.

    With T the `most_removed` largest tokens and X the removed ones,
    mass = draft(not T) + draft(T - X) - draft(X - T). What is added from T is at least what is
    subtracted, so the result loses no more than two bits.
    """

    def __init__(self, draft: Array, most_removed: int) -> None:
        """Remember the law.

        Args:
          draft: [vocab] draft law.
          most_removed: Most tokens that are ever removed.
        """
        self._draft = draft
        self._large: list[int] = largest(draft, most_removed).tolist() if most_removed else []
        small = draft.copy()
        small[self._large] = 0
        self._small = total(small)

    def without(self, removed: tuple[int, ...]) -> Array:
        """[vocab] mass left once `removed` and one more token are gone; undefined on `removed`."""
        left = [token for token in self._large if token not in removed]
        base = self._small
        for token in removed:
            if token not in self._large:
                base = base - self._draft[token]
        left_mass = total(self._draft[left]) if left else 0
        remaining = (base + left_mass) - self._draft
        for token in left:
            others = [other for other in left if other != token]
            remaining[token] = base + (total(self._draft[others]) if others else 0)
        return np.asarray(np.maximum(remaining, 0, out=remaining))


@dataclass(frozen=True, slots=True)
class _Stage:
    """What recursive rejection has left of target and draft, tokens of the draft by target/draft.

    The residual after any rejections is max(0, target_factor * target - draft_factor * draft), and
    the draft that is left is `scale` times the draft off the rejected tokens. A rejected token has
    residual 0, so sums over the residual need not leave it out.
    """

    target_factor: Any
    draft_factor: Any
    scale: Any


class SequentialRejection:
    """Recursive rejection without replacement: test, subtract, remove, renormalise, repeat.

    The state (`_Stage`) is three numbers, so a stage costs O(log vocab) after one sort
    instead of O(vocab), and `num_drafts` tests cost O(vocab ** (num_drafts - 1) log vocab).
    """

    def __init__(self, target: Array, draft: Array, num_drafts: int) -> None:
        """Sort the draft's tokens by target/draft.

        Args:
          target: [vocab] target law.
          draft: [vocab] draft law.
          num_drafts: Tokens drawn; beyond the draft's support there is nothing to draw.
        """
        kept = np.flatnonzero(np.asarray(draft > 0, dtype=bool))
        quotient = target[kept] / draft[kept]
        order = np.argsort(quotient)
        self._quotient = quotient[order]
        self._target = target[kept][order]
        self._draft = draft[kept][order]
        self._num_drafts = min(num_drafts, len(kept))
        self._remaining = RemainingMass(self._draft, self._num_drafts - 1)
        self._target_above = _sums_from(self._target)
        self._draft_above = _sums_from(self._draft)

    def acceptance(self) -> Any:
        """Probability that one of the drafts is accepted."""
        one = self._target_above[0] * 0 + 1
        return self._from(_Stage(one, one * 0, one), (), self._num_drafts)

    def _from(self, stage: _Stage, rejected: tuple[int, ...], drafts_left: int) -> Any:
        accepted = self._overlap(stage, stage.scale)
        left = one_minus(accepted)
        if drafts_left == 1 or left <= 0:
            return accepted
        following = _Stage(
            stage.target_factor / left, (stage.draft_factor + stage.scale) / left, stage.scale
        )
        rejection = self._rejections(stage, rejected)
        remaining = self._remaining.without(rejected)
        scales = ratio(remaining * 0 + 1, remaining)
        if drafts_left == 2:
            return accepted + total(rejection * self._overlap(following, scales))
        for token in np.flatnonzero(np.asarray(rejection > 0, dtype=bool)).tolist():
            child = _Stage(following.target_factor, following.draft_factor, scales[token])
            below = self._from(child, (*rejected, token), drafts_left - 1)
            accepted = accepted + rejection[token] * below
        return accepted

    def _overlap(self, stage: _Stage, scale: Any) -> Any:
        """Sum of min(residual, scale * draft), for one scale or for each of several."""
        low = stage.draft_factor / stage.target_factor
        high = (stage.draft_factor + scale) / stage.target_factor
        first = np.searchsorted(self._quotient, low, side="right")
        second = np.searchsorted(self._quotient, high, side="right")
        target = self._target_above[first] - self._target_above[second]
        draft = self._draft_above[first] - self._draft_above[second]
        return (
            scale * self._draft_above[second]
            + stage.target_factor * target
            - stage.draft_factor * draft
        )

    def _rejections(self, stage: _Stage, rejected: tuple[int, ...]) -> Array:
        """[token] probability of drawing a token next and rejecting it."""
        drawn = stage.scale * self._draft
        residual = stage.target_factor * self._target - stage.draft_factor * self._draft
        rejection = drawn - np.minimum(np.maximum(residual, 0), drawn)
        rejection[list(rejected)] = 0
        return np.asarray(rejection)


def one_minus(probability: Any) -> Any:
    """1 - probability, at least 0."""
    return np.maximum(1 - probability, 0)


def prefix_masses_of_two(draft: Array) -> Array:
    """Probability that two draws without replacement both fall on the first tokens.

    Args:
      draft: [vocab] draft law with at least two tokens of positive mass, in any order.

    Returns:
      [vocab] entry j: both draws are among tokens 0..j.
    """
    odds = draft / RemainingMass(draft, 1).without(())
    return np.asarray(np.cumsum(draft * _before(odds) + odds * _before(draft)))


def prefix_masses_of_three(draft: Array) -> Array:
    """Probability that three draws without replacement all fall on the first tokens.

    Args:
      draft: [vocab] draft law with at least three tokens of positive mass, in any order.

    Returns:
      [vocab] entry j: all draws are among tokens 0..j. Costs O(vocab ** 2).
    """
    remaining = RemainingMass(draft, 2)
    inverse = 1 / remaining.without(())
    masses = draft * 0
    pairs = draft[0] * 0  # sum over pairs of the prefix of `pair_factor`
    prefix, largest, without_largest = draft[0] * 0, 0, draft[0] * 0
    for token in range(len(draft)):
        mass = draft[token]
        if token and mass > 0:
            earlier = draft[:token]
            left = ratio(earlier * 0 + 1, remaining.without((token,))[:token])
            # Probability of drawing an earlier token and this one first, in either order.
            pair_factor = earlier * mass * (inverse[:token] + inverse[token]) * left
            others = prefix - earlier
            # Only the subtraction of the largest token can cancel.
            others[largest] = without_largest
            masses[token] = mass * pairs + total(pair_factor * others)
            pairs = pairs + total(pair_factor)
        if mass > draft[largest]:
            without_largest, largest = prefix, token
        elif token:
            without_largest = without_largest + mass
        prefix = prefix + mass
    return np.asarray(np.cumsum(masses))


def _before(values: Array) -> Array:
    """[vocab] sum of the values before each position."""
    sums = np.empty_like(values)
    sums[0] = values[0] * 0
    np.cumsum(values[:-1], out=sums[1:])
    return sums


def _sums_from(values: Array) -> Array:
    """[vocab + 1] sum of the values from each position on; the last entry is 0."""
    zero = exact_array([0]) if is_exact(values) else np.zeros(1)
    return np.concatenate([np.cumsum(values[::-1])[::-1], zero])
