"""Ten faulty samplers as laws: what each emits at one context, for power and negative controls.

The sound sampler draws x from the draft law q, accepts it with probability min(1, p(x)/q(x)) for
the target law p, and otherwise emits a draw of the residual norm((p - q)+). Its emission is p. Each
mutant changes one step; its law r is exact here, over the whole vocabulary, so a statistic's mean
and variance under the fault are sums and no simulation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rheocheck.errors import InputError

Law: TypeAlias = NDArray[np.float64]
NOISE_SEED = 0x5EED


@dataclass(frozen=True, slots=True)
class Mutant:
    """One faulty sampler.

    Attributes:
      name: Short, unique.
      what: What it does wrong.
      structured: Its error has a direction that follows p or q. False for per-token noise, which no
        test with one sample a context can find near the likelihood-ratio bound.
      law: (target [vocab], draft [vocab], context number) -> [vocab] the law it emits. Only noise
        looks at the number.
    """

    name: str
    what: str
    structured: bool
    law: Callable[[Law, Law, int], Law]


def truncated(draft: Law, support_size: int | None) -> Law:
    """The draft law on its `support_size` most probable tokens (ties by id), renormalised."""
    if support_size is None or support_size >= len(draft):
        return draft
    if support_size < 1:
        raise InputError(f"support_size = {support_size}: at least 1 required")
    kept = np.argsort(-draft, kind="stable")[:support_size]
    law = np.zeros_like(draft)
    law[kept] = draft[kept] / draft[kept].sum()
    return law


def single_draft_law(drawn: Law, accept: Law, residual: Law) -> Law:
    """Law of one token: draw, accept test, residual.

    Args:
      drawn: [vocab] law that the draft token comes from.
      accept: [vocab] probability of accepting each token.
      residual: [vocab] law of the token after a rejection.

    Returns:
      [vocab] drawn * accept + (1 - their sum) * residual.
    """
    taken = drawn * accept
    return taken + max(0.0, float((drawn * (1.0 - accept)).sum())) * residual


def residual_law(target: Law, draft: Law) -> Law:
    """Norm((target - draft)+): [vocab]; the target where nothing is left (equal laws)."""
    excess = np.maximum(target - draft, 0.0)
    total = float(excess.sum())
    return excess / total if total > 0 else target


def accept_probability(target: Law, draft: Law, factor: float = 1.0) -> Law:
    """Min(1, factor * target / draft): [vocab]; 1 where the draft has no mass."""
    ratio = np.divide(factor * target, draft, out=np.ones_like(target), where=draft > 0)
    return np.minimum(ratio, 1.0)


def sound(target: Law, draft: Law, context: int = 0) -> Law:
    """What the sound sampler emits, by the same composition: the target, to rounding."""
    accept = accept_probability(target, draft)
    return single_draft_law(draft, accept, residual_law(target, draft))


def draft_truncated_elsewhere(
    target: Law, draft: Law, context: int = 0, support_size: int = 50
) -> Law:
    """Draws from the draft's top 50, but test and residual use the draft before that cut."""
    drawn = truncated(draft, support_size)
    accept = accept_probability(target, draft)
    return single_draft_law(drawn, accept, residual_law(target, draft))


def residual_is_target(target: Law, draft: Law, context: int = 0) -> Law:
    """After a rejection emits a draw of the target instead of the residual."""
    return single_draft_law(draft, accept_probability(target, draft), target)


def residual_softmaxed(target: Law, draft: Law, context: int = 0) -> Law:
    """Passes (target - draft)+ through a softmax as if it were logits."""
    powers = np.exp(np.maximum(target - draft, 0.0))
    return single_draft_law(draft, accept_probability(target, draft), powers / powers.sum())


def lenient(target: Law, draft: Law, context: int = 0, factor: float = 1.02) -> Law:
    """Accepts with min(1, factor * target/draft)."""
    accept = accept_probability(target, draft, factor)
    return single_draft_law(draft, accept, residual_law(target, draft))


def tempered(target: Law, draft: Law, context: int = 0, temperature: float = 1.01) -> Law:
    """Emits the target at another temperature."""
    with np.errstate(divide="ignore"):
        logs = np.log(target) / temperature
    powers = np.exp(logs - logs.max())
    return np.asarray(powers / powers.sum())


def draft_leak(target: Law, draft: Law, context: int = 0, share: float = 0.01) -> Law:
    """Emits the draft's token unverified with probability `share`."""
    return (1.0 - share) * target + share * draft


def tail_dropped(target: Law, draft: Law, context: int = 0, below: float = 1e-4) -> Law:
    """Drops tokens of probability below 1e-4 and renormalises; keeps all if none is above."""
    kept = np.where(target >= below, target, 0.0)
    total = float(kept.sum())
    return kept / total if total > 0 else target


def per_token_noise(target: Law, draft: Law, context: int = 0, spread: float = 0.02) -> Law:
    """Multiplies each token by its own exp(N(0, 0.02^2)), fixed for the context."""
    noise = np.random.default_rng((NOISE_SEED, context)).normal(0.0, spread, len(target))
    powers = target * np.exp(noise)
    return np.asarray(powers / powers.sum())


def _lenient(factor: float) -> Callable[[Law, Law, int], Law]:
    return lambda target, draft, context: lenient(target, draft, context, factor)


def _tempered(temperature: float) -> Callable[[Law, Law, int], Law]:
    return lambda target, draft, context: tempered(target, draft, context, temperature)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "draft top-50, raw ratio",
        "draws from the draft's top 50, tests against the draft before that cut",
        True,
        draft_truncated_elsewhere,
    ),
    Mutant("resample from target", "no residual after a rejection", True, residual_is_target),
    Mutant("residual softmaxed", "softmax of (p - q)+", True, residual_softmaxed),
    Mutant("accept 1.02 p/q", "accepts with min(1, 1.02 p/q)", True, _lenient(1.02)),
    Mutant("accept 1.002 p/q", "accepts with min(1, 1.002 p/q)", True, _lenient(1.002)),
    Mutant("temperature 1.01", "samples at temperature 1.01", True, _tempered(1.01)),
    Mutant("temperature 1.001", "samples at temperature 1.001", True, _tempered(1.001)),
    Mutant("1 % draft mixture", "1 % of tokens are unverified drafts", True, draft_leak),
    Mutant("tail below 1e-4 dropped", "drops rare tokens and renormalises", True, tail_dropped),
    Mutant("2 % noise per token", "multiplies each token by its own noise", False, per_token_noise),
)
