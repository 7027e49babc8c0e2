"""Named edge cases: each is legal, and lossless under every rule."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.config import SpeculationConfig
from rheocheck.reference.laws import Draft, Law, Path, Target

TINY = Fraction(1, 10**40)


@dataclass(frozen=True, slots=True)
class EdgeCase:
    """Laws and a scheme that stand for one limit.

    Attributes:
      target: Target law at every path.
      ranking: Ranking law at every path.
      draft: Tempered draft at every path; the ranking law itself where no pair is meant.
      config: The scheme; its rule is replaced by each rule in turn.
      rotated: Laws rotate by one token for each token of the path, so that paths differ.
    """

    target: Law
    ranking: Law
    draft: Law
    config: SpeculationConfig
    rotated: bool = True

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self.target)

    def models(self) -> tuple[Target, Draft]:
        """The target and the draft."""

        def at(law: Law) -> Callable[[Path], Law]:
            def model(path: Path) -> Law:
                shift = sum(path) % len(law) if self.rotated else 0
                return law[-shift:] + law[:-shift] if shift else law

            return model

        if self.draft is self.ranking:
            return at(self.target), at(self.ranking)
        ranking_at, draft_at = at(self.ranking), at(self.draft)
        return at(self.target), lambda path: (ranking_at(path), draft_at(path))


def _law(*weights: int) -> Law:
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def _case(
    target: Law,
    ranking: Law,
    draft: Law | None = None,
    *,
    top_k: int = 3,
    num_top: int = 1,
    budget: int = 5,
    depth: int = 2,
    support_size: int = 128,
    rotated: bool = True,
    **extensions: Any,
) -> EdgeCase:
    config = SpeculationConfig(
        top_k=top_k,
        num_top=num_top,
        budget=budget,
        depth=depth,
        support_size=support_size,
        **extensions,
    )
    return EdgeCase(target, ranking, ranking if draft is None else draft, config, rotated)


# Three tokens leave the eager enumerator a few hundred paths, and still a top, probe and filler.
_TARGET = _law(1, 2, 3)
_DRAFT = _law(3, 2, 1)
_LONG_TARGET = _law(1, 2, 3, 4)
_LONG_DRAFT = _law(4, 3, 2, 1)

EDGE_CASES: dict[str, EdgeCase] = {
    "vocabulary of one token": _case(_law(1), _law(1)),
    "support of one token": _case(_LONG_TARGET, _law(0, 0, 1, 0)),
    "support_size = 1": _case(_LONG_TARGET, _LONG_DRAFT, support_size=1),
    "num_top = support": _case(_LONG_TARGET, _law(2, 1, 0, 0), num_top=2, top_k=4),
    "num_top > support": _case(_LONG_TARGET, _law(2, 1, 0, 0), num_top=3, top_k=4),
    "num_top = top_k": _case(_LONG_TARGET, _LONG_DRAFT, num_top=3),
    "num_top > top_k": _case(_LONG_TARGET, _LONG_DRAFT, num_top=7),
    "num_top = 0": _case(_TARGET, _DRAFT, num_top=0, top_k=2),
    "num_top = 0, top_k = 1": _case(_TARGET, _DRAFT, num_top=0, top_k=1),
    "top_k > support": _case(_LONG_TARGET, _law(3, 2, 1, 0), top_k=6, budget=4),
    "top_k > vocabulary": _case(_TARGET, _DRAFT, top_k=9, budget=6),
    "support_size < top_k": _case(_LONG_TARGET, _LONG_DRAFT, support_size=2),
    "support_size > vocabulary": _case(_TARGET, _DRAFT, support_size=1000),
    "draft with exact zeros": _case(_LONG_TARGET, _law(3, 0, 2, 1)),
    "target with zeros": _case(_law(0, 1, 0, 1), _LONG_DRAFT, budget=3),
    "disjoint supports": _case(_law(1, 2, 0, 0), _law(0, 0, 2, 1)),
    "target = probe law": _case(_law(0, 2, 1), _DRAFT, rotated=False),
    "target = draft": _case(_DRAFT, _DRAFT),
    "target = draft, num_top = 0": _case(_DRAFT, _DRAFT, num_top=0, top_k=2),
    "residual on a single token": _case(_law(9, 1, 0), _DRAFT),
    "tail mass below any float": _case(_TARGET, (1 - 2 * TINY, TINY, TINY), rotated=False),
    "target mass below any float": _case((1 - 2 * TINY, TINY, TINY), _DRAFT),
    "scores apart below any float": _case(
        _TARGET, (Fraction(1, 3) + TINY, Fraction(1, 3), Fraction(1, 3) - TINY)
    ),
    "tempered tail mass 0": _case(_LONG_TARGET, _LONG_DRAFT, _law(1, 0, 0, 0)),
    "tempered draft off the support": _case(_LONG_TARGET, _law(2, 1, 0, 0), _law(0, 0, 1, 1)),
    "top of tempered mass 0": _case(_LONG_TARGET, _LONG_DRAFT, _law(0, 1, 0, 2), budget=4),
    "filler of tempered mass 0": _case(_LONG_TARGET, _LONG_DRAFT, _law(1, 0, 1, 1), budget=4),
    "laws in opposite order": _case(_TARGET, _DRAFT, _law(1, 2, 3)),
    "all scores tied": _case(_TARGET, _law(1, 1, 1), budget=4),
    "probe tied with a top token": _case(_law(1, 1, 3, 1), _law(2, 1, 1, 0), budget=3),
    "tail mass ties with the top": _case(_TARGET, _law(2, 1, 1), budget=4),
    "scores tied across layers": _case(
        _law(2, 1), _law(1, 1), top_k=2, budget=4, depth=3, rotated=False
    ),
    "layer wider than the frontier": _case(
        _law(1, 2), _law(9, 1), top_k=2, budget=9, depth=3, rotated=False
    ),
    "greedy target": _case(_law(0, 1, 0), _DRAFT),
    "greedy draft": _case(_TARGET, _law(1, 0, 0)),
    "greedy target and draft": _case(_law(0, 1, 0), _law(1, 0, 0)),
    "budget = 0": _case(_TARGET, _DRAFT, budget=0),
    "budget = 1": _case(_TARGET, _DRAFT, budget=1),
    "budget larger than the tree": _case(_law(1, 2), _law(2, 1), top_k=2, budget=99),
    "depth = 0": _case(_TARGET, _DRAFT, depth=0),
    "budget = 0 and depth = 0": _case(_TARGET, _DRAFT, budget=0, depth=0),
    "two probes": _case(_LONG_TARGET, _LONG_DRAFT, budget=4, depth=1, num_probes=2),
    "two probes and a filler": _case(
        _LONG_TARGET, _LONG_DRAFT, top_k=4, budget=4, depth=1, num_probes=2
    ),
    "two probes, one of which survives": _case(
        _LONG_TARGET, _LONG_DRAFT, num_top=0, budget=1, depth=1, num_probes=2
    ),
    "as many probes as children": _case(
        _law(1, 2), _law(2, 1), top_k=2, num_top=0, budget=4, num_probes=2
    ),
    "more probes than the tail has": _case(_TARGET, _DRAFT, top_k=6, budget=4, num_probes=5),
    "second probe without tempered mass": _case(
        _LONG_TARGET, _LONG_DRAFT, _law(1, 0, 1, 0), budget=4, num_probes=2
    ),
    "more top children at peaked laws": _case(
        _TARGET, _law(4, 1, 1), budget=4, num_top=0, top_thresholds=(0.375, 0.5, 0.75)
    ),
    "top threshold reached exactly": _case(
        _LONG_TARGET, _law(1, 1, 1, 1), budget=3, top_thresholds=(0.25,)
    ),
    "thresholds beyond top_k": _case(_TARGET, _DRAFT, top_k=2, top_thresholds=(0.1, 0.2, 0.3)),
    "merged probe": _case(_LONG_TARGET, _LONG_DRAFT, budget=4, merged=True),
    "merged probe, tempered": _case(
        _LONG_TARGET, _LONG_DRAFT, _law(0, 1, 2, 0), budget=4, merged=True
    ),
    "merged probe, no token beyond its core": _case(
        _LONG_TARGET, _law(2, 1, 0, 0), budget=4, merged=True
    ),
}
