"""Sampled stage: emitted tokens against the target's own law by plain decoding.

What verification used as the target's law plays no part here: how far that is from plain passes is
numerics, measured without sampling by a stage of its own and reported apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rheocheck.audit.emissions import EmissionFindings
from rheocheck.audit.findings import LOSSY_LEVEL, StageFindings
from rheocheck.certificate import StageResult, Verdict
from rheocheck.stats.chi_square import bucket_chi_square, pool_cells
from rheocheck.stats.pit import NUM_BINS, uniformity
from rheocheck.stats.power import chi_square_detectable, chi_square_power, mean_shift_detectable
from rheocheck.stats.total_variation import plug_in_over_contexts

# Alternative whose power is printed.
NAMED_TV = 0.05


@dataclass(frozen=True, slots=True)
class SampledRun:
    """What the sampled stage saw at one temperature.

    Attributes:
      temperature: Of the requests.
      emissions: All prompts together.
    """

    temperature: float
    emissions: EmissionFindings


def sampled_stage(runs: Sequence[SampledRun], num_tests: int, replay: str) -> StageFindings:
    """Conclude the sampled stage.

    Args:
      runs: One entry a temperature.
      num_tests: Tests of the whole run, for the level at which power is stated.
      replay: Shell line.

    Returns:
      LOSSY with a witness where a token of probability 0 was emitted; else NO_EVIDENCE. p-values
      are for the run's correction.
    """
    p_values: dict[str, float] = {}
    per_temperature: list[dict[str, Any]] = []
    witness: dict[str, Any] | None = None
    level = LOSSY_LEVEL / max(1, num_tests)
    for run in runs:
        found, label = run.emissions, f"T={run.temperature:g}"
        chi_square = bucket_chi_square(_counts(found), found.cell_law)
        fit = uniformity(found.pit)
        p_values[f"cells {label}"] = chi_square.p_value
        p_values[f"surprisal {label}"] = found.surprisal.p_value
        p_values[f"draft score {label}"] = found.draft.p_value
        p_values[f"PIT {label}"] = fit.p_value
        distance = plug_in_over_contexts(_counts(found), found.cell_law)
        witness = witness or _witness(run)
        num_tokens = len(found.pit)
        per_temperature.append(
            {
                "temperature": run.temperature,
                "tokens": num_tokens,
                "cells": chi_square.num_cells,
                "chi_square": chi_square.statistic,
                "degrees_of_freedom": chi_square.df,
                "plug_in_tv": distance.value,
                "plug_in_tv_null_mean": distance.null_mean,
                "plug_in_tv_null_spread": distance.null_spread,
                "plug_in_tv_z": distance.z,
                "surprisal_z": found.surprisal.z,
                "surprisal_log_e": found.surprisal.log_e,
                "draft_score_z": found.draft.z,
                "draft_score_log_e": found.draft.log_e,
                "pit_chi_square": fit.chi_square,
                "pit_ks_distance": fit.ks,
                "tokens_off_support": len(found.off_support),
                "detectable_tv": _detectable_tv(num_tokens, level),
                "detectable_surprisal_shift": _detectable_shift(found, level),
            }
        )
    num_tokens = min((len(run.emissions.pit) for run in runs), default=0)
    worst_z = max((item["plug_in_tv_z"] for item in per_temperature), default=0.0)
    detectable = max((item["detectable_tv"] for item in per_temperature), default=1.0)
    return StageFindings(
        StageResult(
            name="sampled",
            verdict=Verdict.LOSSY if witness else Verdict.NO_EVIDENCE,
            statistic=worst_z,
            sample_size=sum(len(run.emissions.pit) for run in runs),
            power=chi_square_power(num_tokens, NUM_BINS - 1, NAMED_TV, level)
            if num_tokens
            else 0.0,
            replay=replay,
            details={
                "summary": (
                    f"{sum(len(run.emissions.pit) for run in runs):,} emitted tokens; detectable "
                    f"TV {detectable:.3g}"
                ),
                "statistic_is": (
                    "plug-in TV of the emitted tokens less its exact null mean, in null spreads; "
                    "worst temperature (described, not judged: the p-values judge)"
                ),
                "power_is": (
                    f"of the 20-bin PIT test, ordered by draft/target, at level {level:.2g} "
                    f"against "
                    f"TV {NAMED_TV:g} spread evenly over the bins"
                ),
                "detectable_is": "found with power 0.95 by that test",
                "per_temperature": per_temperature,
                **({"witness": witness} if witness else {}),
                "plot": {"cells": [_plot(run) for run in runs if len(run.emissions.pit)]},
            },
        ),
        p_values,
    )


def _counts(found: EmissionFindings) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.bincount(found.cell, minlength=found.cell_law.shape[1])


def _witness(run: SampledRun) -> dict[str, Any] | None:
    found = run.emissions
    if found.off_support:
        request, round_index, step, token = found.off_support[0]
        return {
            "what": "emitted a token of probability 0",
            "temperature": run.temperature,
            "prompt": request,
            "round": round_index,
            "position": step,
            "token": token,
        }
    return None


def _detectable_tv(num_tokens: int, level: float) -> float:
    return chi_square_detectable(num_tokens, NUM_BINS - 1, level) if num_tokens else 1.0


def _detectable_shift(found: EmissionFindings, level: float) -> float | None:
    """Smallest shift of the mean surprisal, in nats a token, that the score test would find."""
    sums = found.surprisal
    if sums.num_samples == 0:
        return None
    deviation = float(np.sqrt(sums.variance / sums.num_samples))
    return mean_shift_detectable(sums.num_samples, deviation, level)


def _plot(run: SampledRun) -> dict[str, Any]:
    found = run.emissions
    expected = found.cell_law.sum(axis=0)
    variance = (found.cell_law * (1.0 - found.cell_law)).sum(axis=0)
    pooled = pool_cells(expected)
    counts = np.bincount(pooled, _counts(found))
    sums = np.bincount(pooled, expected)
    # The pooled cell's variance is not the sum of its members'; at one draw a context the
    # difference is the members' products, which are small where all of them are.
    spread = np.sqrt(np.maximum(np.bincount(pooled, variance), 1e-12))
    kept = sums > 0
    return {
        "temperature": run.temperature,
        "observed": counts[kept].tolist(),
        "expected": sums[kept].tolist(),
        "spread": spread[kept].tolist(),
    }
