"""All laws of a shape: sound code is certified, a fault of a single cell is found there."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rheocheck.audit.universal import universal_stage
from rheocheck.audit.universal_points import (
    check_points,
    class_law,
    degree_bound,
    is_lossless,
    models_at,
)
from rheocheck.audit.universal_shapes import Shape, node_shapes, shapes_of, tree_shapes
from rheocheck.certificate import Verdict
from rheocheck.config import Rule, SpeculationConfig
from rheocheck.reference.cells import cell_of, node_cells
from rheocheck.reference.choices import Choose
from rheocheck.reference.defect import lossless_defect
from rheocheck.reference.laws import Draft, Target, as_draft, as_law
from rheocheck.reference.oracle import exact_law
from rheocheck.reference.round_law import RoundLaw, round_law


def one_node(
    vocab: int = 3,
    top_k: int = 2,
    num_top: int = 1,
    budget: int | None = None,
    rule: Rule = "rheo",
    zeros: bool = True,
) -> Shape:
    config = SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget or top_k, depth=1, support_size=vocab, rule=rule
    )
    return Shape(vocab, config, enumerated=True, zeros=zeros)


def a_tree(num_points: int = 40, rule: Rule = "rheo") -> Shape:
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3, support_size=3, rule=rule)
    return Shape(3, config, enumerated=False, num_points=num_points, bits=64)


def eager_law(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
    return round_law(target, draft, config, "eager")


@pytest.mark.parametrize("law_of", [class_law, eager_law])
@pytest.mark.parametrize("rule", ["rheo", "rrsw", "onehot"])
def test_both_enumerators_are_lossless_for_all_laws_of_one_node(
    law_of: Callable[..., RoundLaw], rule: Rule
) -> None:
    shape = one_node(rule=rule)
    result = universal_stage(True, 0, 1, shapes=[shape], law_of=law_of)
    assert result.verdict is Verdict.CERTIFIED
    row = result.details["rows"][0]
    assert row["complete"]
    assert row["cells_visited"] == len(list(node_cells(3, shape.config, zeros=True)))
    assert row["failure_probability_log2"] < -20
    assert result.claim is not None
    assert "all target, ranking and draft laws" in result.claim


def test_trees_count_the_cells_they_visit() -> None:
    result = universal_stage(True, 0, 1, shapes=[a_tree()])
    row = result.details["rows"][0]
    assert result.verdict is Verdict.CERTIFIED
    assert not row["complete"]
    assert row["cells_total"] is None
    assert 20 < row["cells_visited"] <= 40
    assert row["failure_probability_log2"] < -40


@pytest.mark.parametrize("number", range(0, 339, 56))
def test_a_fault_of_a_single_cell_is_found_in_that_cell(number: int) -> None:
    shape = one_node()
    faulty = list(node_cells(3, shape.config, zeros=True))[number]

    def law_of(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
        """Right, but for a millionth of the mass in one cell."""
        law = class_law(target, draft, config)
        if cell_of(as_law(target(())), *as_draft(draft(())), config) != faulty:
            return law
        moved = {
            emission: mass * Fraction(999_999, 10**6) for emission, mass in law.emissions.items()
        }
        least = min(range(3), key=lambda token: as_law(target(()))[token])
        moved[least,] = moved.get((least,), Fraction(0)) + Fraction(1, 10**6)
        return replace(law, emissions=moved)

    result = universal_stage(True, 0, 1, shapes=[shape], law_of=law_of)
    assert result.verdict is Verdict.LOSSY
    assert result.claim is None
    assert result.details["rows"][0]["defects"] == 1
    witness = result.details["witness"]
    assert witness["point"] == number
    assert witness["cell"] == faulty.describe()
    assert Fraction(witness["defect"]) > 0


def sampler_law(
    target: Target,
    draft: Draft,
    config: SpeculationConfig,
    *,
    filler_first: bool = False,
    plain_residual: bool = False,
) -> RoundLaw:
    """A sampler of one node under the choice oracle, with room for two faults.

    Args:
      target: As in `round_law`.
      draft: As in `round_law`.
      config: num_top = 1, depth = 1, rule "rheo", no truncation.
      filler_first: On equal scores a filler beats the probe.
      plain_residual: After a rejected probe go on with the target itself.
    """
    ranking, tempered = as_draft(draft(()))
    law = as_law(target(()))
    order = [t for t in sorted(range(len(law)), key=lambda t: (-ranking[t], t)) if ranking[t]]
    tail = order[1:]
    drawn = [tempered[token] for token in tail]
    drawn = drawn if any(drawn) else [Fraction(int(token == tail[0])) for token in tail]
    probe_law = {t: mass / sum(drawn) for t, mass in zip(tail, drawn, strict=True)}
    proxy = min(ranking[order[0]], sum((ranking[token] for token in tail), Fraction(0)))

    def program(choose: Choose) -> tuple[int, ...]:
        children = [(ranking[order[0]], 0, order[0])]
        probe = -1
        if tail:
            probe = tail[choose.categorical(list(probe_law.values()))]
            fillers = [token for token in tail if token != probe][: config.top_k - 2]
            place = config.top_k if filler_first else 1
            children.append((proxy, place, probe))
            children += [(ranking[t], 2 + index, t) for index, t in enumerate(fillers)]
        children.sort(key=lambda child: (-child[0], child[1]))
        kept = [token for _, _, token in children[: config.budget]]
        residual = list(law)
        if probe in kept:
            kept = [probe, *(token for token in kept if token != probe)]
        for token in kept:
            is_probe = token == probe
            mass = probe_law[token] if is_probe else Fraction(1)
            if choose.bernoulli(min(Fraction(1), residual[token] / mass)):
                return (token, choose.categorical(as_law(target((token,)))))
            if is_probe and not plain_residual:
                rest = [max(m - probe_law.get(t, 0), Fraction(0)) for t, m in enumerate(residual)]
            else:
                rest = [
                    m if is_probe or t != token else Fraction(0) for t, m in enumerate(residual)
                ]
            residual = [mass / sum(rest) for mass in rest]
        return (choose.categorical(residual),)

    return RoundLaw(exact_law(program), Fraction(0), len(tail) or 1)


def test_a_users_sampler_is_certified() -> None:
    result = universal_stage(True, 0, 1, shapes=[one_node(top_k=3)], law_of=sampler_law)
    assert result.verdict is Verdict.CERTIFIED


def test_a_wrong_tie_rule_shows_only_where_scores_tie() -> None:
    faulty = functools.partial(sampler_law, filler_first=True)
    shape = one_node(vocab=4, top_k=3, budget=2, zeros=False)
    failing = [
        cell
        for point, cell in enumerate(node_cells(4, shape.config, zeros=False))
        if check_points(0, shape, point, point + 1, 0, faulty).findings
    ]
    assert failing
    # The top token ties with the first of the tail, so that a filler's score ties with the probe's.
    assert all(cell.groups[0] > 1 for cell in failing)
    result = universal_stage(True, 0, 1, shapes=[shape], law_of=faulty)
    assert result.verdict is Verdict.LOSSY
    assert "x1=x2" in result.details["witness"]["cell"]


def test_a_wrong_residual_is_found() -> None:
    faulty = functools.partial(sampler_law, plain_residual=True)
    result = universal_stage(True, 0, 1, shapes=[one_node(zeros=False)], law_of=faulty)
    assert result.verdict is Verdict.LOSSY


@given(
    emissions=st.dictionaries(
        st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple),
        st.integers(1, 3),
        min_size=1,
    ),
    weights=st.lists(st.integers(0, 2), min_size=3, max_size=3).filter(any),
)
@example(emissions={(0,): 1, (1,): 1}, weights=[1, 1, 0])
@example(emissions={(0, 0): 1, (0, 1): 1, (1,): 2}, weights=[1, 1, 0])
def test_the_integer_check_is_the_exact_defect(
    emissions: dict[tuple[int, ...], int], weights: list[int]
) -> None:
    law = {path: Fraction(mass, sum(emissions.values())) for path, mass in emissions.items()}
    target = tuple(Fraction(weight, sum(weights)) for weight in weights)
    assert is_lossless(law, lambda path: target) == (lossless_defect(law, lambda path: target) == 0)
    half = {path: mass / 2 for path, mass in law.items()}
    assert not is_lossless(half, lambda path: target)


def test_a_witness_can_be_looked_at_again() -> None:
    def law_of(target: Target, draft: Draft, config: SpeculationConfig) -> RoundLaw:
        return replace(class_law(target, draft, config), emissions={(0,): Fraction(1)})

    shape = one_node()
    witness = universal_stage(True, 5, 1, shapes=[shape], law_of=law_of).details["witness"]
    models = models_at(shape, witness["point"], seed=5)
    assert [str(mass) for mass in models.target(())] == witness["target"]
    assert [str(mass) for mass in models.draft(())[0]] == witness["ranking"]


def test_the_result_does_not_depend_on_processes_or_runs() -> None:
    shapes = [one_node(), a_tree(60)]
    one, two = (universal_stage(True, 3, jobs, shapes=shapes) for jobs in (1, 2))
    assert one.model_dump(exclude={"seconds"}) == two.model_dump(exclude={"seconds"})
    whole = check_points(0, shapes[1], 0, 60, 3, class_law)
    parts = [check_points(0, shapes[1], start, start + 20, 3, class_law) for start in (0, 20, 40)]
    assert frozenset().union(*(part.cells for part in parts)) == whole.cells


def test_progress_counts_points() -> None:
    told: list[tuple[Any, ...]] = []
    universal_stage(True, 0, 1, lambda *facts: told.append(facts), shapes=[one_node(), a_tree()])
    assert told[-1][1] == told[-1][2] == 339 + 40


def test_nothing_checked_is_inconclusive() -> None:
    assert universal_stage(True, 0, 1, shapes=[]).verdict is Verdict.INCONCLUSIVE


def test_the_degree_bound_grows_with_the_round() -> None:
    small = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1, support_size=3)
    large = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3, support_size=3)
    assert degree_bound(small, 2) == 5 * (2 + 2 + 2) * 7
    assert degree_bound(large, 2) > degree_bound(small, 2)
    assert degree_bound(large, 9) > degree_bound(large, 2)


def complete(shapes: Iterator[Shape]) -> set[tuple[Any, ...]]:
    return {
        (shape.vocab, shape.config.top_k, shape.config.num_top, shape.config.rule)
        for shape in shapes
        if shape.enumerated
    }


def test_one_node_is_complete_up_to_five_tokens_by_default() -> None:
    listed = complete(shapes_of(quick=False, full=False))
    for vocab in range(1, 6):
        for top_k in range(1, vocab + 1):
            for num_top in range(top_k):
                for rule in ("rheo", "rrsw", "onehot"):
                    assert (vocab, top_k, num_top, rule) in listed
    assert complete(shapes_of(quick=True, full=False)) < listed


def test_shape_names_are_unique() -> None:
    for quick, full in ((True, False), (False, False), (False, True)):
        names = [shape.name for shape in shapes_of(quick, full)]
        assert len(names) == len(set(names))


@pytest.mark.nightly
def test_all_faces_of_five_tokens() -> None:
    shapes = [*node_shapes(5, zeros=True, small=False), *tree_shapes(num_points=1000)]
    assert universal_stage(False, 0, 2, shapes=shapes).verdict is Verdict.CERTIFIED
