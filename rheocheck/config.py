"""Settings of a speculation scheme, validated once."""

import itertools
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
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


class SamplingConfig(Settings):
    """How one request samples from its target (Hugging Face's order: temperature, top-k, top-p).

    Attributes:
      temperature: 0 is greedy: both target and draft become point masses.
      top_k_filter: Keep the k most probable target tokens; 0 keeps all.
      top_p: Keep the smallest set of target tokens whose mass reaches top_p; 1 keeps all.
      max_new_tokens: Length limit of the decoding loop.
      seed: Key of all randomness of a run.
    """

    temperature: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    top_k_filter: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
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
