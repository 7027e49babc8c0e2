"""How far a law of emissions is from the target's, at its worst path and over whole sequences.

A round is lossless iff after every path the next token, given that there is one, has the target
law. Emissions are held as a tree of prefixes, which is walked without recursion: they may be long.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.errors import InputError, LawError, shown, shown_path
from rheocheck.reference.laws import ZERO, Path, Target, as_exact, as_law, check_count, exact_sum
from rheocheck.reference.models import Vocabulary, check_callable
from rheocheck.reference.round_law import RoundLaw


@dataclass(frozen=True, slots=True)
class Violation:
    """A place where a law of emissions is not the target's.

    Attributes:
      path: Internal prefix of an emission.
      token: Token after it.
      got: Probability that the emission extends path + token.
      wanted: Probability that it goes beyond path, times the target probability of the token there.
    """

    path: Path
    token: int
    got: Fraction
    wanted: Fraction

    @property
    def defect(self) -> Fraction:
        """|got - wanted|."""
        return abs(self.got - self.wanted)


def lossless_defect(
    law: RoundLaw | Mapping[Any, Fraction], target: Target, *, complete: bool = True
) -> Fraction:
    """How far a round is from lossless: 0 iff it is.

    Args:
      law: A round law, or the law of emissions of any sampler (as `exact_law` returns it). Tokens
        are ints, NumPy's included.
      target: path -> [vocab] law.
      complete: Refuse a law that lacks mass, which the defect alone would not see.

    Returns:
      Maximum over paths u and tokens t of
      |P(emission extends u + t) - P(emission goes beyond u) * target(t | u)|.

    Raises:
      InputError: `target` is not callable; an emission is empty or no tuple of ints.
      LawError: `law` is no law of emissions; a target law is none, or not on one vocabulary.
      ProgramError: The target raised.
    """
    worst = worst_violation(law, target, complete=complete)
    return ZERO if worst is None else worst.defect


def worst_violation(
    law: RoundLaw | Mapping[Any, Fraction], target: Target, *, complete: bool = True
) -> Violation | None:
    """The path and token with the largest defect; None if the law is lossless.

    Args:
      law: As in `lossless_defect`.
      target: path -> [vocab] law.
      complete: As in `lossless_defect`.

    Returns:
      The violation. Of equal defects the one with the shortest path, then the smallest path and
      token.

    Raises:
      InputError: As `lossless_defect`.
      LawError: As `lossless_defect`.
      ProgramError: As `lossless_defect`.
    """
    check_callable(target, "target")
    level: list[tuple[Path, _Prefix]] = [((), _prefixes(law, complete))]
    vocabulary = Vocabulary()
    worst: Violation | None = None
    largest = ZERO
    while level:
        longer: list[tuple[Path, _Prefix]] = []
        for path, prefix in level:
            if not prefix.below:
                continue
            wanted_law = vocabulary.target_law(target, path)
            beyond = prefix.beyond
            for token in sorted(prefix.below.keys() | range(len(wanted_law))):
                after = prefix.below.get(token)
                got = ZERO if after is None else after.mass
                wanted = beyond * _mass(wanted_law, token)
                if got != wanted and abs(got - wanted) > largest:
                    worst = Violation(path, token, got, wanted)
                    largest = worst.defect
            longer += [((*path, token), prefix.below[token]) for token in sorted(prefix.below)]
        level = longer
    return worst


def total_variation(
    law: RoundLaw | Mapping[Any, Fraction], target: Target, length: int
) -> Fraction:
    """Total variation of the first `length` tokens from the target's joint law.

    Shorter emissions are extended by the target itself.

    Args:
      law: As in `lossless_defect`.
      target: path -> [vocab] law.
      length: Number of tokens compared, at least 0; with 0 there is one sequence, the empty one.

    Returns:
      Half the sum over all sequences of |their probability - the target's|.

    Raises:
      InputError: `length` is negative or no int; else as `lossless_defect`.
      LawError: As `lossless_defect`.
      ProgramError: As `lossless_defect`.
    """
    check_count(length, "length")
    check_callable(target, "target")
    vocabulary = Vocabulary()
    distance = ZERO
    # `ended`: probability of a path through emissions that ended at or before it, extended by the
    # target; `wanted`: its target probability.
    stack: list[tuple[Path, _Prefix, Fraction, Fraction]] = [
        ((), _prefixes(law), ZERO, Fraction(1))
    ]
    while stack:
        path, prefix, ended, wanted = stack.pop()
        if len(path) == length or not prefix.below:
            distance += abs(ended + prefix.beyond - wanted)
            continue
        wanted_law = vocabulary.target_law(target, path)
        others = Fraction(1)
        for token, after in prefix.below.items():
            mass = _mass(wanted_law, token)
            others -= mass
            stack.append(((*path, token), after, ended * mass + after.ended, wanted * mass))
        # Where no emission goes, both probabilities are extended by the same target laws.
        distance += abs(ended - wanted) * others
    return distance / 2


class _Prefix:
    """A prefix of emissions.

    Attributes:
      ended: Probability of the emission that is this prefix.
      mass: Probability of all emissions that start with it.
      below: Prefixes one token longer, by token.
    """

    __slots__ = ("below", "ended", "mass")

    def __init__(self) -> None:
        """A prefix of no emission yet."""
        self.ended = self.mass = ZERO
        self.below: dict[int, _Prefix] = {}

    @property
    def beyond(self) -> Fraction:
        """Probability of the emissions that go on after it."""
        return self.mass - self.ended


def _prefixes(law: RoundLaw | Mapping[Any, Fraction], complete: bool = True) -> _Prefix:
    """The empty prefix, with all others below it."""
    emissions = law.emissions if isinstance(law, RoundLaw) else law
    if not isinstance(emissions, Mapping):
        raise LawError(
            f"the law of emissions is a {type(emissions).__name__}; required: a RoundLaw, or a "
            "mapping from tuples of tokens to exact rationals"
        )
    values = list(emissions.values())
    masses = (
        as_law(values, name="the law of emissions")
        if complete
        else [as_exact(value, "a probability of an emission") for value in values]
    )
    root = _Prefix()
    made = [root]
    for emission, probability in zip(emissions, masses, strict=True):
        prefix = root
        for token in _tokens(emission):
            after = prefix.below.get(token)
            if after is None:
                after = prefix.below[token] = _Prefix()
                made.append(after)
            prefix = after
        prefix.ended += probability
    for prefix in reversed(made):
        prefix.mass = exact_sum([prefix.ended, *[after.mass for after in prefix.below.values()]])
    return root


def _tokens(emission: Any) -> Path:
    try:
        tokens = tuple(map(operator.index, emission)) if isinstance(emission, tuple) else None
    except TypeError:
        tokens = None
    if tokens is None:
        text = shown_path(emission) if isinstance(emission, tuple) else shown(emission)
        raise InputError(f"emission is {text}; required: a tuple of int tokens")
    if not tokens:
        raise InputError("an emission is empty; required: at least one token a round")
    return tokens


def _mass(law: tuple[Fraction, ...], token: int) -> Fraction:
    """Target probability of a token; 0 outside the vocabulary."""
    return law[token] if 0 <= token < len(law) else ZERO
