"""What is accepted as a law, and truncation of the draft."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from rheocheck.errors import InputError, LawError
from rheocheck.reference.laws import Law, as_draft, as_law, exact_sum, normalised, truncate
from rheocheck.reference.models import Models
from tests.strategies import constant, law_of, target_and_draft

ZERO, THIRD, HALF, ONE = Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)


def test_ints_fractions_and_object_arrays_are_laws() -> None:
    assert as_law([0, 1]) == (ZERO, ONE)
    assert as_law(np.array([HALF, HALF], dtype=object)) == (HALF, HALF)
    assert as_law(np.array([0, 1])) == (ZERO, ONE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 0.5], r"law\[0\] is 0.5 of type float; required: an exact rational"),
        ([ONE, float("nan")], r"law\[1\] is nan of type float"),
        ([ONE, float("inf")], r"law\[1\] is inf of type float"),
        ([ONE, "1/2"], r"law\[1\] is '1/2' of type str"),
        ([ONE + THIRD, -THIRD], r"law\[1\] is -1/3; required: a probability, at least 0"),
        ([HALF, THIRD], r"law sums to 5/6; required: exactly 1"),
        ([HALF, HALF, HALF], r"law sums to 3/2"),
        ([ZERO, ZERO], r"law sums to 0"),
        ([], r"law is empty; required: at least one token"),
        (ONE, r"law is Fraction\(1, 1\) of type Fraction; required: a sequence"),
        ("law", r"law is 'law' of type str; required: a sequence"),
        (None, r"law is None of type NoneType"),
    ],
)
def test_what_is_no_law_is_refused(values: object, message: str) -> None:
    with pytest.raises(LawError, match=message):
        as_law(values)  # type: ignore[arg-type]


def test_a_law_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(LawError, match="draft has 2 tokens; required: 3"):
        as_law((HALF, HALF), vocab=3, name="draft")


def test_a_two_tuple_of_laws_is_a_pair_and_a_tuple_of_two_numbers_is_one_law() -> None:
    assert as_draft((HALF, HALF)) == ((HALF, HALF), (HALF, HALF))
    assert as_draft(((HALF, HALF), (ZERO, ONE))) == ((HALF, HALF), (ZERO, ONE))
    ranking, draft = as_draft([HALF, HALF])
    assert draft is ranking


def test_the_laws_of_a_pair_must_have_one_length() -> None:
    with pytest.raises(LawError, match="draft, tempered law has 1 tokens; required: 2"):
        as_draft(((HALF, HALF), (ONE,)))


def test_the_pair_names_the_law_that_is_none() -> None:
    with pytest.raises(LawError, match="draft, ranking law sums to 1/2"):
        as_draft(((HALF, ZERO), (ZERO, ONE)))


def test_truncation_keeps_the_most_probable_tokens_ties_by_id() -> None:
    support = truncate(law_of(1, 3, 3, 2), law_of(4, 1, 1, 0), 3)
    assert support.tokens == (1, 2, 3)
    assert support.ranking == law_of(3, 3, 2)
    assert support.draft == law_of(1, 1, 0)


def test_truncation_drops_tokens_of_ranking_zero() -> None:
    support = truncate(law_of(0, 1, 0), law_of(1, 1, 1), 3)
    assert (support.tokens, support.ranking, support.draft) == ((1,), (ONE,), (ONE,))


def test_a_tempered_draft_off_the_support_is_left_all_zero() -> None:
    assert truncate(law_of(1, 0), law_of(0, 1), 2).draft == (ZERO,)


@given(laws=target_and_draft())
def test_truncation_to_the_whole_support_changes_nothing(laws: tuple[Law, Law]) -> None:
    ranking, _ = laws
    support = truncate(ranking, ranking, len(ranking))
    restored = dict(zip(support.tokens, support.ranking, strict=True))
    assert tuple(restored.get(token, ZERO) for token in range(len(ranking))) == ranking


@given(laws=target_and_draft())
def test_exact_sum_and_normalisation_agree_with_fractions(laws: tuple[Law, Law]) -> None:
    masses = [*laws[0], *laws[1]]
    assert exact_sum(masses) == sum(masses)
    assert normalised(masses) == tuple(mass / sum(masses) for mass in masses)


def test_models_name_the_path_of_a_law_that_is_none() -> None:
    models = Models(lambda path: (HALF, HALF) if len(path) < 2 else (HALF,), constant((HALF, HALF)))
    models.target(())
    with pytest.raises(LawError, match=r"target\(\(0, 1\)\) has 1 tokens; required: 2"):
        models.target((0, 1))


def test_models_refuse_a_draft_on_another_vocabulary() -> None:
    models = Models(constant((HALF, HALF)), constant(law_of(1, 1, 1)))
    with pytest.raises(LawError, match=r"draft\(\(\)\) has 3 tokens; required: 2"):
        models.draft(())


def test_models_ask_once_a_path() -> None:
    asked = []

    def target(path: tuple[int, ...]) -> Law:
        asked.append(path)
        return (HALF, HALF)

    models = Models(target, constant((HALF, HALF)))
    assert models.target(()) is models.target(())
    assert (models.vocab, asked) == (2, [()])


@pytest.mark.parametrize("value", [None, (HALF, HALF), 3])
def test_a_model_must_be_callable(value: object) -> None:
    with pytest.raises(InputError, match=r"draft is .* required: a callable that takes a path"):
        Models(constant((HALF, HALF)), value)  # type: ignore[arg-type]
