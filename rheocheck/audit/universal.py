"""All laws of a shape at once: exact defects at random points of every sign cell.

On a sign cell (`rheocheck.reference.cells`) the lossless defect of a round is a rational function
of the laws. If it is zero at a random point of the cell it is zero on all of it, except with a
probability that Schwartz and Zippel bound: degree / size of the set that coordinates come from.

What the claim assumes of the program: it compares nothing but what a cell fixes, and a path of it
multiplies at most `budget` draws of probes, `top_k` tests at each of `depth` nodes and one last
draw, each a quotient of a few law entries (`degree_bound`). A program that hashes its input, or
that branches at target > 1/2, is outside the claim.

* One node (depth 1): all cells are enumerated. Suppose that some laws of the shape are lossy. They
  lie in some cell, and the one point drawn there is missed with probability at most
  degree / 2^bits. So is the shape: no union over cells is needed.
* Deeper trees: cells are drawn, not enumerated. A draw lands in a faulty cell and shows no defect
  with probability at most degree / 2^bits; over all draws, at most their number times that. The
  claim is about the cells visited, and their number is reported.
* Ranking laws only order. Where ties between nodes are wanted, their coordinates are few or shared,
  and the bound counts those of targets and drafts. A program that also uses a ranking mass as a
  value has the bound from the draws with unrelated rankings: one in four, and all of one node.

Source: Schwartz (1980), J. ACM 27; Zippel (1979), Probabilistic algorithms for sparse polynomials.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.controls import all_fired, controls_json, controls_text
from rheocheck.audit.resume import Journal
from rheocheck.audit.universal_controls import universal_controls
from rheocheck.audit.universal_points import (
    Chunk,
    Finding,
    LawOf,
    check_points,
    class_law,
    degree_bound,
    listed_cells,
)
from rheocheck.audit.universal_shapes import Shape, shapes_of
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError
from rheocheck.parallel import in_order

NAME = "all_laws"
CHUNK = 400

Progress: TypeAlias = Callable[[str, int, int], None]


def universal_stage(
    quick: bool,
    seed: int,
    jobs: int,
    progress: Progress | None = None,
    *,
    full: bool = False,
    law_of: LawOf = class_law,
    shapes: Iterable[Shape] | None = None,
    journal: Journal | None = None,
) -> StageResult:
    """Check a program for all laws of many shapes.

    Args:
      quick: Fewer shapes, seconds instead of a minute or two.
      seed: Determines every law; any integer.
      jobs: Processes.
      progress: Told of points done.
      full: Also the zero faces of five tokens: tens of minutes.
      law_of: (target, draft, config) -> law of a round: the program under test. Must be picklable
        by cloudpickle if `jobs` is more than 1.
      shapes: The shapes to check; None takes the stage's own list.
      journal: Points that a stopped run has done are taken from it, new ones are recorded. It must
        be of a run of the same shapes and `law_of`.

    Returns:
      CERTIFIED with the claim and its failure probability, or LOSSY with a witness. `details` lists
      for each shape the cells, the points and whether it is complete.
    """
    started = time.perf_counter()
    chosen = list(shapes_of(quick, full) if shapes is None else shapes)
    tasks = list(_tasks(chosen))
    total = sum(stop - start for _, _, start, stop in tasks)
    chunks: list[Chunk] = []
    done = 0
    check = functools.partial(check_points, seed=seed, law_of=law_of)
    for chunk in _recalled(check, tasks, jobs, journal):
        chunks.append(chunk)
        done += chunk.num_points
        if progress is not None:
            progress(NAME, done, total)
    rows = [_row(index, shape, chunks) for index, shape in enumerate(chosen)]
    findings = [finding for chunk in chunks for finding in chunk.findings]
    stage = _result(chosen, rows, findings, quick, full, seed, time.perf_counter() - started)
    controls = universal_controls(seed)
    stage.details["controls"] = controls_json(controls)
    stage.details["summary"] += f". {controls_text(controls)}"
    if not all_fired(controls):
        stage.verdict, stage.claim = Verdict.INCONCLUSIVE, None
    return stage


def _tasks(shapes: list[Shape]) -> Iterator[tuple[int, Shape, int, int]]:
    for index, shape in enumerate(shapes):
        count = shape.num_points
        if shape.enumerated:
            count = len(listed_cells(shape))
        for start in range(0, count, CHUNK):
            yield index, shape, start, min(start + CHUNK, count)


def _recalled(
    check: Callable[..., Chunk],
    tasks: list[tuple[int, Shape, int, int]],
    jobs: int,
    journal: Journal | None,
) -> Iterator[Chunk]:
    """Chunks in the order of the tasks: from the journal where it has them, else computed."""
    if journal is None:
        yield from in_order(check, tasks, jobs)
        return
    known = [journal.get(NAME, str(number)) for number in range(len(tasks))]
    missing = [task for task, value in zip(tasks, known, strict=True) if value is None]
    fresh = in_order(check, missing, jobs)
    for number, (task, value) in enumerate(zip(tasks, known, strict=True)):
        if value is None:
            chunk = next(fresh)
            # A point with a defect is never read from a file: its run is computed again.
            value = 0 if chunk.findings else [chunk.max_classes, *sorted(chunk.cells)]
            journal.record(NAME, str(number), value)
            yield chunk
        elif value == 0:
            yield check(*task)
        else:
            yield _chunk_of(task, value)


def _chunk_of(task: tuple[int, Shape, int, int], value: Any) -> Chunk:
    index, shape, start, stop = task
    if not isinstance(value, list) or not value or not isinstance(value[0], int):
        raise InputError(f"the journal's entry for points {start}.. of {shape.name} is damaged")
    return Chunk(index, stop - start, frozenset(map(str, value[1:])), value[0], ())


def _row(index: int, shape: Shape, chunks: list[Chunk]) -> dict[str, Any]:
    """The table's line for one shape."""
    own = [chunk for chunk in chunks if chunk.shape == index]
    num_points = sum(chunk.num_points for chunk in own)
    max_classes = max((chunk.max_classes for chunk in own), default=0)
    visited = len(frozenset().union(*(chunk.cells for chunk in own)))
    defects = sum(len(chunk.findings) for chunk in own)
    return row_of(
        shape, num_points, num_points if shape.enumerated else visited, max_classes, defects
    )


def row_of(
    shape: Shape, num_points: int, cells_visited: int, max_classes: int, defects: int
) -> dict[str, Any]:
    """The table's line for one shape, from what was counted.

    Args:
      shape: The shape.
      num_points: Points evaluated.
      cells_visited: Distinct cells among them.
      max_classes: Most classes of draws at one point.
      defects: Findings.

    Returns:
      JSON values.
    """
    degree = degree_bound(shape.config, max_classes)
    draws = 1 if shape.enumerated else num_points
    return {
        "shape": shape.name,
        "vocab": shape.vocab,
        "depth": shape.config.depth,
        "cells_visited": cells_visited,
        "cells_total": num_points if shape.enumerated else None,
        "complete": shape.enumerated,
        "zero_masses": shape.zeros,
        "points": num_points,
        "max_classes": max_classes,
        "degree_bound": degree,
        "failure_probability_log2": round(math.log2(draws * degree) - shape.bits, 2),
        "defects": defects,
    }


def _result(
    shapes: list[Shape],
    rows: list[dict[str, Any]],
    findings: list[Finding],
    quick: bool,
    full: bool,
    seed: int,
    seconds: float,
) -> StageResult:
    claimed, scope, worst = claim_and_scope(rows)
    details: dict[str, Any] = {"rows": rows, "failure_probability_log2": worst, "summary": scope}
    largest = Fraction(0)
    claim = None
    if findings:
        first = max(findings, key=lambda finding: finding.defect)
        largest = first.defect
        details["witness"] = {
            "shape": shapes[first.shape].name,
            "point": first.point,
            "cell": first.cell,
            "defect": str(first.defect),
            "target": list(first.target),
            "ranking": list(first.ranking),
            "draft": list(first.draft),
        }
        details["failing_shapes"] = sorted({shapes[finding.shape].name for finding in findings})
    elif rows:
        claim = claimed
    verdict = Verdict.LOSSY if findings else Verdict.CERTIFIED if rows else Verdict.INCONCLUSIVE
    return StageResult(
        name=NAME,
        verdict=verdict,
        claim=claim,
        statistic=float(largest),
        sample_size=sum(row["points"] for row in rows),
        threshold=0.0,
        replay=replay_of(quick, full, seed),
        seconds=seconds,
        details=details,
    )


def claim_and_scope(rows: list[dict[str, Any]]) -> tuple[str, str, float]:
    """The claim of rows without a defect, what they cover, and log2 of the worst miss."""
    worst = max((row["failure_probability_log2"] for row in rows), default=-math.inf)
    nodes = [row for row in rows if row["complete"]]
    drawn = [row for row in rows if not row["complete"]]
    scope = "; ".join([*_node_scope(nodes), *_drawn_scope(drawn)])
    claim = (
        f"a round is lossless for all target, ranking and draft laws in the cells visited "
        f"({scope}), except with probability at most 2^{worst:.1f} for each shape"
    )
    return claim, scope, worst


def replay_of(quick: bool, full: bool, seed: int) -> str:
    """The command line that gives the stage again."""
    effort = " --quick" if quick else " --full" if full else ""
    return f"rheocheck certify --all-laws{effort} --seed {seed}"


def _node_scope(rows: list[dict[str, Any]]) -> list[str]:
    """What the enumerated shapes cover, in words; nothing if there are none."""
    if not rows:
        return []
    partial = [row["vocab"] for row in rows if not row["zero_masses"]]
    scope = (
        f"one node of up to {max(row['vocab'] for row in rows)} tokens: all "
        f"{sum(row['cells_visited'] for row in rows):,} sign cells of {len(rows)} shapes"
    )
    return [
        f"{scope}, those with a zero mass up to {min(partial) - 1} tokens" if partial else scope
    ]


def _drawn_scope(rows: list[dict[str, Any]]) -> list[str]:
    """What the drawn cells cover, in words; nothing if there are none."""
    if not rows:
        return []
    return [
        f"trees of up to {max(row['depth'] for row in rows)} layers and faces: "
        f"{sum(row['cells_visited'] for row in rows):,} distinct cells of {len(rows)} shapes drawn"
    ]
