"""Contexts with known laws, prepared once and drawn from quickly.

What a statistic looks up for a drawn token is a table; tests compare the tables with the functions
that ship.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.cells import RANK_STARTS, cell_law, rank_cell
from rheocheck.stats.pit import draft_target_order, target_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """Laws and tables, [contexts, vocab] each.

    Attributes:
      target: Target laws.
      draft: Draft laws.
      cumulative: Running sums of the target in token order, the last one 1.
      before_ratio: Target mass before the token when ordered by draft/target.
      before_rank: Target mass before the token when ordered by descending target.
      bucket: Rank bucket of each token.
    """

    target: Floats
    draft: Floats
    cumulative: Floats
    before_ratio: Floats
    before_rank: Floats
    bucket: Ints

    def draw(self, rows: Ints, rng: np.random.Generator, cumulative: Floats | None = None) -> Ints:
        """[draws] one token from each row's target, or from other laws by their running sums."""
        sums = self.cumulative if cumulative is None else cumulative
        uniform = rng.random(len(rows))
        token = np.empty(len(rows), dtype=np.int64)
        for row in np.unique(rows):
            here = rows == row
            token[here] = np.searchsorted(sums[row], uniform[here], side="right")
        drawn: Ints = np.minimum(token, sums.shape[1] - 1)
        return drawn

    def pit(self, before: Floats, rows: Ints, token: Ints, rng: np.random.Generator) -> Floats:
        """[draws] randomised PIT values from one of the tables of masses before."""
        values = before[rows, token] + rng.random(len(rows)) * self.target[rows, token]
        clipped: Floats = np.clip(values, 0.0, 1.0)
        return clipped

    def bucket_laws(self) -> Floats:
        """[contexts, buckets] law of each context's bucket."""
        return cell_law(self.target, self.bucket, len(RANK_STARTS))


def running_sums(laws: Floats) -> Floats:
    """[contexts, vocab] running sums that end at 1; tokens of probability 0 get no room."""
    sums = np.cumsum(laws, axis=1)
    normalised: Floats = sums / sums[:, -1:]
    return normalised


def tabulated(target: Floats, draft: Floats) -> Contexts:
    """Prepare the tables of these laws, [contexts, vocab] each."""
    ratio = draft_target_order(target, draft)
    descending = target_order(target)
    return Contexts(
        target,
        draft,
        running_sums(target),
        _mass_before(target, ratio),
        _mass_before(target, descending),
        rank_cell(target),
    )


def _mass_before(law: Floats, order: Floats) -> Floats:
    """[contexts, vocab] mass of the tokens that come before each one, ties by token."""
    before = np.empty_like(law)
    for row, key in enumerate(order):
        ranks = np.argsort(key, kind="stable")
        sums = np.cumsum(law[row, ranks])
        before[row, ranks] = np.concatenate(([0.0], sums[:-1]))
    return before
