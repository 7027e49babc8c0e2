"""Directed score tests: a score of the drawn token, summed over contexts whose laws are known.

Each context c has a known law and a score g_c fixed before the token x_c is drawn. Under the null
the sum of g_c(x_c) has a known mean and variance, which gives a z value, and

    M = mean over tilts t of exp(t * sum_c (g_c(x_c) - E g_c) - sum_c K_c(t)),
    K_c(t) = ln E exp(t * (g_c - E g_c)),

has expectation 1 however the contexts depend on earlier tokens and however many there are, because
every K_c is exact. By Ville's inequality min(1, 1/M) is a p-value at every stopping time; no normal
approximation enters it. The z value is printed because people can read it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

# Tilts: z/sd of the sum is near the best tilt, so from 30 samples to 100 million some tilt of a
# geometric grid with ratio 1.6 lies within 27 % of the best and loses at most 7 % of the exponent.
_POSITIVE_TILTS: NDArray[np.float64] = np.geomspace(0.0003, 0.0003 * 1.6**17, 18)
TILTS: NDArray[np.float64] = np.concatenate((-_POSITIVE_TILTS[::-1], _POSITIVE_TILTS))
DRAFT_SCORE_CLIP = 3.0
SURPRISAL_CLIP = 12.0
# Laws on fewer tokens are not worth making smaller.
_FEW_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class ScoreSums:
    """Sums over contexts; `a + b` is the sums over both sets.

    Attributes:
      num_samples: Contexts summed.
      deviation: Sum of score minus its mean under the law.
      variance: Sum of the scores' variances under their laws.
      cumulant: [tilts] sum of ln E exp(t * (score - mean)), t in TILTS.
    """

    num_samples: int
    deviation: float
    variance: float
    cumulant: NDArray[np.float64]

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        """Sums over the contexts of both."""
        return ScoreSums(
            self.num_samples + other.num_samples,
            self.deviation + other.deviation,
            self.variance + other.variance,
            self.cumulant + other.cumulant,
        )

    @property
    def z(self) -> float:
        """Deviation in standard deviations; 0 where the score cannot vary."""
        return self.deviation / math.sqrt(self.variance) if self.variance > 0 else 0.0

    @property
    def normal_p(self) -> float:
        """Two-sided normal p-value of z, an approximation."""
        return float(2.0 * stats.norm.sf(abs(self.z)))

    @property
    def log_e(self) -> float:
        """Log of the e-value M: evidence against the null, valid at every number of samples."""
        exponents = TILTS * self.deviation - self.cumulant
        return float(special.logsumexp(exponents) - math.log(len(TILTS)))

    @property
    def p_value(self) -> float:
        """min(1, 1/M): valid under optional stopping, conservative by a factor of ten or so."""
        return min(1.0, math.exp(-self.log_e)) if self.log_e < 700.0 else 0.0


NO_SCORES = ScoreSums(0, 0.0, 0.0, np.zeros_like(TILTS))


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTerms:
    """What each context adds to `ScoreSums`, for tests that look after every sample.

    Attributes:
      deviation: [samples] score of the token minus its mean under the law.
      variance: [samples] variance of the score under the law.
      cumulant: [samples, tilts] ln E exp(t * (score - mean)), or an upper bound of it.
    """

    deviation: NDArray[np.float64]
    variance: NDArray[np.float64]
    cumulant: NDArray[np.float64]

    def total(self) -> ScoreSums:
        """The sums over all samples."""
        return ScoreSums(
            len(self.deviation),
            float(self.deviation.sum()),
            float(self.variance.sum()),
            self.cumulant.sum(axis=0),
        )


def score_terms(
    law: NDArray[np.float64], score: NDArray[np.float64], token: NDArray[np.int64]
) -> ScoreTerms:
    """A score's terms, context by context.

    Args:
      law: [contexts, vocab] probabilities, each row summing to 1.
      score: [contexts, vocab] finite scores, fixed before the token is drawn. Values at tokens of
        probability 0 are ignored, in the moments and in the draws alike: those draws belong to
        `off_support`.
      token: [contexts] tokens drawn.

    Returns:
      The terms of the contexts whose token has positive probability, in order.
    """
    rows = np.arange(len(token))
    inside = law[rows, token] > 0
    law, score, token = law[inside], score[inside], token[inside]
    mean, variance, cumulant = score_moments(law, score)
    deviation = score[np.arange(len(token)), token] - mean
    return ScoreTerms(deviation, variance, cumulant)


def score_moments(
    law: NDArray[np.float64], score: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, variance and cumulants of a score in each context.

    Args:
      law: [contexts, vocab] probabilities, each row summing to 1.
      score: [contexts, vocab] scores; ignored where the law has no mass.

    Returns:
      [contexts] means, [contexts] variances, [contexts, tilts] ln E exp(t * (score - mean)).
    """
    law, score = _lumped(law, score)
    mean = (law * np.where(law > 0, score, 0.0)).sum(axis=1)
    centred = np.where(law > 0, score - mean[:, None], 0.0)
    variance = (law * centred**2).sum(axis=1)
    cumulant = np.empty((len(law), len(TILTS)))
    for index, tilt in enumerate(TILTS):
        # ln E e^{tg} - t E g >= 0 by Jensen; log1p of the mean of expm1 keeps digits at small
        # tilts.
        cumulant[:, index] = np.log1p((law * np.expm1(tilt * centred)).sum(axis=1))
    return mean, variance, cumulant


def _lumped(
    law: NDArray[np.float64], score: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same laws of the score on fewer columns, where clipping made most tokens alike.

    Tokens with the score's smallest value, or its largest, whichever more have, become one. At a
    large vocabulary that is nearly all of them, and each column costs an exponential a tilt.
    """
    has_mass = law > 0
    if law.shape[1] < _FEW_COLUMNS or not has_mass.any():
        return law, score
    low, high = score[has_mass].min(), score[has_mass].max()
    alike = low if (score == low).sum() >= (score == high).sum() else high
    apart = has_mass & (score != alike)
    counts = apart.sum(axis=1)
    width = int(counts.max())
    if 2 * width > law.shape[1]:
        return law, score
    row, column = apart.nonzero()
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    masses, scores = np.zeros((len(law), width + 1)), np.full((len(law), width + 1), float(alike))
    masses[row, place], scores[row, place] = law[row, column], score[row, column]
    masses[:, -1] = np.where(apart, 0.0, law).sum(axis=1)
    return masses, scores


def score_sums(
    law: NDArray[np.float64], score: NDArray[np.float64], token: NDArray[np.int64]
) -> ScoreSums:
    """Sums of a score over contexts: those of `score_terms`, same arguments."""
    return score_terms(law, score, token).total()


def surprisal(law: NDArray[np.float64]) -> NDArray[np.float64]:
    """Score min(-ln law, 12): [contexts, vocab] nats, 0 where the law has no mass.

    Sharp against a wrong temperature, truncation or penalty; blind to what the draft does. The clip
    lets all tokens rarer than 6e-6 count alike: a fault among them shows by their mass, and no
    single draw of one decides a run.
    """
    logs = -np.log(law, out=np.zeros_like(law), where=law > 0)
    clipped: NDArray[np.float64] = np.minimum(logs, SURPRISAL_CLIP)
    return clipped


def draft_score(target: NDArray[np.float64], draft: NDArray[np.float64]) -> NDArray[np.float64]:
    """Score clip(ln draft/target, -3, 3): [contexts, vocab] nats.

    Sharp against draft mass that leaks into the output: a wrong ratio, a missing residual, a
    lenient accept test. A context without a draft (a zero row) scores 0 everywhere.

    Args:
      target: [contexts, vocab] target law.
      draft: [contexts, vocab] draft law; zero rows allowed.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(draft) - np.log(target)
    clipped = np.clip(np.nan_to_num(ratio, nan=0.0), -DRAFT_SCORE_CLIP, DRAFT_SCORE_CLIP)
    has_draft = draft.sum(axis=1, keepdims=True) > 0
    return np.where(has_draft & (target > 0), clipped, 0.0)


def above_target(target: NDArray[np.float64], draft: NDArray[np.float64]) -> NDArray[np.float64]:
    """Score 1{draft > target}: [contexts, vocab] 0 or 1.

    Its sum counts tokens of the sets that the draft overweights; the set is also the witness of the
    tolerant test (`tolerant.py`). 0 in a context without a draft (a zero row).

    Args:
      target: [contexts, vocab] target law.
      draft: [contexts, vocab] draft law; zero rows allowed.
    """
    return (draft > target).astype(np.float64)


def acceptance_sums(
    target: NDArray[np.float64], draft: NDArray[np.float64], accepted: NDArray[np.bool_]
) -> ScoreSums:
    """Accept tests of single drafts against their exact rate sum min(target, draft).

    A rate off its mean shows another algorithm at work, which need not be a lossy one.

    Args:
      target: [contexts, vocab] target law.
      draft: [contexts, vocab] law that the draft token was drawn from.
      accepted: [contexts] whether the draft token was accepted.

    Returns:
      Sums of the score 1{accepted}.
    """
    return rate_sums(np.minimum(np.minimum(target, draft).sum(axis=1), 1.0), accepted)


def rate_sums(rate: NDArray[np.float64], accepted: NDArray[np.bool_]) -> ScoreSums:
    """Events against their exact probabilities.

    Args:
      rate: [events] probability of each, fixed before it is decided, in [0, 1].
      accepted: [events] whether it happened.

    Returns:
      Sums of the score 1{happened}.
    """
    laws = np.stack((1.0 - rate, rate), axis=1)
    score = np.tile(np.array([0.0, 1.0]), (len(rate), 1))
    # Not `score_terms`: a refusal at a rate of 1 must count against the sampler, not be left out.
    mean, variance, cumulant = score_moments(laws, score)
    return ScoreTerms(accepted - mean, variance, cumulant).total()


def off_support(law: NDArray[np.float64], token: NDArray[np.int64]) -> NDArray[np.int64]:
    """[violations] contexts whose token has probability 0: each one is a proof of lossiness."""
    return np.flatnonzero(~(law[np.arange(len(token)), token] > 0))
