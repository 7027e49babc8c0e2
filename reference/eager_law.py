"""The law of a round by running it once for every outcome of every draw."""

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from rheocheck.config import SpeculationConfig
from rheocheck.errors import BudgetExceededError
from rheocheck.reference.choices import Choose
from rheocheck.reference.draws import Draws, OracleDraws
from rheocheck.reference.laws import ZERO, Path
from rheocheck.reference.models import Models
from rheocheck.reference.oracle import enumerate_paths
from rheocheck.reference.sampler import round_halves
from rheocheck.reference.tree import Tree
from rheocheck.reference.verification import Verification


class EagerLaw(NamedTuple):
    """Law of a round.

    Attributes:
      emissions: Probability of each emission of positive probability.
      expected_accepted: Expected number of accepted draft tokens.
      num_paths: Paths run.
    """

    emissions: dict[Path, Fraction]
    expected_accepted: Fraction
    num_paths: int


def eager_law(models: Models, config: SpeculationConfig, max_paths: int | None = None) -> EagerLaw:
    """Run the round once for every outcome of every draw.

    A round drafts, then verifies. Each tree that can be drafted is drafted once, with all its
    probes drawn, and then verified once for every outcome of its tests and of its last draw: the
    runs are those of the whole round, without drafting the same tree again for each of them.

    Args:
      models: Target and draft.
      config: The scheme.
      max_paths: Most paths; None sets no bound.

    Returns:
      The law of the round.

    Raises:
      BudgetExceededError: There are more than `max_paths` paths.
    """
    drafted, verified = round_halves(models, config)
    emissions: dict[Path, Fraction] = {}
    expected_accepted = ZERO
    num_paths = 0
    for tree in enumerate_paths(lambda choose: drafted(OracleDraws(choose)), max_paths):
        for run in enumerate_paths(functools.partial(_verification, verified, tree.outcome)):
            num_paths += 1
            if max_paths is not None and num_paths > max_paths:
                raise BudgetExceededError(
                    f"the round has more than max_paths = {max_paths} paths; its law is unknown"
                )
            probability = tree.probability * run.probability
            emission = (*run.outcome.accepted, run.outcome.final)
            emissions[emission] = emissions.get(emission, ZERO) + probability
            expected_accepted += len(run.outcome.accepted) * probability
    return EagerLaw(emissions, expected_accepted, num_paths)


def _verification(
    verified: Callable[[Tree, Draws], Verification], tree: Tree, choose: Choose
) -> Verification:
    """Verification of one tree as a program against the choice oracle."""
    return verified(tree, OracleDraws(choose))
