"""Anytime-valid score tests: an e-process that may be looked at after every sample.

Hypothesis: given the past, the token of context c follows its known law p_c. The score g_c and the
context may depend on earlier tokens, never on the token itself. Then

    M_n = mean over tilts t of exp(t * sum_{c<=n} (g_c(x_c) - E g_c) - sum_{c<=n} K_c(t))

is a nonnegative martingale that starts at 1 (a supermartingale where K_c is only bounded from
above), so P(M_n >= 1/alpha for some n) <= alpha by Ville's inequality: reject at the first crossing
or at any stopping time. No normal approximation enters.

Two numbers come out of one run, and they are used differently. M at the time of stopping is an
e-value: those of independent runs multiply. The largest M so far gives the p-value 1/max M, but is
no e-value and must not be multiplied.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_level
from rheocheck.stats.scores import NO_SCORES, TILTS, ScoreSums, ScoreTerms

STATE_VERSION = 1
# Samples whose wealth is computed at once: all tilts of them stay in cache.
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class EProcess:
    """State of one e-process; `observe` gives the next one.

    Attributes:
      alpha: Level at which a crossing is noted.
      sums: Of all samples so far.
      log_max: Largest ln M_n so far, n = 0 included, so at least 0.
      samples_at_max: The n of that maximum; the first on ties.
      crossed_at: First n with M_n >= 1/alpha; None before.
    """

    alpha: float
    sums: ScoreSums = NO_SCORES
    log_max: float = 0.0
    samples_at_max: int = 0
    crossed_at: int | None = None

    def __post_init__(self) -> None:
        """Refuse a level that is none."""
        checked_level(self.alpha)

    @property
    def log_e(self) -> float:
        """Ln M_n now: the e-value of a run that stops here."""
        return self.sums.log_e

    @property
    def p_value(self) -> float:
        """1 / max M: valid however often one has looked."""
        return math.exp(-self.log_max)

    @property
    def rejects(self) -> bool:
        """Whether M_n has ever reached 1/alpha."""
        return self.crossed_at is not None

    def observe(self, terms: ScoreTerms) -> "EProcess":
        """Take in samples, in order, looking after each.

        Args:
          terms: Of any number of samples, none included.

        Returns:
          The new state. The same samples in other batches give the same state, to rounding.

        Raises:
          InputError: A deviation or cumulant that is not finite; the message has its sample.
        """
        _check_terms(terms, self.sums.num_samples)
        state = self
        for start in range(0, len(terms.deviation), _CHUNK):
            part = slice(start, start + _CHUNK)
            state = state._observe(
                ScoreTerms(terms.deviation[part], terms.variance[part], terms.cumulant[part])
            )
        return state

    def _observe(self, terms: ScoreTerms) -> "EProcess":
        deviation = self.sums.deviation + np.cumsum(terms.deviation)
        cumulant = self.sums.cumulant + np.cumsum(terms.cumulant, axis=0)
        wealth = special.logsumexp(TILTS * deviation[:, None] - cumulant, axis=1)
        wealth -= math.log(len(TILTS))
        best = int(wealth.argmax())
        log_max, samples_at_max = self.log_max, self.samples_at_max
        if wealth[best] > log_max:
            log_max, samples_at_max = float(wealth[best]), self.sums.num_samples + best + 1
        crossed_at = self.crossed_at
        if crossed_at is None and wealth[best] >= -math.log(self.alpha):
            first = int(np.argmax(wealth >= -math.log(self.alpha)))
            crossed_at = self.sums.num_samples + first + 1
        return EProcess(self.alpha, self.sums + terms.total(), log_max, samples_at_max, crossed_at)

    def as_json(self) -> dict[str, Any]:
        """The state as JSON values; `from_json` reads them back exactly."""
        return {
            "state_version": STATE_VERSION,
            "tilts": TILTS.tolist(),
            "alpha": self.alpha,
            "num_samples": self.sums.num_samples,
            "deviation": self.sums.deviation,
            "variance": self.sums.variance,
            "cumulant": self.sums.cumulant.tolist(),
            "log_max": self.log_max,
            "samples_at_max": self.samples_at_max,
            "crossed_at": self.crossed_at,
        }


def from_json(values: Mapping[str, Any]) -> EProcess:
    """The state that `EProcess.as_json` wrote.

    Raises:
      InputError: Another version or grid of tilts, a field missing or of the wrong kind.
    """
    try:
        if values["state_version"] != STATE_VERSION:
            raise InputError(
                f"e-process state of version {values['state_version']}: {STATE_VERSION} required"
            )
        if values["tilts"] != TILTS.tolist():
            raise InputError("e-process state: its tilts are not those of this version")
        cumulant = np.asarray(values["cumulant"], dtype=np.float64)
        sums = ScoreSums(
            int(values["num_samples"]),
            float(values["deviation"]),
            float(values["variance"]),
            cumulant,
        )
        crossed = values["crossed_at"]
        state = EProcess(
            float(values["alpha"]),
            sums,
            float(values["log_max"]),
            int(values["samples_at_max"]),
            None if crossed is None else int(crossed),
        )
    except KeyError as error:
        raise InputError(f"e-process state: field {error} is missing") from None
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"e-process state: {error}") from None
    if cumulant.shape != TILTS.shape or not np.isfinite(cumulant).all():
        raise InputError(f"e-process state: {len(TILTS)} finite cumulants required")
    consistent = (
        math.isfinite(sums.deviation)
        and math.isfinite(sums.variance)
        and 0 <= state.samples_at_max <= sums.num_samples
        and (state.crossed_at is None or 1 <= state.crossed_at <= sums.num_samples)
        and state.log_max >= max(0.0, sums.log_e) - 1e-6
    )
    if not consistent:
        raise InputError("e-process state: its fields contradict one another")
    return state


def chernoff_p(sums: ScoreSums) -> float:
    """Two-sided p-value at a number of samples fixed in advance.

    P(S >= s) <= exp(K(t) - t s) for every t > 0; the smallest over the grid is monotone in s, so it
    is a p-value, and twice the smaller of both sides a two-sided one. No look before the end, no
    mixture to pay for, no approximation; about 1.16 times the samples of a z test at level 1e-6.

    Args:
      sums: Of all samples.

    Returns:
      The p-value; 1 for no samples.
    """
    exponents = sums.cumulant - TILTS * sums.deviation
    smallest = float(exponents.min())
    return min(1.0, 2.0 * math.exp(min(0.0, smallest)))


def _check_terms(terms: ScoreTerms, seen: int) -> None:
    if terms.cumulant.shape != (len(terms.deviation), len(TILTS)):
        raise InputError(
            f"cumulant has shape {terms.cumulant.shape}: "
            f"({len(terms.deviation)}, {len(TILTS)}) required"
        )
    if terms.variance.shape != terms.deviation.shape:
        raise InputError(
            f"variance has shape {terms.variance.shape}: {terms.deviation.shape} required"
        )
    finite = np.isfinite(terms.deviation) & np.isfinite(terms.cumulant).all(axis=1)
    finite &= np.isfinite(terms.variance)
    if not finite.all():
        first = int(np.argmin(finite))
        raise InputError(f"sample {seen + first}: its score or cumulant is not finite")
