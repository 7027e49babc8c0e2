"""What is counted in drafted trees, and ratios of sums with intervals over independent units.

A tally is a plain dictionary of sums, so tallies of trees, rounds and prompts add up. A ratio of
two of its entries is estimated as sum / sum over prompts; its error is the delta method's with
prompts as independent units, and its interval is Student's.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rheocheck.bounds.growth import DraftTree
from rheocheck.bounds.tree import TreeAcceptance
from rheocheck.reference import Role

Tally: TypeAlias = dict[str, float]
ROLE_NAMES = {Role.TOP: "top", Role.PROBE: "probe", Role.FILLER: "filler"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio with its interval.

    Attributes:
      value: The ratio; None if nothing was counted.
      standard_error: None with fewer than two units.
      low: Lower end of the interval.
      high: Upper end.
      num_units: Independent units.
    """

    value: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    num_units: int


def tally_tree(tree: DraftTree, acceptance: TreeAcceptance) -> Tally:
    """Sums of one drafted tree, verification integrated exactly.

    Args:
      tree: The tree.
      acceptance: Its verification under one rule.

    Returns:
      "rounds", "accepted"; "survivors_ROLE", "tested_ROLE", "accepted_ROLE" for each role;
      "reached_D", "accepted_D" for each layer D from 1: rounds that reach layer D - 1, and that
      accept a node of layer D; "probes" and "probes_surviving" over expanded nodes with a probe.
    """
    counts: Tally = {"rounds": 1.0, "accepted": float(acceptance.expected_accepted)}
    for role in ROLE_NAMES.values():
        counts.update({f"{what}_{role}": 0.0 for what in ("survivors", "tested", "accepted")})
    add(counts, {"reached_1": 1.0})
    for index, (layer, its_role) in enumerate(zip(tree.layer, tree.role, strict=True)):
        name, reached = ROLE_NAMES[its_role], float(acceptance.reached[index + 1])
        tested = float(acceptance.tested[index + 1])
        add(counts, {f"survivors_{name}": 1.0, f"accepted_{name}": reached})
        add(counts, {f"tested_{name}": tested, f"accepted_{layer}": reached})
        add(counts, {f"reached_{layer + 1}": reached})
    probes = sum(expansion is not None and len(expansion.probe_law) > 0 for expansion in
                 tree.expansions)  # fmt: skip
    surviving = sum(role is Role.PROBE for role in tree.role)
    return counts | {"probes": float(probes), "probes_surviving": float(surviving)}


def add(into: Tally, more: Tally) -> None:
    """Add the entries of one tally to another."""
    for name, value in more.items():
        into[name] = into.get(name, 0.0) + value


def total_tally(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    whole: Tally = {}
    for tally in tallies:
        add(whole, tally)
    return whole


def estimate(
    units: Sequence[Tally], numerator: str, denominator: str, level: float = 0.95
) -> Estimate:
    """A ratio of sums over independent units.

    Args:
      units: One tally a unit, such as a prompt.
      numerator: Entry summed above.
      denominator: Entry summed below.
      level: Coverage of the interval.
    """
    above = [unit.get(numerator, 0.0) for unit in units]
    below = [unit.get(denominator, 0.0) for unit in units]
    whole, count = sum(below), len(units)
    if not whole:
        return Estimate(None, None, None, None, count)
    value = sum(above) / whole
    if count < 2:
        return Estimate(value, None, None, None, count)
    from scipy.stats import t as student

    squares = sum((a - value * b) ** 2 for a, b in zip(above, below, strict=True))
    error = math.sqrt(squares * count / (count - 1)) / whole
    reach = float(student.ppf((1 + level) / 2, count - 1)) * error
    return Estimate(value, error, value - reach, value + reach, count)


def estimates(units: Sequence[Tally], depth: int) -> dict[str, Estimate]:
    """E[tau], acceptance by depth and by role, and survival of probes.

    Args:
      units: One tally a unit.
      depth: Deepest layer to report.
    """
    found = {
        "expected_accepted": estimate(units, "accepted", "rounds"),
        "probe_survival": estimate(units, "probes_surviving", "probes"),
    }
    for layer in range(1, depth + 1):
        found[f"acceptance_depth_{layer}"] = estimate(
            units, f"accepted_{layer}", f"reached_{layer}"
        )
    for role in ROLE_NAMES.values():
        found[f"acceptance_{role}"] = estimate(units, f"accepted_{role}", f"tested_{role}")
        found[f"accepted_by_{role}"] = estimate(units, f"accepted_{role}", "rounds")
    return found
