"""What decoding returns, and the bookkeeping of a row: emissions, limits, why it stopped."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rheocheck.errors import InputError

StopReason: TypeAlias = Literal["eos", "length", "rounds"]


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """One round of one row.

    Attributes:
      emission: The accepted tokens and the final one, uncut: what audits read.
      num_accepted: Accepted draft tokens of the uncut round.
      tree_size: Drafted nodes that survived pruning.
      num_kept: Leading tokens of the emission that count: up to the first end-of-sequence token and
        the length limit.
    """

    emission: tuple[int, ...]
    num_accepted: int
    tree_size: int
    num_kept: int

    @property
    def num_kept_accepted(self) -> int:
        """Accepted draft tokens that count, the summand of tau; the final token never does."""
        return min(self.num_accepted, self.num_kept)


@dataclass(frozen=True, slots=True)
class Generation:
    """What was decoded for one prompt.

    Attributes:
      request: The number that keys its uniforms.
      tokens: Emitted tokens, cut after the first end-of-sequence token or at the length limit.
      rounds: One entry a round; empty for plain decoding.
      stop: Why decoding ended.
    """

    request: int
    tokens: tuple[int, ...]
    rounds: tuple[RoundFacts, ...]
    stop: StopReason


@dataclass(slots=True)
class Row:
    """One request while it is decoded.

    Attributes:
      request: The number that keys its uniforms.
      text: Prompt and emitted tokens, uncut.
      prompt_length: Tokens of the prompt.
      rounds: The rounds so far.
      num_kept: Emitted tokens that count.
      stop: Set when the row has ended.
    """

    request: int
    text: list[int]
    prompt_length: int
    rounds: list[RoundFacts] = field(default_factory=list)
    num_kept: int = 0
    stop: StopReason | None = None

    def emit(self, emission: Sequence[int], limit: int, eos: Collection[int]) -> int:
        """Append an emission; returns how many of its tokens count."""
        kept = count_kept(emission, limit - self.num_kept, eos)
        self.text += emission
        self.num_kept += kept
        if emission[kept - 1] in eos:
            self.stop = "eos"
        elif self.num_kept == limit:
            self.stop = "length"
        return kept

    def finish(self) -> Generation:
        """What the caller gets; a row that has not ended ran out of rounds."""
        tokens = self.text[self.prompt_length : self.prompt_length + self.num_kept]
        return Generation(self.request, tuple(tokens), tuple(self.rounds), self.stop or "rounds")


def start_rows(prompts: Sequence[Sequence[int]], requests: Sequence[int] | None) -> list[Row]:
    """One row a prompt, in their order, keyed by the given request numbers or by 0, 1, ..."""
    numbers = request_numbers(requests, len(prompts))
    return [
        Row(number, list(prompt), len(prompt))
        for number, prompt in zip(numbers, prompts, strict=True)
    ]


def request_numbers(requests: Sequence[int] | None, num_prompts: int) -> list[int]:
    """The given numbers, or 0, 1, ...; two rows with one number would share their uniforms."""
    numbers = list(range(num_prompts)) if requests is None else list(requests)
    if len(numbers) != num_prompts or len(set(numbers)) != num_prompts:
        raise InputError(
            f"{num_prompts} prompts need {num_prompts} different request numbers, but "
            f"{len(set(numbers))} different ones of {len(numbers)} were given"
        )
    return numbers


def count_kept(emission: Sequence[int], room: int, eos: Collection[int]) -> int:
    """Leading tokens of an emission up to its first end-of-sequence token, `room` at most."""
    for index, token in enumerate(emission[:room]):
        if token in eos:
            return index + 1
    return min(len(emission), room)
