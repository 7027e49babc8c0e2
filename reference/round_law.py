"""Laws of a round and of several, and how far they are from the target's.

A round emits its accepted draft tokens and one more. It is lossless iff after every path the next
token, given that there is one, has the target law: the defect says by how much that fails.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError, LawError
from rheocheck.reference.class_law import class_law
from rheocheck.reference.eager_law import eager_law
from rheocheck.reference.laws import (
    ZERO,
    Draft,
    LawLike,
    Models,
    Path,
    Target,
    as_law,
    check_callable,
)
from rheocheck.reference.sampler import check_config

Method: TypeAlias = Literal["classes", "eager"]
METHODS: tuple[Method, ...] = ("classes", "eager")


@dataclass(frozen=True, slots=True)
class RoundLaw:
    """Law of what one round emits.

    Attributes:
      emissions: Probability of each emission of positive probability; they sum to 1.
      expected_accepted: Expected number of accepted draft tokens; the residual or bonus token that
        ends a round is not counted.
      num_classes: Classes of draws visited by "classes"; paths run by "eager".
    """

    emissions: Mapping[Path, Fraction]
    expected_accepted: Fraction
    num_classes: int


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


def round_law(
    target: Target,
    draft: Draft,
    config: SpeculationConfig,
    method: Method = "classes",
    *,
    max_paths: int | None = None,
) -> RoundLaw:
    """Law of one round from the empty path.

    Args:
      target: path -> [vocab] law of Fractions.
      draft: path -> [vocab] law, or a 2-tuple of laws (ranking, tempered draft); zeros are legal.
        Both may be asked at any drafted path, also one that the target gives probability 0.
      config: The scheme.
      method: "classes" branches on surviving probes only; "eager" runs the sampler once for every
        outcome of every draw. The two share no code but the check of the laws.
      max_paths: Most classes or paths; None sets no bound.

    Returns:
      The law.

    Raises:
      InputError: A model is not callable, `config` is no SpeculationConfig, an unknown method.
      LawError: A law that was asked for is none.
      BudgetExceededError: `max_paths` was met.
    """
    models = Models(target, draft)
    check_config(config)
    if method == "classes":
        return RoundLaw(*class_law(models, config, max_paths))
    if method == "eager":
        return RoundLaw(*eager_law(models, config, max_paths))
    raise InputError(f"method is {method!r}; required: one of {', '.join(METHODS)}")


def sequence_law(
    target: Target,
    draft: Draft,
    config: SpeculationConfig,
    num_tokens: int,
    method: Method = "classes",
    *,
    max_paths: int | None = None,
) -> dict[Path, Fraction]:
    """Law of the first tokens emitted, over as many rounds as it takes.

    Args:
      target: path -> [vocab] law; the path is the whole history, over all rounds.
      draft: path -> [vocab] law or 2-tuple of laws, likewise.
      config: The scheme of every round.
      num_tokens: Length of the sequences, at least 0; tokens past it are cut off.
      method: As in `round_law`.
      max_paths: Most classes or paths of one round; None sets no bound.

    Returns:
      Probability of each sequence of positive probability.

    Raises:
      InputError: `num_tokens` is negative or no int; else as `round_law`.
      LawError: As `round_law`.
      BudgetExceededError: As `round_law`.
    """
    law = sequence_round_law(target, draft, config, num_tokens, method, max_paths=max_paths)
    return dict(law.emissions)


def sequence_round_law(
    target: Target,
    draft: Draft,
    config: SpeculationConfig,
    num_tokens: int,
    method: Method = "classes",
    *,
    max_paths: int | None = None,
) -> RoundLaw:
    """`sequence_law`, with what its rounds cost and accept.

    Returns:
      emissions: the law of the sequences; expected_accepted: draft tokens accepted in all rounds it
      took, also those past `num_tokens`; num_classes: the sum over the rounds enumerated, one for
      each history that a round may start from.
    """
    check_count(num_tokens, "num_tokens")
    check_callable(target, "target")
    check_callable(draft, "draft")
    # Histories by length: a history is continued once, after all ways to reach it are known.
    open_histories: list[dict[Path, Fraction]] = [{} for _ in range(num_tokens + 1)]
    open_histories[0][()] = Fraction(1)
    expected_accepted = ZERO
    num_classes = 0
    for histories in open_histories[:num_tokens]:
        for history, reached in histories.items():
            law = round_law(
                _after(history, target), _after(history, draft), config, method, max_paths=max_paths
            )
            expected_accepted += reached * law.expected_accepted
            num_classes += law.num_classes
            for emission, probability in law.emissions.items():
                longer = (*history, *emission)[:num_tokens]
                into = open_histories[len(longer)]
                into[longer] = into.get(longer, ZERO) + reached * probability
    return RoundLaw(open_histories[num_tokens], expected_accepted, num_classes)


def lossless_defect(law: RoundLaw | Mapping[Any, Fraction], target: Target) -> Fraction:
    """How far a round is from lossless: 0 iff it is.

    Args:
      law: A round law, or the law of emissions of any sampler (as `exact_law` returns it).
      target: path -> [vocab] law.

    Returns:
      Maximum over paths u and tokens t of
      |P(emission extends u + t) - P(emission goes beyond u) * target(t | u)|.

    Raises:
      InputError: An emission is empty or no tuple of ints.
      LawError: A target law is none.
    """
    worst = worst_violation(law, target)
    return ZERO if worst is None else worst.defect


def worst_violation(law: RoundLaw | Mapping[Any, Fraction], target: Target) -> Violation | None:
    """The path and token with the largest defect; None if the law is lossless.

    Args:
      law: A round law, or the law of emissions of any sampler.
      target: path -> [vocab] law.

    Returns:
      The violation. Of equal defects the one with the shortest path, then the smallest path and
      token.

    Raises:
      InputError: An emission is empty or no tuple of ints.
      LawError: A target law is none.
    """
    extends, beyond = _prefix_masses(law)
    worst: Violation | None = None
    for path in sorted(beyond, key=lambda prefix: (len(prefix), prefix)):
        wanted_law = as_law(target(path), name=f"target({path})")
        emitted = {prefix[-1] for prefix in extends.get(path, ())}
        for token in sorted(emitted.union(range(len(wanted_law)))):
            # A token outside the vocabulary has target probability 0.
            mass = wanted_law[token] if 0 <= token < len(wanted_law) else ZERO
            found = Violation(
                path, token, extends[path].get((*path, token), ZERO), beyond[path] * mass
            )
            if found.defect > (worst.defect if worst else ZERO):
                worst = found
    return worst


def total_variation(
    law: RoundLaw | Mapping[Any, Fraction], target: Target, length: int
) -> Fraction:
    """Total variation of the first `length` tokens from the target's joint law.

    Shorter emissions are extended by the target itself.

    Args:
      law: A round law, or the law of emissions of any sampler.
      target: path -> [vocab] law.
      length: Number of tokens compared, at least 0.

    Returns:
      Half the sum over all sequences of |their probability - the target's|.

    Raises:
      InputError: `length` is negative or no int; an emission is empty or no tuple of ints.
      LawError: A target law is none.
    """
    check_count(length, "length")
    emissions = _emissions(law)
    extends, _ = _prefix_masses(emissions)
    return _distance((), ZERO, Fraction(1), length, emissions, extends, target) / 2


def _distance(
    path: Path,
    ended: Fraction,
    wanted: Fraction,
    length: int,
    emissions: Mapping[Path, Fraction],
    extends: dict[Path, dict[Path, Fraction]],
    target: Target,
) -> Fraction:
    """Sum of |got - wanted| over the sequences of `length` tokens that start with `path`.

    `ended` is the probability of `path` through emissions that ended at or before it, `wanted` its
    target probability. Where no emission goes on, both are multiplied by the same target laws.
    """
    going = extends.get(path, {})
    if len(path) == length or not going:
        return abs(ended + sum(going.values(), ZERO) - wanted)
    total = ZERO
    law = as_law(target(path), name=f"target({path})")
    tokens = {longer[-1] for longer in going}.union(range(len(law)))
    for token in tokens:
        longer = (*path, token)
        mass = law[token] if 0 <= token < len(law) else ZERO
        ended_longer = ended * mass + emissions.get(longer, ZERO)
        total += _distance(longer, ended_longer, wanted * mass, length, emissions, extends, target)
    return total


def _after(history: Path, model: Target | Draft) -> Callable[[Path], LawLike]:
    """The model of a round that starts after `history`."""
    return lambda path: model((*history, *path))


def _emissions(law: RoundLaw | Mapping[Any, Fraction]) -> Mapping[Path, Fraction]:
    if isinstance(law, RoundLaw):
        return law.emissions
    if not isinstance(law, Mapping):
        raise LawError(
            f"the law of emissions is a {type(law).__name__}; required: a RoundLaw, or a mapping "
            "from tuples of tokens to exact rationals"
        )
    # A law made elsewhere: the defect alone would not see lost mass.
    as_law(list(law.values()), name="the law of emissions")
    return law


def _prefix_masses(
    law: RoundLaw | Mapping[Any, Fraction],
) -> tuple[dict[Path, dict[Path, Fraction]], dict[Path, Fraction]]:
    """For each internal prefix: mass that extends each longer prefix, and mass beyond it."""
    extends: dict[Path, dict[Path, Fraction]] = {}
    beyond: dict[Path, Fraction] = {}
    for emission, probability in _emissions(law).items():
        if not isinstance(emission, tuple) or not all(isinstance(t, int) for t in emission):
            raise InputError(f"emission is {emission!r}; required: a tuple of int tokens")
        if not emission:
            raise InputError("an emission is empty; required: at least one token a round")
        for length in range(len(emission)):
            path, longer = emission[:length], emission[: length + 1]
            table = extends.setdefault(path, {})
            table[longer] = table.get(longer, ZERO) + probability
            beyond[path] = beyond.get(path, ZERO) + probability
    return extends, beyond


def check_count(value: object, name: str) -> None:
    """Refuse a `value` that is no count.

    Raises:
      InputError: It is negative, or no int.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} is {value!r}; required: an int, at least 0")
