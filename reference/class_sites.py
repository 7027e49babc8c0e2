"""What the class enumerator knows of a path: the draft's laws there, as integers.

It has a truncation and a ranking of its own, and shares nothing with the layered sampler but the
check of the laws.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from rheocheck.config import TOP_THRESHOLD_SLACK, SpeculationConfig
from rheocheck.reference.laws import Path
from rheocheck.reference.models import Models

UNDRAWN = -1


class Site:
    """A path, and the draft's laws there as integers.

    Attributes:
      path: Tokens from the root.
      below: Sites one token further that some class visits, by token.
      expanded: Whether the draft has been asked. The rest is unset before.
      tokens: [rank] support in rank order.
      factors: [rank] numerators of the ranking law on the support.
      factor_total: Their sum, the denominator.
      num_top: Number of top children.
      num_probes: Number of probes, drawn one after the other.
      num_children: Number of children, whatever the probe is.
      proxy: Numerator of the probe's factor, over `factor_total`.
      weights: [tail] numerators of the probe's law in rank order; empty where there is no probe.
      weight_total: Their sum, the denominator.
    """

    __slots__ = (
        "below",
        "expanded",
        "factor_total",
        "factors",
        "num_children",
        "num_probes",
        "num_top",
        "path",
        "proxy",
        "tokens",
        "weight_total",
        "weights",
    )

    def __init__(self, path: Path) -> None:
        """A site whose draft has not been asked."""
        self.path = path
        self.below: dict[int, Site] = {}
        self.expanded = False

    def child(self, token: int) -> "Site":
        """The site one `token` further."""
        site = self.below.get(token)
        if site is None:
            site = self.below[token] = Site((*self.path, token))
        return site

    def expand(self, models: Models, config: SpeculationConfig) -> None:
        """Ask for the draft's laws, rank the tokens and set the probe's law apart."""
        ranking_law, draft_law = models.draft(self.path)
        ranking, _ = to_integers(ranking_law)
        order = sorted((-mass, token) for token, mass in enumerate(ranking) if mass)
        self.tokens = [token for _, token in order[: config.support_size]]
        self.factors = [ranking[token] for token in self.tokens]
        self.factor_total = sum(self.factors)
        self.num_children = min(config.top_k, len(self.tokens))
        self.num_top = min(self._top_count(config), self.num_children)
        self.num_probes = 0
        self.weights: list[int] = []
        if self.num_top < self.num_children:
            draft, _ = to_integers(draft_law)
            self.weights = [draft[token] for token in self.tokens[self.num_top :]]
            if config.merged:
                # Whatever the fillers and the probe are, all but one of them are these tokens.
                core = (
                    self.num_children - 1 if len(self.tokens) >= config.top_k else len(self.tokens)
                )
                merged = self.weights[: core + 1 - self.num_top]
                self.weights = self.weights[core - self.num_top :]
                self.num_top = core
                if self.weights:
                    self.weights[0] = sum(merged)
            if self.weights and not any(self.weights):
                self.weights[0] = 1
            self.num_probes = min(
                config.num_probes, self.num_children - self.num_top, len(self.weights)
            )
            tail_factor = sum(self.factors[self.num_top :])
            self.proxy = self.factors[0]
            if self.num_top:
                self.proxy = min(self.factors[self.num_top - 1], tail_factor)
        self.weight_total = sum(self.weights)
        self.expanded = True

    def _top_count(self, config: SpeculationConfig) -> int:
        """Top children asked for: more where the ranking law's collision probability is high."""
        squares = sum(factor * factor for factor in self.factors)
        count = config.num_top
        for threshold in config.top_thresholds:
            least = Fraction(threshold) - Fraction(TOP_THRESHOLD_SLACK)
            numerator, denominator = least.as_integer_ratio()
            count += numerator * self.factor_total**2 <= squares * denominator
        return count

    def rank(self, slot: int, probe: int) -> int:
        """Rank of the token in a slot, given the probe's place in the tail."""
        if slot < self.num_top or not self.weights:
            return slot
        if slot == self.num_top:
            return slot + probe
        # Fillers take the tail in order and step over the probe.
        return slot if slot - self.num_top > probe else slot - 1


def child_tokens(site: Site, count: int, probe: int) -> list[int]:
    """[slot] tokens of the first `count` children, given the probe's place in the tail."""
    return [site.tokens[site.rank(slot, probe)] for slot in range(count)]


def to_integers(law: Sequence[Fraction]) -> tuple[list[int], int]:
    """[vocab] numerators of a law over their common denominator, and that denominator."""
    total = math.lcm(*[mass.denominator for mass in law])
    return [mass.numerator * (total // mass.denominator) for mass in law], total
