"""The schemes that `rheocheck bench` runs, as stages of a report."""

import resource
import sys
from collections.abc import Sequence
from typing import Any

import torch

from rheocheck.bench.pair import measure_pair
from rheocheck.bench.phases import PHASES
from rheocheck.bench.random_laws import Measured, Workload, measure
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import STATIC_RULES, SamplingConfig, SpeculationConfig, StaticConfig

# A static tree of as many levels as the literature's, small beside a dynamic one of 59 nodes.
BRANCHING = (4, 2, 2, 1)


def schemes(config: SpeculationConfig) -> dict[str, SpeculationConfig | StaticConfig]:
    """What is compared on random laws, by name.

    Args:
      config: Tree of the dynamic schemes.

    Returns:
      The dynamic schemes, then the static trees of the literature, the single chain last.
    """
    found: dict[str, SpeculationConfig | StaticConfig] = dict(dynamic_schemes(config))
    size = config.support_size
    names = {"specinfer": "SpecInfer", "kseq": "SpecTr K-SEQ", "sequoia": "Sequoia"}
    for rule in STATIC_RULES:
        found[names[rule]] = StaticConfig(branching=BRANCHING, rule=rule, support_size=size)
    depth = max(1, config.depth)
    found["single chain"] = StaticConfig(branching=(1,) * depth, support_size=size)
    return found


def dynamic_schemes(config: SpeculationConfig) -> dict[str, SpeculationConfig]:
    """The schemes of one dynamic tree."""
    values: dict[str, Any] = config.model_dump()
    plain = values | {"rule": "onehot", "num_top": config.top_k}
    return {
        "Rheo + RheoVerification": SpeculationConfig(**(values | {"rule": "rheo"})),
        "Rheo + RRSw": SpeculationConfig(**(values | {"rule": "rrsw"})),
        "EAGLE Top-K (one-hot)": SpeculationConfig(**plain),
    }


def random_stage(
    name: str, config: SpeculationConfig | StaticConfig, workload: Workload, replay: str
) -> StageResult:
    """One scheme on random laws."""
    measured = measure(config, workload)
    settings = config.model_dump(mode="json")
    return _stage(f"random laws: {name}", measured, replay, settings)


def pair_stage(
    name: str,
    config: SpeculationConfig,
    pair: Any,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    batch: int,
    replay: str,
) -> StageResult:
    """One scheme with a real pair."""
    measured = measure_pair(pair, prompts, config, sampling, batch)
    settings = config.model_dump(mode="json")
    return _stage(f"{pair.paths.name}: {name}", measured, replay, settings)


def _stage(name: str, measured: Measured, replay: str, settings: dict[str, Any]) -> StageResult:
    rounds = measured.rounds
    seconds = {phase: measured.seconds[phase] for phase in PHASES if phase in measured.seconds}
    total = sum(seconds.values())
    return StageResult(
        name=name,
        verdict=Verdict.NO_EVIDENCE,
        sample_size=rounds,
        replay=replay,
        seconds=total,
        details={
            "summary": "times; nothing is judged",
            "scheme": settings,
            "milliseconds_a_round": {
                phase: 1e3 * value / max(1, rounds) for phase, value in seconds.items()
            },
            "rounds_a_second": rounds / total if total else None,
            "accepted": measured.accepted,
            "nodes": measured.nodes,
            "torch_threads": torch.get_num_threads(),
        },
    )


def peak_memory() -> int:
    """Most memory that this process has held so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
