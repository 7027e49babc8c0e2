"""Settings of a speculation scheme, validated once."""

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from rheocheck.errors import ConfigError, InputError, shown, shown_with_type

Rule: TypeAlias = Literal["rheo", "rrsw", "onehot"]
RULES: tuple[Rule, ...] = ("rheo", "rrsw", "onehot")
StaticRule: TypeAlias = Literal["specinfer", "kseq", "sequoia"]
STATIC_RULES: tuple[StaticRule, ...] = ("specinfer", "kseq", "sequoia")
# A law reaches a top threshold from this much below it: a sum that equals the threshold as a
# fraction may be rounded to either side of it in floating point.
TOP_THRESHOLD_SLACK = 2.0**-40
# Nodes of a static tree, root included; a place in a layer must fit into a node's random key.
MAX_STATIC_NODES = 2**11
# K-SEQ divides its ratio by a multiple of 1 / this: the exact reference and the torch path then
# take the same scale, and it is within 1 / 64 of the smallest lossless one.
KSEQ_SCALE_STEPS = 64


class Settings(BaseModel):
    """Base of all settings: frozen, no unknown fields, errors of one line a field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, **values: Any) -> None:
        """Validate `values`.

        Raises:
          ConfigError: Names each offending field, its value and what was required.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(describe_validation_error(error)) from None


def describe_validation_error(error: ValidationError) -> str:
    """One sentence a field: its name, the value given, what was required."""
    parts = []
    for item in error.errors():
        name = ".".join(str(piece) for piece in item["loc"]) or "value"
        message = item["msg"]
        parts.append(f"{name} = {shown(item['input'], 200)}: {message[0].lower()}{message[1:]}")
    return "; ".join(parts)


def as_tuple(values: Any) -> Any:
    """A list as a tuple, so that settings can be read back from JSON; anything else as it is."""
    return tuple(values) if isinstance(values, list) else values


Threshold: TypeAlias = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]


class SpeculationConfig(Settings):
    """One drafting and verification scheme: how a tree is drafted, pruned and verified.

    Attributes:
      top_k: K, the most children a node has and the width of a layer's frontier; at least 1.
      num_top: m, deterministic children of a node; the next one is the random probe. With
        num_top >= top_k every child is deterministic (EAGLE's plain Top-K tree).
      budget: R, drafted nodes that survive pruning, root excluded. EAGLE's total_token - 1.
      depth: D, drafted levels. EAGLE's depth + 1.
      support_size: N, the draft law keeps its N largest tokens.
      rule: Verification only; all rules run on the same tree. "rheo": probe first; "rrsw":
        recursive rejection in slot order; "onehot": every child a point mass.
      num_probes: Random children of a node, drawn one after the other without replacement.
      top_thresholds: Ascending, each in (0, 1]. A node has one top child more than num_top for each
        threshold that its collision probability reaches within 2**-40: the sum of the squares of
        its ranking law, exp of minus the collision entropy. Peaked laws so get more top children.
      merged: The top_k - 1 best tokens are top children, and the probe is drawn from the law that
        merges their share of the tail into its first other token; needs num_probes = 1.

    Raises:
      ConfigError: top_k < 1, num_top < 0, budget < 0, depth < 0, support_size < 1, num_probes < 1,
        thresholds outside (0, 1] or not ascending, an unknown rule, merged with several probes.
    """

    top_k: int = Field(default=10, ge=1)
    num_top: int = Field(default=1, ge=0)
    budget: int = Field(default=59, ge=0)
    depth: int = Field(default=8, ge=0)
    support_size: int = Field(default=128, ge=1)
    rule: Rule = "rheo"
    num_probes: int = Field(default=1, ge=1)
    top_thresholds: Annotated[tuple[Threshold, ...], BeforeValidator(as_tuple)] = ()
    merged: bool = False

    @field_validator("top_thresholds")
    @classmethod
    def _ascending(cls, thresholds: tuple[float, ...]) -> tuple[float, ...]:
        if any(low >= high for low, high in itertools.pairwise(thresholds)):
            raise ValueError("required: thresholds in ascending order, all different")
        return thresholds

    @model_validator(mode="after")
    def _one_merged_probe(self) -> Self:
        if self.merged and self.num_probes > 1:
            raise ValueError(
                f"num_probes = {self.num_probes} with merged; required: num_probes = 1"
            )
        return self


class StaticConfig(Settings):
    """A static tree of random drafts and its verification: the baselines of the literature.

    Attributes:
      branching: Children of every node of a layer, from the root's down; () drafts nothing. All
        ones is the single chain, on which the three rules agree.
      rule: "specinfer": independent drafts, recursive rejection; "kseq": independent drafts, one
        scaled test each; "sequoia": drafts without replacement, recursive rejection.
      support_size: The draft law keeps its N largest tokens.

    Raises:
      ConfigError: A branching below 1, more than MAX_STATIC_NODES nodes, an unknown rule, a
        support_size below 1.
    """

    branching: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(as_tuple)] = (
        4,
        2,
        2,
        1,
    )
    rule: StaticRule = "specinfer"
    support_size: int = Field(default=128, ge=1)

    @field_validator("branching")
    @classmethod
    def _of_a_size_that_can_be_held(cls, branching: tuple[int, ...]) -> tuple[int, ...]:
        nodes = width = 1
        for children in branching:
            width *= children
            nodes += width
        if nodes > MAX_STATIC_NODES:
            raise ValueError(f"{nodes} nodes; required: at most {MAX_STATIC_NODES}")
        return branching

    @property
    def depth(self) -> int:
        """Drafted layers."""
        return len(self.branching)

    @property
    def num_nodes(self) -> int:
        """Drafted nodes, root excluded."""
        nodes, width = 0, 1
        for children in self.branching:
            width *= children
            nodes += width
        return nodes


class ProcessorConfig(Settings):
    """What one request does to its target's logits, apart from temperature.

    Applied in Hugging Face's order: logit bias, repetition penalty, frequency and presence
    penalty, banned tokens, temperature, top-k, top-p, min-p. Penalties look at all text before the
    token: at a drafted node that includes the path to it. The draft's law sees temperature alone,
    which costs acceptance and leaves the output's law as it is.

    Attributes:
      top_k_filter: Keep the k most probable target tokens; 0 keeps all.
      top_p: Keep the smallest set of target tokens whose mass reaches top_p; 1 keeps all.
      min_p: Keep tokens at least min_p times as probable as the most probable one; 0 keeps all.
      repetition_penalty: Logits of tokens that occur in prompt or output are divided by it where
        positive, multiplied where negative, once however often they occur; 1 changes nothing.
      presence_penalty: Subtracted once from logits of tokens that occur in the output; the prompt
        does not count. Any finite number: the range [-2, 2] of OpenAI's interface is its own.
      frequency_penalty: Subtracted once for each occurrence in the output; the prompt does not
        count.
      logit_bias: (token, bias) pairs, or a mapping, added to the logits; minus infinity bans the
        token. No token twice.
      banned_tokens: Token ids that get probability 0; order and repetition do not matter.
    """

    top_k_filter: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0, allow_inf_nan=False)
    repetition_penalty: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    presence_penalty: float = Field(default=0.0, allow_inf_nan=False)
    frequency_penalty: float = Field(default=0.0, allow_inf_nan=False)
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned_tokens: tuple[int, ...] = ()

    @field_validator("logit_bias", "banned_tokens", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return tuple(value.items())
        return tuple(value) if isinstance(value, list | set | frozenset) else value

    @field_validator("logit_bias")
    @classmethod
    def _check_bias(cls, pairs: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        seen: set[int] = set()
        for index, (token, bias) in enumerate(pairs):
            _check_token(index, token)
            if token in seen:
                raise ValueError(f"entry {index}: token {token} is given twice")
            if math.isnan(bias) or bias == math.inf:
                raise ValueError(f"entry {index}: a bias must be finite, or -inf to ban the token")
            seen.add(token)
        return tuple(sorted(pairs))

    @field_validator("banned_tokens")
    @classmethod
    def _check_banned(cls, tokens: tuple[int, ...]) -> tuple[int, ...]:
        for index, token in enumerate(tokens):
            _check_token(index, token)
        return tuple(sorted(set(tokens)))

    @field_serializer("logit_bias", when_used="json")
    def _bias_as_json(self, pairs: tuple[tuple[int, float], ...]) -> list[tuple[int, float | str]]:
        # JSON has no infinity.
        return [(token, bias if math.isfinite(bias) else "-inf") for token, bias in pairs]

    @property
    def sees_history(self) -> bool:
        """The law of the next token depends on the text through a penalty, too."""
        penalties = (self.presence_penalty, self.frequency_penalty)
        return self.repetition_penalty != 1 or any(penalties)

    @property
    def adjusts(self) -> bool:
        """Logits change before any filter: by bias, penalty or ban."""
        return self.sees_history or bool(self.logit_bias) or bool(self.banned_tokens)

    @property
    def cuts(self) -> bool:
        """A filter gives tokens probability 0 by comparing probabilities."""
        return self.top_k_filter > 0 or self.top_p < 1 or self.min_p > 0

    def bans(self) -> tuple[int, ...]:
        """Tokens that are banned either way, ascending."""
        biased = {token for token, bias in self.logit_bias if bias == -math.inf}
        return tuple(sorted(biased.union(self.banned_tokens)))

    def check_vocabulary(self, vocab: int) -> None:
        """Refuse what only the vocabulary's size shows to be wrong.

        Raises:
          ConfigError: A token id outside [0, vocab), or every token banned; names the field and
            the first offender.
        """
        for name, tokens in (
            ("logit_bias", [token for token, _ in self.logit_bias]),
            ("banned_tokens", self.banned_tokens),
        ):
            for index, token in enumerate(tokens):
                if token >= vocab:
                    raise ConfigError(
                        f"{name}, entry {index}: token {token} is outside the vocabulary "
                        f"[0, {vocab})"
                    )
        if len(self.bans()) == vocab:
            raise ConfigError(
                f"all {vocab} tokens of the vocabulary are banned; at least one must be left"
            )


class SamplingConfig(ProcessorConfig):
    """How one request samples from its target.

    Attributes:
      temperature: 0 is greedy: both target and draft become point masses, the target's on the
        largest logit after bias, penalties and bans.
      max_new_tokens: Length limit of the decoding loop.
      seed: Key of all randomness of a run.
    """

    temperature: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    max_new_tokens: int = Field(default=32, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)


def check_rule(rule: object) -> None:
    """Refuse a verification rule that is none.

    Raises:
      ConfigError: `rule` is not one of RULES.
    """
    if rule not in RULES:
        raise ConfigError(f"rule = {shown(rule)}; required: one of {', '.join(RULES)}")


def check_config(config: object) -> None:
    """Refuse anything but a legal SpeculationConfig.

    Pydantic's model_construct and model_copy(update=...) take values unseen, so the values are
    validated again.

    Raises:
      InputError: `config` is something else.
      ConfigError: A setting is out of range.
    """
    if not isinstance(config, SpeculationConfig):
        raise InputError(f"config is {shown_with_type(config)}; required: a SpeculationConfig")
    values: dict[str, Any] = {
        name: getattr(config, name, None) for name in SpeculationConfig.model_fields
    }
    SpeculationConfig(**values)


def _check_token(index: int, token: int) -> None:
    if token < 0:
        raise ValueError(f"entry {index}: token {token} is negative")
