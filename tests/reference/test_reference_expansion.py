"""Children of one node."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck.config import SpeculationConfig
from rheocheck.errors import ConfigError
from rheocheck.reference.expansion import Expansion, Role, children, expand
from rheocheck.reference.laws import Law
from tests.strategies import configs, law_of, target_and_draft

RANKING = law_of(1, 4, 3, 2)
TOP, PROBE, FILLER = Role.TOP, Role.PROBE, Role.FILLER


def expansion(ranking: Law, draft: Law | None = None, **settings: Any) -> Expansion:
    return expand(ranking, draft or ranking, SpeculationConfig(**{"top_k": 3, **settings}))


def shown(found: Expansion, probe: int | None) -> list[tuple[int, Role, Fraction]]:
    return [(child.token, child.role, child.factor) for child in children(found, probe)]


def test_top_probe_and_filler_by_hand() -> None:
    found = expansion(RANKING)
    assert found.tail == (2, 3, 0)
    assert found.probe_law == law_of(3, 2, 1)
    assert found.proxy_score == Fraction(4, 10)
    top, proxy = (1, TOP, Fraction(4, 10)), Fraction(4, 10)
    assert shown(found, 0) == [top, (2, PROBE, proxy), (3, FILLER, Fraction(2, 10))]
    assert shown(found, 1) == [top, (3, PROBE, proxy), (2, FILLER, Fraction(3, 10))]
    assert shown(found, 2) == [top, (0, PROBE, proxy), (2, FILLER, Fraction(3, 10))]


def test_the_proxy_is_the_tail_mass_where_that_is_smaller() -> None:
    assert expansion(law_of(7, 2, 1)).proxy_score == Fraction(3, 10)


def test_without_a_top_the_proxy_is_the_largest_ranking() -> None:
    found = expansion(RANKING, num_top=0)
    assert (found.num_top, found.proxy_score, found.tail) == (0, Fraction(4, 10), (1, 2, 3, 0))


def test_plain_top_k_has_neither_probe_nor_filler() -> None:
    for num_top in (3, 4, 9):
        found = expansion(RANKING, num_top=num_top)
        assert found.probe_law == ()
        assert shown(found, None) == [
            (1, TOP, Fraction(4, 10)), (2, TOP, Fraction(3, 10)), (3, TOP, Fraction(2, 10))
        ]  # fmt: skip


def test_an_empty_tail_leaves_only_top() -> None:
    found = expansion(law_of(1, 1, 0), num_top=2)
    assert (found.probe_law, len(children(found, None))) == ((), 2)


def test_a_tail_of_one_token_has_a_sure_probe_and_no_filler() -> None:
    found = expansion(law_of(2, 1, 0))
    assert found.probe_law == (Fraction(1),)
    assert shown(found, 0) == [(0, TOP, Fraction(2, 3)), (1, PROBE, Fraction(1, 3))]


def test_the_probe_is_drawn_from_the_tempered_draft_but_ordered_by_ranking() -> None:
    found = expansion(RANKING, law_of(5, 1, 2, 3))
    assert (found.tail, found.probe_law) == ((2, 3, 0), law_of(2, 3, 5))


def test_a_tempered_draft_without_mass_on_the_tail_gives_its_first_token() -> None:
    assert expansion(RANKING, law_of(0, 1, 0, 0)).probe_law == law_of(1, 0, 0)


def test_truncation_comes_first() -> None:
    found = expansion(RANKING, support_size=2)
    assert (found.tokens, found.ranking) == ((1, 2), law_of(4, 3))


@given(laws=target_and_draft(5), config=configs(4), data=st.data())
def test_no_filler_outranks_its_probe_and_no_token_comes_twice(
    laws: tuple[Law, Law], config: SpeculationConfig, data: st.DataObject
) -> None:
    found = expand(*laws, config)
    probe = data.draw(st.sampled_from(range(len(found.probe_law)))) if found.probe_law else None
    siblings = children(found, probe)
    tokens = [child.token for child in siblings]
    factors = [child.factor for child in siblings]
    assert len(set(tokens)) == len(tokens) <= config.top_k
    assert factors == sorted(factors, reverse=True)
    assert [child.slot for child in siblings] == list(range(len(siblings)))
    assert all(0 < factor <= 1 for factor in factors)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("top_k", 0), ("num_top", -1), ("budget", -1), ("depth", -2), ("support_size", 0)],
)
def test_settings_out_of_range_are_refused_by_name(setting: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{setting} = {value}: "):
        SpeculationConfig(**{setting: value})  # type: ignore[arg-type]
