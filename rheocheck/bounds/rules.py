"""Acceptance of the published verification rules at one node, exact or float from one code path.

Two numbers are called acceptance. `accept_test`: one of the rule's tests succeeds. `membership`:
the emitted token is among the candidates, also where it came from the residual; the transport
optimum bounds this one. They differ for `kseq` and `naive` only.

Formulas on laws of shape [..., vocab]; independent drafts are `num_drafts` draws from one law.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rheocheck.bounds.laws import (
    Array,
    DraftLike,
    LawLike,
    NodeLaws,
    Number,
    check_counts,
    rank_order,
    ratio,
    read_node,
    scalar,
    total,
    truncated,
)
from rheocheck.bounds.node import lay_out, layout_acceptance
from rheocheck.bounds.without_replacement import SequentialRejection, one_minus
from rheocheck.errors import ConfigError

DraftRule: TypeAlias = Literal[
    "single", "specinfer", "kseq", "naive", "nss", "sequoia", "spechub", "greedy", "topk"
]
DRAFT_RULES: tuple[DraftRule, ...] = get_args(DraftRule)
# Width at which the search for K-SEQ's factor stops.
FACTOR_TOLERANCE = 1e-11


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Both meanings of acceptance.

    Attributes:
      accept_test: Probability that a test succeeds.
      membership: Probability that the emitted token is a candidate; at least `accept_test`.
    """

    accept_test: Number
    membership: Number


def rule_acceptance(
    target: LawLike,
    draft: DraftLike,
    num_drafts: int = 2,
    rule: DraftRule = "specinfer",
    support_size: int | None = None,
) -> Acceptance:
    """Acceptance of a published rule at one node.

    Args:
      target: [vocab] target law, Fractions or floats.
      draft: [vocab] draft law, or a 2-tuple (ranking, tempered draft). Tokens are drawn from the
        tempered draft; `spechub`, `greedy` and `topk` order them by the ranking law.
      num_drafts: Candidates; `single` uses one, `spechub` needs exactly two.
      rule: `single` (Leviathan et al. 2023, arXiv:2211.17192); `specinfer` (Miao et al. 2023,
        arXiv:2305.09781), `kseq` (Sun et al. 2023, arXiv:2310.15141), `naive` and `nss`
        (Thomas and Pal 2026, arXiv:2602.16961) on independent drafts; `sequoia` (Chen et al. 2024,
        arXiv:2402.12374; Jeon et al. 2024, arXiv:2402.14160) without replacement; `spechub` (Sun et
        al. 2024, arXiv:2411.05289); `greedy` (Hu et al. 2025, arXiv:2502.18779); `topk`: the first
        tokens as point masses (Li et al. 2024, arXiv:2406.16858).
      support_size: Most tokens that the draft keeps; None keeps all.

    Returns:
      Fractions if the laws are exact, floats otherwise. For exact laws `kseq` is the rule at the
      rational factor that its bisection ends with, from above, where it is exactly lossless.

    Raises:
      ConfigError: A setting out of range, an unknown rule, `spechub` with num_drafts != 2.
      LawError: Laws that are none, differ in length or in kind.
    """
    check_counts(num_drafts=num_drafts)
    if rule not in DRAFT_RULES:
        raise ConfigError(f"rule = {rule!r}; required: one of {', '.join(DRAFT_RULES)}")
    if rule == "spechub" and num_drafts != 2:
        raise ConfigError(f"num_drafts = {num_drafts}; required by spechub: exactly 2")
    laws = read_node(target, draft)
    if support_size is not None:
        check_counts(support_size=support_size)
        laws = truncated(laws, support_size)
    accept_test, membership = _FORMULAS[rule](laws, num_drafts)
    return Acceptance(scalar(accept_test, laws.exact), scalar(membership, laws.exact))


def single(laws: NodeLaws, num_drafts: int = 1) -> tuple[Any, Any]:
    """One draft: sum of min(target, draft)."""
    overlap = total(np.minimum(laws.target, laws.draft))
    return overlap, overlap


def specinfer(laws: NodeLaws, num_drafts: int) -> tuple[Any, Any]:
    """Recursive rejection of independent drafts.

    After each rejection the residual replaces the target. It is 0 on the rejected token and stays
    so: accept-test is membership.
    """
    residual, rejected = laws.target, 1
    for _ in range(num_drafts):
        excess = residual - np.minimum(residual, laws.draft)
        left = np.asarray(total(excess))[..., np.newaxis]
        rejected = rejected * total(excess)
        residual = ratio(excess, np.broadcast_to(left, excess.shape))
    accepted = one_minus(rejected)
    return accepted, accepted


def kseq(laws: NodeLaws, num_drafts: int, tolerance: float = FACTOR_TOLERANCE) -> tuple[Any, Any]:
    """K-SEQ: accept each independent draft with min(1, target / (factor * draft)).

    Args:
      laws: [..., vocab] laws.
      num_drafts: Independent drafts.
      tolerance: As in `kseq_factor`.

    Returns:
      Accept-test and membership. A rejected draft can be what the residual emits, so they differ.
    """
    factor = kseq_factor(laws, num_drafts, tolerance)
    spread = factor[..., np.newaxis] if np.ndim(factor) else factor
    kept = np.minimum(laws.draft, laws.target / spread)
    each = total(kept)
    accepted = 1 - power(one_minus(each), num_drafts)
    times = np.asarray(ratio(accepted, each))[..., np.newaxis]
    residual = np.maximum(laws.target - times * kept, 0)
    left = np.broadcast_to(np.asarray(one_minus(each))[..., np.newaxis], kept.shape)
    rejected_law = ratio(laws.draft - kept, left)
    hit = total(residual * (1 - power(one_minus(rejected_law), num_drafts)))
    return accepted, accepted + hit


def kseq_factor(laws: NodeLaws, num_drafts: int, tolerance: float = FACTOR_TOLERANCE) -> Any:
    """Least factor at which K-SEQ is lossless, from above by bisection.

    With beta(rho) = sum of min(draft, target / rho) it solves 1 - (1 - beta)^K = rho * beta.

    Args:
      laws: [..., vocab] laws.
      num_drafts: Independent drafts.
      tolerance: The result is too large by at most this much.

    Returns:
      [...] factors in [1, num_drafts]. Each is lossless: rounding is upwards.
    """
    halvings = max(0, math.ceil(math.log2(max(num_drafts - 1, 1) / tolerance)))
    # Where either law is 0 the minimum is 0 for every factor: a large vocabulary gets smaller.
    if laws.target.ndim == 1:
        both = np.flatnonzero(np.asarray((laws.target > 0) & (laws.draft > 0), dtype=bool))
        target, draft = laws.target[both], laws.draft[both]
    else:
        target, draft = laws.target, laws.draft
    one = total(laws.target) * 0 + 1
    low, high = one, one * num_drafts
    kept = np.empty_like(target)  # one buffer: fresh memory costs more than the arithmetic
    for _ in range(halvings):
        middle = (low + high) / 2
        spread = middle[..., np.newaxis] if np.ndim(middle) else middle
        np.multiply(target, 1 / spread, out=kept)
        each = total(np.minimum(draft, kept, out=kept))
        lossless = 1 - power(one_minus(each), num_drafts) <= middle * each
        if np.ndim(middle):
            low, high = np.where(lossless, low, middle), np.where(lossless, middle, high)
        else:
            low, high = (low, middle) if lossless else (middle, high)
    return high


def naive(laws: NodeLaws, num_drafts: int) -> tuple[Any, Any]:
    """Test the first of independent drafts; a rejection emits the residual, which may be another.

    The residual misses the rejected draft, so it hits one of num_drafts - 1 others.
    """
    overlap = np.minimum(laws.target, laws.draft)
    accepted = total(overlap)
    missed = power(one_minus(laws.draft), num_drafts - 1)
    return accepted, accepted + total((laws.target - overlap) * (1 - missed))


def nss(laws: NodeLaws, num_drafts: int) -> tuple[Any, Any]:
    """Draw from the target and see whether it is one of the independent drafts."""
    accepted = total(laws.target * (1 - power(one_minus(laws.draft), num_drafts)))
    return accepted, accepted


def sequoia(laws: NodeLaws, num_drafts: int) -> tuple[Any, Any]:
    """Recursive rejection without replacement (also RSD's); [vocab] laws only.

    Costs O(vocab ** (num_drafts - 1) * log vocab): three drafts of a thousand tokens take some
    tens of milliseconds, three of 128k half an hour.
    """
    draft = without_denormals(laws.draft)
    accepted = SequentialRejection(laws.target, draft, num_drafts).acceptance()
    return accepted, accepted


def spechub(laws: NodeLaws, num_drafts: int = 2) -> tuple[Any, Any]:
    """SpecHub's transport, step by step, on its pairs of the first token a and another token i.

    Pairs (i, a) have probability draft(i) and (a, i) have draft(a) draft(i) / (1 - draft(a)). Each
    first pays target(i), the first kind before the second; a takes what is left of both.
    """
    first = rank_order(laws.ranking, 1)
    hub = np.arange(laws.target.shape[-1]) == first
    rest = np.asarray(total(np.where(hub, 0, laws.draft)))[..., np.newaxis]
    hub_draft = np.take_along_axis(laws.draft, first, axis=-1)
    last_pair = np.where(hub, 0, laws.draft)
    first_pair = hub_draft * ratio(last_pair, np.broadcast_to(rest, hub.shape))
    spoke_target = np.where(hub, 0, laws.target)
    by_last = np.minimum(spoke_target, last_pair)
    by_first = np.minimum(spoke_target - by_last, first_pair)
    left = total(last_pair - by_last) + total(first_pair - by_first)
    # A draft that knows one token only draws it, alone.
    left = np.where(rest[..., 0] == 0, 1, left) if np.ndim(left) else (left if rest[0] else 1)
    hub_target = np.take_along_axis(laws.target, first, axis=-1)[..., 0]
    accepted = total(by_last) + total(by_first) + np.minimum(hub_target, left)
    return accepted, accepted


def greedy(laws: NodeLaws, num_drafts: int) -> tuple[Any, Any]:
    """The num_drafts - 1 first tokens and one draw from the rest, optimally verified."""
    layout = lay_out(laws, num_drafts, num_drafts - 1, laws.ranking.shape[-1])
    accepted = layout_acceptance(laws, layout, "merged")
    return accepted, accepted


def topk(laws: NodeLaws, num_drafts: int) -> tuple[Any, Any]:
    """The num_drafts first tokens, each tested as a point mass."""
    layout = lay_out(laws, num_drafts, num_drafts, laws.ranking.shape[-1])
    accepted = layout_acceptance(laws, layout, "onehot")
    return accepted, accepted


def power(base: Any, exponent: int) -> Any:
    """base ** exponent by repeated squaring: NumPy's own is ten times slower on arrays."""
    result: Any = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        base = base * base if exponent > 1 else base
        exponent >>= 1
    return base * 0 + 1 if result is None else result


def without_denormals(law: Array) -> Array:
    """The law with float masses below 1e-290 set to 0: their reciprocals would overflow."""
    if law.dtype == object:
        return law
    tiny = np.flatnonzero(law < 1e-290)
    return law if not law[tiny].any() else np.where(law < 1e-290, 0.0, law)


_FORMULAS: dict[DraftRule, Callable[[NodeLaws, int], tuple[Any, Any]]] = {
    "single": single,
    "specinfer": specinfer,
    "kseq": kseq,
    "naive": naive,
    "nss": nss,
    "sequoia": sequoia,
    "spechub": spechub,
    "greedy": greedy,
    "topk": topk,
}
