"""Laws on which the tests pin exact total variations: three tokens, the last one matters."""

from collections.abc import Callable
from fractions import Fraction

from rheocheck.protocols import Choose, LawFunction, Path
from rheocheck.reference import exact_law, lossless_defect, total_variation

TARGET = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6))
DRAFT = (Fraction(1, 6), Fraction(3, 4), Fraction(1, 12))
# Five tokens on which figures of the shared-coin rule are known from elsewhere.
FIVE = tuple(Fraction(mass, 20) for mass in (8, 6, 3, 2, 1))


EXACT = (Fraction(0), Fraction(0))
"""What `distances` gives of a lossless sampler."""


def target(path: Path) -> tuple[Fraction, ...]:
    """TARGET, turned by the last token."""
    turn = path[-1] if path else 0
    return TARGET[turn:] + TARGET[:turn]


def draft(path: Path) -> tuple[Fraction, ...]:
    """DRAFT, turned by the last token."""
    turn = path[-1] if path else 0
    return DRAFT[turn:] + DRAFT[:turn]


def distances(
    sampler: Callable[[LawFunction, LawFunction, Choose], Path],
    wanted: LawFunction = target,
    proposed: LawFunction = draft,
) -> tuple[Fraction, Fraction]:
    """Exact total variation of the first token and of the joint law."""
    law = exact_law(lambda choose: sampler(wanted, proposed, choose))
    joint = total_variation(law, wanted, max(map(len, law)))
    assert (joint == 0) == (lossless_defect(law, wanted) == 0)
    return total_variation(law, wanted, 1), joint
