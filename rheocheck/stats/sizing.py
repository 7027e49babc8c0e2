"""How many tokens a sampled audit needs to see a given total variation, from pilot contexts.

A total variation alone fixes no sample size: no directed statistic sees a fault that is orthogonal
to its score. So the run is sized for named faults of that size: draft mass that leaks into the
output, a wrong temperature, and the worst case of a PIT histogram (the distance spread evenly over
its bins).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from rheocheck.errors import InputError
from rheocheck.stats.fault_power import (
    expected_stop,
    noncentrality_samples,
    pit_noncentrality,
    score_samples,
    score_shift,
)
from rheocheck.stats.inputs import checked_laws, checked_level
from rheocheck.stats.mutants import draft_leak, tempered
from rheocheck.stats.pit import NUM_BINS, draft_target_order
from rheocheck.stats.power import DEFAULT_POWER
from rheocheck.stats.scores import above_target, draft_score, surprisal

Laws = NDArray[np.float64]
LARGEST_TEMPERATURE = 1e3


@dataclass(frozen=True, slots=True)
class SizedFault:
    """One fault at the total variation asked for.

    Attributes:
      fault: What goes wrong, with its strength.
      samples: By statistic, tokens at which it is found with the power; infinite where it never is.
      expected_stop: By score, mean tokens until its e-process crosses 1/alpha.
    """

    fault: str
    samples: dict[str, float]
    expected_stop: dict[str, float]

    @property
    def best(self) -> str:
        """The statistic that needs fewest samples (the first on ties)."""
        return min(self.samples, key=lambda name: self.samples[name])


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sample size of a run.

    Attributes:
      detect: Mean total variation to be found.
      alpha: Level of each test.
      power: Probability of finding it.
      faults: Those it was sized for.
      num_samples: Tokens at which each of them is found by its best statistic.
    """

    detect: float
    alpha: float
    power: float
    faults: tuple[SizedFault, ...]
    num_samples: float


def size_run(
    target: Laws, draft: Laws, detect: float, alpha: float, power: float = DEFAULT_POWER
) -> Sizing:
    """Size a run that must find a mean total variation of `detect`.

    Args:
      target: [contexts, vocab] pilot target laws, at least one.
      draft: [contexts, vocab] pilot draft laws; zero rows allowed.
      detect: Mean total variation over contexts, in (0, 1).
      alpha: Two-sided level of each test.
      power: In (1/2, 1).

    Returns:
      The sizing. A fault that cannot reach `detect` on these contexts (the draft itself is nearer
      to the target) is left out.

    Raises:
      InputError: Something out of range; LawError: a row that is no law.
    """
    laws = checked_laws(target, "target")
    if not len(laws):
        raise InputError("target has no contexts: at least one required")
    if draft.shape != laws.shape:
        raise InputError(f"draft has shape {draft.shape}: {laws.shape} required")
    checked_level(detect, "detect")
    checked_level(alpha)
    if not 0.5 < power < 1.0:
        raise InputError(f"power = {power}: must lie in (1/2, 1)")
    faults = [
        _sized(name, laws, draft, fault, alpha, power)
        for name, fault in faults_of_size(laws, draft, detect)
    ]
    evenly = noncentrality_samples(4.0 * detect**2, NUM_BINS - 1, alpha, power)
    faults.append(SizedFault("spread evenly over the PIT's bins", {"PIT draft/target": evenly}, {}))
    needed = max(fault.samples[fault.best] for fault in faults)
    return Sizing(detect, alpha, power, tuple(faults), math.ceil(needed))


def faults_of_size(target: Laws, draft: Laws, detect: float) -> list[tuple[str, Laws]]:
    """Named faults whose mean total variation is `detect`: (name, [contexts, vocab] emitted laws).

    Draft tokens that are emitted unverified, and a temperature that is too high. One that cannot
    get that far on these contexts is left out.

    Args:
      target: [contexts, vocab] target laws.
      draft: [contexts, vocab] draft laws; zero rows allowed.
      detect: Mean total variation over contexts, in (0, 1).
    """
    found = []
    with_draft = np.where(draft.sum(axis=1, keepdims=True) > 0, draft, target)
    distance = _mean_distance(target, with_draft)
    if distance > detect:
        share = detect / distance
        leak = np.array(
            [draft_leak(p, q, 0, share) for p, q in zip(target, with_draft, strict=True)]
        )
        found.append((f"{share:.2%} of the tokens are unverified drafts", leak))

    def heated(log_temperature: float) -> Laws:
        return np.array([tempered(p, p, 0, math.exp(log_temperature)) for p in target])

    def surplus(log_temperature: float) -> float:
        return _mean_distance(target, heated(log_temperature)) - detect

    top = math.log(LARGEST_TEMPERATURE)
    if surplus(top) > 0.0:
        # The distance is nearly linear in a small log temperature: a few steps suffice.
        value = float(optimize.brentq(surplus, 0.0, top, rtol=1e-4, xtol=1e-9))
        found.append((f"temperature off by a factor {math.exp(value):.4f}", heated(value)))
    return found


def _sized(
    name: str, target: Laws, draft: Laws, fault: Laws, alpha: float, power: float
) -> SizedFault:
    samples, stops = {}, {}
    scores = {
        "surprisal": surprisal(target),
        "draft score": draft_score(target, draft),
        "draft above target": above_target(target, draft),
    }
    for statistic, score in scores.items():
        shift = score_shift(target, fault, score)
        samples[statistic] = score_samples(shift, alpha, power)
        stops[statistic] = expected_stop(shift, alpha)
    noncentrality = pit_noncentrality(target, fault, draft_target_order(target, draft))
    samples["PIT draft/target"] = noncentrality_samples(noncentrality, NUM_BINS - 1, alpha, power)
    return SizedFault(name, samples, stops)


def _mean_distance(first: Laws, second: Laws) -> float:
    return float(0.5 * np.abs(first - second).sum(axis=1).mean())
