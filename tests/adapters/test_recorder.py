"""Unmodified code on Python's and NumPy's generators gets its exact law."""

import bisect
import itertools
import random
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rheocheck.adapters.recorder import recorded_law, recording
from rheocheck.errors import BudgetExceededError, ProgramError
from rheocheck.reference import exact_law

QUARTER, HALF = Fraction(1, 4), Fraction(1, 2)


def accept_then_redraw() -> int:
    """A textbook accept test with target (1/4, 3/4) and draft (1/2, 1/2), on random.random()."""
    target, draft = (0.25, 0.75), (0.5, 0.5)
    token = 0 if random.random() < draft[0] else 1
    if random.random() <= target[token] / draft[token]:
        return token
    return 1


def test_an_accept_test_on_python_uniforms_has_the_target_law() -> None:
    assert recorded_law(accept_then_redraw) == {0: QUARTER, 1: 1 - QUARTER}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.choices([0, 1, 2], weights=[1, 2, 1])[0],
        lambda: random.choices([0, 1, 2], cum_weights=[0.25, 0.75, 1.0])[0],
        lambda: bisect.bisect([0.25, 0.75], random.random()),
        lambda: random.Random(3).choices([0, 1, 2], weights=[1, 2, 1])[0],
        lambda: sum(random.uniform(-1, 1) > 0 for _ in range(2)),
        lambda: random.randint(0, 1) + random.randrange(2),
        lambda: random.choice([0, 1]) + random.choice([1, 0]),
        lambda: int(np.random.choice(3, p=[0.25, 0.5, 0.25])),
        lambda: int(np.random.default_rng(0).choice(3, p=[0.25, 0.5, 0.25])),
        lambda: int(np.random.default_rng(0).choice([0, 1, 2], 1, False, [0.25, 0.5, 0.25])[0]),
        lambda: int(np.random.multinomial(1, [0.25, 0.5, 0.25]).argmax()),
        lambda: int(np.random.binomial(2, 0.5)),
        lambda: int((np.random.rand(2) < 0.5).sum()),
        lambda: int((np.random.default_rng(1).random(2, dtype=np.float32) < 0.5).sum()),
        lambda: int((np.array([0.5, 0.5]) > np.random.RandomState(0).random_sample(2)).sum()),
        lambda: int(np.searchsorted([0.25, 0.75], np.random.random())),
        lambda: int((np.random.random() > np.cumsum([0.25, 0.5, 0.25])).sum()),
        lambda: int(np.random.default_rng().integers(0, 2, size=2).sum()),
        lambda: int(np.random.uniform(0, 4) > 1) + int(np.random.randint(4) > 0),
        lambda: int(sum(1 - np.random.random(2) > 0.5)),
    ],
)
def test_the_usual_ways_to_draw_are_followed(draw: Callable[[], int]) -> None:
    law = recorded_law(draw)
    skewed = {0: Fraction(1, 16), 1: Fraction(6, 16), 2: Fraction(9, 16)}
    assert law in ({0: QUARTER, 1: HALF, 2: QUARTER}, skewed)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.gauss(0, 1),
        lambda: random.shuffle([1, 2]),
        lambda: random.Random().sample([1, 2], 1),
        lambda: np.random.normal(),
        lambda: np.random.default_rng().permutation(3).tolist(),
        lambda: np.random.default_rng().choice(3, 2, replace=False).tolist(),
        lambda: np.random.default_rng().random(3, out=np.empty(3)),
        lambda: np.random.multinomial(1, [1.0], size=2),
    ],
)
def test_a_draw_that_cannot_be_followed_is_refused(draw: Callable[[], Any]) -> None:
    with pytest.raises(ProgramError, match=r"required|cannot be followed"):
        recorded_law(draw)


@pytest.mark.parametrize("weights", [[-1, 2], [float("nan"), 1], [float("inf"), 1], [0, 0]])
def test_weights_that_are_no_law_are_refused_with_their_index(weights: list[float]) -> None:
    with pytest.raises(ProgramError, match=r"at index|all 0"):
        recorded_law(lambda: random.choices([0, 1], weights=weights)[0])


def test_a_coin_that_decides_two_things_is_seen_as_one() -> None:
    def shared() -> tuple[bool, bool]:
        coin = random.random()
        return coin < 0.5, coin < 0.75

    def fresh() -> tuple[bool, bool]:
        return random.random() < 0.5, random.random() < 0.75

    assert recorded_law(shared) == {
        (True, True): HALF,
        (False, True): QUARTER,
        (False, False): QUARTER,
    }
    assert recorded_law(fresh)[True, False] == Fraction(1, 8)


def test_on_a_grid_zero_happens_and_less_or_equal_accepts_it() -> None:
    assert recorded_law(lambda: random.random() <= 0.0) == {False: 1}
    assert recorded_law(lambda: random.random() <= 0.0, grid=True)[True] == Fraction(1, 2**53)
    single = recorded_law(
        lambda: bool(np.random.default_rng().random(dtype=np.float32) <= 0), grid=True
    )
    assert single[True] == Fraction(1, 2**24)


def test_names_that_a_module_imported_are_replaced_on_request() -> None:
    module = types.ModuleType("third_party")
    exec("from random import random\ndef flip():\n    return random() < 0.5", module.__dict__)
    assert recorded_law(module.flip, modules=[module]) == {True: HALF, False: HALF}
    assert module.random is random.random
    assert len(recorded_law(module.flip)) == 1  # a real draw: nothing was recorded


def test_generators_are_restored_even_if_the_code_raises() -> None:
    before = (random.random, np.random.rand, np.random.default_rng, random.Random)

    def fail() -> int:
        random.random()
        raise ValueError("inside")

    with pytest.raises(ProgramError, match="raised ValueError: inside"):
        recorded_law(fail)
    assert before == (random.random, np.random.rand, np.random.default_rng, random.Random)
    assert "random_sample" in vars(np.random)


def test_endless_branching_meets_the_bound() -> None:
    def walk() -> int:
        return next(step for step in itertools.count() if random.random() < 0.5)

    with pytest.raises(BudgetExceededError):
        recorded_law(walk, max_paths=10)


def test_the_recorder_draws_for_its_caller_too() -> None:
    def program(choose: Any) -> tuple[int, bool]:
        with recording(choose) as recorder:
            token = recorder.category([1, 3], "draft")
            return token, bool(random.random() < HALF)

    assert exact_law(program)[0, True] == Fraction(1, 8)
