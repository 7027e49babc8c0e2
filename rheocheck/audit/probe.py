"""Probe stage: survival must not depend on which token the probe is.

Two looks at the same promise. Every surviving probe of every real tree has its randomised PIT under
the law it was drawn from: given survival that must be uniform. And on some prompts one probe's tree
is grown again with each other identity, which needs no statistics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rheocheck.audit.choices import probe_uniforms
from rheocheck.audit.findings import StageFindings, worst_verdict
from rheocheck.audit.regrow import RegrowFinding
from rheocheck.audit.whitebox import what_would_do
from rheocheck.certificate import StageResult, Verdict
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.gpu.expansion import Role
from rheocheck.stats.betting import mean_upper_bound, units_needed
from rheocheck.stats.pit import NUM_BINS, ecdf_band, uniformity
from rheocheck.stats.power import chi_square_detectable, chi_square_power
from rheocheck.text import exactly

ALPHA = 0.01
# Share of probes whose survival may depend on identity before the stage stops certifying; 44
# prompts without a violation bound it at 99 %.
LARGEST_SHARE = 0.10
# Alternative whose power is printed: survival that shifts a twentieth of the probes' mass.
NAMED_SHIFT = 0.05
_PLOT_POINTS = 201


class ProbePits:
    """PIT values of all surviving probes of a run, by rank under the law they were drawn from."""

    def __init__(self, seed: int) -> None:
        """`seed` keys the uniforms of the PIT."""
        self._seed = seed
        self._values: list[NDArray[np.float64]] = []

    def observe(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        tree = trace.tree
        row, survivor = (tree.valid & (tree.role == Role.PROBE)).nonzero(as_tuple=True)
        if not len(row):
            return
        parent = tree.parent[row, survivor]
        law = tree.probe_law[row, parent]
        is_drawn = tree.support[row, parent] == tree.token[row, survivor][:, None]
        rank = is_drawn.int().argmax(-1)
        before = torch.arange(law.shape[-1], device=law.device) < rank[:, None]
        below = torch.where(before, law, 0.0).sum(-1).cpu().numpy()
        mass = law.gather(-1, rank[:, None])[:, 0].cpu().numpy()
        uniform = probe_uniforms(
            self._seed,
            trace.request[row],
            trace.round_index[row],
            tree.layer[row, survivor],
            tree.parent_rank[row, survivor],
            tree.slot[row, survivor],
        )
        self._values.append(np.clip(below + uniform * mass, 0.0, 1.0))

    def values(self) -> NDArray[np.float64]:
        """[probes] PIT values in the order of observation."""
        return np.concatenate(self._values) if self._values else np.zeros(0)


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """What the probe stage saw at one temperature.

    Attributes:
      temperature: Of the requests.
      pits: [probes] PIT values.
      regrown: One finding a prompt.
    """

    temperature: float
    pits: NDArray[np.float64]
    regrown: Sequence[RegrowFinding]


def probe_stage(runs: Sequence[ProbeRun], has_probes: bool, replay: str) -> StageFindings:
    """Conclude the probe stage.

    Args:
      runs: One entry a temperature.
      has_probes: The scheme draws probes at all (num_top < top_k, budget and depth above 0).
      replay: Shell line.

    Returns:
      CERTIFIED where no regrown tree differs and enough were grown, or the scheme has no probes;
      INCONCLUSIVE where too few were; LOSSY with a witness where one differs. p-values of the PIT
      tests are for the run's correction.
    """
    if not has_probes:
        return StageFindings(
            StageResult(
                name="probe",
                verdict=Verdict.CERTIFIED,
                claim="The scheme draws no probes: its trees depend on no random identity.",
                sample_size=0,
                replay=replay,
                details={"summary": "no probes to examine"},
            )
        )
    p_values: dict[str, float] = {}
    per_temperature: list[dict[str, Any]] = []
    verdicts, bounds = [], []
    witness: dict[str, Any] | None = None
    for run in runs:
        fit = uniformity(run.pits)
        p_values[f"PIT T={exactly(run.temperature)}"] = fit.p_value
        broken = [finding for finding in run.regrown if finding.violation is not None]
        # A prompt most of whose trees are within rounding has shown little and does not count.
        shown = [f for f in run.regrown if 2 * f.num_rounded <= f.num_outcomes]
        bound = mean_upper_bound([float(f.violation is not None) for f in shown], ALPHA)
        bounds.append(bound)
        verdicts.append(_verdict(bool(broken), bound))
        if broken and witness is None:
            witness = {"temperature": run.temperature, **_witness(broken[0])}
        per_temperature.append(
            {
                "temperature": run.temperature,
                "probes": fit.num_samples,
                "pit_chi_square": fit.chi_square,
                "pit_chi_square_p": fit.chi_square_p,
                "pit_ks_distance": fit.ks,
                "pit_ks_p": fit.ks_p,
                "detectable_tv": _detectable(fit.num_samples),
                "trees_regrown_on_prompts": len(run.regrown),
                "identities_tried": sum(f.num_outcomes for f in run.regrown),
                "identities_within_rounding": sum(f.num_rounded for f in run.regrown),
                "violations": len(broken),
                "share_bound": bound,
            }
        )
    verdict = worst_verdict(verdicts)
    smallest = min((len(run.pits) for run in runs), default=0)
    worst = max(bounds, default=1.0)
    tried = sum(item["identities_tried"] for item in per_temperature)
    return StageFindings(
        StageResult(
            name="probe",
            verdict=verdict,
            claim=_claim(runs, worst) if verdict is Verdict.CERTIFIED else None,
            statistic=worst,
            threshold=LARGEST_SHARE,
            sample_size=sum(len(run.regrown) for run in runs),
            power=chi_square_power(smallest, NUM_BINS - 1, NAMED_SHIFT, 1e-6) if smallest else None,
            replay=replay,
            details={
                "summary": (
                    f"{sum(len(run.pits) for run in runs):,} surviving probes, {tried:,} trees "
                    f"regrown with another identity, "
                    f"{sum(item['violations'] for item in per_temperature)} probes violated"
                    + what_would_do(
                        verdict,
                        units_needed(LARGEST_SHARE, ALPHA),
                        min((len(run.regrown) for run in runs), default=0),
                    )
                ),
                "statistic_is": (
                    "99 % upper bound on the share of probes whose survival, or what ranks above "
                    "them, depends on identity; worst temperature"
                ),
                "power_is": (
                    f"of the 20-bin PIT test at level 1e-6 against a shift of {NAMED_SHIFT:g} of "
                    f"the "
                    "probes' mass"
                ),
                "prompts_needed": units_needed(LARGEST_SHARE, ALPHA),
                "per_temperature": per_temperature,
                **({"witness": witness} if witness else {}),
                "plot": {"pit": [_plot(run) for run in runs if len(run.pits)]},
            },
        ),
        p_values,
    )


def _verdict(broken: bool, bound: float) -> Verdict:
    if broken:
        return Verdict.LOSSY
    return Verdict.CERTIFIED if bound <= LARGEST_SHARE else Verdict.INCONCLUSIVE


def _claim(runs: Sequence[ProbeRun], bound: float) -> str:
    prompts = " and ".join(f"{len(run.regrown)} prompts at T = {run.temperature:g}" for run in runs)
    return (
        f"On {prompts}, one surviving probe each chosen at random from real decoding, no other "
        "identity of the probe changed its survival or any node ranked above it; for prompts drawn "
        f"like these, at most {bound:.1%} of such probes can behave otherwise, at 99 % for each "
        "temperature."
    )


def _witness(finding: RegrowFinding) -> dict[str, Any]:
    return {
        "prompt": finding.request,
        "round": finding.round_index,
        "node": finding.node,
        **(finding.violation or {}),
    }


def _detectable(num_samples: int) -> float | None:
    if num_samples == 0:
        return None
    return chi_square_detectable(num_samples, NUM_BINS - 1, 1e-6)


def _plot(run: ProbeRun) -> dict[str, Any]:
    levels = np.linspace(0.0, 1.0, _PLOT_POINTS)
    ecdf = np.searchsorted(np.sort(run.pits), levels, side="right") / len(run.pits)
    return {
        "temperature": run.temperature,
        "num_samples": len(run.pits),
        "band": ecdf_band(len(run.pits), ALPHA),
        "levels": [round(float(level), 4) for level in levels],
        "ecdf": [round(float(value), 6) for value in ecdf],
    }
