"""Choice trees as Markov chains: by hand, and the same law as the oracle's."""

from fractions import Fraction
from typing import Any

import pytest

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.errors import BudgetExceededError, InputError
from rheocheck.reference.choices import Choose
from rheocheck.reference.draws import OracleDraws
from rheocheck.reference.markov import absorption_law, choice_chain, to_drn
from rheocheck.reference.oracle import exact_law
from rheocheck.reference.sampler import sample_round

THIRD, HALF = Fraction(1, 3), Fraction(1, 2)


def two_draws(choose: Choose) -> tuple[Any, ...]:
    """A draw that branches, one that does not, and one on some branches only."""
    first = choose.categorical((THIRD, 0, 1 - THIRD))
    if choose.bernoulli(1) and first == 0:
        return (first, choose.bernoulli(HALF))
    return (first,)


def test_a_tree_by_hand() -> None:
    chain = choice_chain(two_draws)
    assert chain.num_states == 5
    assert chain.successors[0] == ((1, THIRD), (2, 1 - THIRD))
    assert set(chain.outcomes) == {(0, True), (0, False), (2,)}
    assert absorption_law(chain) == {(0, True): HALF / 3, (0, False): HALF / 3, (2,): 1 - THIRD}


def test_text_of_a_coin() -> None:
    text = to_drn(choice_chain(lambda choose: choose.bernoulli(THIRD)))
    assert text.split("@model\n")[1] == (
        "state 0 init\n\taction 0\n\t\t1 : 2/3\n\t\t2 : 1/3\n"
        "state 1 outcome0\n\taction 0\n\t\t1 : 1\n"
        "state 2 outcome1\n\taction 0\n\t\t2 : 1\n"
    )
    assert "@nr_states\n3\n" in text


def test_a_program_without_draws_is_one_absorbing_state() -> None:
    chain = choice_chain(lambda choose: "done")
    assert chain.num_states == 1
    assert absorption_law(chain) == {"done": 1}
    assert "state 0 init outcome0" in to_drn(chain)


@pytest.mark.parametrize("rule", RULES)
def test_a_round_has_the_oracles_law(rule: Rule) -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2, support_size=3, rule=rule)

    def program(choose: Choose) -> tuple[int, ...]:
        target, draft = (Fraction(1, 6), HALF, THIRD), (HALF, THIRD, Fraction(1, 6))
        return sample_round(
            lambda path: target, lambda path: draft, config, OracleDraws(choose)
        ).emission

    chain = choice_chain(program)
    assert absorption_law(chain) == exact_law(program)
    for state, branches in enumerate(chain.successors):
        assert all(successor > state for successor, _ in branches)
        assert (chain.label[state] is None) == bool(branches)
        assert not branches or sum(probability for _, probability in branches) == 1


def test_too_many_states_are_refused() -> None:
    with pytest.raises(BudgetExceededError, match="max_states = 4"):
        choice_chain(two_draws, max_states=4)


def test_a_program_that_changes_its_mind_is_refused() -> None:
    calls: list[None] = []

    def program(choose: Choose) -> int:
        calls.append(None)
        weights = (HALF, HALF, 0) if len(calls) == 1 else (HALF, 0, HALF)
        return choose.categorical(weights)

    with pytest.raises(InputError, match="offers no branch 1"):
        choice_chain(program)
