"""Verification at the nodes of a trace, in NumPy: what each test's probability was.

Written from `reference/SCHEME.md` apart from the torch path, so that a fault there does not hide
itself here. One row is one node; rows are independent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rheocheck.config import Rule
from rheocheck.traces.laws import Laws
from rheocheck.traces.trees import BONUS, PROBE, RESIDUAL, ROLES, Trees

# Masses that differ by less than this factor are two roundings of one number; see
# `rheocheck.gpu.verification`, which derives it.
_EQUAL_WITHIN = 2.0**-44
# A tail with less draft mass than this is a point mass in rounding only.
_SMALLEST_TAIL = 1e-250


@dataclass(frozen=True, slots=True, eq=False)
class Tests:
    """The tests at each node, before a uniform is read.

    Attributes:
      order: [nodes, children] column of the child tested first, second, ...; absent ones last.
      acceptance: [nodes, children] in that order, probability that the test accepts.
      reach: [nodes, children] in that order, probability that the test is made.
      refused: [nodes] probability that every test rejects.
      residual: [nodes, columns] law of the final token then.
    """

    order: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    reach: NDArray[np.float64]
    refused: NDArray[np.float64]
    residual: NDArray[np.float64]


def node_tests(
    target: NDArray[np.float64],
    child: NDArray[np.int64],
    role: NDArray[np.int64],
    probe: NDArray[np.float64],
    rule: Rule,
) -> Tests:
    """Tests of the children at each node.

    Args:
      target: [nodes, columns] target laws.
      child: [nodes, children] column of each child in order of slots; -1 for a token without target
        mass that has no column.
      role: [nodes, children] roles; -1 where there is no child.
      probe: [nodes, columns] law of the probe; zero rows where there is none.
      rule: "rheo" tests the probe first; "rrsw" goes by slots; "onehot" too, and takes every child
        for a point mass.

    Returns:
      The tests. Where a rejection of everything has probability 0, the residual is the target.
    """
    num_nodes, num_children = child.shape
    rows = np.arange(num_nodes)
    there, is_probe = role >= 0, (role == PROBE) & (rule != "onehot")
    slot = np.arange(num_children)
    place = np.where(there, slot, num_children + slot)
    order = np.where(is_probe & (rule == "rheo"), -1, place).argsort(axis=1, kind="stable")
    left = target.copy()
    acceptance, reach = np.zeros(child.shape), np.zeros(child.shape)
    reaching = np.ones(num_nodes)
    for step in range(num_children):
        at = order[:, step]
        column, made = child[rows, at], there[rows, at]
        has_mass = made & (column >= 0)
        total = left.sum(axis=1)
        mass = np.where(has_mass, left[rows, column], 0.0)
        drafted = np.where(has_mass, probe[rows, column], 0.0) * total
        against = np.where(is_probe[rows, at], drafted, total)
        full = mass * (1 + _EQUAL_WITHIN) >= against
        ratio = np.where(full, 1.0, mass / np.where(full, 1.0, against))
        accept = np.where(made & (mass > 0), np.minimum(ratio, 1.0), 0.0)
        acceptance[:, step], reach[:, step] = accept, np.where(made, reaching, 0.0)
        reaching = reaching * (1.0 - accept)
        tested = np.flatnonzero(made & is_probe[rows, at])
        if len(tested):
            old = left[tested]
            excess = old - probe[tested] * total[tested, None]
            left[tested] = np.where(excess > _EQUAL_WITHIN * old, excess, 0.0)
        plain = np.flatnonzero(has_mass & ~is_probe[rows, at])
        left[plain, column[plain]] = 0.0
    total = left.sum(axis=1, keepdims=True)
    residual = np.where(total > 0, left / np.where(total > 0, total, 1.0), target)
    return Tests(order, acceptance, reach, reaching, residual)


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """The draft's law without its best tokens, at each node.

    Attributes:
      law: [nodes, columns] rows sum to 1; zero rows where the tail is not known or has no mass.
      total: [nodes] mass of the tail in the draft's law.
      best: [nodes] smallest mass of the best tokens that were left out; infinite for none.
      largest: [nodes] largest mass in the tail.
      known: [nodes] whether the tail is certain: every token with draft mass has a column, and the
        cut is not between two masses that rounding may have made equal.
    """

    law: NDArray[np.float64]
    total: NDArray[np.float64]
    best: NDArray[np.float64]
    largest: NDArray[np.float64]
    known: NDArray[np.bool_]


def draft_tails(laws: Laws, num_top: int, rounding: float) -> Tails | None:
    """Tails of the draft's laws; None where no draft law was recorded.

    Args:
      laws: At the emitted tokens.
      num_top: Deterministic children of a node.
      rounding: Relative rounding of a recorded mass.
    """
    if laws.draft is None:
        return None
    tail = laws.draft.copy()
    listed = tail if laws.ids is None else tail[:, :-1]
    best = np.full(len(tail), np.inf)
    if num_top:
        order = np.argsort(-listed, axis=1, kind="stable")[:, :num_top]
        best = np.take_along_axis(listed, order[:, -1:], axis=1)[:, 0]
        np.put_along_axis(listed, order, 0.0, axis=1)
    largest = listed.max(axis=1, initial=0.0)
    total = tail.sum(axis=1)
    known = (largest == 0) | (best > largest * (1.0 + 4.0 * rounding))
    if laws.ids is not None:
        known &= laws.draft[:, -1] == 0
    enough = known & (total > _SMALLEST_TAIL)
    law = np.where(enough[:, None], tail / np.where(enough, total, 1.0)[:, None], 0.0)
    return Tails(law, total, best, largest, known)


def probe_laws(
    laws: Laws, trees: Trees, num_top: int, rounding: float = 2.0**-50
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Laws of the probes: as verification used them, and as the draft's law gives them.

    Args:
      laws: At the emitted tokens.
      trees: Of the same tokens.
      num_top: Deterministic children of a node.
      rounding: Relative rounding of a recorded mass.

    Returns:
      Two arrays [emitted, columns], zero rows at nodes without a surviving probe or with a tail
      that is not known. The first falls back on the second where it was not recorded; both are None
      where no draft law was.
    """
    has_probe = (trees.role == PROBE).any(axis=1, keepdims=True)
    given = None if laws.probe is None else np.where(has_probe, laws.probe, 0.0)
    tails = draft_tails(laws, num_top, rounding)
    if tails is None:
        return given, None
    drawn = np.where(has_probe, tails.law, 0.0)
    return (drawn if given is None else given), drawn


def role_law(tests: Tests, trees: Trees) -> NDArray[np.float64]:
    """[nodes, roles] probability of each role of the token at a node, given its tree."""
    ordered = np.take_along_axis(trees.role, tests.order, axis=1)
    taken = tests.reach * tests.acceptance
    law = np.zeros((len(ordered), len(ROLES)))
    for role in range(RESIDUAL):
        law[:, role] = np.where(ordered == role, taken, 0.0).sum(axis=1)
    has_children = (trees.role >= 0).any(axis=1)
    law[:, RESIDUAL] = np.where(has_children, tests.refused, 0.0)
    law[:, BONUS] = np.where(has_children, 0.0, 1.0)
    law /= law.sum(axis=1, keepdims=True)
    return law
