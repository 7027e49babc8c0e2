from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rheocheck.errors import InputError
from rheocheck.gpu import drafting
from rheocheck.gpu.drafting import EagleDrafter
from rheocheck.gpu.eagle3 import Eagle3Head
from tests.gpu.random_heads import TARGET_HIDDEN, VOCAB, head_config, path_logits, random_head

# float64 throughout; the random weights make attention sharp, which stretches 1e-16 by some
# thousands.
TOLERANCE = 1e-9


class Round(NamedTuple):
    """One round for the whole batch.

    Attributes:
      counts: New pairs of each row.
      levels: For each level and row, the (parent index, token) of each frontier token.
    """

    counts: list[int]
    levels: list[list[list[tuple[int, int]]]]


ROUNDS = [
    Round(
        counts=[5, 2, 1],
        levels=[
            [[(0, 1), (0, 4)], [(0, 12)], [(0, 7), (0, 3), (0, 7)]],
            [[(1, 5), (0, 5), (1, 6)], [(0, 0)], []],
            [[(2, 2), (0, 2)], [(0, 9), (0, 10)], []],
        ],
    ),
    Round(counts=[1, 3, 0], levels=[[[(0, 8)], [(0, 8), (0, 9)], [(0, 2)]]]),
    Round(counts=[2, 1, 4], levels=[[[(0, 1)], [], [(0, 2)]], [[(0, 3)], [], [(0, 4), (0, 5)]]]),
]


def pad(rows: list[list[tuple[int, int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Parent, token and validity; padding is what `grow` gives, -1 tokens."""
    width = max((len(row) for row in rows), default=0)
    parent, token = (torch.full((len(rows), max(width, 1)), -1) for _ in range(2))
    for index, row in enumerate(rows):
        for slot, (above, new) in enumerate(row):
            parent[index, slot], token[index, slot] = above, new
    return parent, token, token >= 0


def worst_gap(head: Eagle3Head, rounds: list[Round], seed: int = 0) -> float:
    """Largest difference from the path-by-path recomputation, over all nodes of all rounds."""
    generator = torch.Generator().manual_seed(seed)
    batch, gap = len(rounds[0].counts), 0.0
    drafter = EagleDrafter(head, batch)
    text: list[list[int]] = [[] for _ in range(batch)]
    seen = [torch.zeros(0, 3 * TARGET_HIDDEN, dtype=torch.float64) for _ in range(batch)]

    def compare(logits: Tensor, row: int, path: list[int]) -> None:
        nonlocal gap
        expected = path_logits(head, seen[row], text[row], path)
        gap = max(gap, float((logits - expected).abs().max()))

    for counts, levels in rounds:
        new = max(counts)
        features = torch.randn(batch, new, 3 * TARGET_HIDDEN, generator=generator).double()
        token = torch.randint(VOCAB, (batch, new), generator=generator)
        for row, count in enumerate(counts):
            text[row] += token[row, :count].tolist()
            seen[row] = torch.cat((seen[row], features[row, :count]))
            features[row, count:] = torch.nan  # padding may hold anything
            token[row, count:] = -1
        drafter.advance(features, token, torch.tensor(counts))
        root = drafter.root()
        paths: list[list[list[int]]] = [[[]] for _ in range(batch)]
        for row in range(batch):
            compare(root[row], row, [])
        for level in levels:
            logits = drafter.extend(*pad(level))
            assert logits.isfinite().all()
            for row in range(batch):
                paths[row] = [[*paths[row][above], token] for above, token in level[row]]
                for slot, path in enumerate(paths[row]):
                    compare(logits[row, slot], row, path)
    return gap


@st.composite
def rounds_of_a_batch(draw: st.DrawFn) -> list[Round]:
    """A few rounds of random trees; counts of 0 and empty levels are common."""
    batch = draw(st.integers(1, 3))
    rounds = []
    for _ in range(draw(st.integers(1, 3))):
        counts = draw(st.lists(st.integers(0, 3), min_size=batch, max_size=batch).filter(any))
        widths, levels = [1] * batch, []
        for _ in range(draw(st.integers(0, 3))):
            level = [
                draw(
                    st.lists(
                        st.tuples(st.integers(0, max(width - 1, 0)), st.integers(0, VOCAB - 1)),
                        max_size=3 if width else 0,
                    )
                )
                for width in widths
            ]
            widths = [len(row) for row in level]
            levels.append(level)
        rounds.append(Round(counts, levels))
    return rounds


@settings(max_examples=15, deadline=None)
@given(rounds=rounds_of_a_batch(), seed=st.integers(0, 3))
def test_every_node_of_every_round_is_its_path_recomputed(rounds: list[Round], seed: int) -> None:
    assert worst_gap(random_head(seed=seed), rounds, seed) < TOLERANCE


@pytest.mark.parametrize(
    "switches",
    [{}, {"feed_back_normed": True, "norm_before_residual": True}, {"fc_norm": True}],
    ids=str,
)
def test_rounds_by_hand(switches: dict[str, Any]) -> None:
    assert worst_gap(random_head(head_config(**switches)), ROUNDS) < TOLERANCE


def see_everything(sees: Tensor) -> Tensor:
    return torch.zeros(sees.shape)


def see_itself_only(sees: Tensor) -> Tensor:
    """The last columns are the query tokens themselves."""
    query = sees.shape[1]
    mask = torch.full(sees.shape, drafting.HIDDEN)
    mask[:, range(query), range(-query, 0)] = 0
    return mask


def first_in_frontier(values: Tensor, index: Tensor) -> Tensor:
    rows = torch.arange(len(values))
    return values[rows[:, None], torch.zeros_like(index)]


def overwrite_from_the_front(old: Tensor, new: Tensor, slot: Tensor, slots: int) -> Tensor:
    held = old.new_zeros(*old.shape[:2], slots, old.shape[3])
    held[:, :, : old.shape[2]] = old
    held[:, :, : new.shape[2]] = new
    return held


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("additive", see_everything),
        ("additive", see_itself_only),
        ("pick", first_in_frontier),
        ("store", overwrite_from_the_front),
    ],
)
def test_faults_of_mask_parent_and_store_are_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[..., Tensor]
) -> None:
    monkeypatch.setattr(drafting, name, fault)
    assert worst_gap(random_head(), ROUNDS) > 1e-2


def test_tree_positions_one_too_high_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = EagleDrafter._bare_root

    def shifted(self: EagleDrafter) -> drafting.DraftedTree:
        tree = bare(self)
        return drafting.DraftedTree(tree.key_values, tree.sees, tree.hidden, tree.level + 1)

    monkeypatch.setattr(EagleDrafter, "_bare_root", shifted)
    assert worst_gap(random_head(), ROUNDS) > 1e-2


def test_a_tree_that_outlives_its_round_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale keys of rejected tokens stay among the verified ones."""
    extend = EagleDrafter.extend

    def leaking(self: EagleDrafter, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        logits = extend(self, parent, token, valid)
        leaked = drafting.join(self.state.key_values, self._tree.key_values)
        self.state = drafting.VerifiedState(
            leaked, self.state.length + self._tree.key_values.keys.shape[2], self.state.hidden
        )
        return logits

    monkeypatch.setattr(EagleDrafter, "extend", leaking)
    assert worst_gap(random_head(), ROUNDS) > 1e-2


def test_rows_do_not_depend_on_their_neighbours() -> None:
    head = random_head().float()
    features, token = torch.randn(3, 6, 3 * TARGET_HIDDEN), torch.randint(VOCAB, (3, 6))
    counts = torch.tensor([6, 1, 3])
    together = EagleDrafter(head, 3)
    together.advance(features, token, counts)
    parent, drafted = torch.zeros(3, 2, dtype=torch.int64), torch.randint(VOCAB, (3, 2))
    valid = torch.tensor([[True, True], [True, False], [True, True]])
    logits = torch.cat((together.root()[:, None], together.extend(parent, drafted, valid)), dim=1)
    for row in range(3):
        alone, one, count = EagleDrafter(head, 1), slice(row, row + 1), int(counts[row])
        alone.advance(features[one, :count], token[one, :count], counts[one])
        width = int(valid[row].sum())
        root = alone.root()[:, None]
        below = alone.extend(parent[one, :width], drafted[one, :width], valid[one, :width])
        # float32: sums are only grouped otherwise, by the longer rows' padding.
        expected = torch.cat((root, below), dim=1)
        torch.testing.assert_close(logits[one, : width + 1], expected, rtol=1e-5, atol=1e-4)


def test_prefill_at_once_equals_prefill_piece_by_piece() -> None:
    head = random_head()
    features = torch.randn(1, 7, 3 * TARGET_HIDDEN, dtype=torch.float64)
    token = torch.randint(VOCAB, (1, 7))
    whole, pieces = EagleDrafter(head, 1), EagleDrafter(head, 1)
    whole.advance(features, token, torch.tensor([7]))
    for start, stop in ((0, 3), (3, 4), (4, 7)):
        piece = torch.tensor([stop - start])
        pieces.advance(features[:, start:stop], token[:, start:stop], piece)
    torch.testing.assert_close(whole.root(), pieces.root())
    torch.testing.assert_close(whole.state.key_values.keys, pieces.state.key_values.keys)


def test_a_round_can_be_drafted_again() -> None:
    head = random_head()
    drafter = EagleDrafter(head, 1)
    drafter.advance(
        torch.randn(1, 3, 3 * TARGET_HIDDEN), torch.randint(VOCAB, (1, 3)), torch.tensor([3])
    )
    level = (torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[1, 2]]), torch.ones(1, 2) > 0)
    saved = drafter.state
    first = (drafter.root(), drafter.extend(*level))
    drafter.advance(
        torch.randn(1, 1, 3 * TARGET_HIDDEN), torch.tensor([[1]]), torch.ones(1, dtype=torch.int64)
    )
    assert not torch.equal(drafter.root(), first[0])
    drafter.state = saved
    assert torch.equal(drafter.root(), first[0])
    assert torch.equal(drafter.extend(*level), first[1])


def test_kept_rows_go_on_as_if_alone() -> None:
    head = random_head()
    features = torch.randn(3, 6, 3 * TARGET_HIDDEN, dtype=torch.float64)
    token, counts = torch.randint(VOCAB, (3, 6)), torch.tensor([2, 6, 3])
    drafter, alone = EagleDrafter(head, 3), EagleDrafter(head, 2)
    drafter.advance(features, token, counts)
    kept = torch.tensor([2, 0])
    drafter.keep_rows(kept)
    assert drafter.state.key_values.keys.shape[2] == 3
    alone.advance(features[kept], token[kept], counts[kept])
    for each in (drafter, alone):
        each.advance(features[:2, :2], token[:2, :2], torch.tensor([2, 1]))
    torch.testing.assert_close(drafter.root(), alone.root())
    torch.testing.assert_close(drafter.state.key_values.keys, alone.state.key_values.keys)


def test_no_new_pairs_leave_every_row_as_it_is() -> None:
    drafter = EagleDrafter(random_head(), 2)
    before = drafter.state
    drafter.advance(
        torch.zeros(2, 0, 3 * TARGET_HIDDEN),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int64),
    )
    assert drafter.state is before


def test_a_row_without_pairs_drafts_a_defined_law() -> None:
    drafter = EagleDrafter(random_head(), 2)
    features = torch.randn(2, 1, 3 * TARGET_HIDDEN, dtype=torch.float64)
    drafter.advance(features, torch.tensor([[3], [3]]), torch.tensor([0, 1]))
    assert drafter.root()[0].tolist() == [0.0] * 9
    assert (
        drafter.extend(
            torch.zeros(2, 1, dtype=torch.int64), torch.tensor([[5], [5]]), torch.ones(2, 1) > 0
        )
        .isfinite()
        .all()
    )


def test_features_of_the_wrong_width_are_refused() -> None:
    drafter = EagleDrafter(random_head(), 1)
    with pytest.raises(InputError, match=r"features \[1, 2, 8\].* must be \[batch, new, 24\]"):
        drafter.advance(torch.zeros(1, 2, 8), torch.zeros(1, 2).long(), torch.tensor([2]))


def test_a_count_above_the_pairs_given_is_refused() -> None:
    drafter = EagleDrafter(random_head(), 1)
    with pytest.raises(InputError, match=r"counts \[3\] must lie between 0 and 2"):
        drafter.advance(torch.zeros(1, 2, 24), torch.zeros(1, 2).long(), torch.tensor([3]))
