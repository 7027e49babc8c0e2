"""Settings of one audit, validated once."""

import math
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from rheocheck.config import Rule, Settings, SpeculationConfig
from rheocheck.errors import ConfigError
from rheocheck.stats.betting import units_needed
from rheocheck.text import exactly, shell_word

DEFAULT_TEMPERATURES = (1.0, 0.7)
# Mean total variation that the white box certifies, by default and deep, and its error probability.
DEFAULT_CERTIFIED_TV, DEEP_CERTIFIED_TV = 0.01, 0.001
WHITEBOX_ALPHA = 0.01
# Prompts beyond those that the bound needs, of which a few may lack a node with children.
PROMPT_MARGIN = 1.02
FEWEST_PROMPTS = 500
# Tokens a temperature beyond which a sampled stage is not sized without being told to.
DEFAULT_TOKEN_CAP = 1_000_000
DEFAULT_MAX_NEW_TOKENS = 16


class AuditSettings(Settings):
    """What `rheocheck audit` examines, and how much of it.

    Attributes:
      model: Name of a pair in the registry.
      target: Folder of a target checkpoint, or None for the registry's.
      draft: Folder of a draft head, or None for the registry's.
      prompts: File of prompts, or None for the committed ones.
      num_prompts: The first so many prompts are used, which the file must have. None: as many as
        `certify` needs and a few more, at least 500; all of them where the file has fewer.
      certify: Mean total variation that the white box is to certify at 99 %: below 1, and not below
        1e-6, the largest distance at which a node still counts as exact.
      detect: Mean total variation, from 1e-6 and below 1, that the sampled stage must find with
        power 0.95; so many tokens are decoded. None: those of the prompts are taken.
      token_cap: Tokens a temperature that may be decoded for `detect`.
      temperatures: Each is audited by itself; at least one, all positive.
      config: The scheme under audit.
      max_new_tokens: Length of each decoded continuation.
      seed: Key of all randomness.
      jobs: Worker processes; 1 runs in this process. Results do not depend on it.
      device: Where torch computes; anything but "cpu" runs in this process.
      regrow_prompts: Prompts a temperature on which trees are regrown.
      differential_rounds: Random rounds of the differential stage.
      save_trace: Folder to keep the trace of the audited rounds in, or None.
      compare_schemes: Decode with the other schemes too, for the acceptance table.
    """

    model: str = "tiny"
    target: Path | None = None
    draft: Path | None = None
    prompts: Path | None = None
    num_prompts: int | None = Field(default=None, ge=1)
    certify: float = Field(default=DEFAULT_CERTIFIED_TV, ge=1e-6, lt=1.0)
    detect: float | None = Field(default=None, ge=1e-6, lt=1.0)
    token_cap: int = Field(default=DEFAULT_TOKEN_CAP, ge=1)
    temperatures: tuple[float, ...] = DEFAULT_TEMPERATURES
    config: SpeculationConfig = Field(default_factory=SpeculationConfig)
    max_new_tokens: int = Field(default=DEFAULT_MAX_NEW_TOKENS, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    jobs: int = Field(default=1, ge=1)
    device: str = "cpu"
    regrow_prompts: int = Field(default=60, ge=0)
    differential_rounds: int = Field(default=6000, ge=1)
    save_trace: Path | None = None
    compare_schemes: bool = True

    @field_validator("config")
    @classmethod
    def _check_options(cls, config: SpeculationConfig) -> SpeculationConfig:
        # The stages that enumerate a node's probe know the published scheme with its one probe.
        if config.num_probes > 1 or config.merged or config.top_thresholds:
            raise ValueError(
                "an audit covers num_probes = 1 without merged or top_thresholds; these options "
                "are certified by `rheocheck certify` and compared with torch round by round"
            )
        return config

    @field_validator("temperatures")
    @classmethod
    def _check_temperatures(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not values:
            raise ValueError("at least one temperature is required")
        for index, value in enumerate(values):
            # At temperature 0 every law is a point mass: greedy identity, not losslessness, is at
            # stake there, and each statistic below would be constant.
            if not 0.0 < value < float("inf"):
                raise ValueError(
                    f"temperature {value:g} (number {index + 1}) must be positive and finite"
                )
        if len(set(values)) != len(values):
            raise ValueError("a temperature is given twice")
        return values

    @property
    def wanted_prompts(self) -> int:
        """How many prompts are to be decoded, whether the file has them or not."""
        if self.num_prompts is not None:
            return self.num_prompts
        needed = units_needed(self.certify, WHITEBOX_ALPHA)
        return max(FEWEST_PROMPTS, math.ceil(PROMPT_MARGIN * needed))

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values, for the report."""
        values: dict[str, Any] = self.model_dump(mode="json")
        return values

    def replay(self) -> str:
        """One shell line that repeats the run; `jobs` is left out because results ignore it."""
        words = ["rheocheck audit", f"--model {self.model}"]
        for name in ("target", "draft", "prompts"):
            if getattr(self, name) is not None:
                words.append(f"--{name} {shell_word(str(getattr(self, name)))}")
        if self.num_prompts is not None:
            words.append(f"--num-prompts {self.num_prompts}")
        words.append(f"--certify {exactly(self.certify)}")
        if self.detect is not None:
            words.append(f"--detect {exactly(self.detect)} --token-cap {self.token_cap}")
        words += [f"--temperature {exactly(value)}" for value in self.temperatures]
        words += [
            f"--top-k {self.config.top_k} --num-top {self.config.num_top}",
            f"--budget {self.config.budget} --depth {self.config.depth}",
            f"--support-size {self.config.support_size} --rule {self.config.rule}",
            f"--max-new-tokens {self.max_new_tokens} --seed {self.seed} --device {self.device}",
        ]
        return " ".join(words)


def make_config(**values: Any) -> SpeculationConfig:
    """A SpeculationConfig from command-line values.

    Raises:
      ConfigError: A value out of range, or a rule that does not exist.
    """
    rule: Rule = values["rule"]
    if rule not in ("rheo", "rrsw", "onehot"):
        raise ConfigError(f"rule = {rule!r}: must be one of rheo, rrsw, onehot")
    return SpeculationConfig(**values)
