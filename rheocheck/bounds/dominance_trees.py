"""Trees without fillers in which recursive rejection accepts more tokens than probe-first.

Each child of a node without fillers is accepted at least as often under rheo, yet E[tau] can be
less. Acceptance of the top token and the tree drawn below it are dependent. Given that the probe is
X, rheo accepts the top with probability (1 - accept(X)) * residual(top), rrsw with target(top)
whatever X is. If the budget goes below the top exactly when rheo prefers X, rrsw gains there.

With two children the comparison is linear in what the subtrees are worth. Write g(x) for
P(X = x) (rrsw's chance of the top given x - rheo's), whose sum over x is 0, and let L =
min(depth - 1, budget - 2) bound the tokens below the top. Where subtrees do not favour rrsw
themselves, E[tau] of rrsw exceeds that of rheo by at most

    L * sum over x of max(0, g(x)) - (rheo - rrsw at the root),

which is attained if the draft puts L sure tokens below the top for g(x) > 0 and below X otherwise.
`search_tree` evaluates this for all root laws by common denominator and completes the first
positive one.

L = 1 with three tokens a, b, c is not enough. If neither tail token exceeds probe_law, the residual
is a alone, g(b) = target(b) - t probe_law(b) = -g(c), and the root's loss is max(0, g(b)) +
max(0, g(c)). If b does, g(b) = probe_law(b) target(a) = -g(c) and the loss is at least g(b). So
subtrees of depth two never favour rrsw with three tokens, which makes the bound complete for L = 2
with three tokens, and for L = 1 with any number.

Source: the claim under study is that of Hu, Weng and Zhang (2026), arXiv:2609.21827.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from rheocheck.bounds.dominance import SCREEN, all_pairs, check_denominator
from rheocheck.bounds.growth import Path
from rheocheck.bounds.laws import Array, NodeLaws
from rheocheck.bounds.tree import expected_by_rule
from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference import round_law


@dataclass(frozen=True, slots=True)
class TreeWitness:
    """A tree without fillers in which recursive rejection accepts more tokens.

    Attributes:
      config: The scheme, two children a node.
      target: Target law by path; other paths have all mass on token 0.
      draft: Draft law by path, likewise.
      expected_accepted: E[tau] of both rules, from the reference enumeration.
    """

    config: SpeculationConfig
    target: dict[Path, tuple[Fraction, ...]]
    draft: dict[Path, tuple[Fraction, ...]]
    expected_accepted: dict[str, Fraction]

    def target_at(self, path: Path) -> tuple[Fraction, ...]:
        """[vocab] target law."""
        return self.target.get(path, _point(len(self.target[()]), 0))

    def draft_at(self, path: Path) -> tuple[Fraction, ...]:
        """[vocab] draft law."""
        return self.draft.get(path, _point(len(self.draft[()]), 0))


@dataclass(frozen=True, slots=True)
class TreeSearch:
    """What a search over all root laws found.

    Attributes:
      witness: An instance whose root laws have the least common denominator; None if there is none.
      denominator: That denominator, or the largest one searched.
      num_pairs: Pairs of root laws examined: without a witness, no laws deeper down help them.
    """

    witness: TreeWitness | None
    denominator: int
    num_pairs: int


def search_tree(vocab: int, levels: int, max_denominator: int) -> TreeSearch:
    """Smallest root laws for which rrsw can have the larger E[tau] in a tree without fillers.

    Args:
      vocab: Tokens.
      levels: L of the module's text. The tree has budget L + 2, depth L + 1 and two children a
        node: top and probe.
      max_denominator: Largest common denominator of the root laws, at most 30.

    Returns:
      A complete instance, verified by the reference enumeration.

    Raises:
      InputError: A denominator out of range, too many pairs of laws, or no level.
    """
    if levels < 1:
        raise InputError(f"levels = {levels}; required: at least 1")
    check_denominator(max_denominator, vocab)
    num_pairs = 0
    for denominator in range(1, max_denominator + 1):
        laws, pairs = all_pairs(vocab, denominator)
        num_pairs += len(pairs)
        gains, loss = _root_gains(laws)
        advantage = levels * np.maximum(gains, 0).sum(axis=-1) - loss
        for best in np.argsort(-advantage, kind="stable"):
            if advantage[best] <= SCREEN:
                break
            target, draft = pairs[best]
            witness = _complete(target, draft, denominator, gains[best], levels)
            if witness is not None:
                return TreeSearch(witness, denominator, num_pairs)
    return TreeSearch(None, max_denominator, num_pairs)


def _root_gains(laws: NodeLaws) -> tuple[Array, Array]:
    """[pair, tail] g of the module's text, and [pair] rheo - rrsw at the root."""
    target, draft = laws.target[:, 1:], laws.draft[:, 1:]
    top = laws.target[:, :1]
    tail = draft.sum(axis=-1, keepdims=True)
    law = draft / np.where(tail == 0, 1, tail)
    overlap = np.minimum(target, law)
    rejected = law - overlap
    mass = rejected.sum(axis=-1, keepdims=True)
    gains = law * top - rejected * top / np.where(mass == 0, 1, mass)
    loss = (overlap - np.minimum(target, (1 - top) * law)).sum(axis=-1)
    # A tail of one token draws nothing.
    return np.where((draft > 0).sum(axis=-1, keepdims=True) > 1, gains, 0), loss


def _complete(
    target: tuple[int, ...], draft: tuple[int, ...], denominator: int, gains: Array, levels: int
) -> TreeWitness | None:
    """Laws below the root that put `levels` sure tokens below the top where g > 0, else below X."""
    vocab = len(draft)
    roots = [tuple(Fraction(weight, denominator) for weight in law) for law in (target, draft)]
    top, tail = roots[1][0], sum(roots[1][1:])
    proxy = min(top, tail)
    for steep, flat in _slopes(vocab):
        # The top's chain must come after the probe, before its own probe, before the chain below
        # an X with g > 0 (first factor `flat`) and after that below any other X (first factor 1).
        if not (flat * proxy < top * steep < proxy and steep > Fraction(1, 2)):
            continue
        below_top = (steep, 1 - steep, *[Fraction(0)] * (vocab - 2))
        shares = int(1 / flat)
        below_good = (*[flat] * shares, 1 - flat * shares, *[Fraction(0)] * vocab)[:vocab]
        good = [token + 1 for token, gain in enumerate(gains) if gain > SCREEN]
        draft_laws: dict[Path, Any] = {(): roots[1], (0,): below_top}
        draft_laws.update({(token,): below_good for token in good})
        # Off the top every target law avoids the drafted token 0: those nodes are worth nothing.
        target_laws: dict[Path, Any] = {(): roots[0]}
        target_laws.update({(token,): _point(vocab, vocab - 1) for token in range(1, vocab)})
        config = SpeculationConfig(
            top_k=2, num_top=1, budget=levels + 2, depth=levels + 1, support_size=vocab
        )
        witness = TreeWitness(config, target_laws, draft_laws, {})
        found = expected_by_rule(witness.target_at, witness.draft_at, config, ("rheo", "rrsw"))
        if found["rrsw"] > found["rheo"]:
            return TreeWitness(config, target_laws, draft_laws, _by_reference(witness))
    return None


def _slopes(vocab: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Pairs (steep, flat) of first masses, simplest first; flat >= 1 / vocab."""
    for size in range(2, 13):
        for below in range(2, size + 1):
            for steep in range(1, size):
                flat = Fraction(1, below)
                if below <= vocab and max(size, below) == size:
                    yield Fraction(steep, size), flat


def _by_reference(witness: TreeWitness) -> dict[str, Fraction]:
    values = {}
    for rule in ("rheo", "rrsw", "onehot"):
        config = SpeculationConfig(**{**witness.config.model_dump(), "rule": rule})
        law = round_law(witness.target_at, witness.draft_at, config)
        values[rule] = law.expected_accepted
    return values


def _point(vocab: int, token: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(int(other == token)) for other in range(vocab))
