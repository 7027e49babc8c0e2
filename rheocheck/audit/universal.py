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

Source: Schwartz (1980), J. ACM 27; Zippel (1979), Probabilistic algorithms for sparse polynomials.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from rheocheck.audit.resume import Journal
from rheocheck.audit.universal_shapes import Shape, shapes_of
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference.cell_points import ENTRY_DEGREE
from rheocheck.reference.cells import NodeCell, node_cells
from rheocheck.reference.laws import Draft, Target
from rheocheck.reference.round_law import RoundLaw, lossless_defect, round_law
from rheocheck.reference.tree_cells import TIES, CellModels, tree_cell

NAME = "all_laws"
CHUNK = 400

LawOf: TypeAlias = Callable[[Target, Draft, SpeculationConfig], RoundLaw]
Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A point with a defect.

    Attributes:
      shape: Index of the shape.
      point: Index of the point within the shape; with the stage's seed it determines all laws.
      defect: Largest absolute defect over paths and tokens.
      cell: The root's cell, in words.
      target: [vocab] the root's target law, as fractions.
      ranking: [vocab] the root's ranking law.
      draft: [vocab] the root's draft.
    """

    shape: int
    point: int
    defect: Fraction
    cell: str
    target: tuple[str, ...]
    ranking: tuple[str, ...]
    draft: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one run of consecutive points of one shape gave.

    Attributes:
      shape: Index of the shape.
      num_points: Points evaluated.
      cells: Digests of the tree cells visited; empty for one node, where the cells are enumerated.
      max_classes: Most classes of draws at one point.
      findings: Points with a defect; the first only.
    """

    shape: int
    num_points: int
    cells: frozenset[str]
    max_classes: int
    findings: tuple[Finding, ...]


def class_law(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
    """Law of a round by the class enumerator: what the stage checks unless told otherwise."""
    return round_law(target, draft, config, method="classes")


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
    return _result(chosen, rows, findings, quick, full, seed, time.perf_counter() - started)


def check_points(
    index: int, shape: Shape, start: int, stop: int, seed: int, law_of: LawOf
) -> Chunk:
    """Evaluate the defect at some points of one shape.

    Args:
      index: Index of the shape, repeated in the result.
      shape: The shape.
      start: First point; in an enumerated shape, the first cell.
      stop: One past the last point.
      seed: The stage's seed.
      law_of: The program under test.

    Returns:
      What was visited and the first point with a defect. The result depends on the points only, not
      on how they are cut into runs.
    """
    cells: set[str] = set()
    findings: list[Finding] = []
    max_classes = 0
    for point in range(start, stop):
        models = models_at(shape, point, seed)
        law = law_of(models.target, models.draft, shape.config)
        max_classes = max(max_classes, law.num_classes)
        if not shape.enumerated:
            cells.add(tree_cell(models, shape.config).digest)
        defect = lossless_defect(law, models.target)
        if defect != 0 and not findings:
            findings.append(_finding(index, point, defect, models))
    return Chunk(index, stop - start, frozenset(cells), max_classes, tuple(findings))


def models_at(shape: Shape, point: int, seed: int) -> CellModels:
    """Laws of one point of a shape, also to look at a finding again.

    Args:
      shape: The shape.
      point: Index of the point.
      seed: The stage's seed.

    Returns:
      Target and draft.
    """
    text = f"{seed}:{shape.name}:{point}"
    if shape.enumerated:
        root = _cells(shape.vocab, shape.config, shape.zeros)[point]
        return CellModels(shape.vocab, shape.config, text, root=root, bits=shape.bits)
    ties = TIES[point % len(TIES)]
    return CellModels(shape.vocab, shape.config, text, ties=ties, bits=shape.bits)


def degree_bound(config: SpeculationConfig, num_classes: int) -> int:
    """Bound on the degree of a defect's numerator in a cell's coordinates.

    A law's entry is a quotient of polynomials of degree at most ENTRY_DEGREE; so is a residual's,
    and an acceptance, a quotient of two of them over one denominator, adds one. A path multiplies
    at most one such factor for each surviving probe (`budget`), for each test (`top_k` at `depth`
    nodes) and for the last draw. In one class a prefix u + t arises in at most two ways (t
    accepted, t drawn last), "beyond u" in one more; what comes later sums to 1. Brought to one
    denominator, the degrees of all terms add up, and the factor target(t | u) and the numerator of
    the largest term come on top.

    Args:
      config: The scheme.
      num_classes: Classes of draws.

    Returns:
      The bound; far from tight.
    """
    factors = config.budget + config.top_k * config.depth + 2
    return (ENTRY_DEGREE + 1) * factors * (3 * num_classes + 1)


@functools.lru_cache(maxsize=4)
def _cells(vocab: int, config: SpeculationConfig, zeros: bool) -> list[NodeCell]:
    return list(node_cells(vocab, config, zeros))


def _tasks(shapes: list[Shape]) -> Iterator[tuple[int, Shape, int, int]]:
    for index, shape in enumerate(shapes):
        count = shape.num_points
        if shape.enumerated:
            count = len(_cells(shape.vocab, shape.config, shape.zeros))
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
        yield from _run(check, tasks, jobs)
        return
    known = [journal.get(NAME, str(number)) for number in range(len(tasks))]
    missing = [task for task, value in zip(tasks, known, strict=True) if value is None]
    fresh = _run(check, missing, jobs)
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


def _run(
    check: Callable[..., Chunk], tasks: list[tuple[int, Shape, int, int]], jobs: int
) -> Iterator[Chunk]:
    """Chunks in the order of the tasks, whatever the number of processes."""
    if jobs == 1:
        yield from (check(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=jobs, return_as="generator")
    yield from parallel(delayed(check)(*task) for task in tasks)


def _finding(index: int, point: int, defect: Fraction, models: CellModels) -> Finding:
    ranking, draft = models.draft(())
    shown = (tuple(map(str, law)) for law in (models.target(()), ranking, draft))
    return Finding(index, point, defect, models.cell(()).describe(), *shown)


def _row(index: int, shape: Shape, chunks: list[Chunk]) -> dict[str, Any]:
    """The table's line for one shape."""
    own = [chunk for chunk in chunks if chunk.shape == index]
    num_points = sum(chunk.num_points for chunk in own)
    max_classes = max((chunk.max_classes for chunk in own), default=0)
    visited = len(frozenset().union(*(chunk.cells for chunk in own)))
    degree = degree_bound(shape.config, max_classes)
    draws = 1 if shape.enumerated else num_points
    return {
        "shape": shape.name,
        "vocab": shape.vocab,
        "depth": shape.config.depth,
        "cells_visited": num_points if shape.enumerated else visited,
        "cells_total": num_points if shape.enumerated else None,
        "complete": shape.enumerated,
        "zero_masses": shape.zeros,
        "points": num_points,
        "max_classes": max_classes,
        "degree_bound": degree,
        "failure_probability_log2": round(math.log2(draws * degree) - shape.bits, 2),
        "defects": sum(len(chunk.findings) for chunk in own),
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
    worst = max((row["failure_probability_log2"] for row in rows), default=-math.inf)
    nodes = [row for row in rows if row["complete"]]
    drawn = [row for row in rows if not row["complete"]]
    scope = (
        f"one node: all {sum(row['cells_visited'] for row in nodes):,} sign cells of {len(nodes)} "
        f"shapes; drawn: {sum(row['cells_visited'] for row in drawn):,} distinct cells of "
        f"{len(drawn)} shapes, most of them deeper trees"
    )
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
        claim = (
            f"a round is lossless for all target, ranking and draft laws in the cells visited "
            f"({scope}), except with probability at most 2^{worst:.1f} for each shape"
        )
    effort = " --quick" if quick else " --full" if full else ""
    verdict = Verdict.LOSSY if findings else Verdict.CERTIFIED if rows else Verdict.INCONCLUSIVE
    return StageResult(
        name=NAME,
        verdict=verdict,
        claim=claim,
        statistic=float(largest),
        sample_size=sum(row["points"] for row in rows),
        threshold=0.0,
        replay=f"rheocheck certify --all-laws{effort} --seed {seed}",
        seconds=seconds,
        details=details,
    )
