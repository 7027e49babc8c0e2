"""Laws of a round and of several rounds. A round emits its accepted draft tokens and one more."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from rheocheck.config import SpeculationConfig, check_config
from rheocheck.errors import InputError, shown
from rheocheck.reference.class_law import class_law
from rheocheck.reference.eager_law import eager_law
from rheocheck.reference.laws import ZERO, Draft, Path, Target, check_bound, check_count
from rheocheck.reference.models import Models, Vocabulary

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
      max_paths: Most classes or paths, at least 1; None sets no bound.

    Returns:
      The law.

    Raises:
      InputError: A model is not callable, `config` is no legal SpeculationConfig, an unknown
        method, a bound that is none.
      LawError: A law that was asked for is none, or of another length than the target's first.
      ProgramError: A model raised.
      BudgetExceededError: `max_paths` was met.
    """
    models = Models(target, draft)
    _check_settings(config, method, max_paths)
    return _law(models, config, method, max_paths)


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
      ProgramError: As `round_law`; paths in messages are whole histories.
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
    _check_settings(config, method, max_paths)
    vocabulary = Vocabulary()
    Models(target, draft, (), vocabulary)  # also where no round is run, both must be models
    # Histories by length: a history is continued once, after all ways to reach it are known.
    open_histories: list[dict[Path, Fraction]] = [{} for _ in range(num_tokens + 1)]
    open_histories[0][()] = Fraction(1)
    expected_accepted = ZERO
    num_classes = 0
    for histories in open_histories[:num_tokens]:
        for history, reached in histories.items():
            models = Models(target, draft, history, vocabulary)
            law = _law(models, config, method, max_paths)
            expected_accepted += reached * law.expected_accepted
            num_classes += law.num_classes
            for emission, probability in law.emissions.items():
                longer = (*history, *emission)[:num_tokens]
                into = open_histories[len(longer)]
                into[longer] = into.get(longer, ZERO) + reached * probability
    return RoundLaw(open_histories[num_tokens], expected_accepted, num_classes)


def _check_settings(config: SpeculationConfig, method: Method, max_paths: int | None) -> None:
    check_config(config)
    check_bound(max_paths, "max_paths")
    if method not in METHODS:
        raise InputError(f"method is {shown(method)}; required: one of {', '.join(METHODS)}")


def _law(
    models: Models, config: SpeculationConfig, method: Method, max_paths: int | None
) -> RoundLaw:
    enumerate_ = class_law if method == "classes" else eager_law
    return RoundLaw(*enumerate_(models, config, max_paths))
