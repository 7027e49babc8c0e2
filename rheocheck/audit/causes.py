"""Why a sampler is lossy on an instance, where its own draws tell."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from rheocheck.audit.sampler_family import SamplerInstance, law_text, path_text
from rheocheck.audit.sampler_run import SamplerPath
from rheocheck.audit.sampler_trace import Choice
from rheocheck.protocols import Path
from rheocheck.reference import Law, total_variation

SURVIVES = "survives"
"""Name of the note (node, token, survived) that a tree sampler may take of a drawn node."""


def likely_causes(
    paths: Sequence[SamplerPath],
    instance: SamplerInstance,
    emissions: Mapping[Path, Fraction],
) -> list[str]:
    """Name what is wrong with a sampler that is lossy on `instance`.

    Every sentence is a fact about the runs (which law a token was drawn from, which coin decided
    twice); that the fact explains the defect is a conclusion by experience.

    Args:
      paths: All runs.
      instance: The laws.
      emissions: Law of the emissions.

    Returns:
      Sentences, most telling first; none if nothing was recognised.
    """
    by_path: tuple[Callable[[SamplerPath, SamplerInstance], str | None], ...] = (
        _shared_coin,
        _duplicate_sibling,
        _wrong_row,
        _ranking_for_draft,
        _wrong_residual,
        _undrawn_token,
        _other_draft,
        _discarded_draw,
        _untested_draft,
    )
    found = list(_survival(paths))
    for recognise in by_path:
        sentences = (recognise(path, instance) for path in paths)
        found += [next(sentence for sentence in (*sentences, "") if sentence is not None)]
    found += [*_impossible_token(emissions, instance), *_joint_only(emissions, instance)]
    return [sentence for sentence in found if sentence]


def _survival(paths: Sequence[SamplerPath]) -> Iterator[str]:
    """Notes that say that a node's survival depends on which token it holds."""
    masses: dict[object, dict[int, list[Fraction]]] = {}
    for path in paths:
        for name, value in path.notes:
            if name == SURVIVES:
                node, token, survived = value
                kept = masses.setdefault(node, {}).setdefault(token, [Fraction(0), Fraction(0)])
                kept[bool(survived)] += path.probability
    for node, by_token in masses.items():
        chances = {token: kept / (cut + kept) for token, (cut, kept) in sorted(by_token.items())}
        if len(set(chances.values())) > 1:
            shown = ", ".join(f"{chance} as token {token}" for token, chance in chances.items())
            yield (
                f"survival depends on identity: the drawn node {node} survives with probability "
                f"{shown}"
            )
            return


def _shared_coin(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A uniform that was used again after it had decided something."""
    for name, value in path.notes:
        if name == "uniform reused":
            return f"shared coin: one uniform ({value}) decides several things"
    return None


def _duplicate_sibling(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A drafted tree in which a node occurs twice."""
    for name, nodes in path.notes:
        if name == "tree":
            twice = next((node for node in nodes if nodes.count(node) > 1), None)
            if twice is not None:
                return f"duplicate siblings: the node {path_text(twice)} is drafted twice"
    return None


def _wrong_row(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """The last token drawn from the target's law after a path that is not the one emitted."""
    drawn, before = _last_draw(path), path.emission[:-1]
    if drawn is None or drawn.weights == instance.target(before):
        return None
    if drawn.weights == instance.draft(before):
        return None
    for other in dict.fromkeys((drawn.row, *path.asked)):
        if other is None:
            continue
        rejected = other != path.emission[: len(other)]
        stale = not rejected and len(other) < len(before)
        if (rejected or stale) and drawn.weights == instance.target(other):
            what = "an earlier, stale row" if stale else "a rejected draft's row"
            return (
                f"wrong row: the token after {path_text(before)} is drawn from the target's law "
                f"after {path_text(other)} ({what})"
            )
    return None


def _ranking_for_draft(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A token of the tempered draft that is tested with its ranking mass."""
    if instance.ranking is None:
        return None
    target, draft, ranking = instance.target(()), instance.draft(()), instance.ranking(())
    for drawn, test in itertools.pairwise(path.choices):
        if drawn.is_coin or drawn.weights != draft or not test.is_coin:
            continue
        right, wrong = (_ratio(target, law, drawn.taken) for law in (draft, ranking))
        if test.weights[1] == wrong != right:
            return (
                f"the ranking law is used for the draft: token {drawn.taken} is drawn from "
                f"{law_text(draft)} and tested with the ranking {law_text(ranking)}"
            )
    return None


def _wrong_residual(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A token drawn, after a failed ratio test, from another law than the ratio test's residual."""
    drawn, before = _last_draw(path), path.emission[:-1]
    if drawn is None or len(path.choices) < 2 or not path.choices[-2].is_coin:
        return None
    test = path.choices[-2]
    target, draft = instance.target(before), instance.draft(before)
    if test.taken or len(drawn.weights) != len(target):
        return None
    right = _without_draft(target, draft)
    if drawn.weights == right:
        return None
    for token, mass in enumerate(target):
        ratio = _ratio(target, draft, token)
        if ratio is None or test.weights[1] != ratio or (ratio == mass and ratio > 0):
            continue
        if not _was_drawn(path, before, token, draft):
            continue
        shown = (
            f"token {token} after {path_text(before)} fails the test min(1, target / draft), and "
            f"the next one is drawn from {law_text(drawn.weights)}, not from max(target - draft, "
            f"0) = {law_text(right)}"
        )
        struck = _without(target, token)
        if drawn.weights == target != struck:
            return f"the residual ignores the draft: {shown}"
        if drawn.weights == struck != target:
            return f"the residual only strikes the rejected token: {shown}"
        if drawn.weights == target:
            return f"the residual does not subtract the draft: {shown}"
    if drawn.weights == target and 0 < test.weights[1] < 1:
        return (
            f"the residual is the whole target: after a rejection (chance {test.weights[0]}) the "
            f"token after {path_text(before)} is drawn from {law_text(target)}, as if nothing had "
            f"been tried"
        )
    return None


def _undrawn_token(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A test min(1, target / draft) of a token that was never drawn from the draft."""
    if not path.choices or not path.choices[0].is_coin:
        return None
    target, draft = instance.target(()), instance.draft(())
    best = max(range(len(draft)), key=draft.__getitem__)
    chance = path.choices[0].weights[1]
    if chance != target[best] and chance == _ratio(target, draft, best):
        return (
            f"a token that was not drawn is tested as if it had been: token {best} is picked "
            f"without a draw, and accepted with min(1, target / draft) = {chance}"
        )
    return None


def _other_draft(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A test with the draft's own law of a token that was drawn from another one."""
    target, draft = instance.target(()), instance.draft(())
    if len(path.choices) < 2 or path.choices[0].is_coin or not path.choices[1].is_coin:
        return None
    drawn, test = path.choices[:2]
    known = {draft} if drawn.row is None else {target, draft}
    if drawn.weights in known or _trimmed(drawn.weights) in {_trimmed(law) for law in known}:
        return None
    for token, mass in enumerate(target):
        if test.weights[1] == _ratio(target, draft, token) != mass:
            return (
                f"the law drawn from is not the law tested with: a token is drawn from "
                f"{law_text(drawn.weights)} and tested with the draft {law_text(draft)}"
            )
    return None


def _discarded_draw(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A draw from the target whose token is not the one emitted there."""
    for choice in path.choices:
        before = choice.row
        if choice.is_coin or before is None or path.emission[: len(before)] != before:
            continue
        target = instance.target(before)
        if choice.weights != target or target == instance.draft(before):
            continue
        if len(before) < len(path.emission) and choice.taken != path.emission[len(before)]:
            return (
                f"a target draw is thrown away: after {path_text(before)} the target gave token "
                f"{choice.taken}, yet token {path.emission[len(before)]} is emitted there"
            )
    return None


def _untested_draft(path: SamplerPath, instance: SamplerInstance) -> str | None:
    """A drafted token emitted although nothing was tested."""
    if not path.choices or any(choice.is_coin for choice in path.choices):
        return None
    first, target, draft = path.choices[0], instance.target(()), instance.draft(())
    tested = any(name == "uniform drawn" for name, _ in path.notes)
    drawn_again = any(not c.is_coin and c.weights == target for c in path.choices)
    if tested or drawn_again or first.weights != draft or target == draft:
        return None
    if first.taken == path.emission[0]:
        return f"a drafted token is emitted without a random test: token {first.taken} at the root"
    return None


def _impossible_token(
    emissions: Mapping[Path, Fraction], instance: SamplerInstance
) -> Iterator[str]:
    for emission in sorted(emissions, key=lambda path: (len(path), path)):
        for length, token in enumerate(emission):
            before = emission[:length]
            law = instance.target(before)
            if not 0 <= token < len(law):
                yield (
                    f"a token outside the vocabulary is emitted: {token} after {path_text(before)}"
                )
                return
            if law[token] == 0:
                yield (
                    f"a token of target probability 0 is emitted: {token} after {path_text(before)}"
                )
                return


def _joint_only(emissions: Mapping[Path, Fraction], instance: SamplerInstance) -> Iterator[str]:
    if total_variation(emissions, instance.target, 1) == 0:
        yield "the first token's law is exact; only the joint law is wrong"


def _last_draw(path: SamplerPath) -> Choice | None:
    """The draw that gave the last token, if the run ended with one."""
    if not path.choices:
        return None
    last = path.choices[-1]
    return last if not last.is_coin and last.taken == path.emission[-1] else None


def _was_drawn(path: SamplerPath, before: Path, token: int, draft: Law) -> bool:
    """Whether the run drew `token` from the draft's law, so that a ratio test of it is due."""
    return any(not c.is_coin and c.weights == draft and c.taken == token for c in path.choices)


def _ratio(target: Law, draft: Law, token: int) -> Fraction | None:
    return min(Fraction(1), target[token] / draft[token]) if draft[token] else None


def _without_draft(target: Law, draft: Law) -> Law:
    masses = [max(t - d, Fraction(0)) for t, d in zip(target, draft, strict=True)]
    total = sum(masses, Fraction(0))
    return tuple(mass / total for mass in masses) if total else target


def _without(law: Law, token: int) -> Law:
    masses = [Fraction(0) if index == token else mass for index, mass in enumerate(law)]
    total = sum(masses, Fraction(0))
    return tuple(mass / total for mass in masses) if total else law


def _trimmed(law: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The positive masses, so that a law written without its zeros is recognised."""
    return tuple(mass for mass in law if mass)
