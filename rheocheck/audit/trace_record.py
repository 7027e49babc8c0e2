"""One record of a trace decided again in exact arithmetic: what was expected, what was recorded.

The recorded floats are read as the rationals that they stand for and go through the verification of
`rheocheck.reference`; nothing of the audit's own arithmetic takes part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.localise import DEPTH_IS, Localiser
from rheocheck.audit.trace_facts import batch_facts, role_name, scheme_of
from rheocheck.audit.trace_rule import probe_laws
from rheocheck.certificate import Report, StageResult, Verdict, environment
from rheocheck.config import Rule
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.expansion import Role
from rheocheck.reference.laws import normalised
from rheocheck.reference.tree import Node
from rheocheck.reference.verification import verify_node
from rheocheck.traces.reader import Batch, open_trace, read_record
from rheocheck.traces.trees import ROLES

_ROLES = (Role.TOP, Role.PROBE, Role.FILLER)


def run_record(path: Path, number: int) -> Report:
    """Look at one record of a trace.

    Args:
      path: Of the trace.
      number: Of the record, from 0.

    Returns:
      A report with one stage, `record`: LOSSY where something in the record is wrong by itself,
      else NO_EVIDENCE; `details.steps` has what was expected and what was recorded at each step.

    Raises:
      TraceError: The trace, or the record, is not as it must be.
    """
    index = open_trace(path)
    batch = read_record(index, number)
    settings = index.runs[batch.run]
    facts = batch_facts(batch, settings)
    localiser = Localiser()
    localiser.observe(batch, facts, str(batch.run))
    wrong = {kind: int(found.sum()) for kind, found in facts.violated.items() if found.any()}
    scheme = scheme_of(settings)
    steps = _steps(batch, scheme.rule if scheme else None, scheme.num_top if scheme else 0)
    place = batch.place(0)
    stage = StageResult(
        name="record",
        verdict=Verdict.LOSSY if wrong else Verdict.NO_EVIDENCE,
        statistic=float(sum(wrong.values())),
        threshold=1.0,
        sample_size=len(batch.token),
        details={
            "summary": f"record {number}, request {place['request']}, round {place['round']}: "
            + ("; ".join(wrong) or "follows from what was recorded of it"),
            "depth_is": DEPTH_IS,
            "steps": steps,
            **({"witness": localiser.first[next(iter(wrong))]} if wrong else {}),
        },
    )
    return Report(
        command="audit",
        verdict=stage.verdict,
        settings={"trace": str(path), "record": number, "run": settings},
        stages=[stage],
        environment=environment(),
    )


@dataclass(slots=True)
class _Recorded:
    """The uniforms of one node, in the place of draws."""

    uniforms: dict[NodeKey, float]
    tests: list[str]

    def accept(self, probability: Fraction, key: NodeKey) -> bool:
        uniform = self.uniforms[key]
        kept = Fraction(uniform) < probability
        self.tests.append(f"slot {key.slot}: {uniform:.9g} < {float(probability):.9g} is {kept}")
        return kept


def _steps(batch: Batch, rule: Rule | None, num_top: int) -> list[dict[str, Any]]:
    """Each emitted token beside what exact verification of the recorded inputs makes of its node.

    Once a decision differs the recorded path is not that of the verification any more; every node
    of it is shown all the same.
    """
    laws, trees = batch.laws, batch.trees
    used = None if trees is None else probe_laws(laws, trees, num_top)[0]
    steps: list[dict[str, Any]] = []
    for row, token in enumerate(batch.token.tolist()):
        step: dict[str, Any] = {
            "depth": int(batch.step[row]),
            "recorded_token": token,
            "probability": float(laws.null[row, laws.column[row]]),
        }
        if trees is not None:
            step["recorded_role"] = role_name(int(trees.emitted_role()[row]))
            if rule is not None and not laws.rest.any() and trees.uniform is not None:
                probe = np.zeros(laws.target.shape[1]) if used is None else used[row]
                step |= _expected(batch, row, rule, probe)
        steps.append(step)
    return steps


def _expected(batch: Batch, row: int, rule: Rule, probe: NDArray[np.float64]) -> dict[str, Any]:
    """What the reference decides at one node with the recorded uniforms."""
    laws, trees = batch.laws, batch.trees
    assert trees is not None and trees.uniform is not None
    ids = list(range(batch.vocab)) if laws.ids is None else laws.ids[row].tolist()
    column = {token: place for place, token in enumerate(ids) if token >= 0}
    there = np.flatnonzero(trees.role[row] >= 0)
    # A child without a column has no target mass: it gets one of its own.
    for child in there:
        column.setdefault(int(trees.token[row, child]), len(column) + len(ids))
    width = max(column.values(), default=0) + 1
    target = _exact(laws.target[row], width)
    uniforms: dict[NodeKey, float] = {}
    children = []
    for slot in there.tolist():
        key = NodeKey(1, 0, slot)
        uniforms[key] = float(trees.uniform[row, slot])
        place = column[int(trees.token[row, slot])]
        role = _ROLES[int(trees.role[row, slot])]
        children.append(Node(key, (place,), role, Fraction(1), Fraction(1, slot + 2)))
    draws = _Recorded(uniforms, [])
    accepted, residual = verify_node(target, children, _exact(probe, width), rule, draws)  # type: ignore[arg-type]
    name = {place: token for token, place in column.items()}
    if accepted is not None:
        return {
            "expected_token": name[accepted.token],
            "expected_role": ROLES[_ROLES.index(accepted.role)],
            "tests": draws.tests,
        }
    found: dict[str, Any] = {
        "expected_role": "residual" if children else "bonus",
        "tests": draws.tests,
        "residual_of_recorded": float(residual[int(laws.column[row])]),
    }
    if trees.final_uniform is not None:
        found["final_uniform"] = float(trees.final_uniform[row])
        place = _inverse_cdf(residual, Fraction(found["final_uniform"]))
        found["expected_token"] = name.get(place, -1)
    return found


def _exact(law: NDArray[np.float64], width: int) -> tuple[Fraction, ...]:
    """The rationals of a row, normalised, padded with zeros to `width`."""
    masses = [Fraction(mass) for mass in law.tolist()]
    return normalised([*masses, *[Fraction(0)] * (width - len(masses))])


def _inverse_cdf(weights: Sequence[Fraction], uniform: Fraction) -> int:
    """First place whose running sum exceeds the uniform."""
    running = Fraction(0)
    for place, weight in enumerate(weights):
        running += weight
        if uniform < running:
            return place
    return len(weights) - 1
