"""A choice tree as an explicit Markov chain, for a probabilistic model checker to judge.

A program under the choice oracle is a finite tree of draws: a discrete-time Markov chain without
cycles, whose absorbing states are the outcomes. Written in DRN, the explicit text format of the
model checker Storm, it can be solved by code that nobody here wrote, with rational arithmetic.

The tree is explored here by prefixes and not by `rheocheck.reference.oracle`, so that an error in
the oracle's bookkeeping would show as a difference.

Source: Hensel, Junges, Katoen, Quatmann and Volk (2022), The probabilistic model checker Storm,
arXiv:2002.07080.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.errors import BudgetExceededError, InputError
from rheocheck.reference.laws import as_law
from rheocheck.reference.oracle import Program, check_program

LABEL = "outcome"


@dataclass(frozen=True, slots=True)
class MarkovChain:
    """A finite chain without cycles; state 0 is the initial one.

    Attributes:
      successors: [state] pairs (successor, probability), probabilities positive and summing to 1;
        a successor's number is larger than the state's. Empty for an absorbing state.
      label: [state] index into `outcomes` of an absorbing state; None elsewhere.
      outcomes: What the program may return, each once, in the order first met.
    """

    successors: tuple[tuple[tuple[int, Fraction], ...], ...]
    label: tuple[int | None, ...]
    outcomes: tuple[Hashable, ...]

    @property
    def num_states(self) -> int:
        """States, absorbing ones included."""
        return len(self.successors)


def choice_chain(program: Program[Any], max_states: int = 200_000) -> MarkovChain:
    """Explore `program` and return its choice tree as a chain: one state a branch.

    Draws with a single outcome of positive probability make no state.

    Args:
      program: Takes `choose` and returns something hashable; must do the same whenever it is given
        the same choices.
      max_states: Most states to make.

    Returns:
      The chain. Equal outcomes of different leaves share one label.

    Raises:
      BudgetExceededError: The tree has more than `max_states` states.
      InputError: `program` is not callable.
    """
    check_program(program)
    successors: list[list[tuple[int, Fraction]]] = [[]]
    label: list[int | None] = [None]
    numbers: dict[Hashable, int] = {}
    pending: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while pending:
        state, prefix = pending.pop()
        run = _PrefixRun(prefix)
        outcome = program(run)
        for choices, branches in run.opened:
            first = len(successors)
            if first + len(branches) > max_states:
                raise BudgetExceededError(
                    f"the choice tree has more than max_states = {max_states} states"
                )
            for offset, (index, probability) in enumerate(branches):
                successors.append([])
                label.append(None)
                successors[state].append((first + offset, probability))
                if offset:
                    pending.append((first + offset, (*choices, index)))
            state = first  # the run itself went on along the first branch
        label[state] = numbers.setdefault(outcome, len(numbers))
    return MarkovChain(tuple(map(tuple, successors)), tuple(label), tuple(numbers))


def absorption_law(chain: MarkovChain) -> dict[Hashable, Fraction]:
    """Probability that the chain ends in each outcome, by one forward pass.

    Args:
      chain: A chain whose successors have larger numbers than their states.

    Returns:
      Probability of each outcome; they sum to 1.
    """
    mass = [Fraction(0)] * chain.num_states
    mass[0] = Fraction(1)
    law: dict[Hashable, Fraction] = {outcome: Fraction(0) for outcome in chain.outcomes}
    for state, branches in enumerate(chain.successors):
        number = chain.label[state]
        if number is not None:
            law[chain.outcomes[number]] += mass[state]
        for successor, probability in branches:
            mass[successor] += mass[state] * probability
    return law


def to_drn(chain: MarkovChain) -> str:
    """Write a chain as DRN text with fractional probabilities.

    Absorbing states loop on themselves and carry the label `outcome<i>`, i the outcome's index.

    Args:
      chain: The chain; state 0 becomes the initial state.

    Returns:
      The text of a DRN file.
    """
    lines = ["@type: DTMC", "@parameters", "", "@reward_models", ""]
    lines += ["@nr_states", str(chain.num_states), "@nr_choices", str(chain.num_states), "@model"]
    for state, branches in enumerate(chain.successors):
        number = chain.label[state]
        labels = [] if number is None else [f"{LABEL}{number}"]
        lines.append(" ".join([f"state {state}", *(["init"] if state == 0 else []), *labels]))
        lines.append("\taction 0")
        for successor, probability in branches or ((state, Fraction(1)),):
            lines.append(f"\t\t{successor} : {probability}")
    return "\n".join(lines) + "\n"


class _PrefixRun:
    """`choose` for one run: follows a prefix of choices, then takes every first branch.

    Attributes:
      opened: For each branching draw after the prefix, the choices that led to it and its branches
        (index, probability) of positive probability.
    """

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self._prefix = prefix
        self._made: list[int] = []
        self.opened: list[tuple[tuple[int, ...], list[tuple[int, Fraction]]]] = []

    def categorical(self, weights: Sequence[Any]) -> int:
        branches = [(i, mass) for i, mass in enumerate(as_law(weights, name="weights")) if mass]
        if len(branches) == 1:
            return branches[0][0]
        depth = len(self._made)
        if depth < len(self._prefix):
            taken = self._prefix[depth]
            if all(taken != index for index, _ in branches):
                raise InputError(
                    f"draw {depth} offers no branch {taken}, which it offered in an earlier run; "
                    f"required: a program that does the same for the same choices"
                )
        else:
            self.opened.append((tuple(self._made), branches))
            taken = branches[0][0]
        self._made.append(taken)
        return taken

    def bernoulli(self, p: Any) -> bool:
        return self.categorical((1 - p, p)) == 1
