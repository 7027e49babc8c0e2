"""Cells of whole trees: reproducible laws, and digests that change with any comparison."""

from fractions import Fraction

import pytest

from rheocheck.config import SpeculationConfig
from rheocheck.reference.cells import cell_of, node_cells
from rheocheck.reference.laws import Law
from rheocheck.reference.round_law import round_law
from rheocheck.reference.tree_cells import TIES, CellModels, Ties, tree_cell

CONFIG = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3, support_size=4)


class GivenModels(CellModels):
    """The same ranking and draft at every path, a fixed target."""

    def __init__(self, ranking: Law, target: Law) -> None:
        super().__init__(len(ranking), CONFIG, "given")
        self._ranking_law = ranking
        self._target_law = target

    def target(self, path: tuple[int, ...]) -> Law:
        return self._target_law

    def draft(self, path: tuple[int, ...]) -> tuple[Law, Law]:
        return self._ranking_law, self._ranking_law

    def cell(self, path: tuple[int, ...]):  # type: ignore[no-untyped-def]
        return cell_of(self._target_law, self._ranking_law, self._ranking_law, CONFIG)


def law(*weights: int) -> Law:
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def test_laws_depend_on_seed_and_path_and_not_on_the_order_of_questions() -> None:
    one, other = CellModels(4, CONFIG, "a"), CellModels(4, CONFIG, "a")
    paths: list[tuple[int, ...]] = [(), (1,), (1, 2), (3,), (1, 2, 0)]
    asked = {path: (one.target(path), one.draft(path)) for path in paths}
    assert asked == {path: (other.target(path), other.draft(path)) for path in reversed(paths)}
    assert CellModels(4, CONFIG, "b").target(()) != one.target(())


@pytest.mark.parametrize("ties", TIES)
def test_classes_are_those_of_the_enumerator(ties: Ties) -> None:
    for seed in range(30):
        models = CellModels(4, CONFIG, str(seed), ties=ties)
        counted = round_law(models.target, models.draft, CONFIG).num_classes
        assert tree_cell(models, CONFIG).num_classes == counted


def test_ties_are_common_where_they_are_asked_for() -> None:
    def tied(ties: Ties) -> int:
        found = [CellModels(4, CONFIG, str(seed), ties=ties) for seed in range(60)]
        return sum(tree_cell(models, CONFIG).num_ties for models in found)

    # The proxy ties with the last top token by construction; nodes of different parents do not.
    assert tied("coarse") > tied("free")


def test_the_digest_follows_the_order_of_scores() -> None:
    target = law(1, 1, 1, 1)
    steep = tree_cell(GivenModels(law(8, 4, 2, 1), target), CONFIG)
    again = tree_cell(GivenModels(law(16, 8, 4, 2), target), CONFIG)
    flat = tree_cell(GivenModels(law(5, 4, 3, 2), target), CONFIG)
    assert steep == again
    assert steep.digest != flat.digest


def test_the_digest_follows_the_signs_at_nodes_with_a_surviving_probe() -> None:
    ranking = law(8, 4, 2, 1)
    one = tree_cell(GivenModels(ranking, law(1, 4, 1, 1)), CONFIG)
    other = tree_cell(GivenModels(ranking, law(1, 1, 4, 1)), CONFIG)
    assert one.digest != other.digest


def test_a_given_root_cell_is_used() -> None:
    cell = list(node_cells(4, CONFIG, zeros=True))[100]
    models = CellModels(4, CONFIG, "x", root=cell)
    assert cell_of(models.target(()), *models.draft(()), CONFIG) == cell


def test_a_tree_without_depth_or_budget_is_one_class() -> None:
    for change in ({"depth": 0}, {"budget": 0}):
        config = SpeculationConfig(**{**CONFIG.model_dump(), **change})
        assert tree_cell(CellModels(3, config, "x"), config).num_classes == 1
