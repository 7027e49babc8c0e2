"""Points of a shape: their laws, and whether a program is lossless there."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from rheocheck.audit.universal_shapes import Shape
from rheocheck.config import SpeculationConfig
from rheocheck.reference.cell_points import ENTRY_DEGREE
from rheocheck.reference.cells import NodeCell, node_cells
from rheocheck.reference.defect import lossless_defect
from rheocheck.reference.laws import Draft, Path, Target
from rheocheck.reference.round_law import RoundLaw, round_law
from rheocheck.reference.tree_cells import TIES, CellModels, tree_cell

LawOf: TypeAlias = Callable[[Target, Draft, SpeculationConfig], RoundLaw]


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
        if not findings and not is_lossless(law.emissions, models.target):
            lost = abs(1 - sum(law.emissions.values(), Fraction(0)))
            defect = max(lossless_defect(law, models.target, complete=False), lost)
            findings.append(_finding(index, point, defect, models))
    return Chunk(index, stop - start, frozenset(cells), max_classes, tuple(findings))


def is_lossless(emissions: Mapping[Path, Fraction], target: Target) -> bool:
    """Whether the defect is 0 and no mass is lost; in integers, since it is asked a million times.

    Args:
      emissions: Probability of each emission.
      target: path -> [vocab] law of Fractions.

    Returns:
      True iff `lossless_defect` is 0 and the probabilities sum to 1.
    """
    scale = math.lcm(*[mass.denominator for mass in emissions.values()])
    extends: dict[Path, int] = {}
    beyond: dict[Path, int] = {}
    for emission, mass in emissions.items():
        share = mass.numerator * (scale // mass.denominator)
        for cut in range(len(emission)):
            path, longer = emission[:cut], emission[: cut + 1]
            beyond[path] = beyond.get(path, 0) + share
            extends[longer] = extends.get(longer, 0) + share
    # Where all tokens of the vocabulary have their share of `total`, nothing is left for others.
    return beyond.get(()) == scale and all(
        extends.get((*path, token), 0) * wanted.denominator == total * wanted.numerator
        for path, total in beyond.items()
        for token, wanted in enumerate(target(path))
    )


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
        root = listed_cells(shape)[point]
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
def listed_cells(shape: Shape) -> list[NodeCell]:
    """All cells of a shape of one node, remembered: see `node_cells`."""
    return list(node_cells(shape.vocab, shape.config, shape.zeros))


def _finding(index: int, point: int, defect: Fraction, models: CellModels) -> Finding:
    ranking, draft = models.draft(())
    shown = (tuple(map(str, law)) for law in (models.target(()), ranking, draft))
    return Finding(index, point, defect, models.cell(()).describe(), *shown)
