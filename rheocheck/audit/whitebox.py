"""White-box stage: exact node laws of real decoding, and a bound on their mean distance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rheocheck.audit.findings import StageFindings, worst_verdict
from rheocheck.audit.node_law import TOLERANCE, NodeFinding
from rheocheck.audit.settings import DEFAULT_CERTIFIED_TV, WHITEBOX_ALPHA
from rheocheck.certificate import StageResult, Verdict
from rheocheck.stats.betting import mean_upper_bound, units_needed

# Share of reached nodes with a fault whose chance of being met is printed as the stage's power.
NAMED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class WhiteboxRun:
    """What the stage saw at one temperature.

    Attributes:
      temperature: Of the requests.
      nodes: One finding a prompt.
    """

    temperature: float
    nodes: Sequence[NodeFinding]


def whitebox_stage(
    runs: Sequence[WhiteboxRun], replay: str, certified_tv: float = DEFAULT_CERTIFIED_TV
) -> StageFindings:
    """Conclude the white-box stage.

    Args:
      runs: One entry a temperature.
      replay: Shell line.
      certified_tv: Mean distance to be certified, in (0, 1).

    Returns:
      LOSSY with a witness where a node's law is off by more than the tolerance, or a probe is not
      drawn by its law; CERTIFIED where at every temperature the 99 % bound on the mean distance is
      at most `certified_tv`; else INCONCLUSIVE, for want of prompts.
    """
    per_temperature, verdicts, bounds = [], [], []
    witness: dict[str, Any] | None = None
    for run in runs:
        distances = [_bounded(node.total_variation) for node in run.nodes]
        bound = mean_upper_bound(distances, WHITEBOX_ALPHA)
        broken = [node for node in run.nodes if node.is_violation]
        bounds.append(bound)
        verdicts.append(_verdict(bool(broken), bound, certified_tv))
        if broken and witness is None:
            worst = max(broken, key=lambda node: _bounded(node.total_variation))
            witness = {"temperature": run.temperature, **_witness(worst)}
        per_temperature.append(
            {
                "temperature": run.temperature,
                "prompts": len(run.nodes),
                "probe_outcomes": sum(node.num_outcomes for node in run.nodes),
                "nodes_without_probe": sum(node.num_outcomes == 1 for node in run.nodes),
                "max_tv": max(distances, default=0.0),
                "mean_tv": sum(distances) / len(distances) if distances else 0.0,
                "mean_tv_bound": bound,
                "violations": len(broken),
            }
        )
    verdict, worst_bound = worst_verdict(verdicts), max(bounds, default=1.0)
    needed = units_needed(certified_tv, WHITEBOX_ALPHA)
    fewest = min((len(run.nodes) for run in runs), default=0)
    largest = max((item["max_tv"] for item in per_temperature), default=0.0)
    return StageFindings(
        StageResult(
            name="whitebox",
            verdict=verdict,
            claim=_claim(runs, certified_tv) if verdict is Verdict.CERTIFIED else None,
            statistic=worst_bound,
            threshold=certified_tv,
            sample_size=sum(len(run.nodes) for run in runs),
            power=1.0 - (1.0 - NAMED_SHARE) ** fewest,
            replay=replay,
            details={
                "summary": (
                    f"{sum(len(run.nodes) for run in runs):,} nodes, "
                    f"{sum(item['probe_outcomes'] for item in per_temperature):,} probe outcomes; "
                    f"largest TV {largest:.2g}, mean TV at most {worst_bound:.3g} at 99 %"
                    + what_would_do(verdict, needed, fewest)
                ),
                "statistic_is": "99 % upper bound on the mean TV over prompts, worst temperature",
                "power_is": f"of meeting a fault that {NAMED_SHARE:.0%} of reached nodes show",
                "node_choice": (
                    "one of each prompt, uniformly over all nodes at which verification stood in "
                    "any of its rounds and that had surviving children"
                ),
                "tolerance": TOLERANCE,
                "prompts_needed": needed,
                "cannot_see": "whether survival depends on the probe's identity; see probe",
                "per_temperature": per_temperature,
                **({"witness": witness} if witness else {}),
                "plot": {
                    "tolerance": TOLERANCE,
                    "bound": worst_bound,
                    "node_tv": [
                        {
                            "temperature": run.temperature,
                            "values": [_bounded(node.total_variation) for node in run.nodes],
                        }
                        for run in runs
                    ],
                },
            },
        )
    )


def what_would_do(verdict: Verdict, needed: int, prompts: int) -> str:
    """End of the summary of a stage that lacks prompts; nothing where it does not."""
    if verdict is not Verdict.INCONCLUSIVE:
        return ""
    return f"; to certify, {needed} prompts with such a node are needed and {prompts} had one"


def _bounded(distance: float) -> float:
    """The distance in [0, 1]; one that is not a number counts as 1."""
    return min(1.0, max(0.0, distance)) if distance == distance else 1.0


def _verdict(broken: bool, bound: float, certified_tv: float) -> Verdict:
    if broken:
        return Verdict.LOSSY
    return Verdict.CERTIFIED if bound <= certified_tv else Verdict.INCONCLUSIVE


def _claim(runs: Sequence[WhiteboxRun], certified_tv: float) -> str:
    names = " and ".join(f"T = {run.temperature:g}" for run in runs)
    return (
        "Verification, given which nodes survive: for prompts drawn like these, the law of the "
        "token after a node of real decoding differs from the verifier's target law by a mean "
        f"total variation of at most {100 * certified_tv:.12g} %, at 99 % for each of {names} "
        f"(every node examined: at most {TOLERANCE:g})."
    )


def _witness(node: NodeFinding) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prompt": node.request,
        "round": node.round_index,
        "node": node.node,
        "total_variation": _bounded(node.total_variation),
        "token": node.token,
        "got": node.got,
        "wanted": node.wanted,
    }
    if node.misdrawn is not None:
        uniform, wanted, drawn = node.misdrawn
        found["probe_draw"] = f"uniform {uniform:.12g} drew token {drawn}, its law says {wanted}"
    return found
