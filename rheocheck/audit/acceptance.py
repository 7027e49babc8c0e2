"""Accepted tokens a round, by scheme: facts for the reader, no verdict rests on them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rheocheck.config import SpeculationConfig

TITLE = (
    "Accepted draft tokens a round; the bonus or residual token that ends it is not counted. "
    "Ratio of "
    "sums over prompts, standard error with prompts as independent units."
)


@dataclass(frozen=True, slots=True)
class PromptRounds:
    """Rounds of one prompt, uncut.

    Attributes:
      num_rounds: Rounds decoded.
      num_accepted: Accepted draft tokens in all of them.
    """

    num_rounds: int
    num_accepted: int


def compared_schemes(config: SpeculationConfig) -> dict[str, SpeculationConfig]:
    """The schemes whose acceptance is printed, by name, on the same budget, depth and support.

    EAGLE's published Top-K tree makes every child deterministic and verifies point masses.
    """

    def scheme(**changes: Any) -> SpeculationConfig:
        return SpeculationConfig(**{**config.model_dump(), **changes})

    num_top = min(config.num_top, config.top_k - 1)
    return {
        "EAGLE Top-K (one-hot)": scheme(rule="onehot", num_top=config.top_k),
        "Rheo + RRSw": scheme(rule="rrsw", num_top=num_top),
        "Rheo + RheoVerification": scheme(rule="rheo", num_top=num_top),
    }


def acceptance_row(
    scheme: str, temperature: float, prompts: Sequence[PromptRounds]
) -> dict[str, Any]:
    """Mean accepted tokens a round with its standard error.

    Args:
      scheme: Name shown.
      temperature: Of the requests.
      prompts: One entry a prompt.

    Returns:
      The row. The mean is accepted tokens over rounds: a prompt stops when it is long enough, and
      among rounds up to such a stop the ratio, unlike the mean of ratios, is not biased to first
      order. The error is the delta method's, over prompts.
    """
    rounds = sum(prompt.num_rounds for prompt in prompts)
    accepted = sum(prompt.num_accepted for prompt in prompts)
    mean = accepted / rounds if rounds else 0.0
    squares = sum((prompt.num_accepted - mean * prompt.num_rounds) ** 2 for prompt in prompts)
    count = len(prompts)
    scale = count / (count - 1) if count > 1 else 1.0
    return {
        "scheme": scheme,
        "temperature": temperature,
        "mean_accepted": mean,
        "standard_error": math.sqrt(scale * squares) / rounds if rounds else 0.0,
        "num_rounds": rounds,
        "num_prompts": count,
    }
