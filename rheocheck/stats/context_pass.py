"""All statistics of the sampled stage in one pass over a context's logits, at large vocabularies.

The dense functions (`scores.py`, `pit.py`, `cells.py`) make many arrays of the vocabulary's size
and one exponential a tilt. Here a context costs one exponential a token; the rest is small:

* the law is float32 exp(logit - max) summed in float64, as the sampler under test uses it (total
  variation to the exact softmax at most 2e-8 at 128k tokens);
* tokens rarer than exp(-12) have the same clipped surprisal, so they enter by their common mass;
* the others' surprisals fall into bins 1/16 nat wide, and each bin's mass is split over its two
  edges so that its mean is kept. By convexity of exp this can only raise E exp(t g): cumulants are
  upper bounds, so the e-process stays a supermartingale. The excess is at most t^2/2048 a sample,
  under 0.1 % of the cumulant where surprisal varies by a nat;
* the draft has mass on its support alone (128 tokens), so the draft score is -3, and draft > target
  false, at every other token: their moments are sums over the support and one constant.

Deviations, means and variances are exact but for the float64 rounding of the sums.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from rheocheck.errors import InputError
from rheocheck.stats.cells import RANK_STARTS
from rheocheck.stats.scores import DRAFT_SCORE_CLIP, SURPRISAL_CLIP, TILTS

SCORES = ("surprisal", "draft score", "draft above target")
_BINS_A_NAT = 16
_NUM_BINS = int(SURPRISAL_CLIP) * _BINS_A_NAT
# exp(tilt * surprisal) at the bins' edges: fixed, so cumulants cost one small product a context.
_EDGE_POWERS: NDArray[np.float64] = np.exp(
    (np.arange(_NUM_BINS + 1) / _BINS_A_NAT)[:, None] * TILTS[None, :]
)
# Contexts whose laws are summed in float32 before they join the float64 sums: rounding stays below
# 1e-6 of an expected count.
_FLUSH = 32
_CHUNK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ContextStatistics:
    """What one emitted token adds to every sampled statistic.

    Attributes:
      probability: Of the token; 0 is a proof of lossiness, and then only the cells are meaningful.
      deviation: [3] score of the token minus its mean, for SCORES.
      variance: [3] of the scores under the law.
      cumulant: [3, tilts] ln E exp(t * (score - mean)), or an upper bound (surprisal).
      pit_by_draft: PIT value, tokens ordered by draft/target, ties by token id.
      pit_by_target: PIT value, tokens ordered by target descending, ties by token id.
      rank_cell: Cell of the token's rank: 1, 2, 3-5, 6-20, 21-100, the rest. Tokens rarer than
        exp(-12) are in the last one whatever their rank.
      rank_law: [6] law of that cell.
      above: The token is one that the draft overweights.
      above_mass: Target mass of those tokens.
      accept_rate: sum min(target, draft).
    """

    probability: float
    deviation: NDArray[np.float64]
    variance: NDArray[np.float64]
    cumulant: NDArray[np.float64]
    pit_by_draft: float
    pit_by_target: float
    rank_cell: int
    rank_law: NDArray[np.float64]
    above: bool
    above_mass: float
    accept_rate: float


class ContextPass:
    """The pass over contexts of one vocabulary, with the sums that per-token calibration needs.

    Its work space is reused from context to context: fresh pages for every array would cost as much
    as the arithmetic.

    Attributes:
      counts: [vocab] draws of each token so far.
      squares: [vocab] sum over contexts of the squared probability; tokens rarer than exp(-12) in a
        context add nothing there, which can only raise the variance.
    """

    def __init__(self, vocab: int) -> None:
        """A pass for laws over `vocab` tokens."""
        if vocab < 1:
            raise InputError(f"vocab = {vocab}: at least 1 required")
        self.counts = np.zeros(vocab, dtype=np.int64)
        self.squares = np.zeros(vocab)
        self._expected = np.zeros(vocab)
        self._recent = np.zeros(vocab, dtype=np.float32)
        self._num_recent = 0
        self._shifted = np.empty(vocab, dtype=np.float32)
        self._power = np.empty(vocab, dtype=np.float32)

    @property
    def expected(self) -> NDArray[np.float64]:
        """[vocab] sum over contexts of each token's probability."""
        self._flush()
        return self._expected

    def observe(
        self,
        logits: NDArray[np.float32],
        support: NDArray[np.int64],
        draft: NDArray[np.float64],
        token: int,
        uniform: float,
    ) -> ContextStatistics:
        """Take in one context.

        Args:
          logits: [vocab] the target's logits at the request's temperature; minus infinity is legal.
          support: [n] distinct tokens of the draft's support; none for a context without a draft.
          draft: [n] their draft probabilities, positive, summing to 1.
          token: The token emitted.
          uniform: For the PIT, in [0, 1].

        Returns:
          The statistics.

        Raises:
          InputError: Logits of another shape, that are NaN, plus infinity or all minus infinity; a
            support or token outside the vocabulary; a draft that is no law. Nothing is taken in.
        """
        values = np.asarray(logits, dtype=np.float32)
        if values.shape != self.counts.shape:
            raise InputError(f"logits has shape {values.shape}: {self.counts.shape} required")
        top = values.max()
        if not np.isfinite(top):
            raise InputError(f"the largest logit is {top}: a finite one required")
        _check_draws(support, draft, token, uniform, len(values))
        shifted = np.subtract(values, top, out=self._shifted)
        power = np.exp(shifted, out=self._power)
        total = float(power.sum(dtype=np.float64))
        law = _Law(shifted, power, total, float(np.log(total)))
        head = np.flatnonzero(shifted > law.log_total - SURPRISAL_CLIP)
        head_law = power[head].astype(np.float64) / total
        self._add(power, total, head, head_law, token)
        return _statistics(law, head, head_law, support, draft, token, uniform)

    def _add(
        self,
        power: NDArray[np.float32],
        total: float,
        head: NDArray[np.int64],
        head_law: NDArray[np.float64],
        token: int,
    ) -> None:
        blas.saxpy(power, self._recent, a=1.0 / total)
        self.squares[head] += head_law**2
        self.counts[token] += 1
        self._num_recent += 1
        if self._num_recent == _FLUSH:
            self._flush()

    def _flush(self) -> None:
        self._expected += self._recent
        self._recent[:] = 0.0
        self._num_recent = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    shifted: NDArray[np.float32]
    power: NDArray[np.float32]
    total: float
    log_total: float


def _statistics(
    law: _Law,
    head: NDArray[np.int64],
    head_law: NDArray[np.float64],
    support: NDArray[np.int64],
    draft: NDArray[np.float64],
    token: int,
    uniform: float,
) -> ContextStatistics:
    mass = law.power[support].astype(np.float64) / law.total
    at = np.flatnonzero(support == token)
    terms = [_surprisal_terms(law, head, head_law, token), _STILL, _STILL]
    if len(support):
        with np.errstate(divide="ignore"):
            ratio = np.log(draft) - np.log(mass)
        score = np.clip(ratio, -DRAFT_SCORE_CLIP, DRAFT_SCORE_CLIP)
        above = draft > mass
        terms[1:] = _draft_terms(mass, score, at), _above_terms(mass, above, at)
    else:
        ratio, above = mass, np.zeros(0, dtype=np.bool_)
    rank_cell, rank_law = _ranks(law, head, head_law, token)
    return ContextStatistics(
        probability=float(law.power[token]) / law.total,
        deviation=np.array([term[0] for term in terms]),
        variance=np.array([term[1] for term in terms]),
        cumulant=np.stack([term[2] for term in terms]),
        pit_by_draft=_pit_by_draft(law, support, ratio, mass, token, uniform),
        pit_by_target=_pit_by_target(law, head, head_law, token, uniform),
        rank_cell=rank_cell,
        rank_law=rank_law,
        above=bool(above[at].any()),
        above_mass=float(mass[above].sum()),
        accept_rate=float(np.minimum(mass, draft).sum()),
    )


Terms = tuple[float, float, NDArray[np.float64]]
_STILL: Terms = (0.0, 0.0, np.zeros_like(TILTS))


def _surprisal_terms(
    law: _Law, head: NDArray[np.int64], head_law: NDArray[np.float64], token: int
) -> Terms:
    mass, moment, second = np.zeros(_NUM_BINS + 1), np.zeros(_NUM_BINS + 1), 0.0
    # Chunks stay in cache; a flat law has every token in its head.
    for start in range(0, len(head), _CHUNK):
        weight = head_law[start : start + _CHUNK]
        chosen = law.shifted[head[start : start + _CHUNK]].astype(np.float64)
        surprisal = np.clip(law.log_total - chosen, 0.0, SURPRISAL_CLIP)
        low = np.minimum((surprisal * _BINS_A_NAT).astype(np.int64), _NUM_BINS - 1)
        part = weight * surprisal
        mass += np.bincount(low, weight, _NUM_BINS + 1)
        moment += np.bincount(low, part, _NUM_BINS + 1)
        second += float(part @ surprisal)
    rest = max(0.0, 1.0 - float(mass.sum()))
    mean = float(moment.sum()) + rest * SURPRISAL_CLIP
    variance = max(0.0, second + rest * SURPRISAL_CLIP**2 - mean**2)
    upper = np.clip(moment * _BINS_A_NAT - mass * np.arange(_NUM_BINS + 1), 0.0, mass)
    mass -= upper
    mass[1:] += upper[:-1]
    mass[-1] += rest
    cumulant = np.log(mass @ _EDGE_POWERS) - TILTS * mean
    own = min(max(law.log_total - float(law.shifted[token]), 0.0), SURPRISAL_CLIP)
    return own - mean, variance, np.maximum(cumulant, 0.0)


def _draft_terms(
    mass: NDArray[np.float64], score: NDArray[np.float64], at: NDArray[np.int64]
) -> Terms:
    rest = max(0.0, 1.0 - float(mass.sum()))
    mean = float(mass @ score) - rest * DRAFT_SCORE_CLIP
    weights, centred = np.append(mass, rest), np.append(score, -DRAFT_SCORE_CLIP) - mean
    variance = float(weights @ centred**2)
    # exp and log, not expm1 and log1p: an absolute error of 1e-16 a sample is nothing, and exp is
    # ten times as fast.
    cumulant = np.log(weights @ np.exp(centred[:, None] * TILTS))
    return float(centred[at[0] if at.size else -1]), variance, np.maximum(cumulant, 0.0)


def _above_terms(
    mass: NDArray[np.float64], above: NDArray[np.bool_], at: NDArray[np.int64]
) -> Terms:
    share = min(1.0, float(mass[above].sum()))
    cumulant = np.log(
        share * np.exp(TILTS * (1.0 - share)) + (1.0 - share) * np.exp(-TILTS * share)
    )
    own = 1.0 if at.size and above[at[0]] else 0.0
    return own - share, share * (1.0 - share), np.maximum(cumulant, 0.0)


def _ranks(
    law: _Law, head: NDArray[np.int64], head_law: NDArray[np.float64], token: int
) -> tuple[int, NDArray[np.float64]]:
    num_ranked = RANK_STARTS[-1] - 1
    if len(head_law) > _CHUNK:
        head_law = _candidates(law, head_law, num_ranked)
    if len(head_law) > num_ranked:
        largest = np.partition(head_law, len(head_law) - num_ranked)[-num_ranked:]
    else:
        largest = head_law
    ranked = np.zeros(num_ranked)
    ranked[: len(largest)] = np.sort(largest)[::-1]
    edges = np.array(RANK_STARTS) - 1
    cells = np.add.reduceat(np.append(ranked, 0.0), edges)
    cells[-1] = max(0.0, 1.0 - float(ranked.sum()))
    if law.log_total - float(law.shifted[token]) >= SURPRISAL_CLIP:
        return len(RANK_STARTS) - 1, cells
    own = law.shifted[token]
    others = law.shifted[head]
    rank = int(np.count_nonzero(others > own) + np.count_nonzero((others == own) & (head < token)))
    return int(np.searchsorted(edges, rank, side="right")) - 1, cells


def _candidates(law: _Law, head_law: NDArray[np.float64], num_ranked: int) -> NDArray[np.float64]:
    """Those of a long head that can be among the `num_ranked` largest, and few others.

    The maxima of disjoint columns are tokens' masses, so as many tokens as there are maxima above
    a bar lie above it.
    """
    rows = len(law.power) // (16 * num_ranked)
    if rows < 2:
        return head_law
    columns = len(law.power) // rows
    maxima = law.power[: rows * columns].reshape(rows, columns).max(axis=0)
    bar = float(np.partition(maxima, columns - num_ranked)[-num_ranked]) / law.total
    return head_law[head_law >= bar]


def _pit_by_target(
    law: _Law, head: NDArray[np.int64], head_law: NDArray[np.float64], token: int, uniform: float
) -> float:
    own = law.shifted[token]
    if law.log_total - float(own) < SURPRISAL_CLIP:
        others = law.shifted[head]
        before = float(head_law[(others > own) | ((others == own) & (head < token))].sum())
    else:
        chosen = law.shifted > own
        chosen[:token] |= law.shifted[:token] == own
        before = float(law.power[chosen].sum(dtype=np.float64)) / law.total
    return min(1.0, before + uniform * float(law.power[token]) / law.total)


def _pit_by_draft(
    law: _Law,
    support: NDArray[np.int64],
    ratio: NDArray[np.float64],
    mass: NDArray[np.float64],
    token: int,
    uniform: float,
) -> float:
    at = np.flatnonzero(support == token)
    own_mass = float(law.power[token]) / law.total
    if at.size:
        own = ratio[at[0]]
        earlier = (ratio < own) | ((ratio == own) & (support < token))
        off = max(0.0, 1.0 - float(mass.sum()))
        before = off + float(mass[earlier].sum())
    else:
        # Tokens that the draft does not have come first, in the order of their ids.
        below = float(law.power[:token].sum(dtype=np.float64)) / law.total
        before = max(0.0, below - float(mass[support < token].sum()))
    return min(1.0, before + uniform * own_mass)


def _check_draws(
    support: NDArray[np.int64], draft: NDArray[np.float64], token: int, uniform: float, vocab: int
) -> None:
    if support.shape != draft.shape or support.ndim != 1:
        raise InputError(
            f"support has shape {support.shape} and draft {draft.shape}: equal ones required"
        )
    if not 0 <= token < vocab:
        raise InputError(f"token = {token}: must lie in 0..{vocab - 1}")
    if not 0.0 <= uniform <= 1.0:
        raise InputError(f"uniform = {uniform}: must lie in [0, 1]")
    if not len(support):
        return
    if not 0 <= int(support.min()) <= int(support.max()) < vocab:
        raise InputError(f"support: every token must lie in 0..{vocab - 1}")
    if not (abs(float(draft.sum()) - 1.0) <= 1e-6 and float(draft.min()) > 0.0):
        raise InputError("draft: positive probabilities that sum to 1 required")
