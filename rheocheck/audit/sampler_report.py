"""Words of the sampler stage: what was covered, found and claimed."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rheocheck.audit.sampler_family import GROUPS, VOCABS, SamplerInstance
from rheocheck.audit.sampler_run import Limits, SamplerLaw
from rheocheck.certificate import Verdict
from rheocheck.protocols import Sampler
from rheocheck.reference import Violation

MOST_FINDINGS = 12
"""Findings at end points that a report holds."""


@dataclass(frozen=True, slots=True)
class SamplerFinding:
    """What one instance showed.

    Attributes:
      instance: The laws.
      law: What was enumerated.
      violation: Where the joint law is not the target's; None if it is, or nothing is proved.
      total_variation: Of the joint law over the longest emission; of an incomplete law, None.
    """

    instance: SamplerInstance
    law: SamplerLaw
    violation: Violation | None
    total_variation: Fraction | None


@dataclass(slots=True)
class Sweep:
    """Sums over the instances that were checked.

    Attributes:
      checked: Complete instances.
      failing: Those whose law is not the target's.
      num_paths: Runs in all.
      stopped: Why the sweep ended early; None if it did not.
      worst: Largest total variation.
      at_zero: Emissions of target probability 0 that the grid of a real generator makes possible.
    """

    checked: list[SamplerInstance] = field(default_factory=list)
    failing: list[SamplerFinding] = field(default_factory=list)
    num_paths: int = 0
    stopped: str | None = None
    worst: Fraction = Fraction(0)
    at_zero: list[dict[str, Any]] = field(default_factory=list)


def coverage_of(checked: list[SamplerInstance], instances: list[SamplerInstance]) -> list[Any]:
    """Instances checked and in all, by group and vocabulary."""
    rows = []
    for group in GROUPS:
        for vocab in VOCABS:
            in_all = sum(i.group == group and i.vocab == vocab for i in instances)
            done = sum(i.group == group and i.vocab == vocab for i in checked)
            if in_all:
                rows.append({"group": group, "vocab": vocab, "checked": done, "in_all": in_all})
    return rows


def summary_of(sweep: Sweep, in_all: int, verdict: Verdict) -> str:
    """One paragraph: instances and paths, the worst figure, why it stopped."""
    counted = f"{len(sweep.checked)} of {in_all} instances in full, {sweep.num_paths:,} paths"
    if verdict is Verdict.LOSSY:
        text = f"{counted}: the joint law is not the target's; worst total variation among "
        text += f"them {sweep.worst} ({float(sweep.worst):.4g})."
    elif verdict is Verdict.INCONCLUSIVE:
        text = (
            f"{counted}, no defect among them; then {sweep.stopped}. Nothing is certified: raise "
            f"--max-paths or --max-seconds, or lower --max-vocab for a smaller claim."
        )
    elif sweep.worst == 0:
        text = f"{counted}: the joint law is the target's, exactly."
    else:
        text = f"{counted}: worst total variation {float(sweep.worst):.3g}, of rounding."
    if sweep.at_zero:
        text += (
            " Separately, at the end points of real generators (u = 0 and the largest value below "
            "1), where the ideal law says nothing: see the finding."
        )
    return text


def witness_of(finding: SamplerFinding) -> dict[str, str]:
    """The first violation met, as it was met: got is a lower bound if the law is incomplete."""
    assert finding.violation is not None
    return {
        "target": ", ".join(map(str, finding.instance.target(finding.violation.path))),
        "path": str(finding.violation.path),
        "token": str(finding.violation.token),
        "got": str(finding.violation.got),
        "wanted": str(finding.violation.wanted),
    }


def claim_of(sweep: Sweep, name: str, sampler: Sampler, family: str, tolerance: Fraction) -> str:
    """What CERTIFIED proves, and what it does not."""
    num_rounds = getattr(sampler, "num_rounds", 1)
    rounds = "one round" if num_rounds == 1 else f"{num_rounds} rounds"
    distance = "0" if tolerance == 0 else f"at most {float(tolerance):g} (rounding)"
    return (
        f"On each of {len(sweep.checked)} instances ({family}) the exact joint law of the tokens "
        f"of {rounds} of {name}, over all outcomes of all draws ({sweep.num_paths:,} paths), has "
        f"total variation {distance} from the target's. Nothing is claimed about other laws, or "
        f"about how a real generator rounds."
    )


def replay_of(
    name: str,
    quick: bool,
    seed: int,
    max_vocab: int,
    limits: Limits,
    tolerance: Fraction | None,
) -> str:
    """The command line that gives this result again."""
    words = ["rheocheck certify", f"--sampler {name}", f"--seed {seed}"]
    if quick:
        words.append("--quick")
    if max_vocab != VOCABS[-1]:
        words.append(f"--max-vocab {max_vocab}")
    if limits.max_paths != Limits().max_paths:
        words.append(f"--max-paths {limits.max_paths}")
    if limits.max_seconds != Limits().max_seconds:
        words.append(f"--max-seconds {limits.max_seconds:g}")
    if tolerance is not None:
        words.append(f"--tolerance {tolerance}")
    return " ".join(words)
