"""Controls of the all-laws stage: programs that are lossy everywhere, checked at a few points."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from rheocheck.audit.controls import Control
from rheocheck.audit.universal_points import LawOf, check_points
from rheocheck.audit.universal_shapes import Shape
from rheocheck.config import SpeculationConfig
from rheocheck.reference.laws import Draft, Path, Target, as_law
from rheocheck.reference.round_law import RoundLaw

_CONFIG = SpeculationConfig(top_k=1, num_top=0, budget=1, depth=1, support_size=2)
_SHAPE = Shape(2, _CONFIG, enumerated=False, num_points=4)


def universal_controls(seed: int) -> list[Control]:
    """Check three programs, one right and two lossy, at points of one shape.

    Args:
      seed: The stage's seed.

    Returns:
      The controls; milliseconds in all.
    """
    programs: tuple[tuple[str, LawOf, str], ...] = (
        ("target sampling", _plain, "lossless"),
        ("one token is always emitted", _first_token, "lossy"),
        ("a billionth of the mass is lost", _lossy_mass, "lossy"),
        ("a billionth of the mass is moved", _moved_mass, "lossy"),
    )
    return [Control(name, expected, _said(law_of, seed)) for name, law_of, expected in programs]


def _said(law_of: LawOf, seed: int) -> str:
    found = check_points(0, _SHAPE, 0, _SHAPE.num_points, seed, law_of).findings
    if not found:
        return "lossless"
    return "lossy" if found[0].defect > 0 else "accused with defect 0"


def _plain(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
    law: Mapping[Path, Fraction] = {(t,): mass for t, mass in enumerate(as_law(target(()))) if mass}
    return RoundLaw(law, Fraction(0), 1)


def _first_token(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
    token = min(range(2), key=as_law(target(())).__getitem__)
    return RoundLaw({(token,): Fraction(1)}, Fraction(0), 1)


def _lossy_mass(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
    law = _plain(target, draft, config)
    kept = 1 - Fraction(1, 10**9)
    return replace(law, emissions={path: mass * kept for path, mass in law.emissions.items()})


def _moved_mass(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
    law = _plain(target, draft, config)
    away = Fraction(1, 10**9)
    moved = {path: mass * (1 - away) for path, mass in law.emissions.items()}
    token = min(range(2), key=as_law(target(())).__getitem__)
    return replace(law, emissions={**moved, (token,): moved.get((token,), Fraction(0)) + away})
