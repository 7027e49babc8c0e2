"""A uniform known only by comparisons has the law of a real one."""

import itertools
import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rheocheck.adapters.exact_values import as_exact
from rheocheck.adapters.uniform_arrays import (
    LARGEST_BELOW_ONE,
    law_of_uniform_array,
    representatives,
)
from rheocheck.adapters.uniforms import Uniform
from rheocheck.errors import InputError, ProgramError
from rheocheck.protocols import Choose
from rheocheck.reference import exact_law

THIRD, HALF = Fraction(1, 3), Fraction(1, 2)
FRACTIONS = st.fractions(min_value=-1, max_value=2, max_denominator=12)


@given(threshold=FRACTIONS)
@example(threshold=Fraction(0))
@example(threshold=Fraction(1))
def test_a_uniform_is_below_a_threshold_with_that_probability(threshold: Fraction) -> None:
    law = exact_law(lambda choose: Uniform(choose) < threshold)
    assert law.get(True, 0) == min(max(threshold, Fraction(0)), Fraction(1))


@given(thresholds=st.lists(FRACTIONS, max_size=4))
@settings(max_examples=50)
def test_nested_comparisons_of_one_uniform_have_their_joint_law(thresholds: list[Fraction]) -> None:
    def program(choose: Choose) -> tuple[bool, ...]:
        u = Uniform(choose)
        return tuple(u <= t for t in thresholds)

    edges = sorted({Fraction(0), Fraction(1), *(t for t in thresholds if 0 < t < 1)})
    expected: dict[tuple[bool, ...], Fraction] = {}
    for low, high in itertools.pairwise(edges):
        outcome = tuple((low + high) / 2 <= t for t in thresholds)
        expected[outcome] = expected.get(outcome, Fraction(0)) + high - low
    assert exact_law(program) == expected


@given(scale=FRACTIONS.filter(bool), shift=FRACTIONS, threshold=FRACTIONS, bits=st.integers(1, 4))
def test_affine_views_on_a_grid_agree_with_counting(
    scale: Fraction, shift: Fraction, threshold: Fraction, bits: int
) -> None:
    def program(choose: Choose) -> tuple[bool, ...]:
        view = Uniform(choose, bits=bits) * scale + shift
        return view < threshold, view <= threshold, view > threshold, view >= threshold

    counted: dict[tuple[bool, ...], Fraction] = {}
    for numerator in range(2**bits):
        value = Fraction(numerator, 2**bits) * scale + shift
        outcome = (value < threshold, value <= threshold, value > threshold, value >= threshold)
        counted[outcome] = counted.get(outcome, Fraction(0)) + Fraction(1, 2**bits)
    assert exact_law(program) == counted


def test_either_operand_may_come_first() -> None:
    def program(choose: Choose) -> tuple[bool, ...]:
        u = Uniform(choose)
        quarter = np.float64(0.25)
        return u < 0.25, 0.25 > u, bool(quarter >= u), bool(np.array([0.25])[0] > u), u <= quarter

    assert exact_law(program) == {(True,) * 5: Fraction(1, 4), (False,) * 5: Fraction(3, 4)}


def test_a_float_threshold_is_read_as_the_dyadic_rational_it_is() -> None:
    law = exact_law(lambda choose: Uniform(choose) < 0.1)
    assert law[True] == Fraction(0.1) != Fraction(1, 10)
    single = exact_law(lambda choose: Uniform(choose) < np.float32(0.1))
    assert single[True] == Fraction(float(np.float32(0.1)))


def test_an_array_of_thresholds_is_compared_elementwise_with_the_same_uniform() -> None:
    def program(choose: Choose) -> int:
        return int((Uniform(choose) >= np.array([0.25, 0.75])).sum())

    assert exact_law(program) == {0: Fraction(1, 4), 1: HALF, 2: Fraction(1, 4)}


def test_an_inverse_cdf_by_bisection_gives_the_law() -> None:
    cumulative = [THIRD, HALF, Fraction(1)]
    law = exact_law(lambda choose: bisect_right(cumulative, Uniform(choose)))
    assert law == {0: THIRD, 1: HALF - THIRD, 2: HALF}


def test_integer_parts_are_equally_likely() -> None:
    assert exact_law(lambda choose: int(Uniform(choose) * 3)) == dict.fromkeys(range(3), THIRD)
    down = exact_law(lambda choose: math.floor(2 - 2 * Uniform(choose, bits=2)))
    assert down == {0: Fraction(1, 4), 1: HALF, 2: Fraction(1, 4)}


def test_less_and_less_or_equal_differ_only_where_the_grid_has_an_atom() -> None:
    assert exact_law(lambda choose: Uniform(choose) <= 0) == {False: 1}
    on_grid = exact_law(lambda choose: Uniform(choose, bits=53) <= 0)
    assert on_grid[True] == Fraction(1, 2**53)
    assert exact_law(lambda choose: Uniform(choose, bits=53) < 0) == {False: 1}
    assert exact_law(lambda choose: Uniform(choose, bits=53) < 1) == {True: 1}
    assert exact_law(lambda choose: Uniform(choose, bits=2) == 0)[True] == Fraction(1, 4)


def test_infinite_thresholds_decide_and_nan_is_refused() -> None:
    assert exact_law(lambda choose: (Uniform(choose) < math.inf, -Uniform(choose) < math.inf)) == {
        (True, True): 1
    }
    assert exact_law(lambda choose: -Uniform(choose) > -math.inf) == {True: 1}
    with pytest.raises(ProgramError, match="NaN"):
        exact_law(lambda choose: Uniform(choose) < math.nan)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda u, v: math.log(u), "value"),
        (lambda u, v: u < v, "two draws"),
        (lambda u, v: u + v, "two draws"),
        (lambda u, v: 1 / u, "below the line"),
        (lambda u, v: u**2, "power"),
        (lambda u, v: bool(u), "truth value"),
        (lambda u, v: u / 0, "divided by 0"),
        (lambda u, v: u * math.inf, "finite"),
        (lambda u, v: u < "a", "only comparisons"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(use, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProgramError, match=message):
        exact_law(lambda choose: use(Uniform(choose, "u"), Uniform(choose, "v")))


def test_views_of_one_draw_combine() -> None:
    assert exact_law(lambda choose: (u := Uniform(choose)) < 1 - u) == {True: HALF, False: HALF}
    assert exact_law(lambda choose: (u := Uniform(choose)) - u) == {0: 1}


def test_representatives_stand_for_their_intervals_and_the_end_points_weigh_nothing() -> None:
    chosen = representatives([HALF, 0.25, 0, 1, 7, 0.25])
    assert [(item.value, item.weight) for item in chosen] == [
        (0.125, Fraction(1, 4)),
        (0.375, Fraction(1, 4)),
        (0.75, HALF),
        (0.0, 0),
        (LARGEST_BELOW_ONE, 0),
    ]
    with pytest.raises(InputError, match="no float64 lies strictly between"):
        representatives([0.5, math.nextafter(0.5, 1)])


def test_code_on_plain_uniforms_gets_its_law_and_its_behaviour_at_zero() -> None:
    result = law_of_uniform_array(lambda u: (u[0] <= 0.0, u[1] < 0.25), [[0.0], [0.25]])
    assert result.law == {(False, True): Fraction(1, 4), (False, False): Fraction(3, 4)}
    assert result.at_end_points == {(True, True): (0.0, 0.125), (True, False): (0.0, 0.625)}


def test_a_missing_threshold_is_noticed() -> None:
    with pytest.raises(ProgramError, match="no threshold between them"):
        law_of_uniform_array(lambda u: u[0] < 0.3, [[0.75]])


def test_values_without_a_number_are_refused() -> None:
    with pytest.raises(ProgramError, match="single number"):
        as_exact(np.array([0.5, 0.5]))
    assert as_exact(np.array([0.5])) == HALF
    assert as_exact(np.int64(3)) == 3
