"""Decoding with a real pair: where the time of a round goes."""

from collections.abc import Sequence
from typing import Any, cast

from rheocheck.bench.phases import Clock, Timed
from rheocheck.bench.random_laws import Measured
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu.decoding import generate
from rheocheck.gpu.drafting import EagleDrafter


def measure_pair(
    pair: Any,
    prompts: Sequence[Sequence[int]],
    config: SpeculationConfig,
    sampling: SamplingConfig,
    batch: int,
) -> Measured:
    """Decode prompts and time the phases.

    Args:
      pair: Target and head, as `rheocheck.models.registry.load_pair` gives them.
      prompts: Token ids.
      config: The scheme.
      sampling: Temperature, length and seed.
      batch: Rows decoded together.

    Returns:
      Times and counts: "draft" the head's passes, "target" prefill, tree passes and cache moves,
      "tree and verify" all else that the loop does.
    """
    clock = Clock()
    target = Timed(pair.target, clock, "target", ("prefill", "tree_forward", "commit", "select"))

    def new_drafter(rows: int) -> Any:
        drafter = EagleDrafter(pair.head, rows)
        return Timed(drafter, clock, "draft", ("root", "extend", "advance", "keep_rows"))

    made = clock.timed(
        "tree and verify",
        lambda: generate(
            cast(Any, target), new_drafter, prompts, config, sampling, batch_size=batch
        ),
    )
    rounds = [facts for row in made for facts in row.rounds]
    number = max(1, len(rounds))
    return Measured(
        dict(clock.seconds),
        sum(facts.num_accepted for facts in rounds) / number,
        sum(facts.tree_size for facts in rounds) / number,
        len(rounds),
    )
