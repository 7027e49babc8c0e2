"""Bad input at the public edge of the exact half: one clear error each, never a raw one."""

import inspect
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rheocheck import SpeculationConfig, exact_law
from rheocheck.bounds import node_acceptance
from rheocheck.errors import (
    BudgetExceededError,
    ConfigError,
    InputError,
    LawError,
    ProgramError,
    RheocheckError,
    shown,
    shown_error,
    shown_path,
)
from rheocheck.reference import (
    METHODS,
    Choose,
    Method,
    RoundLaw,
    enumerate_paths,
    estimate_num_paths,
    lossless_defect,
    round_law,
    sequence_law,
    total_variation,
    worst_violation,
)
from rheocheck.reference.laws import Law, Path, as_law
from rheocheck.reference.markov import choice_chain
from tests.strategies import constant, law_of

HALF, ONE = Fraction(1, 2), Fraction(1)
FAIR = constant(law_of(1, 1))
SKEWED = constant(law_of(1, 2))
ONE_PROBE = SpeculationConfig(top_k=1, num_top=0, budget=1, depth=1)
TWO_LEVELS = SpeculationConfig(top_k=1, num_top=0, budget=2, depth=2)
HUGE = 10**5000  # Python refuses to print an int of more than 4,300 digits


def coin(choose: Choose) -> bool:
    return choose.bernoulli(HALF)


@pytest.mark.parametrize("bound", ["3", [], float("nan"), 1.0, True, -1, 0, -HUGE], ids=shown)
def test_a_bound_that_is_none_is_refused_by_name(bound: Any) -> None:
    with pytest.raises(InputError, match=r"max_paths is .* required: an int, at least 1"):
        exact_law(coin, max_paths=bound)
    with pytest.raises(InputError, match=r"max_paths is .* required: an int, at least 1"):
        enumerate_paths(coin, max_paths=bound)  # at once, before the first run is asked for
    for method in METHODS:
        with pytest.raises(InputError, match=r"max_paths is .* required: an int, at least 1"):
            round_law(FAIR, SKEWED, ONE_PROBE, method, max_paths=bound)
        with pytest.raises(InputError, match=r"max_paths is .* required: an int, at least 1"):
            sequence_law(FAIR, SKEWED, ONE_PROBE, 0, method, max_paths=bound)
    with pytest.raises(InputError, match=r"num_dives is .* required: an int, at least 1"):
        estimate_num_paths(coin, num_dives=bound)
    if bound != 0:
        with pytest.raises(InputError, match=r"max_choices is .* required: an int, at least 0"):
            exact_law(coin, max_choices=bound)


@pytest.mark.parametrize("bound", [np.int64(5), Fraction(5)], ids=repr)
def test_a_number_that_is_no_int_is_named_with_its_type(bound: Any) -> None:
    with pytest.raises(InputError, match=f"max_paths is .* of type {type(bound).__name__}; "):
        exact_law(coin, max_paths=bound)


@pytest.mark.parametrize("seed", ["3", [], None, 1.5, True, -1], ids=repr)
def test_a_seed_that_is_none_is_refused_by_name(seed: Any) -> None:
    with pytest.raises(InputError, match=r"seed is .* required: an int, at least 0"):
        estimate_num_paths(coin, seed=seed)


def test_no_branching_draw_at_all_is_a_bound_too() -> None:
    assert exact_law(lambda choose: choose.bernoulli(1), max_choices=0) == {True: 1}
    with pytest.raises(BudgetExceededError):
        exact_law(coin, max_choices=0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: as_law((HUGE, 1 - HUGE)), LawError),
        (lambda: as_law((-HUGE, 1)), LawError),
        (lambda: as_law((Fraction(1, HUGE), HALF)), LawError),
        (lambda: as_law(HUGE), LawError),  # type: ignore[arg-type]
        (lambda: as_law([[HUGE]]), LawError),
        (lambda: SpeculationConfig(budget=-HUGE), ConfigError),
        (lambda: SpeculationConfig(rule=HUGE), ConfigError),  # type: ignore[arg-type]
        (lambda: exact_law(HUGE), InputError),  # type: ignore[arg-type]
        (lambda: exact_law(lambda choose: choose.bernoulli(HUGE)), ProgramError),
        (lambda: exact_law(lambda choose: choose.categorical([HUGE])), ProgramError),
        (lambda: exact_law(lambda choose: [HUGE]), ProgramError),  # type: ignore[type-var]
        (lambda: round_law(HUGE, FAIR, ONE_PROBE), InputError),  # type: ignore[arg-type]
        (lambda: round_law(FAIR, FAIR, ONE_PROBE, HUGE), InputError),  # type: ignore[arg-type]
        (lambda: round_law(FAIR, FAIR, HUGE), InputError),  # type: ignore[arg-type]
        (lambda: sequence_law(FAIR, FAIR, ONE_PROBE, -HUGE), InputError),
        (lambda: total_variation({(0,): ONE}, FAIR, -HUGE), InputError),
        (lambda: lossless_defect({(0,): Fraction(HUGE)}, FAIR), LawError),
        (lambda: lossless_defect({(HUGE, "a"): ONE}, FAIR), InputError),
        (lambda: lossless_defect({HUGE: ONE}, FAIR), InputError),
        (
            lambda: lossless_defect({(HUGE, 0): ONE}, lambda path: law_of(1, 1)[: 2 - len(path)]),
            LawError,
        ),
    ],
)
def test_values_that_cannot_be_printed_are_refused_all_the_same(
    call: Callable[[], Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert len(str(caught.value)) < 500
    assert isinstance(caught.value, RheocheckError)


def test_what_messages_print_of_a_value() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert (shown(Fraction(1, 3)), shown("a"), shown(None)) == ("1/3", "'a'", "None")
    assert shown(HUGE) == "<int that cannot be printed>"
    assert shown([HUGE]) == "<list that cannot be printed>"
    assert shown(Silent()) == "<Silent that cannot be printed>"
    assert shown("x" * 99) == "'" + "x" * 56 + "..."
    assert shown(np.zeros((3, 3))).count("\n") == 0
    assert shown_error(Mute()) == "Mute: <Mute that cannot be printed>"
    assert [shown_path(path) for path in ((), (1,), (1, 2))] == ["()", "(1,)", "(1, 2)"]
    assert shown_path(tuple(range(99))).endswith("28, 29, ... 99 tokens)")


BROKEN = {"top_k": 0, "num_top": -1, "budget": -1, "depth": -1, "support_size": 0, "rule": "magic"}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("method", METHODS)
def test_a_config_made_past_its_validation_is_refused(name: str, method: Method) -> None:
    made = SpeculationConfig.model_construct(**{name: BROKEN[name]})  # type: ignore[arg-type]
    for config in (made, ONE_PROBE.model_copy(update={name: BROKEN[name]})):
        with pytest.raises(ConfigError, match=f"{name} = "):
            round_law(FAIR, FAIR, config, method)
        with pytest.raises(ConfigError, match=f"{name} = "):
            sequence_law(FAIR, FAIR, config, 0, method)


def test_the_torch_half_refuses_such_a_config_too() -> None:
    torch = pytest.importorskip("torch")
    from rheocheck.gpu.expansion import expand
    from rheocheck.gpu.tree import grow
    from rheocheck.gpu.verification import verify

    config = SpeculationConfig.model_construct(top_k=0)
    with pytest.raises(ConfigError, match="top_k = 0"):
        expand(torch.zeros(1, 3), torch.zeros(1, dtype=torch.float64), config, 1.0)
    with pytest.raises(ConfigError, match="top_k = 0"):
        grow(None, None, config, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rule = 'magic'; required: one of rheo, rrsw, onehot"):
        verify(None, None, None, "magic")  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [None, [HALF, HALF], 3])
def test_a_target_that_is_no_callable_is_refused_by_every_judge(target: Any) -> None:
    law = {(0,): HALF, (1,): HALF}
    judges: list[Callable[[Any, Any], Any]] = [
        lossless_defect,
        worst_violation,
        lambda law, target: total_variation(law, target, 2),
    ]
    for judge in judges:
        with pytest.raises(InputError, match=r"target is .* required: a callable"):
            judge(law, target)
    with pytest.raises(InputError, match=r"draft is .* required: a callable"):
        round_law(FAIR, target, ONE_PROBE)
    with pytest.raises(InputError, match=r"draft is .* required: a callable"):
        sequence_law(FAIR, target, ONE_PROBE, 0)
    with pytest.raises(LawError, match=r"target is .* required: a sequence of numbers"):
        node_acceptance(FAIR, law_of(1, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "law",
    [
        None,
        3,
        [((0,), ONE)],
        RoundLaw(None, ONE, 1),  # type: ignore[arg-type]
        RoundLaw({(0,): HALF}, ONE, 1),
    ],
)
def test_a_law_of_another_type_or_without_all_its_mass_is_refused(law: Any) -> None:
    with pytest.raises(LawError, match="the law of emissions"):
        lossless_defect(law, FAIR)
    with pytest.raises(LawError, match="the law of emissions"):
        total_variation(law, FAIR, 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("which", ["target", "draft"])
def test_a_model_that_raises_is_named_with_its_path(method: Method, which: str) -> None:
    def fails(path: Path) -> Law:
        if len(path) == 1:
            raise KeyError("no such row")
        return law_of(1, 1)

    target, draft = (fails, FAIR) if which == "target" else (FAIR, fails)
    text = rf"^{which}\(\([01],\)\) raised KeyError: 'no such row'"
    with pytest.raises(ProgramError, match=text) as caught:
        round_law(target, draft, TWO_LEVELS, method)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_model_that_raises_in_a_later_round_is_named_with_its_whole_history() -> None:
    def fails(path: Path) -> Law:
        return law_of(1, 1) if len(path) < 3 else law_of(1, 1)[5:][0]  # type: ignore[return-value]

    with pytest.raises(ProgramError, match=r"target\(\([01], [01], [01]\)\) raised IndexError"):
        sequence_law(fails, FAIR, ONE_PROBE, 4)
    for judge in (lossless_defect, lambda law, target: total_variation(law, target, 4)):
        with pytest.raises(ProgramError, match=r"target\(\(0, 0, 0\)\) raised IndexError"):
            judge({(0, 0, 0, 0): ONE}, fails)


@pytest.mark.parametrize("method", METHODS)
def test_an_error_of_the_tool_passes_through_a_model_unchanged(method: Method) -> None:
    def refuses(path: Path) -> Law:
        raise InputError("this very text")

    with pytest.raises(InputError, match=r"^this very text$"):
        round_law(refuses, FAIR, ONE_PROBE, method)


def test_a_law_that_cannot_be_read_is_refused() -> None:
    class Lazy:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Fraction:
            raise OSError("gone")

    with pytest.raises(LawError, match=r"target\(\(\)\) cannot be read \(OSError: gone\)"):
        round_law(lambda path: Lazy(), FAIR, ONE_PROBE)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("mass", [True, np.True_, 1.0, np.float64(1), "1", 1j, None])
def test_what_is_no_exact_number_is_no_probability(mass: Any) -> None:
    with pytest.raises(LawError, match=r"law\[0\] is .* required: an exact rational"):
        as_law([mass, 0])
    with pytest.raises(ProgramError, match=r"weights\[0\] is .* required: an exact rational"):
        exact_law(lambda choose: choose.categorical([mass, 0]))
    with pytest.raises(ProgramError, match=r"p is .* required: an exact rational"):
        exact_law(lambda choose: choose.bernoulli(mass))


def test_exact_numbers_of_other_types_are_probabilities() -> None:
    class Share(Fraction):
        pass

    for one in (np.int64(1), np.uint8(1), Share(1), 1):
        assert list(as_law([one, 0])) == [1, 0]
        assert all(type(mass) is Fraction for mass in as_law([one, 0]))
        assert exact_law(lambda choose, one=one: choose.bernoulli(one)) == {True: 1}  # type: ignore[misc]
    assert as_law([Share(1, 3), Share(2, 3)]) == law_of(1, 2)


def test_numpy_tokens_are_tokens() -> None:
    asked: list[Path] = []

    def target(path: Path) -> Law:
        asked.append(path)
        return law_of(1, 1)

    law = exact_law(lambda choose: tuple(np.array([choose.bernoulli(HALF)], dtype=np.int32)))
    assert all(isinstance(token, np.int32) for path in law for token in path)
    assert lossless_defect(law, target) == 0
    longer = {(np.int64(0), np.uint8(1)): HALF, (1, 1): HALF}
    assert lossless_defect(longer, target) == HALF / 2
    assert total_variation(longer, target, 3) == HALF
    assert all(type(token) is int for path in asked for token in path)
    for bad in ((0.0,), (np.float64(0),), ("0",), (None,)):
        with pytest.raises(InputError, match="required: a tuple of int tokens"):
            lossless_defect({bad: ONE}, target)


def shrinks(path: Path) -> Law:
    """Two tokens at the root, three after it."""
    return law_of(1, 1) if not path else law_of(1, 1, 1)


def test_a_vocabulary_that_changes_is_refused_with_both_paths() -> None:
    text = r"target\(\((0|1),\)\) has 3 tokens; required: 2, as target\(\(\)\) has"
    for method in METHODS:
        with pytest.raises(LawError, match=text):
            round_law(shrinks, FAIR, ONE_PROBE, method)
        with pytest.raises(LawError, match=text):
            sequence_law(shrinks, FAIR, ONE_PROBE.model_copy(update={"budget": 0}), 2, method)
        with pytest.raises(LawError, match=r"draft\(\([01],\)\) has 3 tokens; required: 2"):
            sequence_law(FAIR, shrinks, TWO_LEVELS, 2, method)
    law = {(0, 0): HALF, (1, 1): HALF}
    with pytest.raises(LawError, match=text):
        lossless_defect(law, shrinks)
    with pytest.raises(LawError, match=text):
        total_variation(law, shrinks, 2)


def test_a_bernoulli_is_given_p() -> None:
    assert exact_law(lambda choose: choose.bernoulli(p=HALF)) == {True: HALF, False: HALF}
    assert exact_law(lambda choose: choose.categorical(weights=[HALF, HALF])) == {0: HALF, 1: HALF}
    assert choice_chain(lambda choose: choose.bernoulli(p=HALF)).num_states == 3


def generates(choose: Choose) -> Iterator[bool]:
    yield choose.bernoulli(HALF)


async def awaits(choose: Choose) -> bool:
    return choose.bernoulli(HALF)


async def both(choose: Choose) -> Any:
    yield choose.bernoulli(HALF)


class Generating:
    def __call__(self, choose: Choose) -> Iterator[bool]:
        yield choose.bernoulli(HALF)


@pytest.mark.parametrize("program", [generates, awaits, both, Generating()])
def test_a_program_that_has_yet_to_run_is_refused(program: Any) -> None:
    for enumerate_ in (exact_law, estimate_num_paths, choice_chain):
        with pytest.raises(InputError, match="a generator or coroutine function"):
            enumerate_(program)
    with pytest.raises(ProgramError, match="which has yet to run; required: a hashable outcome"):
        exact_law(lambda choose: program(choose))


def test_an_iterator_is_no_outcome() -> None:
    with pytest.raises(ProgramError, match="which has yet to run"):
        exact_law(lambda choose: map(int, "1"))
    with pytest.raises(InputError, match="program is 3 of type int; required: a callable"):
        exact_law(3)  # type: ignore[arg-type]


BAD_DRAWS: list[Callable[[Choose], Any]] = [
    lambda choose: choose.categorical([HALF]),
    lambda choose: choose.categorical([0.5, 0.5]),
    lambda choose: choose.categorical(3),  # type: ignore[arg-type]
    lambda choose: choose.categorical([np.zeros(2), np.zeros(2)]),
    lambda choose: choose.bernoulli(2),
    lambda choose: choose.bernoulli(None),
]


@pytest.mark.parametrize("bad", BAD_DRAWS)
@pytest.mark.parametrize("raises_own", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_draw_that_failed_fails_the_run_though_the_program_caught_it(
    bad: Callable[[Choose], Any], raises_own: bool, first: bool
) -> None:
    def program(choose: Choose) -> int:
        outcome = 0 if first else choose.categorical([HALF, HALF])
        try:
            bad(choose)
        except Exception:
            if raises_own:
                raise ValueError("another") from None
            return 7
        return outcome

    with pytest.raises(ProgramError, match=r"choose\.(categorical|bernoulli): |a draw raised"):
        exact_law(program)


def test_a_program_that_draws_on_after_a_failure_is_ended() -> None:
    def program(choose: Choose) -> bool:
        while True:
            try:
                if choose.bernoulli(HALF):
                    return True
            except Exception:
                pass

    with pytest.raises(BudgetExceededError, match="more than max_choices = 20"):
        exact_law(program, max_choices=20)


def test_a_replayed_draw_is_checked_as_the_first_one_was() -> None:
    """Weights (1/2, 0) are no law, also where the run before gave (1/2, 1/2)."""
    runs: list[int] = []

    def program(choose: Choose) -> int:
        runs.append(1)
        first = choose.categorical([HALF, HALF] if len(runs) == 1 else [HALF, 0])
        return first + choose.categorical([HALF, HALF])

    with pytest.raises(ProgramError, match="required: the same run for the same choices"):
        exact_law(program)


def test_a_chain_of_1500_tokens_needs_no_recursion() -> None:
    length = 1500
    target = constant(law_of(1, 1))
    emission = (0,) * length
    assert total_variation({emission: ONE}, target, length) == 1 - HALF**length
    assert lossless_defect({emission: ONE}, target) == HALF
    sure = constant(law_of(0, 1))
    config = SpeculationConfig(top_k=1, num_top=0, budget=length, depth=length)
    law = round_law(sure, sure, config)
    assert dict(law.emissions) == {(1,) * (length + 1): 1}
    assert total_variation(law, sure, length) == lossless_defect(law, sure) == 0


def test_a_caterpillar_of_classes_needs_no_recursion() -> None:
    """Two classes part at every level: one goes on, the other draws no more."""
    length = 200

    def draft(path: Path) -> Law:
        return law_of(0, 1) if 1 in path else law_of(1, 1)

    config = SpeculationConfig(top_k=1, num_top=0, budget=length, depth=length)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + length // 2)
    try:
        law = round_law(constant(law_of(0, 1)), draft, config)
    finally:
        sys.setrecursionlimit(limit)
    assert law.num_classes == length + 1


def test_length_zero_compares_the_empty_sequence() -> None:
    assert total_variation({(0, 1): ONE}, FAIR, 0) == 0
    with pytest.raises(InputError, match="an emission is empty"):
        total_variation({(): ONE}, FAIR, 0)


def test_a_depth_beyond_the_budget_costs_nothing() -> None:
    deep = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=10**15)
    flat = deep.model_copy(update={"depth": 3})
    assert round_law(SKEWED, FAIR, deep) == round_law(SKEWED, FAIR, flat)
