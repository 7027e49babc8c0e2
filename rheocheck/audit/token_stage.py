"""The sampled stage of runs and traces: what all statistics of the emitted tokens say together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rheocheck.audit.findings import LOSSY_LEVEL, SUSPECT_LEVEL, StageFindings
from rheocheck.audit.token_power import MOST_TOKENS, NAMED_TV, BinPower, PilotFault
from rheocheck.audit.token_statistics import Statistic
from rheocheck.audit.token_tests import THREE_TESTS, Buckets, Pit, Score, Tokens, score_limit
from rheocheck.audit.token_witness import WitnessSets, witness
from rheocheck.certificate import StageResult, Verdict
from rheocheck.stats.chi_square import pool_cells
from rheocheck.stats.pit import NUM_BINS
from rheocheck.stats.power import chi_square_detectable
from rheocheck.stats.scores import ScoreSums
from rheocheck.stats.total_variation import plug_in_over_contexts

ACCEPT_RATE = "accept rate"
# The worst case of a histogram of PIT values: the distance spread evenly over its bins.
_EVENLY = BinPower(4.0 * NAMED_TV**2, NUM_BINS - 1, THREE_TESTS)


@dataclass(frozen=True, slots=True, eq=False)
class TokenRun:
    """Emitted tokens that are judged together.

    Attributes:
      label: Behind the statistics' names, e.g. " T=1"; unique among the runs of a stage.
      temperature: Of the requests, or None where runs of several are taken together.
      num_tokens: Emitted tokens.
      statistics: With what they saw.
      sets: For the witness.
      accept: Sums of 1{a child was accepted} at nodes with children; empty where trees are unknown.
      pilot: Named faults on some of the contexts.
    """

    label: str
    temperature: float | None
    num_tokens: int
    statistics: Sequence[Statistic]
    sets: WitnessSets
    accept: ScoreSums
    pilot: Sequence[PilotFault]


def token_stage(runs: Sequence[TokenRun], other_tests: int, replay: str) -> StageFindings:
    """Conclude the stage.

    Args:
      runs: Each with the same statistics.
      other_tests: p-values that other stages add to the run's correction, or this stage later.
      replay: Shell line.

    Returns:
      NO_EVIDENCE, or INCONCLUSIVE where a run has too few tokens to find even a total variation of
      1; p-values, a witness for the case that they reject, and the accept rates as suspicions.
      Power is stated at the level of the correction's first step, 1e-6 over all p-values.
    """
    p_values, suspicions = {}, {}
    for run in runs:
        for test in run.statistics:
            p_values[test.name + run.label] = test.p_value
        if run.accept.num_samples:
            suspicions[ACCEPT_RATE + run.label] = run.accept.p_value
    num_tests = max(1, len(p_values) + len(suspicions) + other_tests)
    level = LOSSY_LEVEL / num_tests
    fewest = min((run.num_tokens for run in runs), default=0)
    detectable = _detectable_tv(fewest, level)
    faults = [
        {**_named(run), **fault.as_json(run.num_tokens, level)}
        for run in runs
        for fault in run.pilot
    ]
    power = min((row["power"] for row in faults), default=None)
    if power is None:
        power = _EVENLY.power(fewest, level) if fewest else 0.0
    scores = [test for run in runs for test in run.statistics if isinstance(test, Score)]
    return StageFindings(
        StageResult(
            name="sampled",
            verdict=Verdict.NO_EVIDENCE if detectable < 1.0 else Verdict.INCONCLUSIVE,
            statistic=max((abs(test.shown) for test in scores), default=0.0),
            sample_size=sum(run.num_tokens for run in runs),
            power=power,
            replay=replay,
            details={
                "summary": _summary(runs, detectable, power, faults, level)
                + _accept_sentence(runs, num_tests),
                "statistic_is": "largest z of the scores (described, not judged: p-values judge)",
                "power_is": (
                    f"smallest over the named faults, each by its best statistic at level "
                    f"{level:.2g} (1e-6 over {num_tests} p-values)"
                    if faults
                    else f"of a 20-bin PIT test at level {level:.2g} (1e-6 over {num_tests} "
                    f"p-values) against TV {NAMED_TV:g} spread evenly over the bins"
                ),
                "num_tests": num_tests,
                "detectable_tv": detectable,
                "detectable_is": (
                    "found with power 0.95 by the PIT's 20 bins, spread evenly over them"
                ),
                "tokens_needed": _tokens_needed(level),
                "per_temperature": [_row(run, level) for run in runs],
                "statistics": [
                    {
                        **_named(run),
                        "statistic": test.name,
                        "value": test.shown,
                        "p_value": p_values[test.name + run.label],
                        "detectable": test.detectable(level),
                        "detectable_is": test.effect,
                    }
                    for run in runs
                    for test in run.statistics
                ],
                "named_faults": faults,
                "accept_rate": [_accept_row(run, level) for run in runs if run.accept.num_samples],
                "plot": {"cells": [plot for run in runs if (plot := _plot(run)) is not None]},
            },
        ),
        p_values,
        suspicions,
        {"witness": _witness(runs, p_values)} if fewest else {},
    )


def _summary(
    runs: Sequence[TokenRun],
    detectable: float,
    power: float,
    faults: Sequence[dict[str, Any]],
    level: float,
) -> str:
    total = sum(run.num_tokens for run in runs)
    needed = _tokens_needed(level)
    if detectable >= 1.0:
        fewest = min((run.num_tokens for run in runs), default=0)
        which = f"{fewest:,} emitted tokens" + (" at one temperature" if len(runs) > 1 else "")
        return (
            f"{which} are too few to find anything at this level; TV {NAMED_TV:g} needs some "
            f"{needed:,}"
        )
    against = "named faults" if faults else "deviations"
    return (
        f"{total:,} emitted tokens; detectable TV {detectable:.3g}; power {power:.2g} against "
        f"{against} of TV {NAMED_TV:g}"
        + ("" if faults else f", which needs some {needed:,} tokens")
    )


def _accept_sentence(runs: Sequence[TokenRun], num_tests: int) -> str:
    """Says which accept rates are off; empty where none is."""
    off = [
        f"{run.label.strip() or 'all'}: z = {run.accept.z:.2g}"
        for run in runs
        if num_tests * run.accept.p_value <= SUSPECT_LEVEL
    ]
    return f"; the accept rate is not the rule's ({', '.join(off)})" if off else ""


def _named(run: TokenRun) -> dict[str, Any]:
    return {} if run.temperature is None else {"temperature": run.temperature}


def _row(run: TokenRun, level: float) -> dict[str, Any]:
    """A run's numbers."""
    found: dict[str, Any] = {**_named(run), "tokens": run.num_tokens}
    for test in run.statistics:
        key = test.name.replace(" ", "_")
        if isinstance(test, Score):
            found[f"{key}_z"] = test.shown
            found[f"{key}_log_e"] = test.sums.log_e
        elif isinstance(test, Pit):
            found[f"{test.name.replace('/', '_').replace(' ', '_')}_ks"] = test.shown
        elif isinstance(test, Buckets) and test.name == "ranks":
            distance = plug_in_over_contexts(test.counts, test.law)
            found |= {
                "plug_in_tv": distance.value,
                "plug_in_tv_null_mean": distance.null_mean,
                "plug_in_tv_null_spread": distance.null_spread,
                "plug_in_tv_z": distance.z,
            }
    found["detectable_tv"] = _detectable_tv(run.num_tokens, level)
    return found


def _accept_row(run: TokenRun, level: float) -> dict[str, Any]:
    sums = run.accept
    return {
        **_named(run),
        "nodes": sums.num_samples,
        "accepted_too_often": sums.deviation,
        "z": sums.z,
        "p_value": sums.p_value,
        "detectable_shift": score_limit(sums, level),
    }


def _witness(runs: Sequence[TokenRun], p_values: dict[str, float]) -> dict[str, Any]:
    """Of the run with the largest lower bound, the smallest p-value on ties."""
    found = []
    for run in runs:
        tokens = next(test for test in run.statistics if isinstance(test, Tokens))
        smallest = min(p_values[test.name + run.label] for test in run.statistics)
        best = witness(run.sets, tokens.sums, LOSSY_LEVEL / len(runs))
        found.append((-best["tv_lower_bound"], smallest, {**_named(run), **best}))
    chosen = min(found, key=lambda item: item[:2])[2]
    return {**chosen, "wrong_with_probability": LOSSY_LEVEL}


def _detectable_tv(num_tokens: int, level: float) -> float:
    if not num_tokens:
        return 1.0
    return chi_square_detectable(num_tokens, NUM_BINS - 1, level / THREE_TESTS)


def _tokens_needed(level: float) -> int:
    """Tokens with which a TV of `NAMED_TV` is detectable: the noncentrality is 4 n TV^2."""
    few = _detectable_tv(MOST_TOKENS, level)
    return int(np.ceil(MOST_TOKENS * (few / NAMED_TV) ** 2))


def _plot(run: TokenRun) -> dict[str, Any] | None:
    """Counts of the tokens, those that expect few pooled; None where no token is known."""
    tokens = next(test for test in run.statistics if isinstance(test, Tokens))
    counts, expected, squares = tokens.sums.sum(axis=0)
    if not expected.sum() > 0:
        return None
    pooled = pool_cells(expected)
    sums = np.bincount(pooled, expected)
    # The pooled cell's variance is not the sum of its members'; at one draw a context the
    # difference is the members' products, which are small where all of them are.
    variance = np.bincount(pooled, np.maximum(expected - squares, 0.0))
    kept = sums > 0
    return {
        **_named(run),
        "observed": np.bincount(pooled, counts)[kept].tolist(),
        "expected": sums[kept].tolist(),
        "spread": np.sqrt(np.maximum(variance, 1e-12))[kept].tolist(),
    }
