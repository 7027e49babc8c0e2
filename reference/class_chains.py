"""Where the class enumerator keeps probabilities: chains of configurations.

A node's configuration is the number of its surviving children and its probe. Verification looks at
nothing else of a tree, so classes that share a chain of configurations share what it computes.
"""

from rheocheck.errors import BudgetExceededError
from rheocheck.reference.class_sites import UNDRAWN, Site


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


class Survivors:
    """Survivors found so far; a node is an index, the root is 0, parents come before children.

    Attributes:
      sites: [node] path of each node.
      parents: [node] index of its parent; the root's is 0.
      counts: [node] number of its surviving children.
      probes: [node] place of its probe in the tail; UNDRAWN if no probe has survived.
      layer_sizes: [layer] survivors of each layer.
    """

    __slots__ = ("counts", "layer_sizes", "parents", "probes", "sites")

    def __init__(
        self,
        sites: list[Site],
        parents: list[int],
        counts: list[int],
        probes: list[int],
        layer_sizes: list[int],
    ) -> None:
        """Hold the lists, which grow as nodes survive."""
        self.sites = sites
        self.parents = parents
        self.counts = counts
        self.probes = probes
        self.layer_sizes = layer_sizes

    def copy(self) -> "Survivors":
        """The same survivors, to go on from apart."""
        return Survivors(
            self.sites.copy(),
            self.parents.copy(),
            self.counts.copy(),
            self.probes.copy(),
            self.layer_sizes.copy(),
        )


class Chains:
    """All chains of a round, with the probability of the classes that have them.

    Attributes:
      roots: The root's chains by (count, probe).
      num_classes: Classes counted.
    """

    def __init__(self, max_classes: int | None = None) -> None:
        """Nothing is counted yet.

        Args:
          max_classes: Most classes to count; None sets no bound.
        """
        self.roots: dict[tuple[int, int], Chain] = {}
        self.num_classes = 0
        self._max_classes = max_classes

    def count(self, tree: Survivors, weight: int, weight_total: int) -> None:
        """Add a class to its chains, from the root down.

        Args:
          tree: The survivors.
          weight: Numerator of the class's probability.
          weight_total: Its denominator.

        Raises:
          BudgetExceededError: More classes than the bound.
        """
        self._one_more()
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

    def count_last_probe(
        self, tree: Survivors, parent: int, weight: int, weight_total: int
    ) -> None:
        """Add all classes that differ in their last survivor only, a probe.

        Nodes outside the subtree of the probe's parent have the same chains in all of them, and get
        their probability at once. Most classes of a large round come in this way.

        Args:
          tree: The survivors before the last one.
          parent: Index of the probe's parent.
          weight: Numerator of the probability of all these classes, over `weight_total` without
            the probe's own denominator.
          weight_total: Denominator with the probe's own.

        Raises:
          BudgetExceededError: More classes than the bound.
        """
        site = tree.sites[parent]
        tail = site.tokens[site.num_top :]
        everyone = weight * sum(site.weights)
        chains: list[Chain | None] = []
        below: list[int] = []
        for index, above in enumerate(tree.parents):
            if index == parent or (index and chains[above] is None):
                chains.append(None)
                below.append(index)
            else:
                chains.append(self._add(tree, chains, index, everyone, weight_total))
        tree.counts[parent] += 1
        for probe, share in enumerate(site.weights):
            if share:
                self._one_more()
                tree.probes[parent] = probe
                part = weight * share
                for index in below:
                    chains[index] = self._add(tree, chains, index, part, weight_total)
                above_last = chains[parent]
                assert above_last is not None
                key = (tail[probe], 0, UNDRAWN)
                last = above_last.below.get(key)
                if last is None:
                    last = above_last.below[key] = Chain(site.child(tail[probe]), 0, UNDRAWN)
                last.mass[weight_total] = last.mass.get(weight_total, 0) + part

    def _add(
        self,
        tree: Survivors,
        chains: list[Chain | None],
        index: int,
        weight: int,
        weight_total: int,
    ) -> Chain:
        """Add a weight to the chain of one node; its parent's chain is known."""
        site, count, probe = tree.sites[index], tree.counts[index], tree.probes[index]
        chain: Chain | None
        if index:
            above = chains[tree.parents[index]]
            assert above is not None
            key = (site.path[-1], count, probe)
            chain = above.below.get(key)
            if chain is None:
                chain = above.below[key] = Chain(site, count, probe)
        else:
            chain = self.roots.get((count, probe))
            if chain is None:
                chain = self.roots[count, probe] = Chain(site, count, probe)
        chain.mass[weight_total] = chain.mass.get(weight_total, 0) + weight
        return chain

    def _one_more(self) -> None:
        self.num_classes += 1
        if self._max_classes is not None and self.num_classes > self._max_classes:
            raise BudgetExceededError(
                f"the round has more than max_paths = {self._max_classes} classes of draws; its "
                f"law is unknown"
            )
