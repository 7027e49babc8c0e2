"""The choice oracle: exact laws of programs, and what it refuses."""

import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from rheocheck import exact_law
from rheocheck.errors import BudgetExceededError, InputError, LawError, ProgramError
from rheocheck.reference.choices import Choose
from rheocheck.reference.laws import Law
from rheocheck.reference.oracle import enumerate_paths, estimate_num_paths
from tests.strategies import law_of, target_and_draft

ZERO, QUARTER, THIRD, HALF, ONE = (
    Fraction(0), Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(1)
)  # fmt: skip


def test_two_coins_by_hand() -> None:
    def program(choose: Choose) -> int:
        return choose.bernoulli(THIRD) + choose.bernoulli(HALF)

    assert exact_law(program) == {0: Fraction(1, 3), 1: Fraction(1, 2), 2: Fraction(1, 6)}


def test_a_later_draw_may_depend_on_an_earlier_one() -> None:
    def program(choose: Choose) -> tuple[int, int]:
        first = choose.categorical([HALF, HALF])
        return first, choose.categorical([1, 0] if first == 0 else [QUARTER, 3 * QUARTER])

    assert exact_law(program) == {(0, 0): HALF, (1, 0): HALF * QUARTER, (1, 1): 3 * HALF * QUARTER}


def test_a_program_without_draws_has_one_outcome() -> None:
    assert exact_law(lambda choose: "done") == {"done": ONE}


def test_branches_of_weight_zero_and_sure_draws_cost_no_path() -> None:
    def program(choose: Choose) -> tuple[Any, ...]:
        sure = choose.categorical([0, 1, 0]), choose.bernoulli(1), choose.bernoulli(ZERO)
        return (*sure, choose.categorical([HALF, 0, HALF]), choose.categorical([0, 1]))

    paths = list(enumerate_paths(program))
    assert [path.outcome for path in paths] == [(1, True, False, 0, 1), (1, True, False, 2, 1)]
    assert [path.choices for path in paths] == [(0,), (2,)]


@given(laws=target_and_draft())
def test_independent_draws_have_the_product_law(laws: tuple[Law, Law]) -> None:
    law = exact_law(lambda choose: tuple(choose.categorical(weights) for weights in laws))
    product = {
        (i, j): first * second
        for (i, first), (j, second) in itertools.product(*map(enumerate, laws))
        if first * second
    }
    assert law == product


def test_rejection_sampling_needs_a_bound() -> None:
    def program(choose: Choose) -> int:
        while True:
            token = choose.categorical([HALF, QUARTER, QUARTER])
            if token:
                return token

    with pytest.raises(BudgetExceededError, match=r"more than max_choices = 10 branching draws"):
        exact_law(program, max_choices=10)


def test_too_many_paths_are_refused_and_just_enough_are_not() -> None:
    def program(choose: Choose) -> tuple[bool, ...]:
        return tuple(choose.bernoulli(HALF) for _ in range(3))

    assert len(exact_law(program, max_paths=8)) == 8
    with pytest.raises(BudgetExceededError, match="more than max_paths = 7 paths"):
        exact_law(program, max_paths=7)


def test_the_estimate_is_exact_on_a_regular_tree() -> None:
    assert estimate_num_paths(lambda choose: tuple(choose.bernoulli(HALF) for _ in range(5))) == 32


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([HALF, THIRD], r"categorical: weights sums to 5/6; required: exactly 1"),
        ([ONE + HALF, -HALF], r"weights\[1\] is -1/2; required: a probability, at least 0"),
        ([0.5, 0.5], r"weights\[0\] is 0.5 of type float"),
        ([float("nan"), 1], r"weights\[0\] is nan"),
        ([], "weights is empty"),
    ],
)
def test_weights_that_are_no_law_are_refused_with_the_way_there(
    weights: list[Any], message: str
) -> None:
    def program(choose: Choose) -> int:
        if choose.bernoulli(THIRD):
            return 0
        return choose.categorical(weights)

    with pytest.raises(ProgramError, match=message + r".*choices that led there: bernoulli -> F"):
        exact_law(program)


@pytest.mark.parametrize(
    ("probability", "message"),
    [
        (Fraction(-1, 2), "p is -1/2; required: a probability, at least 0"),
        (Fraction(3, 2), "p is 3/2; required: at most 1"),
        (0.5, "p is 0.5 of type float"),
        (float("nan"), "p is nan"),
        (None, "p is None"),
    ],
)
def test_a_probability_outside_the_unit_interval_is_refused(probability: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=f"choose.bernoulli: {message}.*no branching choice led"):
        exact_law(lambda choose: choose.bernoulli(probability))


def test_an_outcome_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"returned \[1\] of type list; required: a hashable"):
        exact_law(lambda choose: [choose.categorical([0, 1])])  # type: ignore[type-var]


def test_an_exception_is_reported_with_the_choices() -> None:
    def program(choose: Choose) -> int:
        return 1 // choose.categorical(law_of(1, 1))

    with pytest.raises(ProgramError, match=r"raised ZeroDivisionError: .*categorical -> 0"):
        exact_law(program)


def test_an_error_of_the_tool_passes_unchanged() -> None:
    def program(choose: Choose) -> int:
        raise LawError("this very text")

    with pytest.raises(LawError, match=r"^this very text$"):
        exact_law(program)


def test_a_program_that_draws_from_elsewhere_is_refused() -> None:
    ticks = itertools.count()

    def program(choose: Choose) -> bool:
        return choose.bernoulli(Fraction(1, 2 + next(ticks)))

    with pytest.raises(ProgramError, match="draw 0 was bernoulli of 1/2 and is now bernoulli of"):
        exact_law(program)


def test_a_program_that_stops_early_the_second_time_is_refused() -> None:
    ticks = itertools.count()

    def program(choose: Choose) -> bool:
        return next(ticks) == 0 and choose.bernoulli(HALF)

    with pytest.raises(ProgramError, match="made 0 draws where it had made 1"):
        exact_law(program)


def test_a_program_must_be_callable() -> None:
    with pytest.raises(InputError, match="program is 3 of type int"):
        exact_law(3)  # type: ignore[arg-type]


def test_a_program_that_exits_the_process_is_an_error() -> None:
    def leaves(choose: Choose) -> int:
        choose.bernoulli(Fraction(1, 2))
        raise SystemExit(0)

    with pytest.raises(ProgramError, match="the program raised SystemExit"):
        exact_law(leaves)
