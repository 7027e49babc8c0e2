"""One whole round as a program against its draws: draft a tree, cut it, verify it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rheocheck.config import SpeculationConfig, check_config
from rheocheck.reference.draws import Draws
from rheocheck.reference.expansion import Expansion, expand
from rheocheck.reference.laws import Draft, Path, Target
from rheocheck.reference.models import Models
from rheocheck.reference.tree import Tree, grow
from rheocheck.reference.verification import Verification, verify


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Attributes:
      tree: What was drafted.
      verification: What was kept of it.
    """

    tree: Tree
    verification: Verification

    @property
    def emission(self) -> Path:
        """The tokens emitted: the accepted ones, then the residual or bonus token."""
        return (*self.verification.accepted, self.verification.final)


RoundProgram: TypeAlias = Callable[[Draws], Round]


def sample_round(target: Target, draft: Draft, config: SpeculationConfig, draws: Draws) -> Round:
    """Run one round.

    Args:
      target: path -> [vocab] law of Fractions.
      draft: path -> [vocab] law, or a 2-tuple of laws (ranking, tempered draft).
      config: The scheme.
      draws: Makes every random decision.

    Returns:
      The tree and what verification kept of it.

    Raises:
      InputError: `target` or `draft` is not callable, `config` is no SpeculationConfig.
      LawError: A law that was asked for is none.
    """
    return round_program(Models(target, draft), config)(draws)


def round_program(models: Models, config: SpeculationConfig) -> RoundProgram:
    """The round as a program that may be run many times; each law is asked for and expanded once.

    Args:
      models: Target and draft.
      config: The scheme.

    Returns:
      draws -> round.

    Raises:
      InputError: `config` is no SpeculationConfig.
    """
    drafted, verified = round_halves(models, config)

    def run(draws: Draws) -> Round:
        tree = drafted(draws)
        return Round(tree, verified(tree, draws))

    return run


def round_halves(
    models: Models, config: SpeculationConfig
) -> tuple[Callable[[Draws], Tree], Callable[[Tree, Draws], Verification]]:
    """The two halves of a round: drafting a tree, and verifying one.

    Args:
      models: Target and draft; each law is asked for and expanded once.
      config: The scheme.

    Returns:
      draws -> tree.
      (tree, draws) -> what verification kept of it.

    Raises:
      InputError: `config` is no SpeculationConfig.
    """
    check_config(config)

    @functools.cache
    def expand_at(path: Path) -> Expansion:
        return expand(*models.draft(path), config)

    def drafted(draws: Draws) -> Tree:
        return grow(expand_at, config, draws)

    def verified(tree: Tree, draws: Draws) -> Verification:
        return verify(tree, models.target, config.rule, draws)

    return drafted, verified
