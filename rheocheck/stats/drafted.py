"""Statistics of drawn tokens that read the draft, from what it has mass on and nothing else.

A draft's law lives on some hundred tokens of a vocabulary of a hundred thousand; on all others the
draft score, draft/target and the role are one and the same. So a context is the drafted tokens and
one number, the target's mass on all others. Each function here is one of `scores`, `pit` or `cells`
in this form and equals it up to rounding.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.cells import ROLES
from rheocheck.stats.scores import DRAFT_SCORE_CLIP, ScoreTerms, score_moments

Values = NDArray[np.float64]
Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """Drafted tokens of each context, in the order of their ids; at least one column.

    Attributes:
      token: [contexts, width] ids; -1 on padding.
      draft: [contexts, width] the draft's law.
      target: [contexts, width] the target's.
      rest: [contexts] the target's mass on all other tokens.
      place: [contexts] where the drawn token stands; `width` if the draft has no mass on it.
      own: [contexts] the target's mass on the drawn token.
      has_draft: [contexts] False where nothing was drafted.
    """

    token: Tokens
    draft: Values
    target: Values
    rest: Values
    place: Tokens
    own: Values
    has_draft: NDArray[np.bool_]

    @classmethod
    def of(cls, target: Values, draft: Values, drawn: Tokens) -> "Drafted":
        """Of dense laws.

        Args:
          target: [contexts, vocab] laws.
          draft: [contexts, vocab] laws; zero rows allowed.
          drawn: [contexts] the drawn tokens.
        """
        contexts, vocab = target.shape
        flat = np.flatnonzero(draft.reshape(-1) != 0)
        row, token = np.divmod(flat, max(vocab, 1))
        counts = np.bincount(row, minlength=contexts)
        width = int(counts.max(initial=1))
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        tokens = np.full((contexts, width), -1)
        masses = np.zeros((2, contexts, width))
        tokens[row, place] = token
        masses[0, row, place], masses[1, row, place] = draft[row, token], target[row, token]
        is_own = tokens == drawn[:, None]
        return cls(
            token=tokens,
            draft=masses[0],
            target=masses[1],
            rest=np.maximum(1.0 - masses[1].sum(axis=1), 0.0),
            place=np.where(is_own.any(axis=1), is_own.argmax(axis=1), width),
            own=target[np.arange(contexts), drawn],
            has_draft=counts > 0,
        )


def draft_score_terms(drafted: Drafted) -> ScoreTerms:
    """`score_terms` of `draft_score`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(drafted.draft) - np.log(drafted.target)
    inside = (drafted.draft > 0) & (drafted.target > 0)
    score = np.where(inside, np.clip(ratio, -DRAFT_SCORE_CLIP, DRAFT_SCORE_CLIP), 0.0)
    return _terms(drafted, score, np.where(drafted.has_draft, -DRAFT_SCORE_CLIP, 0.0))


def above_target_terms(drafted: Drafted) -> ScoreTerms:
    """`score_terms` of `above_target`."""
    score = (drafted.draft > drafted.target).astype(np.float64)
    return _terms(drafted, score, np.zeros(len(score)))


def pit_by_draft(drafted: Drafted, target: Values, drawn: Tokens, uniform: Values) -> Values:
    """`randomised_pit` in `draft_target_order`.

    Args:
      drafted: The contexts.
      target: [contexts, vocab] the same target laws; read where the draft has no mass on the drawn
        token, up to that token.
      drawn: [contexts] tokens.
      uniform: [contexts] independent uniforms in [0, 1).

    Returns:
      [contexts] values in [0, 1]; 1 for a token without target mass.
    """
    rows, width = np.arange(len(drawn)), drafted.token.shape[1]
    is_drafted = drafted.place < width
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(drafted.target > 0, drafted.draft / drafted.target, np.inf)
    ratio = np.where(drafted.token >= 0, ratio, np.inf)
    own = ratio[rows, np.minimum(drafted.place, width - 1)]
    earlier = (ratio < own[:, None]) | (
        (ratio == own[:, None]) & (drafted.token < drawn[:, None]) & (drafted.token >= 0)
    )
    # Tokens that the draft does not have come first, in the order of their ids.
    before = drafted.rest + np.where(earlier, drafted.target, 0.0).sum(axis=1)
    for row in np.flatnonzero(~is_drafted):
        below = drafted.token[row] < drawn[row]
        taken = drafted.target[row][below & (drafted.token[row] >= 0)].sum()
        before[row] = max(0.0, float(target[row, : drawn[row]].sum()) - float(taken))
    values = np.where(drafted.own > 0, before + uniform * drafted.own, 1.0)
    return np.asarray(np.clip(values, 0.0, 1.0))


def roles(drafted: Drafted, num_top: int, num_candidates: int) -> tuple[Tokens, Values]:
    """Role of each drawn token as `role_cell` has it, and the roles' law at its place.

    Args:
      drafted: The contexts.
      num_top: Ranks that are deterministic children.
      num_candidates: Ranks up to which fillers are taken, all children together.

    Returns:
      [contexts] index into `ROLES`; [contexts, roles], rows sum to 1.
    """
    contexts, width = drafted.token.shape
    order = np.argsort(-drafted.draft, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(width)[None, :], axis=1)
    role = np.where(rank < num_top, 0, np.where(rank < num_candidates, 1, 2))
    role = np.where(drafted.token >= 0, role, 3)
    law = np.stack([np.where(role == at, drafted.target, 0.0).sum(axis=1) for at in range(3)], 1)
    role = np.column_stack([role, np.full(contexts, len(ROLES) - 1)])
    return role[np.arange(contexts), drafted.place], np.column_stack([law, drafted.rest])


def _terms(drafted: Drafted, score: Values, elsewhere: Values) -> ScoreTerms:
    """Terms of a score that is `elsewhere` on all tokens without draft."""
    masses = np.column_stack([drafted.target, drafted.rest])
    scores = np.column_stack([score, elsewhere])
    inside = drafted.own > 0
    mean, variance, cumulant = score_moments(masses[inside], scores[inside])
    rows = np.flatnonzero(inside)
    return ScoreTerms(scores[rows, drafted.place[inside]] - mean, variance, cumulant)
