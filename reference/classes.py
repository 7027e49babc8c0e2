"""Deferred decisions: all classes of a round, by branching on surviving probes only.

The layered procedure pops nodes from one best-first heap until the budget is spent. Whether a probe
survives is settled when it is popped, before its token has to be known; its fillers and everything
below it come later. So the token is chosen there, and one run of choices stands for a class of
draws. Siblings are popped in slot order, hence a node's surviving children are known from their
number and the probe's token: its configuration.

Nothing is shared with the layered sampler but the check of the laws. All arithmetic is on integers:
each law is a list of numerators over a denominator of its own.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the scheme.
"""

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from rheocheck.config import SpeculationConfig
from rheocheck.errors import BudgetExceededError
from rheocheck.reference.laws import Models, Path

UNDRAWN = -1
# A heap key is a score's leading bits. Equal keys are compared exactly: this sets speed only.
KEY_BITS = 96

# (minus key, layer, rank of the parent, slot, index of the parent in the tree, score of the parent,
# own score, denominator of the own score)
_Candidate: TypeAlias = tuple[int, int, int, int, int, int, int, int]


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
        self.num_top = min(config.num_top, self.num_children)
        self.weights: list[int] = []
        if self.num_top < self.num_children:
            draft, _ = to_integers(draft_law)
            self.weights = [draft[token] for token in self.tokens[self.num_top :]]
            if not any(self.weights):
                self.weights[0] = 1
            tail_factor = sum(self.factors[self.num_top :])
            self.proxy = self.factors[0]
            if self.num_top:
                self.proxy = min(self.factors[self.num_top - 1], tail_factor)
        self.weight_total = sum(self.weights)
        self.expanded = True

    def rank(self, slot: int, probe: int) -> int:
        """Rank of the token in a slot, given the probe's place in the tail."""
        if slot < self.num_top or not self.weights:
            return slot
        if slot == self.num_top:
            return slot + probe
        # Fillers take the tail in order and step over the probe.
        return slot if slot - self.num_top > probe else slot - 1


class Chain:
    """The configurations of a node and of all its ancestors, shared by the classes that have them.

    Attributes:
      site: The node's path.
      count: Number of its surviving children.
      probe: Place of its probe in the tail; UNDRAWN if no probe survived.
      below: Chains of its surviving children by (token, count, probe).
      mass: Probability of the classes with this chain: numerators by denominator.
    """

    __slots__ = ("below", "count", "mass", "probe", "site")

    def __init__(self, site: Site, count: int, probe: int) -> None:
        """A chain that no class has been counted for."""
        self.site = site
        self.count = count
        self.probe = probe
        self.below: dict[tuple[int, int, int], Chain] = {}
        self.mass: dict[int, int] = {}


class _Tree:
    """Survivors found so far; a node is an index, the root is 0, parents come before children."""

    __slots__ = ("counts", "layer_sizes", "parents", "probes", "sites")

    def __init__(
        self,
        sites: list[Site],
        parents: list[int],
        counts: list[int],
        probes: list[int],
        layer_sizes: list[int],
    ) -> None:
        self.sites = sites
        self.parents = parents
        self.counts = counts
        self.probes = probes
        self.layer_sizes = layer_sizes

    def copy(self) -> "_Tree":
        return _Tree(
            self.sites.copy(),
            self.parents.copy(),
            self.counts.copy(),
            self.probes.copy(),
            self.layer_sizes.copy(),
        )


class ClassEnumeration:
    """Visits every class once and adds its probability to each of its chains.

    Attributes:
      roots: The root's chains by (count, probe).
      num_classes: Classes visited.
    """

    def __init__(
        self, models: Models, config: SpeculationConfig, max_classes: int | None = None
    ) -> None:
        """Visit all classes.

        Args:
          models: Target and draft; only the draft is asked.
          config: The scheme.
          max_classes: Most classes to visit; None sets no bound.

        Raises:
          BudgetExceededError: There are more than `max_classes`.
        """
        self.roots: dict[tuple[int, int], Chain] = {}
        self.num_classes = 0
        self._models = models
        self._config = config
        self._max_classes = max_classes
        tree = _Tree([Site(())], [0], [0], [UNDRAWN], [0] * (config.depth + 1))
        heap: list[_Candidate] = []
        if config.budget > 0 and config.depth > 0:
            self._offer_first(tree, heap, 0, 1, 0, 1, 1)
        self._visit(tree, heap, 1, 1)

    def _visit(self, tree: _Tree, heap: list[_Candidate], weight: int, weight_total: int) -> None:
        """Pop nodes until the budget is spent; at a probe, go on once for each of its tokens."""
        sites = tree.sites
        budget = self._config.budget
        while heap and len(sites) <= budget:
            candidate = pop_best(heap)
            parent = candidate[4]
            site = sites[parent]
            if candidate[3] == site.num_top and site.weights:
                weight_total *= site.weight_total
                for probe, share in enumerate(site.weights):
                    if share:
                        branch, queue = tree.copy(), heap.copy()
                        branch.probes[parent] = probe
                        self._keep(branch, queue, candidate)
                        self._visit(branch, queue, weight * share, weight_total)
                return
            self._keep(tree, heap, candidate)
        self._count(tree, weight, weight_total)

    def _keep(self, tree: _Tree, heap: list[_Candidate], candidate: _Candidate) -> None:
        """Let a popped node survive: offer its next sibling and, if it is expanded, its child."""
        _, layer, parent_rank, slot, parent, parent_score, score, score_total = candidate
        site = tree.sites[parent]
        probe = tree.probes[parent]
        own = site.child(site.tokens[site.rank(slot, probe)])
        index = len(tree.sites)
        tree.sites.append(own)
        tree.parents.append(parent)
        tree.counts.append(0)
        tree.probes.append(UNDRAWN)
        tree.counts[parent] = slot = slot + 1
        if index == self._config.budget:
            return
        if slot < site.num_children:
            # The probe comes before every filler, so the rank of the next slot is known by now.
            probe_next = slot == site.num_top and bool(site.weights)
            factor = site.proxy if probe_next else site.factors[site.rank(slot, probe)]
            share = parent_score * factor
            key = (share << KEY_BITS) // score_total
            heapq.heappush(
                heap, (-key, layer, parent_rank, slot, parent, parent_score, share, score_total)
            )
        rank = tree.layer_sizes[layer]
        tree.layer_sizes[layer] = rank + 1
        if rank < self._config.top_k and layer < self._config.depth:
            self._offer_first(tree, heap, index, layer + 1, rank, score, score_total)

    def _offer_first(
        self,
        tree: _Tree,
        heap: list[_Candidate],
        parent: int,
        layer: int,
        parent_rank: int,
        parent_score: int,
        parent_total: int,
    ) -> None:
        """Expand a node and put its first child on the heap; the others follow one by one."""
        site = tree.sites[parent]
        if not site.expanded:
            site.expand(self._models, self._config)
        share = parent_score * (site.factors[0] if site.num_top else site.proxy)
        total = parent_total * site.factor_total
        key = (share << KEY_BITS) // total
        heapq.heappush(heap, (-key, layer, parent_rank, 0, parent, parent_score, share, total))

    def _count(self, tree: _Tree, weight: int, weight_total: int) -> None:
        """Add a class to its chains, from the root down."""
        self.num_classes += 1
        if self._max_classes is not None and self.num_classes > self._max_classes:
            raise BudgetExceededError(
                f"the round has more than max_paths = {self._max_classes} classes of draws; its "
                f"law is unknown"
            )
        chains: list[Chain] = []
        for site, parent, count, probe in zip(
            tree.sites, tree.parents, tree.counts, tree.probes, strict=True
        ):
            chain: Chain | None
            if chains:
                table = chains[parent].below
                key = (site.path[-1], count, probe)
                chain = table.get(key)
                if chain is None:
                    chain = table[key] = Chain(site, count, probe)
            else:
                chain = self.roots.get((count, probe))
                if chain is None:
                    chain = self.roots[count, probe] = Chain(site, count, probe)
            mass = chain.mass
            mass[weight_total] = mass.get(weight_total, 0) + weight
            chains.append(chain)


def child_tokens(site: Site, count: int, probe: int) -> list[int]:
    """[slot] tokens of the first `count` children, given the probe's place in the tail."""
    return [site.tokens[site.rank(slot, probe)] for slot in range(count)]


def pop_best(heap: list[_Candidate]) -> _Candidate:
    """Take the candidate of the highest score off the heap; equal scores go by place in the tree.

    A higher key means a higher score, since both are cut in the same way. Among equal keys the
    scores themselves are compared, by cross multiplication.
    """
    best = heapq.heappop(heap)
    if not heap or heap[0][0] != best[0]:
        return best
    others = []
    while heap and heap[0][0] == best[0]:
        # They leave the heap in order of place, so only a strictly higher score takes the lead.
        other = heapq.heappop(heap)
        if other[6] * best[7] > best[6] * other[7]:
            best, other = other, best
        others.append(other)
    for other in others:
        heapq.heappush(heap, other)
    return best


def to_integers(law: Sequence[Fraction]) -> tuple[list[int], int]:
    """[vocab] numerators of a law over their common denominator, and that denominator."""
    total = math.lcm(*[mass.denominator for mass in law])
    return [mass.numerator * (total // mass.denominator) for mass in law], total
