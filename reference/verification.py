"""Verification of one round: which drafted tokens are kept, and the token that ends the round.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827 (probe first); Jeon et al. (2024),
arXiv:2402.14160, and Chen et al. (2024), arXiv:2402.12374 (recursive rejection without
replacement). `residual` is the law of the next token given all rejections so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.config import Rule
from rheocheck.reference.draws import ROOT, Draws, NodeKey
from rheocheck.reference.expansion import Expansion, Role, next_probe_law
from rheocheck.reference.laws import ONE, ZERO, Law, Path, normalised, numerators
from rheocheck.reference.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Verification:
    """What verification kept of a tree.

    Attributes:
      accepted: Path of the accepted tokens, from the root; empty if none was.
      final: The residual or bonus token that ends the round.
      end: Key of the node where the round ended.
    """

    accepted: Path
    final: int
    end: NodeKey


def verify(tree: Tree, target_at: Callable[[Path], Law], rule: Rule, draws: Draws) -> Verification:
    """Walk down the tree along accepted children.

    Args:
      tree: The drafted tree.
      target_at: path -> [vocab] target law.
      rule: "rheo", "rrsw" or "onehot".
      draws: Decides the accept tests and the final draw.

    Returns:
      The accepted path and the final token: of the target law itself (the bonus) at a node without
      surviving children, of the residual where every child was rejected.
    """
    path: Path = ()
    key = ROOT
    while True:
        candidates = tree.surviving_children(path)
        expansion, vocab = tree.expansions.get(path), len(target_at(path))
        probes = [node.token for node in candidates if node.role is Role.PROBE]
        probe_law = vocab_probe_law(expansion, vocab)
        # Each later probe's law, given those drawn before it: it survives only if they do.
        later = [vocab_probe_law(expansion, vocab, probes[:n]) for n in range(1, len(probes))]
        accepted, residual = verify_node(
            target_at(path), candidates, probe_law, rule, draws, later_laws=later
        )
        if accepted is None:
            return Verification(path, draws.final(residual, key), key)
        path, key = accepted.path, accepted.key


def verify_node(
    target: Law,
    candidates: Sequence[Node],
    probe_law: Law,
    rule: Rule,
    draws: Draws,
    *,
    later_laws: Sequence[Law] = (),
) -> tuple[Node | None, Law]:
    """Test the surviving children of one node, one after the other.

    Args:
      target: [vocab] target law at the node.
      candidates: Its surviving children in slot order; may be empty.
      probe_law: [vocab] law that its probe was drawn from; all zero where there is none.
      rule: Decides the order of the tests and whether the probe's law is used.
      draws: Decides the tests.
      later_laws: [probe - 1][vocab] laws of the second probe and those after it.

    Returns:
      The accepted child, or None if all were rejected.
      [vocab] residual law left after the rejections made.
    """
    residual = target
    laws = iter((probe_law, *later_laws))
    for child in order_of_tests(candidates, rule):
        sampled = child.role is Role.PROBE and rule != "onehot"
        if sampled:
            probe_law = next(laws)
        probability = (
            probe_acceptance(residual, probe_law, child.token) if sampled else residual[child.token]
        )
        if draws.accept(probability, child.key):
            return child, residual
        residual = (
            residual_after_probe(residual, probe_law)
            if sampled
            else residual_without(residual, child.token)
        )
    return None, residual


def order_of_tests(candidates: Sequence[Node], rule: Rule) -> list[Node]:
    """Order in which the children are tested.

    "rheo": the probe, then the others by score; "rrsw": by slot; "onehot": by score.
    """
    if rule == "rrsw":
        return sorted(candidates, key=lambda node: node.key.slot)
    by_score = sorted(candidates, key=lambda node: (-node.score, node.key.slot))
    if rule == "rheo":
        by_score.sort(key=lambda node: node.role is not Role.PROBE)
    return by_score


def probe_acceptance(residual: Law, probe_law: Law, token: int) -> Fraction:
    """Probability that a probe `token`, drawn from `probe_law`, is kept: min(1, ratio)."""
    return min(ONE, residual[token] / probe_law[token])


def residual_after_probe(residual: Law, probe_law: Law) -> Law:
    """[vocab] law after a rejected probe: max(residual - probe_law, 0), normalised.

    Where the two laws are equal no probe is ever rejected, so there is always mass left.
    """
    shares, scale = numerators((*residual, *probe_law))
    vocab = len(residual)
    excess = [
        Fraction(max(0, kept - drawn), scale)
        for kept, drawn in zip(shares[:vocab], shares[vocab:], strict=True)
    ]
    return _law_left(excess)


def residual_without(residual: Law, token: int) -> Law:
    """[vocab] law after a rejected point mass on `token`: its mass removed, renormalised."""
    return _law_left([ZERO if index == token else kept for index, kept in enumerate(residual)])


def vocab_probe_law(expansion: Expansion | None, vocab: int, taken: Sequence[int] = ()) -> Law:
    """Law of one of a node's probes in token-id order; all zero for a node without one.

    Args:
      expansion: The node's expansion, None if it was not expanded.
      vocab: Length of the law.
      taken: Tokens of the probes drawn before it.

    Returns:
      [vocab] probabilities.
    """
    law = [ZERO] * vocab
    if expansion is not None and expansion.probe_law:
        places = [expansion.tail.index(token) for token in taken]
        drawn = next_probe_law(expansion.probe_law, places) if places else expansion.probe_law
        for token, mass in zip(expansion.tail, drawn, strict=True):
            law[token] = mass
    return tuple(law)


def _law_left(masses: Sequence[Fraction]) -> Law:
    assert any(masses), "a test that cannot fail was failed"
    return normalised(masses)
