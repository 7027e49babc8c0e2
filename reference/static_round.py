"""One round on a static tree of random drafts: the baselines of the literature.

Every node of a layer has the same number of children, all of them drawn from the truncated draft
law before anything is verified; nothing is scored and nothing is cut. One child a node is the
single chain of speculative sampling, under each of the rules.

Source: Miao et al. (2024), SpecInfer, arXiv:2305.09781, algorithm 2 ("specinfer"); Sun et al.
(2023), SpecTr, arXiv:2310.15141, algorithm 3 ("kseq"), their gamma is `scale`; Chen et al. (2024),
Sequoia, arXiv:2402.12374, algorithm 2 ("sequoia"). Their target and draft laws are `target` and
`draft`.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rheocheck.config import KSEQ_SCALE_STEPS, StaticConfig
from rheocheck.reference.draws import ROOT, Draws, NodeKey
from rheocheck.reference.expansion import tail_law
from rheocheck.reference.laws import ZERO, Draft, Law, Path, Target, normalised, truncate
from rheocheck.reference.models import Models
from rheocheck.reference.verification import probe_acceptance, residual_after_probe


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a node's children are drawn from.

    Attributes:
      tokens: [rank] support in rank order: by (ranking descending, token id ascending).
      law: [rank] tempered draft on the support, sums to 1; a point mass on the first token where
        the tempered draft has no mass on the support.
    """

    tokens: tuple[int, ...]
    law: Law


@dataclass(frozen=True, slots=True)
class StaticRound:
    """One round.

    Attributes:
      layers: [layer - 1][place] token of each drafted node, None where its parent is missing or had
        no token left; the children of place i of a layer are the next places from
        i * branching[layer] on.
      accepted: Tokens accepted, from the root.
      final: The residual or bonus token that ends the round.
      end: Key of the node where the round ended.
    """

    layers: tuple[tuple[int | None, ...], ...]
    accepted: Path
    final: int
    end: NodeKey

    @property
    def emission(self) -> Path:
        """The tokens emitted: the accepted ones, then the last."""
        return (*self.accepted, self.final)


def sample_static_round(
    target: Target, draft: Draft, config: StaticConfig, draws: Draws
) -> StaticRound:
    """Draft a static tree and verify it.

    Args:
      target: path -> [vocab] law of Fractions.
      draft: path -> [vocab] law, or a 2-tuple of laws (ranking, tempered draft): the first decides
        which tokens truncation keeps, the second is what is drawn and verified.
      config: Shape and rule.
      draws: Makes every random decision. A drafted child is drawn as a probe with its own key
        (layer, place of its parent in the parent's layer, slot).

    Returns:
      The round.

    Raises:
      InputError: `target` or `draft` is not callable.
      LawError: A law that was asked for is none.
    """
    models = Models(target, draft)

    @functools.cache
    def proposal_at(path: Path) -> Proposal:
        ranking, tempered = models.draft(path)
        support = truncate(ranking, tempered, config.support_size)
        return Proposal(support.tokens, tail_law(support.draft))

    layers: list[tuple[int | None, ...]] = []
    paths: list[Path | None] = [()]
    for layer, width in enumerate(config.branching, start=1):
        grown: list[int | None] = []
        for place, path in enumerate(paths):
            drawn = (
                _drawn(proposal_at(path), width, config, draws, layer, place)
                if path is not None
                else []
            )
            grown += [*drawn, *[None] * (width - len(drawn))]
        paths = [
            None if token is None else (*(paths[place // width] or ()), token)
            for place, token in enumerate(grown)
        ]
        layers.append(tuple(grown))
    accepted, final, end = _verified(models, proposal_at, layers, config, draws)
    return StaticRound(tuple(layers), accepted, final, end)


def without_replacement(law: Law, taken: int) -> Law:
    """[rank] law of the next draw after place `taken` was drawn; all zero if nothing is left."""
    return normalised([ZERO if place == taken else mass for place, mass in enumerate(law)])


def kseq_scale(target: Sequence[Fraction], proposed: Sequence[Fraction], count: int) -> Fraction:
    """Smallest multiple of 1 / KSEQ_SCALE_STEPS at which K-SEQ with `count` drafts is lossless.

    With b(s) = sum min(proposed, target / s) the rule needs 1 - (1 - b)^count <= s * b. The left
    side over b falls as b falls, so what holds at one s holds at every larger one; s = count always
    will do.

    Args:
      target: [item] target masses at the tokens drafted from; may sum to less than 1.
      proposed: [item] their draft law.
      count: Drafts, at least 1.

    Returns:
      The scale, in [1, count].
    """

    def enough(steps: int) -> bool:
        scale = Fraction(steps, KSEQ_SCALE_STEPS)
        kept = sum((min(q, p / scale) for p, q in zip(target, proposed, strict=True)), ZERO)
        return 1 - (1 - kept) ** count <= scale * kept

    low, high = KSEQ_SCALE_STEPS, count * KSEQ_SCALE_STEPS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return Fraction(low, KSEQ_SCALE_STEPS)


def _drawn(
    proposal: Proposal, width: int, config: StaticConfig, draws: Draws, layer: int, place: int
) -> list[int]:
    """Tokens of one node's children; without replacement there may be fewer than `width`."""
    law, tokens = proposal.law, []
    for slot in range(width):
        if not any(law):
            break
        rank = draws.probe(law, NodeKey(layer, place, slot))
        tokens.append(proposal.tokens[rank])
        if config.rule == "sequoia":
            law = without_replacement(law, rank)
    return tokens


def _verified(
    models: Models,
    proposal_at: Callable[[Path], Proposal],
    layers: Sequence[Sequence[int | None]],
    config: StaticConfig,
    draws: Draws,
) -> tuple[Path, int, NodeKey]:
    """Walk down along accepted children."""
    path: Path = ()
    key, place = ROOT, 0
    for layer, width in enumerate(config.branching, start=1):
        children = [
            token for token in layers[layer - 1][place * width :][:width] if token is not None
        ]
        node = NodeKey(layer, place, 0)
        slot, residual = _tested(
            models.target(path), proposal_at(path), children, config, draws, node
        )
        if slot is None:
            return path, draws.final(residual, key), key
        path, key = (*path, children[slot]), NodeKey(layer, place, slot)
        place = place * width + slot
    return path, draws.final(models.target(path), key), key


def _tested(
    target: Law,
    proposal: Proposal,
    children: Sequence[int],
    config: StaticConfig,
    draws: Draws,
    first: NodeKey,
) -> tuple[int | None, Law]:
    """Slot of the accepted child or None, and the [vocab] law left after the rejections."""
    keys = [first._replace(slot=slot) for slot in range(len(children))]
    if config.rule == "kseq":
        return _kseq_tested(target, proposal, children, draws, keys)
    residual, law = target, proposal.law
    for slot, token in enumerate(children):
        drafted = _on_vocab(proposal.tokens, law, len(target))
        if draws.accept(probe_acceptance(residual, drafted, token), keys[slot]):
            return slot, residual
        residual = residual_after_probe(residual, drafted)
        if config.rule == "sequoia":
            law = without_replacement(law, proposal.tokens.index(token))
    return None, residual


def _kseq_tested(
    target: Law,
    proposal: Proposal,
    children: Sequence[int],
    draws: Draws,
    keys: Sequence[NodeKey],
) -> tuple[int | None, Law]:
    wanted = [target[token] for token in proposal.tokens]
    scale = kseq_scale(wanted, proposal.law, len(children))
    kept = [min(q, p / scale) for p, q in zip(wanted, proposal.law, strict=True)]
    for slot, token in enumerate(children):
        rank = proposal.tokens.index(token)
        if draws.accept(kept[rank] / proposal.law[rank], keys[slot]):
            return slot, target
    one = sum(kept, ZERO)
    factor = (1 - (1 - one) ** len(children)) / one if one else ZERO
    left = list(target)
    for token, mass in zip(proposal.tokens, kept, strict=True):
        left[token] -= factor * mass
    assert any(left) and min(left) >= 0, "all drafts were refused where one is always accepted"
    return None, normalised(left)


def _on_vocab(tokens: Sequence[int], law: Law, vocab: int) -> Law:
    """[vocab] law in token-id order."""
    wide = [ZERO] * vocab
    for token, mass in zip(tokens, law, strict=True):
        wide[token] = mass
    return tuple(wide)
