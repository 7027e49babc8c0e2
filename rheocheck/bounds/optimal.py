"""Optimal acceptance: the most that any lossless verifier can reach with given candidates.

For every law of candidate sets, max P(emitted token is a candidate) = 1 + min over sets of tokens A
of target(A) - P(candidates within A). A is the dual certificate: any A is a bound, and the best one
is attained. Three ways to it, cheapest first:

* dual-identity nodes: the candidates are the core C and Z ~ w (see `node`), so the optimum is
  target(C) + sum over the other tokens of min(target, w), with A = C and {target < w}. O(vocab).
* independent drafts, and at most three without replacement: A is a prefix of the tokens by
  draft/target descending. target(A) - draft(A)**K is concave along every direction that raises
  draft(A), so its least value is at a vertex of the attainable (draft, target) pairs, and those are
  the prefixes. O(vocab log vocab); three without replacement O(vocab ** 2).
* any other law of sets: HiGHS in floating point, maximum flow in rationals.

Source: Hu et al. (2025), arXiv:2502.18779 (subset selection, prefix order); Hu, Weng and Zhang
(2026), arXiv:2609.21827 (the candidates of a dual-identity node).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rheocheck.bounds.laws import (
    Array,
    DraftLike,
    LawLike,
    NodeLaws,
    Number,
    Tokens,
    check_counts,
    exact_array,
    is_exact,
    read_node,
    scalar,
    total,
    truncated,
)
from rheocheck.bounds.node import NodeLayout, lay_out, merged_law
from rheocheck.bounds.rules import power, without_denormals
from rheocheck.bounds.set_laws import SetLaw, independent_sets, rheo_sets, sequential_sets
from rheocheck.bounds.transport import Certificate, Plan, certify, solve_by_highs, solve_exactly
from rheocheck.bounds.without_replacement import prefix_masses_of_three, prefix_masses_of_two
from rheocheck.errors import ConfigError, LawError

MOST_WITHOUT_REPLACEMENT = 3


@dataclass(frozen=True, slots=True)
class OptimalAcceptance:
    """The optimum and its proof.

    Attributes:
      value: Greatest membership acceptance: a Fraction for exact laws, a float otherwise.
      method: "closed form", "sorted prefix", "HiGHS" or "maximum flow".
    """

    value: Number
    method: str
    _dual_tokens: Tokens = field(repr=False)
    _certificate: Callable[[], Certificate] = field(repr=False)

    @property
    def dual_set(self) -> frozenset[int]:
        """Tokens A with value = 1 + target(A) - P(candidates within A)."""
        return frozenset(self._dual_tokens.tolist())

    def certificate(self) -> Certificate:
        """Primal flow and dual set, checked in rational arithmetic.

        Float laws are read as the dyadic rationals they are and rescaled to sum to 1 exactly; the
        certificate is about those laws, and its value is within rounding of `value`.

        Raises:
          BudgetExceededError: The law of the candidate sets is too large to write out.
        """
        return self._certificate()


def optimal_acceptance(
    target: LawLike,
    draft: DraftLike,
    top_k: int = 3,
    num_top: int = 1,
    support_size: int = 128,
) -> OptimalAcceptance:
    """Optimal acceptance for the candidates of one dual-identity node, all children surviving.

    Args:
      target: [vocab] target law, Fractions or floats.
      draft: [vocab] draft law, or a 2-tuple (ranking, tempered draft) of laws.
      top_k: Most children. With num_top >= top_k they are the top_k first tokens.
      num_top: Top children before the probe.
      support_size: Most tokens that the draft keeps.

    Returns:
      Value and dual set by the closed form; the certificate on demand.

    Raises:
      ConfigError: A setting out of range.
      LawError: Laws that are none, differ in length or in kind.
    """
    check_counts(top_k=top_k, num_top=num_top, support_size=support_size)
    laws = read_node(target, draft)
    layout = lay_out(laws, top_k, num_top, support_size)
    value, cut = layout_optimum(layout)

    def certificate() -> Certificate:
        exact = laws.as_rationals()
        return node_certificate(exact, lay_out(exact, top_k, num_top, support_size))

    return OptimalAcceptance(
        scalar(value, laws.exact), "closed form", layout.tokens[cut], certificate
    )


def layout_optimum(layout: NodeLayout) -> tuple[Any, Array]:
    """Closed form for a node or a batch: [...] optimum, [..., position] whether in the dual set."""
    merged = merged_law(layout)
    core_mass = total(layout.target[..., : layout.core_size])
    cut = layout.target < merged
    cut[..., : layout.core_size] = layout.inside[..., : layout.core_size]
    return np.minimum(core_mass + total(np.minimum(layout.target, merged)), 1), cut


def node_certificate(laws: NodeLaws, layout: NodeLayout) -> Certificate:
    """The closed form's plan, written out and checked.

    Z's token takes min(target, w) from its set; what is left of each set, at least target(C) in
    all, fills the core token by token.

    Args:
      laws: [vocab] exact laws.
      layout: Their layout.
    """
    candidates = rheo_sets(layout)
    room = laws.target.copy()
    flow = exact_array([0] * len(candidates.tokens))
    in_core = set(layout.tokens[: layout.core_size].tolist())
    for row, mass in enumerate(candidates.masses):
        left = mass
        edges = range(candidates.starts[row], candidates.starts[row + 1])
        for edge in sorted(edges, key=lambda edge: int(candidates.tokens[edge]) in in_core):
            token = candidates.tokens[edge]
            flow[edge] = min(left, room[token])
            room[token] -= flow[edge]
            left -= flow[edge]
    _, cut = layout_optimum(layout)
    return certify(laws.target, candidates, Plan(flow, frozenset(layout.tokens[cut].tolist())))


def optimal_independent(
    target: LawLike, draft: DraftLike, num_drafts: int = 2, support_size: int | None = None
) -> OptimalAcceptance:
    """Optimal acceptance for independent drafts, by subset selection over sorted prefixes.

    Args:
      target: [vocab] target law.
      draft: [vocab] draft law, or a 2-tuple (ranking, tempered draft); the tempered one is drawn.
      num_drafts: Draws.
      support_size: Most tokens that the draft keeps; None keeps all.

    Raises:
      ConfigError: A setting out of range.
      LawError: Laws that are none, differ in length or in kind.
    """
    laws = _read(target, draft, num_drafts, support_size)
    value, cut = best_prefix(
        laws.target, laws.draft, lambda sorted_draft: power(np.cumsum(sorted_draft), num_drafts)
    )

    def certificate() -> Certificate:
        exact = laws.as_rationals()
        return _solved_exactly(exact.target, independent_sets(exact.draft, num_drafts))

    return OptimalAcceptance(scalar(value, laws.exact), "sorted prefix", cut, certificate)


def optimal_without_replacement(
    target: LawLike, draft: DraftLike, num_drafts: int = 2, support_size: int | None = None
) -> OptimalAcceptance:
    """Optimal acceptance for drafts without replacement, by subset selection over sorted prefixes.

    Args:
      target: [vocab] target law.
      draft: [vocab] draft law, or a 2-tuple (ranking, tempered draft); the tempered one is drawn.
      num_drafts: Draws, at most 3; beyond the support there is nothing to draw. Three cost
        O(vocab ** 2): a thousand tokens take some tens of milliseconds.
      support_size: Most tokens that the draft keeps; None keeps all.

    Raises:
      ConfigError: A setting out of range, or more than three draws.
      LawError: Laws that are none, differ in length or in kind.
    """
    laws = _read(target, draft, num_drafts, support_size)
    if num_drafts > MOST_WITHOUT_REPLACEMENT:
        raise ConfigError(
            f"num_drafts = {num_drafts}; required without replacement: at most "
            f"{MOST_WITHOUT_REPLACEMENT} (write the set law out and use optimal_for_sets)"
        )
    draws = without_denormals(laws.draft)
    num_distinct = min(num_drafts, int(np.count_nonzero(draws)))
    masses = (np.cumsum, prefix_masses_of_two, prefix_masses_of_three)[num_distinct - 1]
    value, cut = best_prefix(laws.target, draws, masses)

    def certificate() -> Certificate:
        exact = laws.as_rationals()
        return _solved_exactly(exact.target, sequential_sets(exact.draft, num_drafts))

    return OptimalAcceptance(scalar(value, laws.exact), "sorted prefix", cut, certificate)


def optimal_for_sets(target: LawLike, candidates: SetLaw) -> OptimalAcceptance:
    """Optimal acceptance for any law of candidate sets.

    Args:
      target: [vocab] target law; exact if and only if `candidates` is.
      candidates: Law of the candidate sets, see `set_law`.

    Returns:
      The maximum flow for exact laws, the optimum of HiGHS for floats.

    Raises:
      LawError: A target that is no law or of another kind; a candidate outside the vocabulary.
    """
    laws = read_node(target, target)
    if laws.exact != is_exact(candidates.masses):
        kinds = ("floats", "Fractions")
        raise LawError(
            f"target holds {kinds[laws.exact]} and the set law holds {kinds[not laws.exact]}; "
            f"required: one kind"
        )
    vocab = len(laws.target)
    if candidates.tokens.size and int(candidates.tokens.max()) >= vocab:
        raise LawError(
            f"candidate {int(candidates.tokens.max())} is outside the vocabulary of {vocab} tokens"
        )
    if laws.exact:
        solved = _solved_exactly(laws.target, candidates)
    else:
        solved = certify(laws.target, candidates, solve_by_highs(laws.target, candidates))

    def certificate() -> Certificate:
        masses = exact_array(candidates.masses.tolist())
        exact_sets = SetLaw(candidates.tokens, candidates.starts, masses / masses.sum())
        return solved if laws.exact else _solved_exactly(laws.as_rationals().target, exact_sets)

    dual = np.array(sorted(solved.plan.dual_set), dtype=np.intp)
    method = "maximum flow" if laws.exact else "HiGHS"
    return OptimalAcceptance(solved.lower, method, dual, certificate)


def best_prefix(
    target: Array, draft: Array, masses_within: Callable[[Array], Any]
) -> tuple[Any, Tokens]:
    """Least of 1 + target(A) - P(candidates within A) over prefixes by draft/target descending.

    Args:
      target: [vocab] target law.
      draft: [vocab] draft law.
      masses_within: [vocab] draft masses in prefix order -> [vocab] P(candidates within A) for
        A the first token, the first two, ...

    Returns:
      The value, and A in prefix order.
    """
    # target / (target + draft) orders as target / draft does, without an infinity. Ties may go any
    # way: between two vertices the objective is concave. Arrays are reused where they can be:
    # at 128k tokens fresh memory costs more than the arithmetic.
    share = target + draft
    np.divide(target, share, out=share, where=np.asarray(share != 0, dtype=bool))
    order = np.argsort(share)
    bounds = np.cumsum(target[order])
    bounds -= masses_within(draft[order])
    best = int(np.argmin(bounds))
    if bounds[best] >= 0:  # the empty set: every token can be covered
        return 1 + bounds[best] * 0, order[:0]
    return 1 + bounds[best], order[: best + 1]


def _solved_exactly(target: Array, candidates: SetLaw) -> Certificate:
    return certify(target, candidates, solve_exactly(target, candidates))


def _read(target: LawLike, draft: DraftLike, num_drafts: int, support_size: int | None) -> NodeLaws:
    check_counts(num_drafts=num_drafts)
    laws = read_node(target, draft)
    if support_size is None:
        return laws
    check_counts(support_size=support_size)
    return truncated(laws, support_size)
