"""Lower bound on the total variation of the emitted tokens, with a set of tokens that shows it.

Sets are named before the tokens are drawn, or by the requests of even number; either way they are
chosen on the even requests and measured on the odd ones, whose tokens had no part in the choice.
Along a request the contexts depend on the tokens before them, so the count in the set is bounded by
`rheocheck.stats.witness.sequential_rate_lower`, which allows that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rheocheck.audit.drawn_tokens import Drawn, Values
from rheocheck.stats.cells import RANK_STARTS
from rheocheck.stats.witness import best_tilt, sequential_rate_lower, witness_set

# Sets {draft > ratio * target}; 1 is where an ideal witness of leaked drafts stands.
RATIOS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 16.0)
# Tokens of a witness that are listed.
SHOWN_TOKENS = 8
LONGEST_TEXT = 16
_TOKENS = "tokens"


def _names() -> tuple[str, ...]:
    ratios = [f"tokens that the draft gives more than {ratio:g} times the target's mass"
              for ratio in RATIOS]  # fmt: skip
    ranks = [
        "the token of rank 1 under the target" if start == 2
        else f"tokens of ranks 1 to {start - 1} under the target"
        for start in RANK_STARTS[1:]
    ]  # fmt: skip
    return (*ratios, *ranks)


NAMES = _names()


@dataclass(slots=True)
class WitnessSets:
    """Counts in a fixed family of sets, by parity of the request.

    Attributes:
      sums: [2, 3, sets] hits, expected hits, sums of the hits' variances.
      num_tokens: [2] tokens of either half.
    """

    sums: Values = field(default_factory=lambda: np.zeros((2, 3, len(NAMES))))
    num_tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))

    def observe(self, drawn: Drawn) -> None:
        """Count the tokens."""
        hits, mass = _members(drawn)
        for half in (0, 1):
            rows = drawn.place[:, 1] % 2 == half
            self.num_tokens[half] += int(rows.sum())
            found = (hits[rows], mass[rows], mass[rows] * (1.0 - mass[rows]))
            self.sums[half] += np.stack([part.sum(axis=0) for part in found])

    def merge(self, later: "WitnessSets") -> None:
        """Add the counts."""
        self.sums = self.sums + later.sums
        self.num_tokens = self.num_tokens + later.num_tokens


def witness(sets: WitnessSets, token_sums: Values, alpha: float) -> dict[str, Any]:
    """The set that shows most, measured; JSON values.

    Args:
      sets: Of all tokens.
      token_sums: [2, 3, vocab] of `token_statistics.Tokens`: by half, counts and expected counts.
      alpha: Chance that the bound is wrong.

    Returns:
      The set's name, tokens in it that were counted and expected in the measured half, the lower
      bound (0 where nothing is shown), and the tokens with the largest excess: those of the set
      where it is one of tokens, counted in the measured half; else of all tokens, over both halves.
    """
    named = _named_set(sets, alpha / 2)
    tokens = _token_set(sets.num_tokens, token_sums, alpha / 2)
    best = tokens if tokens["tv_lower_bound"] > named["tv_lower_bound"] else named
    members = best.pop("members")
    counts, expected = (token_sums[1] if members is not None else token_sums.sum(axis=0))[:2]
    excess = (counts - expected) / np.sqrt(np.maximum(expected, 1.0))
    chosen = [
        int(token)
        for token in np.argsort(-excess, kind="stable")
        if excess[token] > 0 and (members is None or members[token])
    ][:SHOWN_TOKENS]
    return {
        **best,
        "wrong_with_probability": alpha,
        "lower_bound_is": (
            "of the mean total variation along the requests of odd number; the set was chosen on "
            "those of even number"
        ),
        "tokens": [
            {
                "token": token,
                "observed": int(counts[token]),
                "expected": round(float(expected[token]), 2),
            }
            for token in chosen
        ],
    }


def _named_set(sets: WitnessSets, alpha: float) -> dict[str, Any]:
    """The best set of the family or complement of one."""
    (hits, mass, variance), measured = sets.sums
    excess = np.concatenate([hits - mass, mass - hits])
    deviation = np.sqrt(np.concatenate([variance, variance]) + 1.0)
    # A promise: what is left of the excess once noise at that level is taken off.
    promise = excess - float(stats.norm.isf(alpha)) * deviation
    best = int(np.argmax(promise if promise.max() > 0 else excess / deviation))
    index, inside = best % len(NAMES), best < len(NAMES)
    count, other = (int(number) for number in sets.num_tokens)

    def side(sums: Values, total: int) -> tuple[float, float]:
        hits, mass = float(sums[0, index]), float(sums[1, index])
        return (hits, mass) if inside else (total - hits, total - mass)

    name = NAMES[index] if inside else f"all but {NAMES[index]}"
    found, _ = side(sets.sums[0], count)
    return _measured(name, found, count, *side(measured, other), other, alpha, None)


def _token_set(num_tokens: NDArray[np.int64], sums: Values, alpha: float) -> dict[str, Any]:
    """The set of tokens that came too often in the even requests."""
    count, other = (int(number) for number in num_tokens)
    counts, expected = sums[0, 0], sums[0, 1]
    # What is not listed is one more outcome, and no member.
    rest = max(0.0, count - float(expected.sum()))
    law = np.append(expected, rest)
    unlisted = max(0, count - int(counts.sum()))
    if not count or law.sum() <= 0:
        return _measured(_TOKENS, 0.0, 0, 0.0, 0.0, other, alpha, np.zeros(len(counts), bool))
    found = np.append(counts, unlisted).astype(np.int64)
    members = witness_set(found, law / law.sum(), alpha)[:-1]
    hits, mass = float(sums[1, 0][members].sum()), float(sums[1, 1][members].sum())
    return _measured(
        f"a set of {int(members.sum())} tokens", float(counts[members].sum()), count, hits, mass,
        other, alpha, members,
    )  # fmt: skip


def _measured(
    name: str, found: float, count: int, hits: float, mass: float, other: int, alpha: float,
    members: NDArray[np.bool_] | None,
) -> dict[str, Any]:  # fmt: skip
    """A set with its bound; `found` of `count` tokens of the choosing half were in it."""
    bound = 0.0
    if count and other:
        # Not by `other`: how many tokens the measured half has depends on what they are.
        tilt = best_tilt(found / count, count, alpha)
        bound = max(0.0, sequential_rate_lower(hits, other, tilt, alpha) - mass / other)
    return {
        "set": name,
        "observed": round(hits),
        "expected": round(mass, 2),
        "of_tokens": other,
        "tv_lower_bound": bound,
        "members": members,
    }


def _members(drawn: Drawn) -> tuple[Values, Values]:
    """[emitted, sets] whether the token is in each set, and the set's mass at its place."""
    count = len(drawn.laws.column)
    if drawn.laws.draft is None:
        hits, mass = [[np.zeros(count)] * len(RATIOS) for _ in range(2)]
    else:
        # Only what the draft has can be in a set.
        drafted, hits, mass = drawn.drafted, [], []
        own = np.arange(drafted.token.shape[1]) == drafted.place[:, None]
        for ratio in RATIOS:
            inside = (drafted.draft > ratio * drafted.target) & (drafted.token >= 0)
            hits.append((inside & own).any(axis=1).astype(np.float64))
            mass.append(np.where(inside, drafted.target, 0.0).sum(axis=1))
    bucket, law = drawn.ranks
    for cell in range(len(RANK_STARTS) - 1):
        hits.append((bucket <= cell).astype(np.float64))
        mass.append(law[:, : cell + 1].sum(axis=1))
    return np.stack(hits, axis=1), np.minimum(np.stack(mass, axis=1), 1.0)


def with_texts(tokens: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    """A witness's tokens with their texts, each cut to sixteen characters."""
    return [
        {"token": row["token"], "text": text[:LONGEST_TEXT], **row}
        for row, text in zip(tokens, texts, strict=True)
    ]
