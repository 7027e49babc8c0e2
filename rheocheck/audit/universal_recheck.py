"""The all-laws stage of a certificate, looked at again: other laws, the other enumerator."""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rheocheck.audit.controls import controls_json, controls_text
from rheocheck.audit.universal import claim_and_scope, replay_of, row_of
from rheocheck.audit.universal_controls import universal_controls
from rheocheck.audit.universal_points import is_lossless, listed_cells, models_at
from rheocheck.audit.universal_shapes import Shape, shapes_of
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import BudgetExceededError
from rheocheck.parallel import in_order
from rheocheck.reference.defect import lossless_defect
from rheocheck.reference.round_law import Method, RoundLaw, round_law
from rheocheck.text import as_fraction

POINTS_PER_SHAPE = 20
_MAX_EAGER_PATHS = 2_000
NOT_AGAIN = (
    "the numbers of distinct cells of drawn shapes and of classes, and what follows from the latter"
)


@dataclass(slots=True)
class Recheck:
    """What was compared.

    Attributes:
      problems: Where the stage and what was computed differ.
      methods: Points by the enumerator that made them.
      num_points: Points that the stage says it evaluated.
    """

    problems: list[str] = field(default_factory=list)
    methods: Counter[Method] = field(default_factory=Counter)
    num_points: int = 0

    @property
    def summary(self) -> str:
        """What was done and what was not, in one sentence."""
        eager, classes = self.methods["eager"], self.methods["classes"]
        return (
            f"all laws: {eager + classes:,} cells of the {self.num_points:,} points looked at "
            f"again, at other random laws, {eager:,} by the eager enumerator"
            + (f" and {classes:,} by classes" if classes else "")
            + f"; not made again: the other points, {NOT_AGAIN}"
        )


def recheck(
    stage: StageResult,
    settings: dict[str, Any],
    seed: int,
    jobs: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> Recheck:
    """Compare an all-laws stage with shapes, cells and defects computed again.

    Args:
      stage: The stage as a file has it.
      settings: The run's settings: quick, full, seed.
      seed: Draws the points.
      jobs: Processes.
      progress: Called with (what, units done, units in all).

    Returns:
      The comparison.
    """
    found = Recheck()
    quick, full, own_seed = (settings.get(name) for name in ("quick", "full", "seed"))
    rows = stage.details.get("rows")
    if (
        not isinstance(quick, bool)
        or not isinstance(full, bool)
        or not isinstance(own_seed, int)
        or not isinstance(rows, list)
        or not all(isinstance(row, dict) for row in rows)
    ):
        found.problems.append(
            "the all-laws stage has no rows, or the settings no quick, full, seed"
        )
        return found
    shapes = list(shapes_of(quick, full))
    if [row.get("shape") for row in rows] != [shape.name for shape in shapes]:
        found.problems.append("the shapes of the all-laws stage are not those of its settings")
        return found
    for shape, row in zip(shapes, rows, strict=True):
        found.problems += _row_problems(shape, row)
    found.num_points = sum(_num_points(shape) for shape in shapes)
    _compare_totals(stage, rows, quick, full, own_seed, found)
    other = int.from_bytes(hashlib.sha256(f"{own_seed}/{seed}".encode()).digest()[:7])
    tasks = [
        (shape, points, other) for shape, points in _chosen(shapes, random.Random(f"points/{seed}"))
    ]
    failing = set()
    for number, (methods, lossy) in enumerate(in_order(_look_again, tasks, jobs), 1):
        found.methods += methods
        shape = tasks[number - 1][0]
        if lossy:
            failing.add(shape.name)
        if progress is not None:
            progress("all laws", number, len(tasks))
    stated = {row["shape"] for row in rows if row.get("defects")}
    found.problems += [
        f"{name} is lossy at other laws than those of the file" for name in failing - stated
    ]
    return found


def _row_problems(shape: Shape, row: dict[str, Any]) -> Iterator[str]:
    """What a row says of its shape against what the shape and its own counts give."""
    counts = [row.get(name) for name in ("cells_visited", "max_classes", "defects")]
    if not all(isinstance(count, int) and count >= 0 for count in counts) or not counts[1]:
        yield f"the row of {shape.name} has counts that are none"
        return
    visited, max_classes, defects = (int(count or 0) for count in counts)
    if row_of(shape, _num_points(shape), visited, max_classes, defects) != row:
        yield f"the row of {shape.name} contradicts itself or its shape"
    if not 1 <= visited <= _num_points(shape):
        yield f"the row of {shape.name} has {visited} cells of {_num_points(shape)} points"


def _num_points(shape: Shape) -> int:
    return len(listed_cells(shape)) if shape.enumerated else shape.num_points


def _compare_totals(
    stage: StageResult, rows: list[dict[str, Any]], quick: bool, full: bool, seed: int,
    found: Recheck,
) -> None:  # fmt: skip
    claim, scope, worst = claim_and_scope(rows)
    lossy = any(row.get("defects") for row in rows)
    controls = universal_controls(seed)
    verdict = Verdict.LOSSY if lossy else Verdict.CERTIFIED
    details = stage.details
    witness = details.get("witness")
    statistic = 0.0
    if isinstance(witness, dict):
        try:
            statistic = float(as_fraction(str(witness.get("defect"))))
        except (ValueError, ZeroDivisionError):
            found.problems.append("the witness of the all-laws stage has no defect")
    stated = {
        "verdict": (stage.verdict, verdict),
        "claim": (stage.claim, None if lossy else claim),
        "summary": (details.get("summary"), f"{scope}. {controls_text(controls)}"),
        "controls": (details.get("controls"), controls_json(controls)),
        "failure probability": (details.get("failure_probability_log2"), worst),
        "sample size": (stage.sample_size, sum(row["points"] for row in rows)),
        "statistic": (stage.statistic, statistic),
        "witness": (isinstance(witness, dict), lossy),
        "threshold": (stage.threshold, 0.0),
        "replay": (stage.replay, replay_of(quick, full, seed)),
        "p-value and power": ((stage.p_value, stage.power), (None, None)),
    }
    found.problems += [
        f"the {name} of the all-laws stage is {one!r}, its rows give {two!r}"
        for name, (one, two) in stated.items()
        if one != two
    ]
    if isinstance(witness, dict):
        found.problems += _witness_problems(witness, quick, full, seed)


def _witness_problems(witness: dict[str, Any], quick: bool, full: bool, seed: int) -> Iterator[str]:
    """The witness made again, at its own laws, by the other enumerator."""
    shape = next((s for s in shapes_of(quick, full) if s.name == witness.get("shape")), None)
    point = witness.get("point")
    if shape is None or not isinstance(point, int) or not 0 <= point < _num_points(shape):
        yield "the witness of the all-laws stage is no point of a shape"
        return
    models = models_at(shape, point, seed)
    law, _ = _other_law(shape, point, seed)
    lost = abs(1 - sum(law.emissions.values(), Fraction(0)))
    defect = lost or lossless_defect(law, models.target, complete=False)
    ranking, draft = models.draft(())
    wanted = {
        "shape": shape.name, "point": point, "cell": models.cell(()).describe(),
        "defect": str(defect), "target": [str(mass) for mass in models.target(())],
        "ranking": [str(mass) for mass in ranking], "draft": [str(mass) for mass in draft],
    }  # fmt: skip
    if witness != wanted:
        yield f"the witness of the all-laws stage is another by computing it: defect {defect}"


def _chosen(shapes: list[Shape], generator: random.Random) -> Iterator[tuple[Shape, list[int]]]:
    for shape in shapes:
        count = _num_points(shape)
        yield shape, sorted(generator.sample(range(count), min(count, POINTS_PER_SHAPE)))


def _look_again(shape: Shape, points: list[int], seed: int) -> tuple[Counter[Method], bool]:
    """Defects at some points of a shape; which enumerator made them, and whether one is lossy."""
    methods: Counter[Method] = Counter()
    lossy = False
    for point in points:
        law, method = _other_law(shape, point, seed)
        methods[method] += 1
        lossy |= not is_lossless(law.emissions, models_at(shape, point, seed).target)
    return methods, lossy


def _other_law(shape: Shape, point: int, seed: int) -> tuple[RoundLaw, Method]:
    models = models_at(shape, point, seed)
    try:
        law = round_law(
            models.target, models.draft, shape.config, "eager", max_paths=_MAX_EAGER_PATHS
        )
    except BudgetExceededError:
        return round_law(models.target, models.draft, shape.config, "classes"), "classes"
    return law, "eager"
