"""Dual-identity expansion: by hand, against the exact twin, and at its edges."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from beartype import beartype
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu.expansion import Expansion, Logits, Role, child_ranks
from rheocheck.gpu.expansion import expand as plain_expand
from rheocheck.gpu.top_tokens import Fault
from rheocheck.reference import expansion as exact

INF, NAN = float("inf"), float("nan")
BELOW_ONE = 1 - 2.0**-53
expand = jaxtyped(typechecker=beartype)(plain_expand)

WEIGHTS = st.lists(st.integers(0, 6), min_size=1, max_size=7).filter(any)
CONFIGS = st.builds(
    SpeculationConfig,
    top_k=st.integers(1, 5),
    num_top=st.integers(0, 6),
    support_size=st.integers(1, 8),
)


def logits_of(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def expand_one(
    logits: Logits, uniform: float, config: SpeculationConfig, temperature: float, **more: Any
) -> Expansion:
    draw = torch.tensor([uniform], dtype=torch.float64)
    done: Expansion = expand(logits, draw, config, temperature, **more)
    return done


def test_a_node_by_hand() -> None:
    config = SpeculationConfig(top_k=4, num_top=1, support_size=4)
    # Rank order 2, 0, 4, 1 (3 and 5 are cut); tail 0, 4, 1 with law 3/6, 2/6, 1/6.
    done = expand_one(logits_of([3, 1, 6, 1, 2, 0]), 0.5, config, 1.0)
    assert done.support.tolist() == [[2, 0, 4, 1]]
    assert done.probe_law[0].tolist() == pytest.approx([0, 3 / 6, 2 / 6, 1 / 6])
    assert done.probe_rank.tolist() == [2]
    assert done.token.tolist() == [[2, 4, 0, 1]]
    assert done.role.tolist() == [[Role.TOP, Role.PROBE, Role.FILLER, Role.FILLER]]
    # The proxy is min(6/12, 6/12): the top token's own probability and the tail's mass tie.
    assert done.log_factor[0].exp().tolist() == pytest.approx([6 / 12, 6 / 12, 3 / 12, 1 / 12])


def test_the_temperature_tempers_the_probe_only() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    done = expand_one(logits_of([4, 2, 1]), 0.9, config, 0.5)
    assert done.probe_law[0].tolist() == pytest.approx([0, 4 / 5, 1 / 5])
    assert done.log_factor[0].exp().tolist() == pytest.approx([4 / 7, 3 / 7, 2 / 7])
    assert done.token.tolist() == [[0, 2, 1]]


def test_a_pair_orders_and_scores_by_its_first_law() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    pair = (logits_of([4, 2, 1]), logits_of([1, 1, 3]))
    done = expand_one(pair, 0.2, config, 1.0)
    assert done.support.tolist() == [[0, 1, 2]]
    assert done.probe_law[0].tolist() == pytest.approx([0, 1 / 4, 3 / 4])
    assert done.token.tolist() == [[0, 1, 2]]
    assert done.log_factor[0].exp().tolist() == pytest.approx([4 / 7, 3 / 7, 1 / 7])


def test_a_draft_without_mass_on_the_tail_gives_its_first_token() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    pair = (logits_of([4, 2, 1]), logits_of([1, 0, 0]))
    done = expand_one(pair, BELOW_ONE, config, 1.0)
    assert done.probe_law.tolist() == [[0, 1, 0]]
    assert done.token.tolist() == [[0, 1, 2]]


def test_a_token_that_the_draft_cannot_draw_is_never_the_probe() -> None:
    config = SpeculationConfig(top_k=3, num_top=0)
    pair = (logits_of([4, 2, 1]), logits_of([0, 1, 0]))
    for uniform in (0.0, BELOW_ONE):
        assert expand_one(pair, uniform, config, 1.0).token.tolist() == [[1, 0, 2]]


@settings(deadline=None, max_examples=150)
@given(
    ranking=WEIGHTS,
    draft=WEIGHTS,
    is_pair=st.booleans(),
    power=st.integers(1, 3),
    config=CONFIGS,
    uniform=st.floats(0, 1, exclude_max=True),
)
@example(  # tail of one token, and a uniform at each end
    ranking=[1, 1], draft=[1], is_pair=False, power=1,
    config=SpeculationConfig(top_k=2, num_top=1), uniform=BELOW_ONE,
)  # fmt: skip
@example(
    ranking=[2, 2, 2, 2], draft=[0, 0, 1, 0], is_pair=True, power=2,
    config=SpeculationConfig(top_k=3, num_top=1, support_size=3), uniform=0.0,
)  # fmt: skip
def test_every_probe_gives_the_exact_twins_children(
    ranking: list[int],
    draft: list[int],
    is_pair: bool,
    power: int,
    config: SpeculationConfig,
    uniform: float,
) -> None:
    drawn = (draft * len(ranking))[: len(ranking)] if is_pair else ranking
    assume(any(drawn))
    powers = [weight**power for weight in drawn]
    laws = [tuple(Fraction(w, sum(ws)) for w in ws) for ws in (ranking, powers)]
    expected = exact.expand(laws[0], laws[1], config)
    logits = (logits_of(ranking), logits_of(drawn)) if is_pair else logits_of(ranking)
    done = expand_one(logits, uniform, config, 1 / power)

    num_support = len(expected.tokens)
    assert done.support[0, :num_support].tolist() == list(expected.tokens)
    assert bool((done.support[0, num_support:] == -1).all())
    tail = done.probe_law[0, expected.num_top : num_support]
    law = [float(mass) for mass in expected.probe_law] or [0.0] * len(tail)
    assert tail.tolist() == pytest.approx(law, rel=1e-14)
    for index in range(len(expected.probe_law)):
        forced = torch.tensor([expected.tail[index]])
        given_probe = expand_one(logits, uniform, config, 1 / power, forced_probe=forced)
        compare_children(given_probe, exact.children(expected, index))
    if not expected.probe_law:
        compare_children(done, exact.children(expected, None))
        assert int(done.probe_rank) == -1
    else:
        rank = int(done.probe_rank) - expected.num_top
        assert expected.probe_law[rank] > 0
        below = sum(expected.probe_law[:rank])
        # Up to rounding: four operations on terms of at most 1.
        assert float(below) - 1e-15 <= uniform <= float(below + expected.probe_law[rank]) + 1e-15


def compare_children(done: Expansion, expected: list[exact.Child]) -> None:
    size = len(expected)
    assert done.valid.tolist() == [[slot < size for slot in range(done.valid.shape[1])]]
    assert done.token[0, :size].tolist() == [child.token for child in expected]
    assert bool((done.token[0, size:] == -1).all())
    assert done.role[0, :size].tolist() == [int(child.role) for child in expected]
    factors = done.log_factor[0, :size].exp().tolist()
    assert factors == pytest.approx([float(child.factor) for child in expected], rel=1e-14)
    assert bool((done.log_factor[0, size:] == -INF).all())
    assert bool((done.log_factor[0, :size] <= 0).all())


def test_a_token_map_reports_target_ids() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    ids = torch.tensor([5, 7, 100])
    done = expand_one(logits_of([1, 4, 1]), 0.0, config, 1.0, token_ids=ids)
    assert done.support.tolist() == [[7, 5, 100]]
    assert done.token.tolist() == [[7, 5, 100]]
    forced = torch.tensor([100])
    done = expand_one(logits_of([1, 4, 1]), 0.0, config, 1.0, token_ids=ids, forced_probe=forced)
    assert done.token.tolist() == [[7, 100, 5]]


@pytest.mark.parametrize("token", [-1, 0, 3, 99])
def test_a_forced_token_outside_the_tail_leaves_the_draw(token: int) -> None:
    config = SpeculationConfig(top_k=2, num_top=1, support_size=3)
    logits = logits_of([4, 3, 2, 1])
    drawn = expand_one(logits, 0.99, config, 1.0)
    forced = expand_one(logits, 0.99, config, 1.0, forced_probe=torch.tensor([token]))
    assert torch.equal(forced.token, drawn.token)
    assert drawn.token.tolist() == [[0, 2]]


@pytest.mark.parametrize("num_top", [2, 3])
def test_with_as_many_top_tokens_as_children_there_is_no_probe(num_top: int) -> None:
    config = SpeculationConfig(top_k=2, num_top=num_top)
    done = expand_one(logits_of([1, 3, 2]), 0.5, config, 1.0)
    assert done.token.tolist() == [[1, 2]]
    assert done.role.tolist() == [[Role.TOP, Role.TOP]]
    assert done.probe_rank.tolist() == [-1]
    assert done.probe_law.tolist() == [[0, 0, 0]]


def test_a_support_of_one_token() -> None:
    for num_top, role in ((0, Role.PROBE), (1, Role.TOP)):
        config = SpeculationConfig(top_k=3, num_top=num_top)
        done = expand_one(logits_of([0, 5, 0]), 0.5, config, 1.0)
        assert done.token.tolist() == [[1, -1, -1]]
        assert int(done.role[0, 0]) == role
        assert done.log_factor.tolist() == [[0, -INF, -INF]]


@pytest.mark.parametrize("num_top", [0, 1, 2])
@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-5])
def test_at_temperature_zero_the_probe_is_the_first_tail_token(
    num_top: int, temperature: float
) -> None:
    config = SpeculationConfig(top_k=4, num_top=num_top)
    done = expand_one(logits_of([1, 4, 2, 3]), BELOW_ONE, config, temperature)
    assert done.token.tolist() == [[1, 3, 2, 0]]
    assert done.probe_law[0].tolist() == [float(rank == num_top) for rank in range(4)]


def test_a_tail_below_float_resolution_keeps_its_law() -> None:
    config = SpeculationConfig(top_k=2, num_top=1)
    logits = torch.tensor([[0.0, -800.0, -800.0 + math.log(3)]], dtype=torch.float64)
    done = expand_one(logits, 0.0, config, 1.0)
    assert done.probe_law[0].tolist() == pytest.approx([0, 3 / 4, 1 / 4])
    assert done.log_factor[0].tolist() == pytest.approx([0, -800 + math.log(4)])


def test_logits_further_apart_than_floats_reach_still_rank() -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    logits = torch.tensor([[1.7e308, -1.7e308, -1.7e308]], dtype=torch.float64)
    done = expand_one(logits, 0.0, config, 1e-300)
    assert done.valid.all() and not bool(done.log_factor.isinf().any())
    assert done.token.tolist() == [[0, 1, 2]]


BAD_ROWS = [
    ([NAN, 1.0, 2.0], Fault.NAN),
    ([NAN] * 3, Fault.NAN),
    ([-INF] * 3, Fault.EMPTY),
    ([INF, 1.0, 0.0], Fault.INFINITE),
]


@pytest.mark.parametrize(("row", "fault"), BAD_ROWS)
def test_a_bad_row_is_reported_and_has_no_children(row: list[float], fault: Fault) -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    good = [0.0, 2.0, 1.0]
    uniform = torch.tensor([0.5, 0.5], dtype=torch.float64)
    for temperature in (0.0, 1.0):
        done = expand(torch.tensor([row, good]), uniform, config, temperature)
        assert done.fault.tolist() == [fault, Fault.NONE]
        assert not bool(done.probe_law.isnan().any() | done.log_factor.isnan().any())
        assert done.valid.tolist() == [[False] * 3, [True] * 3]
        assert done.token[0].tolist() == done.support[0].tolist() == [-1] * 3
        assert done.probe_rank.tolist()[0] == -1 and not bool(done.probe_law[0].any())
        alone = expand(torch.tensor([good]), uniform[:1], config, temperature)
        assert torch.equal(alone.probe_law[0], done.probe_law[1])


@pytest.mark.parametrize(("row", "fault"), BAD_ROWS)
def test_a_fault_on_either_side_of_a_pair_is_reported(row: list[float], fault: Fault) -> None:
    config = SpeculationConfig(top_k=3, num_top=1)
    good, bad = logits_of([4, 2, 1]), torch.tensor([row], dtype=torch.float64)
    for pair in ((good, bad), (bad, good)):
        done = expand_one(pair, 0.5, config, 1.0)
        assert done.fault.tolist() == [fault]
        assert not bool(done.valid.any()) and not bool(done.probe_law.any())


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="the vocabulary is empty"):
        expand_one(torch.zeros(1, 0), 0.5, SpeculationConfig(), 1.0)


def test_no_rows_give_no_children() -> None:
    config = SpeculationConfig(top_k=3)
    done = expand(torch.zeros(0, 4, 5000), torch.zeros(0, 4).double(), config, 1.0)
    assert done.token.shape == (0, 4, 3) and done.support.shape == (0, 4, 128)


@settings(deadline=None)
@given(
    logits=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9),
    config=CONFIGS,
    uniform=st.floats(0, 1, exclude_max=True),
)
@example(  # q(x_2) = z with many equal tail tokens, and a sum that rounds
    logits=[0.1] * 9, config=SpeculationConfig(top_k=5, num_top=1), uniform=0.5
)
def test_siblings_never_rank_out_of_slot_order(
    logits: list[float], config: SpeculationConfig, uniform: float
) -> None:
    row = torch.tensor([logits], dtype=torch.float64)
    factors = expand_one(row, uniform, config, 1.0).log_factor[0]
    assert bool((factors[1:] <= factors[:-1]).all())


def test_rows_of_a_batch_are_expanded_alone() -> None:
    config = SpeculationConfig(top_k=3, num_top=1, support_size=5)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 9, generator=generator)
    uniform = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    together = expand(logits, uniform, config, 0.7)
    for row in range(4):
        alone = expand(logits[row : row + 1], uniform[row : row + 1], config, 0.7)
        assert torch.equal(alone.probe_law[0], together.probe_law[row])
        assert torch.equal(alone.token[0], together.token[row])
        assert torch.equal(alone.log_factor[0], together.log_factor[row])


def test_child_ranks_skip_the_probe() -> None:
    config = SpeculationConfig(top_k=5, num_top=1)
    ranks = child_ranks(
        torch.tensor([[1], [3], [9], [3], [-1]]), torch.tensor([10, 10, 10, 4, 1]), config
    )
    assert ranks.tolist() == [
        [0, 1, 2, 3, 4],
        [0, 3, 1, 2, 4],
        [0, 9, 1, 2, 3],
        [0, 3, 1, 2, -1],
        [0, -1, -1, -1, -1],
    ]
