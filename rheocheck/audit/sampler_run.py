"""Runs a sampler under test for every outcome of every draw, and says plainly what it did wrong."""

import inspect
import operator
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.sampler_family import SamplerInstance
from rheocheck.audit.sampler_trace import (
    Choice,
    Tracer,
    generator_states,
    interrupted_after,
    moved_generator,
)
from rheocheck.errors import (
    BudgetExceededError,
    InputError,
    LawError,
    ProgramError,
    RheocheckError,
    shown,
    shown_with_type,
)
from rheocheck.protocols import Choose, Path, Sampler
from rheocheck.reference import enumerate_paths
from rheocheck.reference.oracle import check_program

Rounds: TypeAlias = tuple[Path, ...]
"""Emission of each round."""
_VERBS = ("raised", "returned", "did", "made", "drew", "gave")


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an enumeration stops.

    Attributes:
      max_paths: Most runs on one instance.
      max_seconds: Seconds of the whole check.
      max_run_seconds: Seconds of one run of the sampler; it is interrupted after that.
      max_choices: Most branching draws in one run.
    """

    max_paths: int = 50_000
    max_seconds: float = 300.0
    max_run_seconds: float = 10.0
    max_choices: int = 2_000


@dataclass(frozen=True, slots=True)
class SamplerPath:
    """One run.

    Attributes:
      rounds: Emission of each round.
      probability: Of its choices.
      choices: All calls of `choose`, those without alternative too.
      notes: (name, value) of each note taken.
      asked: Paths at which the target was asked, in order.
      drafted: Paths at which the draft was asked, in order.
    """

    rounds: Rounds
    probability: Fraction
    choices: tuple[Choice, ...]
    notes: tuple[tuple[str, Any], ...]
    asked: tuple[Path, ...]
    drafted: tuple[Path, ...]

    @property
    def emission(self) -> Path:
        """Tokens of all rounds."""
        return sum(self.rounds, ())


@dataclass(slots=True)
class SamplerLaw:
    """What was enumerated on one instance.

    Attributes:
      emissions: Probability of each emission met.
      num_paths: Runs.
      complete: Whether every outcome of every draw was met; if not, `emissions` is a lower bound.
      used_uniforms: Whether the sampler compared uniforms with thresholds.
    """

    emissions: dict[Path, Fraction] = field(default_factory=dict)
    num_paths: int = 0
    complete: bool = True
    used_uniforms: bool = False


def sampler_paths(
    sampler: Sampler, instance: SamplerInstance, limits: Limits, grid: bool = False
) -> Iterator[SamplerPath]:
    """Run a sampler once for every outcome of every draw.

    Args:
      sampler: The sampler under test; its optional attributes are those of `Sampler`.
      instance: Laws it is given.
      limits: Bounds of one run; `max_paths` and `max_seconds` are the caller's business.
      grid: Whether uniforms lie on the grid of a real generator.

    Yields:
      The runs.

    Raises:
      ProgramError: The sampler raised, never ended, returned no tokens, gave weights that are no
        law, or drew from a generator of its own. The message gives the choices and the laws.
    """
    check_program(sampler, "the sampler")
    tracer = Tracer(grid)
    program = _program(sampler, instance, tracer, limits)
    paths = enumerate_paths(program, max_choices=limits.max_choices)
    num_paths = 0
    while True:
        before = generator_states()
        try:
            path = next(paths)
        except StopIteration:
            return
        except BudgetExceededError:
            raise _error(
                f"made more than {limits.max_choices} draws in one run and may never end "
                f"(required: an end after a bounded number of draws)",
                instance, tracer,
            ) from None  # fmt: skip
        except RheocheckError as error:
            if isinstance(error, InputError) and not isinstance(error, LawError):
                raise  # the sampler cannot be run here at all, whatever it is given
            raise _with_context(error, instance, tracer) from error
        moved = moved_generator(before)
        if moved and num_paths == 0:
            # A first call may import modules that draw; a second one may not.
            before = generator_states()
            next(enumerate_paths(program, max_choices=limits.max_choices))
            moved = moved_generator(before)
        if moved:
            raise _error(
                f"drew from {moved} besides choose (required: every draw through choose, or a "
                f"recorder around the code that draws)",
                instance, tracer,
            )  # fmt: skip
        num_paths += 1
        yield SamplerPath(
            path.outcome,
            path.probability,
            tuple(tracer.choices),
            tuple(tracer.notes),
            tuple(tracer.asked),
            tuple(tracer.drafted),
        )


def sampler_law(
    sampler: Sampler,
    instance: SamplerInstance,
    limits: Limits,
    deadline: float,
    grid: bool = False,
) -> SamplerLaw:
    """Law of what all rounds of a sampler emit.

    Args:
      sampler: The sampler under test.
      instance: Laws it is given.
      limits: `max_paths` and the bounds of one run apply.
      deadline: Time (of time.monotonic) at which to stop.
      grid: As in `sampler_paths`.

    Returns:
      The law, or as much of it as the bounds allow.

    Raises:
      ProgramError: As in `sampler_paths`.
    """
    law = SamplerLaw()
    for path in sampler_paths(sampler, instance, limits, grid):
        emission = path.emission
        law.emissions[emission] = law.emissions.get(emission, Fraction(0)) + path.probability
        law.num_paths += 1
        law.used_uniforms |= any(name == "uniform drawn" for name, _ in path.notes)
        if law.num_paths >= limits.max_paths or time.monotonic() > deadline:
            law.complete = sum(law.emissions.values()) == 1
            break
    return law


def check_repeats(
    sampler: Sampler, instance: SamplerInstance, limits: Limits, first: SamplerLaw
) -> None:
    """Run a sampler again and demand the same law.

    Raises:
      ProgramError: The law differs: the sampler draws from a generator that it was not given.
    """
    second = sampler_law(sampler, instance, limits, float("inf"))
    if second.emissions != first.emissions or second.num_paths != first.num_paths:
        raise _error(
            "gave two different laws when it was run twice (required: every draw through choose; "
            "it draws from a generator of its own, or carries state from call to call)",
            instance, Tracer(),
        )  # fmt: skip


def takes_pairs(sampler: Sampler) -> bool:
    """Whether a sampler also takes drafts that are pairs of laws.

    Raises:
      ProgramError: Its attribute is no bool.
    """
    declared = getattr(sampler, "draft_pairs", False)
    if not isinstance(declared, bool):
        raise ProgramError(f"sampler.draft_pairs is {declared!r}; required: a bool")
    return declared


def _program(
    sampler: Sampler, instance: SamplerInstance, tracer: Tracer, limits: Limits
) -> Callable[[Choose], Rounds]:
    num_rounds = getattr(sampler, "num_rounds", 1)
    if not isinstance(num_rounds, int) or isinstance(num_rounds, bool) or num_rounds < 1:
        raise ProgramError(f"sampler.num_rounds is {num_rounds!r}; required: an int, at least 1")
    carries_state = bool(getattr(sampler, "carries_state", False))

    def program(choose: Choose) -> Rounds:
        tracer.start(choose)
        state: Any = None
        rounds: Rounds = ()
        emitted: Path = ()
        with interrupted_after(limits.max_run_seconds):
            for _ in range(num_rounds):
                target = _rerooted(instance.target, emitted, tracer.asked)
                draft = _rerooted(instance.given_draft, emitted, tracer.drafted)
                if carries_state:
                    returned: Any = sampler(target, draft, tracer, state)  # type: ignore[call-arg]
                    if not isinstance(returned, tuple) or len(returned) != 2:
                        raise ProgramError(
                            f"returned {shown(returned)}; required: (tokens, state), as it carries "
                            f"state"
                        )
                    tokens, state = returned
                else:
                    tokens = sampler(target, draft, tracer)
                tracer.raise_caught()
                checked = _checked_tokens(tokens)
                rounds = (*rounds, checked)
                emitted += checked
        return rounds

    return program


def _rerooted(
    law: Callable[[Path], Any], history: Path, asked: list[Path]
) -> Callable[[Path], Any]:
    def rerooted(path: Path) -> Any:
        whole = (*history, *path)
        asked.append(whole)
        return law(whole)

    return rerooted


def _checked_tokens(tokens: Any) -> Path:
    if inspect.iscoroutine(tokens):
        tokens.close()  # else Python warns that it was never awaited
    if isinstance(tokens, Iterator | Awaitable):
        raise ProgramError(
            f"returned {shown_with_type(tokens)}, which has yet to run; required: a tuple of "
            f"tokens, from a plain function"
        )
    try:
        hash(tokens)
    except TypeError:
        raise ProgramError(
            f"returned {shown(tokens)}, which cannot be hashed; required: a tuple of tokens"
        ) from None
    if not isinstance(tokens, tuple) or not tokens:
        raise ProgramError(f"returned {shown(tokens)}; required: a tuple of at least one token")
    try:
        return tuple(operator.index(token) for token in tokens)
    except TypeError:
        raise ProgramError(f"returned {shown(tokens)}; required: a tuple of int tokens") from None


def _with_context(error: RheocheckError, instance: SamplerInstance, tracer: Tracer) -> ProgramError:
    # The oracle's own list of choices lacks the weights; the tracer's has them.
    reason = str(error).split("; choices that led there")[0].split("; no branching choice")[0]
    reason = reason.removeprefix("the program ")
    if "required: the same run for the same choices" in reason:
        reason += " (it draws from a generator of its own, or carries state from call to call)"
    return _error(reason, instance, tracer)


def _error(reason: str, instance: SamplerInstance, tracer: Tracer) -> ProgramError:
    if reason.split()[0] not in _VERBS:
        reason = f"failed: {reason}"
    return ProgramError(
        f"the sampler {reason}; {tracer.trail()}. It was given, on {instance.vocab} tokens, "
        f"{instance.laws_text(())} at the root."
    )
