"""Controls of the exact stage: laws written out by hand, put before the judge of the sweep.

Neither enumerator of the scheme has a part in them, so a fault of theirs cannot hide one of the
judge's. The lossy samplers are enumerated by the oracle, so that no figure is copied.
"""

from fractions import Fraction

from rheocheck.audit.controls import Control
from rheocheck.audit.exact_check import Finding, judge
from rheocheck.config import SpeculationConfig
from rheocheck.reference.choices import Choose
from rheocheck.reference.families import EDGE_GROUP, Instance
from rheocheck.reference.laws import Law, Path
from rheocheck.reference.oracle import exact_law
from rheocheck.reference.round_law import Method, RoundLaw

_HALF, _QUARTER = Fraction(1, 2), Fraction(1, 4)
_INSTANCE = Instance(EDGE_GROUP, "control", 2, SpeculationConfig(), "by hand")
_SINGLE = RoundLaw({(0,): _HALF, (1,): _HALF}, Fraction(0), 1)
_LONGER = RoundLaw({(0, 0): _QUARTER, (0, 1): _QUARTER, (1,): _HALF}, Fraction(0), 1)
_TINY = Fraction(1, 10**9)


def exact_controls() -> list[Control]:
    """Put right and wrong laws before the judge of the exact stage.

    Returns:
      The controls; microseconds each.
    """
    accepted = RoundLaw(_SINGLE.emissions, _TINY, 1)
    shifted = RoundLaw({(0,): _HALF + _TINY, (1,): _HALF - _TINY}, Fraction(0), 1)
    lost = RoundLaw({(0,): _HALF - _TINY, (1,): _HALF - _TINY}, Fraction(0), 1)
    residual = RoundLaw(exact_law(_residual_is_the_target), _HALF, 3)
    joint = RoundLaw(exact_law(_one_coin_for_two_tokens), Fraction(0), 2)
    outside = RoundLaw({(0,): _HALF, (2,): _HALF}, Fraction(0), 1)
    return [
        _control("a right law, twice", _SINGLE, _SINGLE, "nothing"),
        _control("another expected acceptance", _SINGLE, accepted, "expected acceptance"),
        _control("the same, from the classes", accepted, _SINGLE, "expected acceptance"),
        _control("another lossless law", _SINGLE, _LONGER, "law"),
        _control("lost mass, twice", lost, lost, "total mass"),
        _control("lost mass, by classes alone", lost, None, "total mass"),
        _control("a residual that is the target, twice", residual, residual, "defect 1/4"),
        _control("the same, by classes alone", residual, None, "defect 1/4"),
        _control("one coin for two tokens, twice", joint, joint, "defect 1/4"),
        _control("a token outside the vocabulary", outside, outside, "defect 1/2"),
        _control("a shift of 1e-9, run eagerly only", _SINGLE, shifted, "law, defect 1/1000000000"),
        _control("the same, by classes only", shifted, _SINGLE, "law, defect 1/1000000000"),
    ]


def _control(name: str, by_classes: RoundLaw, eager: RoundLaw | None, expected: str) -> Control:
    laws: dict[Method, RoundLaw] = {"classes": by_classes}
    if eager is not None:
        laws["eager"] = eager
    return Control(name, expected, _said(judge(_INSTANCE, _fair, laws)))


def _said(finding: Finding) -> str:
    """What the judge said, in words."""
    said = [] if finding.disagreement is None else [finding.disagreement]
    if finding.violation is not None:
        said.append(f"defect {finding.defect}")
    return ", ".join(said) if finding.failed else "nothing"


def _fair(path: Path) -> Law:
    return (_HALF, _HALF)


def _residual_is_the_target(choose: Choose) -> Path:
    """Token 0 is drafted for sure and accepted with 1/2; a rejection forgets that it was tried."""
    return (0,) if choose.bernoulli(_HALF) else (choose.categorical(_fair(())),)


def _one_coin_for_two_tokens(choose: Choose) -> Path:
    """Right in the first token, wrong in the second."""
    token = choose.categorical(_fair(()))
    return (token, token)
