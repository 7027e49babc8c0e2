"""The law of a round from its classes: verification of configurations, in integers.

A chain of configurations fixes the chance that verification walks down it, so a class adds nothing
but its probability. Within one configuration the tests telescope: testing point masses one after
the other and then drawing the last token from what is left is drawing one token from the law
before the tests, and moving on to the child that has it, if there is one. Only a probe is tested
otherwise, and the residual it leaves does not depend on which token it was: it is computed once a
path.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the rules.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rheocheck.config import Rule, SpeculationConfig
from rheocheck.reference.class_chains import Chain
from rheocheck.reference.class_probes import ProbeClasses
from rheocheck.reference.class_sites import UNDRAWN, Site, child_tokens, to_integers
from rheocheck.reference.classes import ClassEnumeration
from rheocheck.reference.laws import Path
from rheocheck.reference.models import Models

Integers: TypeAlias = NDArray[np.object_]


class ClassLaw(NamedTuple):
    """Law of a round.

    Attributes:
      emissions: Probability of each emission of positive probability.
      expected_accepted: Expected number of accepted draft tokens.
      num_classes: Classes of draws visited.
    """

    emissions: dict[Path, Fraction]
    expected_accepted: Fraction
    num_classes: int


def class_law(
    models: Models, config: SpeculationConfig, max_classes: int | None = None
) -> ClassLaw:
    """Enumerate the classes of a round and verify each configuration once.

    Args:
      models: Target and draft.
      config: The scheme.
      max_classes: Most classes to visit; None sets no bound.

    Returns:
      The law of the round.

    Raises:
      BudgetExceededError: There are more than `max_classes`.
    """
    if config.num_probes > 1:
        several = ProbeClasses(models, config, max_classes)
        return ClassLaw(several.emissions, several.expected_accepted, several.num_classes)
    found = ClassEnumeration(models, config, max_classes)
    expected_accepted = Fraction(0)
    verified: dict[Path, _VerifiedSite] = {}
    for chain, reach in _reached(found, models, config.rule, verified):
        mass = reach * sum(Fraction(share, total) for total, share in chain.mass.items())
        verified[chain.site.path].end(chain, mass)
        if chain.site.path:
            expected_accepted += mass
    emissions: dict[Path, Fraction] = {}
    for path, site in verified.items():
        for token, probability in enumerate(site.ending_law()):
            if probability:
                emissions[*path, token] = probability
    return ClassLaw(emissions, expected_accepted, found.num_classes)


def _reached(
    found: ClassEnumeration, models: Models, rule: Rule, verified: "dict[Path, _VerifiedSite]"
) -> Iterator[tuple[Chain, Fraction]]:
    """Chains that verification can walk down, with its chance to do so; parents come first."""
    stack = [(chain, Fraction(1)) for chain in found.roots.values()]
    while stack:
        chain, reach = stack.pop()
        path = chain.site.path
        if path not in verified:
            verified[path] = _VerifiedSite(chain.site, models.target(path), rule)
        yield chain, reach
        accepted = verified[path].outcomes(chain.count, chain.probe).accepted
        for (token, _, _), below in chain.below.items():
            if accepted[token]:
                stack.append((below, reach * accepted[token]))


class _Outcomes(NamedTuple):
    """What verification does at one configuration.

    Attributes:
      accepted: Chance of moving on to each surviving child, by token.
      stop: Chance of ending here is `stop` times the ending numerators of tokens not in `taken`.
      after_probe: Whether the numerators are those of the residual of a rejected probe; else those
        of the target law.
      taken: Children's tokens that cannot end the round here.
    """

    accepted: dict[int, Fraction]
    stop: Fraction
    after_probe: bool
    taken: tuple[int, ...]


class _VerifiedSite:
    """A path as verification sees it: its target law, and the chance of each way to end there."""

    def __init__(self, site: Site, target: Any, rule: Rule) -> None:
        self._site = site
        self._rule = rule
        shares, self._target_total = to_integers(target)
        self._target: Integers = np.array(shares, dtype=object)
        self._excess: Integers | None = None
        self._known: dict[tuple[int, int], _Outcomes] = {}
        self._endings: dict[tuple[bool, tuple[int, ...]], Fraction] = {}

    def outcomes(self, count: int, probe: int) -> _Outcomes:
        """What happens at the configuration of `count` surviving children and this probe."""
        known = self._known.get((count, probe))
        if known is None:
            tokens = child_tokens(self._site, count, probe)
            if probe == UNDRAWN or self._rule == "onehot":
                known = self._point_masses(tokens)
            else:
                known = self._with_probe(tokens, probe)
            self._known[count, probe] = known
        return known

    def end(self, chain: Chain, mass: Fraction) -> None:
        """Add the classes of `chain`, of which `mass` is verified down to here, to the endings."""
        outcomes = self.outcomes(chain.count, chain.probe)
        if outcomes.stop:
            key = outcomes.after_probe, outcomes.taken
            self._endings[key] = self._endings.get(key, Fraction(0)) + mass * outcomes.stop

    def ending_law(self) -> list[Fraction]:
        """[vocab] chance that the round ends here with each token; the sum may be below 1."""
        total = math.lcm(*[mass.denominator for mass in self._endings.values()])
        shares: Integers = np.zeros(len(self._target), dtype=object)
        for (after_probe, taken), mass in self._endings.items():
            ending = self._excess if after_probe else self._target
            assert ending is not None
            ending = ending * (mass.numerator * (total // mass.denominator))
            ending[list(taken)] = 0
            shares += ending
        return [Fraction(share, total) for share in shares]

    def _point_masses(self, tokens: list[int]) -> _Outcomes:
        total = self._target_total
        accepted = {token: Fraction(self._target[token], total) for token in tokens}
        return _Outcomes(accepted, Fraction(1, total), False, tuple(tokens))

    def _with_probe(self, tokens: list[int], probe: int) -> _Outcomes:
        site, target, target_total = self._site, self._target, self._target_total
        # Recursive rejection tests the top before the probe, so the law that meets the probe has
        # lost the top's mass. The probe-first rule tests all other children after the probe.
        earlier = tokens[: site.num_top] if self._rule == "rrsw" else []
        later = [token for token in tokens if token not in earlier]
        token = later.pop(site.num_top - len(earlier))
        left = target_total - sum(target[top] for top in earlier)
        accepted = {top: Fraction(target[top], target_total) for top in earlier}
        drawn = site.weights[probe]
        kept = min(left * drawn, target[token] * site.weight_total)
        accepted[token] = Fraction(kept, target_total * drawn)
        if self._excess is None:
            self._excess = self._excess_over_probe(earlier, left)
        mass = self._excess.sum()
        rejected = left * drawn - kept
        stop = Fraction(rejected, target_total * drawn * mass) if rejected else Fraction(0)
        accepted.update((other, stop * self._excess[other]) for other in later)
        return _Outcomes(accepted, stop, True, tuple(later))

    def _excess_over_probe(self, earlier: list[int], left: int) -> Integers:
        """[vocab] numerators of the target law less the probe's law, where positive.

        Both are scaled by `left` and the probe's denominator; `earlier` tokens are out.
        """
        site = self._site
        excess: Integers = self._target * site.weight_total
        tail = site.tokens[site.num_top :]
        excess[tail] -= np.array(site.weights, dtype=object) * left
        excess[earlier] = 0
        return np.maximum(excess, 0)
