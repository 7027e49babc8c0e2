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
from typing import NamedTuple, TypeAlias

from rheocheck.config import SpeculationConfig
from rheocheck.reference.class_chains import Chain, Chains, Survivors
from rheocheck.reference.class_sites import UNDRAWN, Site
from rheocheck.reference.models import Models

# A heap key is a score's leading bits. Equal keys are compared exactly: this sets speed only.
KEY_BITS = 96

# (minus key, layer, rank of the parent, slot, index of the parent in the tree, score of the parent,
# own score, denominator of the own score)
_Candidate: TypeAlias = tuple[int, int, int, int, int, int, int, int]


class _Fork(NamedTuple):
    """A surviving probe whose tokens have not all been followed.

    Attributes:
      tree: Survivors before it.
      heap: Candidates after it.
      candidate: The probe itself.
      probes: Its places in the tail that are left, the next one last.
      weight: Numerator of the probability to get here.
      weight_total: Its denominator times the probe's.
    """

    tree: Survivors
    heap: list[_Candidate]
    candidate: _Candidate
    probes: list[int]
    weight: int
    weight_total: int


class ClassEnumeration:
    """Visits every class once and adds its probability to each of its chains."""

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
        self._chains = Chains(max_classes)
        self._models = models
        self._config = config
        # Survivors are closed under parents: no layer beyond the budget has any.
        layers = min(config.depth, config.budget) + 1
        tree = Survivors([Site(())], [0], [0], [UNDRAWN], [0] * layers)
        heap: list[_Candidate] = []
        if config.budget > 0 and config.depth > 0:
            self._offer_first(tree, heap, 0, 1, 0, 1, 1)
        self._visit(tree, heap)

    @property
    def roots(self) -> dict[tuple[int, int], Chain]:
        """The root's chains by (count, probe)."""
        return self._chains.roots

    @property
    def num_classes(self) -> int:
        """Classes visited."""
        return self._chains.num_classes

    def _visit(self, tree: Survivors, heap: list[_Candidate]) -> None:
        """Go on once for each token of every probe met. No recursion: a tree may be deep."""
        open_forks: list[_Fork] = []
        fork = self._next_fork(tree, heap, 1, 1)
        while fork or open_forks:
            if fork:
                open_forks.append(fork)
            tree, heap, candidate, probes, weight, weight_total = open_forks[-1]
            probe = probes.pop()
            if probes:
                tree, heap = tree.copy(), heap.copy()
            else:
                open_forks.pop()  # the last token needs no copy
            parent = candidate[4]
            tree.probes[parent] = probe
            weight *= tree.sites[parent].weights[probe]
            self._keep(tree, heap, candidate)
            fork = self._next_fork(tree, heap, weight, weight_total)

    def _next_fork(
        self, tree: Survivors, heap: list[_Candidate], weight: int, weight_total: int
    ) -> "_Fork | None":
        """Pop nodes down to the next probe; None if the budget was spent and the class counted."""
        sites = tree.sites
        budget = self._config.budget
        while heap and len(sites) <= budget:
            candidate = pop_best(heap)
            parent = candidate[4]
            site = sites[parent]
            if candidate[3] == site.num_top and site.weights:
                weight_total *= site.weight_total
                if len(sites) == budget:
                    self._chains.count_last_probe(tree, parent, weight, weight_total)
                    return None
                probes = [probe for probe, share in enumerate(site.weights) if share]
                return _Fork(tree, heap, candidate, probes[::-1], weight, weight_total)
            self._keep(tree, heap, candidate)
        self._chains.count(tree, weight, weight_total)
        return None

    def _keep(self, tree: Survivors, heap: list[_Candidate], candidate: _Candidate) -> None:
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
        tree: Survivors,
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
