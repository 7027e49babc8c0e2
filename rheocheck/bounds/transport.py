"""Optimal transport between a law of candidate sets and the target: by HiGHS, or exactly.

A plan sends mass from each set to the tokens in it; each set gives at most its probability, each
token takes at most its target mass, and what is sent is the membership acceptance. The least cut is
1 + target(A) - P(candidates within A) for some set of tokens A.
"""

import math
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from rheocheck.bounds.laws import Array, Number, exact_array, is_exact
from rheocheck.bounds.set_laws import SetLaw
from rheocheck.errors import LawError, RheocheckError

HighsMethod: TypeAlias = Literal["highs", "highs-ds", "highs-ipm"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A transport plan and the cut that bounds it.

    Attributes:
      flow: [edge] mass sent along each (set, token) pair, in the order of `SetLaw.tokens`.
      dual_set: Tokens of the cut.
    """

    flow: Array
    dual_set: frozenset[int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a plan and a cut prove, by arithmetic on the laws they are given with.

    Attributes:
      lower: Acceptance that the plan attains.
      upper: Bound that the cut puts on every verifier.
      set_law: Law of the candidates.
      plan: The primal flow and the dual set.
    """

    lower: Number
    upper: Number
    set_law: SetLaw
    plan: Plan

    @property
    def tight(self) -> bool:
        """Whether plan and cut agree exactly: the proof of optimality."""
        return self.lower == self.upper


def certify(target: Array, candidates: SetLaw, plan: Plan) -> Certificate:
    """Check a plan and evaluate its cut, in the arithmetic of the laws.

    Args:
      target: [vocab] target law. With Fractions the check is exact, whatever made the plan.
      candidates: Law of the candidate sets, of the same kind.
      plan: [edge] flow and dual set.

    Returns:
      Both bounds.

    Raises:
      LawError: The flow is negative somewhere, takes more from a set or gives more to a token than
        there is (floats: by more than 1e-9), or has the wrong length.
    """
    vocab = len(target)
    slack = 0 if is_exact(target) else 1e-9
    if len(plan.flow) != len(candidates.tokens):
        raise LawError(f"flow has {len(plan.flow)} entries; required: {len(candidates.tokens)}")
    taken = target * 0
    np.add.at(taken, candidates.tokens, plan.flow)
    given = candidates.masses * 0
    np.add.at(given, candidates.owners, plan.flow)
    for what, used, available in (("token", taken, target), ("set", given, candidates.masses)):
        over = np.flatnonzero(np.asarray(used > available + slack, dtype=bool))
        if len(over):
            first = int(over[0])
            raise LawError(
                f"flow at {what} {first} is {used[first]}; required: at most {available[first]}"
            )
    negative = np.flatnonzero(np.asarray(plan.flow < -slack, dtype=bool))
    if len(negative):
        edge = int(negative[0])
        raise LawError(f"flow[{edge}] is {plan.flow[edge]}; required: at least 0")
    lower = plan.flow.sum()
    upper = 1 + target[sorted(plan.dual_set)].sum() - candidates.within(plan.dual_set, vocab)
    return Certificate(_plain(lower, target), _plain(upper, target), candidates, plan)


def solve_by_highs(target: Array, candidates: SetLaw, method: HighsMethod = "highs") -> Plan:
    """Solve the linear programme in floating point.

    Args:
      target: [vocab] float64 target law.
      candidates: Float law of the candidate sets.
      method: SciPy's name of the HiGHS algorithm; "highs-ipm" is faster on a million variables.

    Returns:
      Flow and dual set at a vertex.

    Raises:
      RheocheckError: HiGHS does not report an optimum.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, vstack

    num_edges = len(candidates.tokens)
    edges = np.arange(num_edges)
    ones = np.ones(num_edges)
    by_set = coo_array((ones, (candidates.owners, edges)), shape=(len(candidates), num_edges))
    by_token = coo_array((ones, (candidates.tokens, edges)), shape=(len(target), num_edges))
    solution = linprog(
        -ones,
        A_ub=vstack([by_set, by_token]).tocsr(),
        b_ub=np.concatenate([candidates.masses, target]),
        bounds=(0, None),
        method=method,  # type: ignore[call-overload]
        # HiGHS's own 1e-7 is larger than many masses of a peaked law; this is the least it takes.
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solution.status != 0:
        raise RheocheckError(f"HiGHS found no optimum: {solution.message}")
    prices = solution.ineqlin.marginals[len(candidates) :]
    # At a vertex a token's price is 0 or -1; tokens of target mass 0 may be priced either way.
    dual_set = frozenset(np.flatnonzero(prices < -0.5).tolist())
    return Plan(_feasible(target, candidates, np.maximum(solution.x, 0)), dual_set)


def solve_exactly(target: Array, candidates: SetLaw) -> Plan:
    """Maximum flow in integers, by shortest augmenting paths.

    Args:
      target: [vocab] exact target law.
      candidates: Exact law of the candidate sets.

    Returns:
      Exact flow, and the least cut as the dual set.
    """
    scale = math.lcm(*(mass.denominator for mass in (*target, *candidates.masses)))
    network = _Network(
        [int(mass * scale) for mass in candidates.masses],
        [int(mass * scale) for mass in target],
        [list(members) for members, _ in candidates],
    )
    while network.augment():
        pass
    flow = [
        Fraction(network.flow[row].get(token, 0), scale)
        for row, members in enumerate(network.members)
        for token in members
    ]
    return Plan(exact_array(flow), frozenset(network.reached_tokens))


def _feasible(target: Array, candidates: SetLaw, flow: Array) -> Array:
    """[edge] a float flow scaled down wherever a set or a token has more than it may."""
    for places, available in ((candidates.owners, candidates.masses), (candidates.tokens, target)):
        used = np.bincount(places, weights=flow, minlength=len(available))
        # A token of mass 0 with flow within the solver's tolerance gives share 0.
        share = np.minimum(available / np.where(used > 0, used, 1), 1)
        flow = flow * np.where(used > available, share, 1)[places]
    return flow


class _Network:
    """Sets on one side, tokens on the other; everything in integers."""

    def __init__(self, supply: list[int], demand: list[int], members: list[list[int]]) -> None:
        self.members = members
        self.supply = supply
        self.demand = demand
        self.flow: list[dict[int, int]] = [{} for _ in members]
        self.senders: list[set[int]] = [set() for _ in demand]
        self.reached_tokens: set[int] = set()
        for row, tokens in enumerate(members):  # most of the flow needs no search
            for token in tokens:
                self._send(row, token, min(self.supply[row], self.demand[token]))

    def augment(self) -> bool:
        """Send mass along one shortest path from an unspent set to an unfilled token."""
        from_token: dict[int, int] = {}  # set -> the token whose flow it would take back
        to_token: dict[int, int] = {}  # token -> the set that would fill it
        queue = deque(row for row, left in enumerate(self.supply) if left)
        seen = set(queue)
        while queue:
            row = queue.popleft()
            for token in self.members[row]:
                if token in to_token:
                    continue
                to_token[token] = row
                if self.demand[token]:
                    self._push(token, to_token, from_token)
                    return True
                for other in self.senders[token] - seen:
                    seen.add(other)
                    from_token[other] = token
                    queue.append(other)
        self.reached_tokens = set(to_token)
        return False

    def _push(self, end: int, to_token: dict[int, int], from_token: dict[int, int]) -> None:
        path = [(to_token[end], end)]
        amount = self.demand[end]
        row = to_token[end]
        while row in from_token:
            back = from_token[row]
            amount = min(amount, self.flow[row][back])
            path.append((to_token[back], back))
            row = to_token[back]
        amount = min(amount, self.supply[row])
        for (row, token), (_, back) in pairwise(path):
            self._move(row, back, -amount)
            self._move(row, token, amount)
        row, token = path[-1]
        self._move(row, token, amount)
        self.supply[row] -= amount
        self.demand[end] -= amount

    def _send(self, row: int, token: int, amount: int) -> None:
        if amount:
            self._move(row, token, amount)
            self.supply[row] -= amount
            self.demand[token] -= amount

    def _move(self, row: int, token: int, amount: int) -> None:
        left = self.flow[row].get(token, 0) + amount
        if left:
            self.flow[row][token] = left
            self.senders[token].add(row)
        else:
            self.flow[row].pop(token, None)
            self.senders[token].discard(row)


def _plain(value: Any, like: Array) -> Number:
    return Fraction(value) if is_exact(like) else float(value)
