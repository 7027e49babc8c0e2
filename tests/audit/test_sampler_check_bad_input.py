"""A sampler that misbehaves gets one clear paragraph with the choices that led there."""

import random
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rheocheck.audit.sampler_run import Limits
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.certificate import Verdict
from rheocheck.errors import ProgramError
from rheocheck.protocols import Choose, LawFunction, Path

HALF = Fraction(1, 2)


def stage_of(sampler: Any, **options: Any) -> Any:
    return sampler_stage(sampler, "tests:bad", quick=True, max_vocab=2, **options)


def message_of(sampler: Any, **options: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        stage_of(sampler, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert "It was given, on 2 tokens, the target" in text
    return text


def after_a_coin(bad: Any) -> Any:
    """A sampler that flips a coin and then does `bad`."""

    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Any:
        if choose.bernoulli(Fraction(1, 3)):
            return (choose.categorical(target(())),)
        return bad(choose)

    return sampler


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda choose: [0, 1], r"returned \[0, 1\], which cannot be hashed; required: a tuple"),
        (lambda choose: (), "required: a tuple of at least one token"),
        (lambda choose: 3, "returned 3; required: a tuple"),
        (lambda choose: ("a",), "required: a tuple of int tokens"),
        (lambda choose: (0.0,), "required: a tuple of int tokens"),
        (
            lambda choose: (choose.categorical((HALF, HALF, HALF)),),
            "sums to 3/2; required: exactly",
        ),
        (lambda choose: (choose.categorical((2, -1)),), "is -1; required: a probability"),
        (lambda choose: (choose.categorical(()),), "is empty; required: at least one"),
        (lambda choose: (choose.categorical((0.5, 0.5)),), "required: an exact rational"),
        (lambda choose: (choose.categorical((float("nan"), 1)),), "is nan; required: a finite"),
        (lambda choose: (choose.categorical((float("inf"), 1)),), "is inf; required: a finite"),
        (lambda choose: choose.bernoulli(float("nan")), "choose.bernoulli is nan; required: a fi"),
        (
            lambda choose: choose.bernoulli(Fraction(3, 2)),
            "is 3/2; required: at most 1",
        ),
        (lambda choose: [][0], "the sampler raised IndexError: list index out of range"),
        (lambda choose: 1 / 0, "the sampler raised ZeroDivisionError"),
    ],
)
def test_what_a_sampler_did_wrong_is_said_with_the_choices(bad: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        stage_of(after_a_coin(bad))
    assert "choices that led there: bernoulli(1/3) -> False" in str(caught.value)


def test_a_list_of_choices_is_cut_when_it_is_long() -> None:
    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        for _ in range(30):
            choose.bernoulli(HALF)
        raise ValueError("late")

    assert "choices that led there: 18 more, then bernoulli" in message_of(sampler)


def test_a_sampler_that_branches_for_ever_is_stopped() -> None:
    def geometric(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        while choose.bernoulli(HALF):
            pass
        return (choose.categorical(target(())),)

    message = message_of(geometric, limits=Limits(max_choices=50))
    assert "made more than 50 draws in one run and may never end" in message
    assert "bernoulli(1/2) -> True" in message


def test_a_sampler_that_loops_without_a_draw_is_interrupted() -> None:
    def looping(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        choose.bernoulli(HALF)
        while True:
            try:
                pass
            except Exception:  # would swallow an ordinary exception
                pass

    message = message_of(looping, limits=Limits(max_run_seconds=0.2))
    assert "did not return within 0.2 seconds and may never end" in message
    assert "bernoulli(1/2) -> True" in message


def test_outside_the_main_thread_there_is_no_clock_and_no_crash() -> None:
    verdicts = []
    sampler = lambda target, draft, choose: (choose.categorical(target(())),)  # noqa: E731
    thread = threading.Thread(target=lambda: verdicts.append(stage_of(sampler).verdict))
    thread.start()
    thread.join()
    assert verdicts == [Verdict.CERTIFIED]


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda law: random.choices(range(len(law)), [float(m) for m in law])[0], "Python's"),
        (lambda law: int(np.random.random() < law[1]), "NumPy's"),
    ],
)
def test_a_draw_from_a_global_generator_is_noticed(draw: Any, name: str) -> None:
    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        return (draw(target(())),)

    message = message_of(sampler)
    assert f"drew from {name} global random besides choose" in message
    assert "recorder around the code that draws" in message


def test_a_draw_from_torch_is_noticed() -> None:
    torch = pytest.importorskip("torch")

    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        return (int(torch.multinomial(torch.tensor([float(m) for m in target(())]), 1)),)

    assert "drew from torch's global generator besides choose" in message_of(sampler)


def test_a_generator_of_its_own_is_noticed_by_running_twice() -> None:
    generator = random.Random(0)

    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        return (int(generator.random() < target(())[1]),)

    assert "gave two different laws when it was run twice" in message_of(sampler)


def test_draws_that_change_from_run_to_run_are_noticed() -> None:
    generator = random.Random(0)

    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        share = Fraction(generator.randint(1, 99), 100)
        return (choose.categorical((share, 1 - share)), choose.categorical((HALF, HALF)))

    message = message_of(sampler)
    assert "the same run for the same choices" in message
    assert "it draws from a generator of its own, or carries state" in message


def test_a_first_call_that_draws_once_is_not_accused() -> None:
    warm: list[float] = []

    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        if not warm:
            warm.append(random.random())  # as a module does that is imported on first use
        return (choose.categorical(target(())),)

    assert stage_of(sampler).verdict is Verdict.CERTIFIED


def test_state_must_come_back_as_a_pair() -> None:
    class Careless:
        carries_state = True

        def __call__(
            self, target: LawFunction, draft: LawFunction, choose: Choose, state: Any
        ) -> Path:
            return (0,)

    assert r"returned (0,); required: (tokens, state)" in message_of(Careless())


@pytest.mark.parametrize("num_rounds", [0, -1, True, "two"])
def test_a_number_of_rounds_that_is_none_is_refused(num_rounds: Any) -> None:
    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        return (0,)

    sampler.num_rounds = num_rounds  # type: ignore[attr-defined]
    with pytest.raises(ProgramError, match=r"sampler.num_rounds is .*; required: an int"):
        stage_of(sampler)


def test_a_token_outside_the_vocabulary_is_a_defect_and_not_an_input_error() -> None:
    def padded(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        return (choose.categorical(target(())), -1)

    stage = stage_of(padded)
    assert stage.verdict is Verdict.LOSSY
    assert "a token outside the vocabulary is emitted: -1" in " ".join(
        stage.details["counterexample"]["causes"]
    )
