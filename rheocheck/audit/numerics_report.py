"""What the numerics stage shows: its sentence, its tables, its figure, and the two terms apart."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.findings import StageFindings
from rheocheck.audit.law_distance import LawDistances
from rheocheck.audit.numerics_judgement import Judged, NumericsRun
from rheocheck.certificate import StageResult
from rheocheck.stats.betting import mean_lower_bound

_PLOT_POINTS = 201


def sentence(runs: Sequence[NumericsRun], judged: Sequence[Judged]) -> str:
    """What was found, and nothing that was not: worst temperature of each figure."""
    tokens = sum(len(run.found.distances) for run in runs)
    largest = max((item.largest for item in judged), default=0.0)
    mean = max((_mean(run.found.distances.total_variation) for run in runs), default=0.0)
    divergence = max((_max(run.found.distances.divergence) for run in runs), default=0.0)
    floor = max((item.floor for item in judged), default=0.0)
    null_max = max((item.null_max for item in judged), default=0.0)
    flips = sum(int(run.found.distances.is_flip.sum()) for run in runs)
    beyond = sum(int(run.found.distances.is_unexplained_flip.sum()) for run in runs)
    text = (
        f"over {tokens:,} tokens of real decoding the verifier's law is within TV {largest:.2g} of "
        f"plain decoding's (mean {mean:.2g}, KL at most {divergence:.2g}); noise floor, plain "
        f"against plain: {floor:.2g} at the 95 % quantile, {null_max:.2g} at most; "
        f"{flips} argmax flips, {beyond} beyond rounding"
    )
    reasons = [
        f"T = {run.temperature:g}: {item.reason}"
        for run, item in zip(runs, judged, strict=True)
        if item.reason
    ]
    return "; ".join([text, *reasons])


def temperature_row(run: NumericsRun, item: Judged) -> dict[str, Any]:
    """One temperature in figures; keys are the same for all."""
    found = run.found.distances
    flip_gap = float(found.gap.max(initial=0.0))
    return {
        "temperature": run.temperature,
        "verdict_by_tokens": item.verdict.value,
        "prompts": len(item.prompt_means),
        "tokens": len(found),
        **_spread(found),
        "limit": item.limit,
        "noise_floor": item.floor,
        "noise_max_tv": item.null_max,
        "noise_prompts": run.found.null_prompts,
        "mean_tv_bound": item.mean_bound,
        "mean_tv_lower_bound": mean_lower_bound(item.prompt_means, 1e-6),
        "mean_above_floor_p": item.p_value,
        "largest_flip_gap": flip_gap,
        "smallest_margin": float(found.margin.min()) if len(found) else None,
        "median_margin": float(np.median(found.margin)) if len(found) else None,
    }


def null_rows(runs: Sequence[NumericsRun]) -> list[dict[str, Any]]:
    """One row for each temperature and shape of plain passes."""
    return [
        {"temperature": run.temperature, "shape": shape, "tokens": len(arm), **_spread(arm)}
        for run in runs
        for shape, arm in run.found.null.items()
    ]


def numerics_plot(runs: Sequence[NumericsRun], judged: Sequence[Judged]) -> dict[str, Any]:
    """Quantiles of the distances, of the verifier and of the noisiest shape of plain passes."""
    levels = np.linspace(0.0, 1.0, _PLOT_POINTS)
    curves = []
    for run, item in zip(runs, judged, strict=True):
        arms = [arm.total_variation for arm in run.found.null.values() if len(arm)]
        if not arms or not len(run.found.distances):
            continue
        noisiest = max(arms, key=lambda values: float(np.quantile(values, 0.95)))
        curves.append(
            {
                "temperature": run.temperature,
                "limit": item.limit,
                "floor": item.floor,
                "levels": levels.tolist(),
                "verifier": np.quantile(run.found.distances.total_variation, levels).tolist(),
                "plain": np.quantile(noisiest, levels).tolist(),
            }
        )
    return {"distances": curves}


def report_apart(
    sampled: StageFindings, numerics: StageFindings, whitebox: StageResult
) -> tuple[StageFindings, StageFindings]:
    """Add both terms of TV(output, plain) <= TV(output, verifier) + TV(verifier, plain).

    Args:
      sampled: Its summary ends with the two terms.
      numerics: So does this one's.
      whitebox: Has the first term, from exact node laws.

    Returns:
      `sampled` and `numerics`, with `details.two_terms`.
    """
    nodes, tokens = whitebox.sample_size or 0, numerics.result.sample_size or 0
    first, second = (_worst(stage, "max_tv") for stage in (whitebox, numerics.result))
    terms = [
        {
            "term": "TV(output, verifier's law): the algorithm",
            "largest": first if nodes else None,
            "mean_bound_99": _worst(whitebox, "mean_tv_bound") if nodes else None,
            "units": f"{nodes:,} nodes, exact laws (whitebox)",
        },
        {
            "term": "TV(verifier's law, plain decoding): numerics",
            "largest": second if tokens else None,
            "mean_bound_99": _worst(numerics.result, "mean_tv_bound") if tokens else None,
            "units": f"{tokens:,} tokens, laws compared (numerics)",
        },
    ]
    shown = (
        f"TV(output, verifier's law) {_shown(first, nodes, 'nodes')}, "
        f"TV(verifier's law, plain) {_shown(second, tokens, 'tokens')}"
    )
    return _with_terms(sampled, terms, shown), _with_terms(numerics, terms, shown)


def _with_terms(found: StageFindings, terms: list[dict[str, Any]], shown: str) -> StageFindings:
    summary = f"{found.result.details.get('summary', '')}; apart: {shown}"
    details = {**found.result.details, "summary": summary, "two_terms": terms}
    return replace(found, result=found.result.model_copy(update={"details": details}))


def _shown(largest: float, count: int, what: str) -> str:
    return f"at most {largest:.2g} at {count:,} {what}" if count else f"not measured (no {what})"


def _worst(stage: StageResult, key: str) -> float:
    rows = stage.details.get("per_temperature", [])
    return max((float(row[key]) for row in rows), default=0.0)


def _spread(found: LawDistances) -> dict[str, Any]:
    """Columns that verifier and null arm share."""
    values = found.total_variation
    quantiles = np.quantile(values, [0.5, 0.95, 0.99]).tolist() if len(values) else [0.0] * 3
    return {
        "mean_tv": _mean(values),
        "median_tv": quantiles[0],
        "tv_95": quantiles[1],
        "tv_99": quantiles[2],
        "max_tv": _max(values),
        "mean_kl": _mean(found.divergence),
        "max_kl": _max(found.divergence),
        "flips": int(found.is_flip.sum()),
        "flips_beyond_rounding": int(found.is_unexplained_flip.sum()),
    }


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _max(values: NDArray[np.float64]) -> float:
    return float(values.max(initial=0.0))
