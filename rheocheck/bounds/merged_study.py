"""Merged-law verification in pruned trees, certified on random instances; see `merged`."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.bounds.growth import Path
from rheocheck.bounds.merged import core_and_merged_child, foreseen_mixture, merged_round
from rheocheck.config import SpeculationConfig
from rheocheck.reference import Choose, exact_law, lossless_defect

LawAt = Callable[[Path], tuple[Fraction, ...]]


@dataclass(frozen=True, slots=True)
class MergedStudy:
    """What enumeration of random instances showed.

    Attributes:
      num_instances: Instances enumerated, each under both schemes.
      num_merged: Those in which some node was verified by the merged law.
      num_mixed: Those in which, besides, some expanded node of the same tree was not: pruned trees.
      worst_defect: Of "foreseen" on dual-identity trees, and of "drafted", probe-first verification
        of trees whose probe is drawn from the merged law. 0 means lossless.
      mean_accepted: E[tau], mean over instances, of "never" (probe first), "foreseen", "drafted".
      num_gaining: Instances in which "foreseen" accepts more than "never".
    """

    num_instances: int
    num_merged: int
    num_mixed: int
    worst_defect: dict[str, Fraction]
    mean_accepted: dict[str, float]
    num_gaining: int


def merged_study(num_instances: int = 60, seed: int = 0) -> MergedStudy:
    """Enumerate random instances exactly.

    Laws are on 3 or 4 tokens, schemes have 2 or 3 children, 0 or 1 top, 1 to 6 nodes, 1 or 2
    layers.

    Args:
      num_instances: Instances.
      seed: Of laws and schemes.
    """
    worst = {"foreseen": Fraction(0), "drafted": Fraction(0)}
    sums = {"never": Fraction(0), "foreseen": Fraction(0), "drafted": Fraction(0)}
    merged = mixed = gaining = 0
    for number in range(num_instances):
        target, draft, config = random_instance(seed, number)
        laws = {
            "never": exact_law(merged_round(target, draft, config, "never")),
            "foreseen": exact_law(merged_round(target, draft, config, "foreseen")),
            "drafted": exact_law(
                merged_round(target, draft, config, "never", core_and_merged_child)
            ),
        }
        accepted = {name: _expected_accepted(law) for name, law in laws.items()}
        for name in sums:
            sums[name] += accepted[name]
        for name in worst:
            worst[name] = max(worst[name], lossless_defect(laws[name], target))
        some_merged, some_not = foreseen_mixture(draft, config)
        merged += some_merged
        mixed += some_merged and some_not
        gaining += accepted["foreseen"] > accepted["never"]
    means = {name: float(value / num_instances) for name, value in sums.items()}
    return MergedStudy(num_instances, merged, mixed, worst, means, gaining)


def random_instance(seed: int, number: int) -> tuple[LawAt, LawAt, SpeculationConfig]:
    """One instance of the study: target, draft and scheme."""
    draw = random.Random(f"merged {seed} {number}")
    vocab = draw.randint(3, 4)
    config = SpeculationConfig(
        top_k=draw.randint(2, 3),
        num_top=draw.randint(0, 1),
        budget=draw.randint(1, 6),
        depth=draw.randint(1, 2),
    )

    def model(name: str) -> LawAt:
        known: dict[Path, tuple[Fraction, ...]] = {}

        def law(path: Path) -> tuple[Fraction, ...]:
            if path not in known:
                weights = random.Random(f"{seed} {number} {name} {path}")
                masses = [weights.randint(0, 4) for _ in range(vocab)]
                masses[weights.randrange(vocab)] += 1
                known[path] = tuple(Fraction(mass, sum(masses)) for mass in masses)
            return known[path]

        return law

    return model("target"), model("draft"), config


def sampler(target: Any, draft: Any, choose: Choose) -> tuple[int, ...]:
    """One round with merged verification at foreseen nodes, for `rheocheck certify --sampler`."""
    config = SpeculationConfig(top_k=3, num_top=1, budget=4, depth=2)
    return merged_round(target, draft, config, "foreseen")(choose)


def faulty_sampler(target: Any, draft: Any, choose: Choose) -> tuple[int, ...]:
    """The same wherever all children happened to survive: lossy, for the same command."""
    config = SpeculationConfig(top_k=3, num_top=1, budget=4, depth=2)
    return merged_round(target, draft, config, "survivors")(choose)


def _expected_accepted(law: dict[Path, Fraction]) -> Fraction:
    return sum(((len(tokens) - 1) * mass for tokens, mass in law.items()), Fraction(0))
