"""Why a sampler is lossy on an instance, where its own draws tell."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from rheocheck.audit.sampler_family import SamplerInstance
from rheocheck.audit.sampler_run import Choice, SamplerPath
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
    found: list[str] = []
    for sentences in (
        _survival(paths),
        _wrong_row(paths, instance),
        _wrong_residual(paths, instance),
        _undrawn_token(paths, instance),
        _shared_coin(paths),
        _impossible_token(emissions, instance),
        _joint_only(emissions, instance),
    ):
        found += [sentence for sentence in sentences if sentence not in found]
    return found


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
        chances = {token: kept / (cut + kept) for token, (cut, kept) in by_token.items()}
        if len(set(chances.values())) > 1:
            shown = ", ".join(f"{chance} as token {token}" for token, chance in chances.items())
            yield (
                f"survival depends on identity: the drawn node {node} survives with probability "
                f"{shown}"
            )
            return


def _wrong_row(paths: Sequence[SamplerPath], instance: SamplerInstance) -> Iterator[str]:
    """A token drawn from the target's law after a path that is not the one emitted."""
    for path in paths:
        emission = path.emission
        for end, drawn in _emitted_draws(path):
            before = emission[:end]
            if drawn.weights == instance.target(before):
                continue
            for other in dict.fromkeys(path.asked):
                rejected = other != emission[: len(other)]
                stale = not rejected and len(other) < end
                if (rejected or stale) and drawn.weights == instance.target(other):
                    what = "an earlier, stale row" if stale else "a rejected draft's row"
                    yield (
                        f"wrong row: token {emission[end]} after {before} is drawn from the "
                        f"target's law after {other} ({what})"
                    )
                    return


def _emitted_draws(path: SamplerPath) -> Iterator[tuple[int, Choice]]:
    """For each round: position of its last token, and the draw that gave it, if it is plain."""
    if not path.choices:
        return
    end = -1
    rest = list(path.choices)
    for tokens in path.rounds:
        end += len(tokens)
    last = rest[-1]
    if not last.is_coin and last.taken == path.emission[end]:
        yield end, last


def _wrong_residual(paths: Sequence[SamplerPath], instance: SamplerInstance) -> Iterator[str]:
    """A token drawn, after a rejection that could have gone either way, from an unreduced law."""
    for path in paths:
        if len(path.choices) < 2:
            continue
        test, drawn = path.choices[-2:]
        if drawn.is_coin or not test.is_coin or test.taken or not 0 < test.weights[1] < 1:
            continue
        before = path.emission[:-1]
        target, draft = instance.target(before), instance.draft(before)
        if drawn.weights == target:
            yield (
                f"the residual ignores the draft: after a rejection (chance {test.weights[0]}) the "
                f"token after {before} is drawn from the target's own law"
            )
            return
        ratios = {t / d for t, d in zip(target, draft, strict=True) if d}
        for token, mass in enumerate(target):
            struck = _without(target, token)
            soft = 0 < draft[token] < 1 and test.weights[1] in ratios and test.weights[1] != mass
            if soft and drawn.weights == struck and struck != target:
                yield (
                    f"the residual only strikes the rejected token: it was tested with "
                    f"min(1, target / draft), but after {before} the next one is drawn from the "
                    f"target without token {token}, not from max(target - draft, 0)"
                )
                return


def _undrawn_token(paths: Sequence[SamplerPath], instance: SamplerInstance) -> Iterator[str]:
    """A test min(1, target / draft) of a token that was never drawn from the draft."""
    target, draft = instance.target(()), instance.draft(())
    for path in paths:
        if not path.choices or not path.choices[0].is_coin:
            continue
        chance = path.choices[0].weights[1]
        best = max(range(len(draft)), key=draft.__getitem__)
        soft = draft[best] < 1 and chance != target[best]
        if soft and chance == min(Fraction(1), target[best] / draft[best]) and 0 < chance < 1:
            yield (
                f"a token that was not drawn is tested as if it had been: token {best} is picked "
                f"without a draw, and accepted with min(1, target / draft) = {chance}"
            )
            return


def _shared_coin(paths: Sequence[SamplerPath]) -> Iterator[str]:
    """A uniform whose interval was split by several comparisons."""
    for path in paths:
        for name, value in path.notes:
            if name == "uniform split again":
                yield f"shared coin: one uniform ({value}) decides several things"
                return


def _impossible_token(
    emissions: Mapping[Path, Fraction], instance: SamplerInstance
) -> Iterator[str]:
    for emission in sorted(emissions, key=lambda path: (len(path), path)):
        for length, token in enumerate(emission):
            law = instance.target(emission[:length])
            if not 0 <= token < len(law):
                yield (
                    f"a token outside the vocabulary is emitted: {token} after {emission[:length]}"
                )
                return
            if law[token] == 0:
                yield (
                    f"a token of target probability 0 is emitted: {token} after {emission[:length]}"
                )
                return


def _joint_only(emissions: Mapping[Path, Fraction], instance: SamplerInstance) -> Iterator[str]:
    if total_variation(emissions, instance.target, 1) == 0:
        yield "the first token's law is exact; only the joint law is wrong"


def _without(law: Law, token: int) -> Law:
    masses = [Fraction(0) if index == token else mass for index, mass in enumerate(law)]
    total = sum(masses, Fraction(0))
    return tuple(mass / total for mass in masses) if total else law
