"""Acceptance at one node of a dual-identity tree, all children surviving: closed forms in O(vocab).

Notation of the formulas: D the top tokens, f_1, f_2, ... the tail in rank order, X ~ probe_law the
probe, n = top_k - num_top - 1 fillers, t = 1 - target(D), C = D and f_1..f_n (the core).

Structure of the candidates. If X is in C, the candidates are C and f_{n+1}; otherwise they are C
and X. So they are always C and one more token Z, whose law is the merged law w: w(f_{n+1}) =
probe_law(f_1) + ... + probe_law(f_{n+1}), and w = probe_law on the tokens after f_{n+1}.

Under all four rules a rejected candidate has no mass in the final residual. So the emitted token is
a candidate exactly when it was accepted: accept-test probability and membership are one number.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the candidates and the first two rules;
recursive rejection without replacement: Chen et al. (2024), arXiv:2402.12374, and Jeon et al.
(2024), arXiv:2402.14160; point-mass tests: Li et al. (2024), arXiv:2406.16858.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rheocheck.bounds.laws import (
    Array,
    DraftLike,
    LawLike,
    NodeLaws,
    Number,
    Tokens,
    check_counts,
    largest,
    one_like,
    rank_order,
    ratio,
    read_node,
    scalar,
    total,
)
from rheocheck.errors import ConfigError

NodeRule: TypeAlias = Literal["rheo", "rrsw", "onehot", "merged"]
NODE_RULES: tuple[NodeRule, ...] = get_args(NodeRule)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The support of a node's draft: the first top_k tokens in rank order, the others after them.

    Attributes:
      tokens: [..., position] token ids.
      inside: [..., position] False where a position of a batch holds no token of its support; a
        row's tokens come first.
      target: [..., position] target mass, 0 outside; unnormalised: the target has mass elsewhere.
      probe_law: [..., position] law of the probe, 0 on top tokens; all 0 if there is no tail.
      top_k: Most children.
      num_top: Top children, at most top_k.
    """

    tokens: Tokens
    inside: Array
    target: Array
    probe_law: Array
    top_k: int
    num_top: int

    @property
    def core_size(self) -> int:
        """Candidates that do not depend on the probe: the first positions (fewer if none left)."""
        return self.top_k if self.num_top == self.top_k else self.top_k - 1


def node_acceptance(
    target: LawLike,
    draft: DraftLike,
    top_k: int = 3,
    num_top: int = 1,
    support_size: int = 128,
    rule: NodeRule = "rheo",
) -> Number:
    """Accept-test probability at one node, all children surviving.

    It equals the probability that the emitted token is a candidate (see the module's text).

    Args:
      target: [vocab] target law, Fractions or floats.
      draft: [vocab] draft law, or a 2-tuple (ranking, tempered draft) of laws.
      top_k: Most children. With num_top >= top_k they are the top_k first tokens and there is no
        probe; then all rules accept with probability target(candidates).
      num_top: Top children before the probe.
      support_size: Most tokens that the draft keeps; ties go to the smaller id.
      rule: "rheo": the probe first, then the others as point masses. "rrsw": top, probe, fillers.
        "onehot": every child a point mass. "merged": Z first, tested against the merged law, then
        the core as point masses; attains the optimum.

    Returns:
      A Fraction if the laws are exact, a float otherwise.

    Raises:
      ConfigError: A setting out of range, or an unknown rule.
      LawError: Laws that are none, differ in length or in kind.
    """
    check_counts(top_k=top_k, num_top=num_top, support_size=support_size)
    laws = read_node(target, draft)
    layout = lay_out(laws, top_k, num_top, support_size)
    return scalar(layout_acceptance(laws, layout, rule), laws.exact)


def lay_out(laws: NodeLaws, top_k: int, num_top: int, support_size: int) -> NodeLayout:
    """Order the tokens of one node, or of a batch of nodes, and normalise the probe's law.

    Args:
      laws: [..., vocab] laws.
      top_k: Most children.
      num_top: Top children.
      support_size: Most tokens that the draft keeps.

    Returns:
      The layout. Where the tempered draft leaves the tail no mass, the probe is the tail's first
      token.
    """
    num_top = min(num_top, top_k)
    tokens = _ordered_support(laws.ranking, top_k, support_size)
    inside = _at(laws.ranking, tokens) > 0
    target = _at(laws.target, tokens)
    probe_law = _at(laws.draft, tokens)
    if not inside.all():
        target, probe_law = np.where(inside, target, 0), np.where(inside, probe_law, 0)
    probe_law[..., :num_top] = 0
    if num_top == top_k:
        probe_law[...] = 0
        return NodeLayout(tokens, inside, target, probe_law, top_k, num_top)
    drawn = np.asarray(total(probe_law))[..., np.newaxis]
    probe_law /= np.where(drawn == 0, one_like(drawn), drawn)
    if num_top < tokens.shape[-1]:
        # The limit of temperature 0 when all of the draft's mass sits on the top tokens.
        undrawn = (drawn[..., 0] == 0) & inside[..., num_top]
        probe_law[..., num_top] = np.where(undrawn, 1, probe_law[..., num_top])
    return NodeLayout(tokens, inside, target, probe_law, top_k, num_top)


def _ordered_support(ranking: Array, top_k: int, support_size: int) -> Tokens:
    """[..., position] tokens of the support: the first top_k in rank order, the others in any."""
    if ranking.ndim > 1:
        return rank_order(ranking, min(support_size, ranking.shape[-1]))
    kept = largest(ranking, support_size)
    masses = ranking[kept]
    first = rank_order(masses, min(top_k, int(np.count_nonzero(masses))))
    others = np.asarray(masses > 0, dtype=bool)
    others[first] = False
    return np.concatenate([kept[first], kept[others]])


def _at(law: Array, tokens: Tokens) -> Array:
    return law[tokens] if law.ndim == 1 else np.take_along_axis(law, tokens, axis=-1)


def merged_law(layout: NodeLayout) -> Array:
    """Law of Z, the candidate outside the core.

    Args:
      layout: A layout of one node or a batch.

    Returns:
      [..., position] w of the module's text; all 0 where the tail has at most n tokens: then the
      candidates are the whole support.
    """
    last = layout.core_size
    merged = layout.probe_law.copy()
    merged[..., :last] = 0
    if layout.num_top < layout.top_k and last < merged.shape[-1]:
        early = total(layout.probe_law[..., : last + 1])
        merged[..., last] = np.where(layout.inside[..., last], early, 0)
    return merged


def layout_acceptance(laws: NodeLaws, layout: NodeLayout, rule: NodeRule) -> Any:
    """Accept-test probability of a node or a batch: `node_acceptance` without its checks.

    Args:
      laws: [..., vocab] laws.
      layout: Their layout.
      rule: As in `node_acceptance`.

    Returns:
      [...] probabilities; a scalar for one node.

    Raises:
      ConfigError: An unknown rule.
    """
    if rule not in NODE_RULES:
        raise ConfigError(f"rule = {rule!r}; required: one of {', '.join(NODE_RULES)}")
    target = layout.target
    core_mass = total(target[..., : layout.core_size])
    if layout.num_top == layout.top_k:
        return core_mass
    if rule in ("onehot", "merged"):
        merged = merged_law(layout)
        extra = merged * target if rule == "onehot" else np.minimum(target, merged)
        return _probability(core_mass + total(extra))
    top_mass = total(target[..., : layout.num_top])
    if rule == "rheo":
        has_probe = layout.inside[..., layout.num_top :].any(axis=-1)
        probe_first = _probe_then_fillers(layout, 1, top_mass)
        if target.ndim == 1:  # np.where would turn a Fraction into a 0-d array
            return _probability(probe_first if has_probe else top_mass)
        return _probability(np.where(has_probe, probe_first, top_mass))
    # Recursive rejection reaches the probe with target mass t left. Both laws are multiplied by t
    # instead of dividing the target by it, so t = 0 needs no case of its own.
    rest = np.maximum(total(laws.target) - top_mass, 0)
    return _probability(top_mass + _probe_then_fillers(layout, rest, 0))


def _probe_then_fillers(layout: NodeLayout, scale: Any, extra: Any) -> Any:
    """Probability that the probe or a filler is accepted; `extra` is residual mass also tested.

    With b = scale * probe_law, e = (b - target)+ is the joint law of drawing a token and rejecting
    it, and g = (target - b)+ is the residual, of mass sum(e). A rejected token has g = 0, so the
    fillers after a rejection among f_1..f_n are worth g(f_1..f_{n+1}) and otherwise g(f_1..f_n).

    Args:
      layout: A layout of one node or a batch.
      scale: [...] target mass left when the probe is tested.
      extra: [...] residual mass of the top tokens where they are tested after the probe, else 0.

    Returns:
      [...] probabilities.
    """
    target = layout.target[..., layout.num_top :]
    law = layout.probe_law[..., layout.num_top :]
    law = law * (np.asarray(scale)[..., np.newaxis] if np.ndim(scale) else scale)
    num_fillers = layout.top_k - layout.num_top - 1
    overlap = np.minimum(target, law)
    rejected = law - overlap
    residual = target[..., : num_fillers + 1] - overlap[..., : num_fillers + 1]
    fillers, one_more = total(residual[..., :num_fillers]), total(residual)
    rejected_early = total(rejected[..., :num_fillers])
    rejected_late = total(rejected[..., num_fillers:])
    gained = rejected_early * (extra + one_more) + rejected_late * (extra + fillers)
    return total(overlap) + ratio(gained, rejected_early + rejected_late)


def _probability(value: Any) -> Any:
    """Cut the last bit by which a float sum can exceed 1; exact values pass unchanged."""
    return np.minimum(value, 1)
