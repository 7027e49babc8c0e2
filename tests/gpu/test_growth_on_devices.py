"""Growth as a device sees it: fixed shapes, nothing waits, one graph, and rows that stand alone."""

from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from rheocheck.config import SpeculationConfig
from rheocheck.gpu.tree import Tree
from tests.gpu.table_drafter import grow_from_table

SIZES = ("depth", "num_probes")  # numbers, not tensors
INF, NAN = float("inf"), float("nan")
STATES, VOCAB = 5, 3000
CONFIGS = (
    SpeculationConfig(top_k=3, num_top=1, budget=12, depth=3, support_size=16),
    SpeculationConfig(top_k=2, num_top=0, budget=40, depth=2, support_size=1),
    SpeculationConfig(top_k=2, num_top=2, budget=0, depth=2),
    SpeculationConfig(top_k=2, num_top=1, budget=3, depth=0),
)


def tables(batch: int, dtype: torch.dtype = torch.float32, vocab: int = VOCAB) -> Tensor:
    """[batch, STATES, vocab] logits with many ties; row 1 has a point mass, row 2 faults."""
    generator = torch.Generator().manual_seed(0)
    table = (4 * torch.randn(batch, STATES, vocab, generator=generator)).round() / 4
    if batch > 2:
        table[1, 1] = -INF
        table[1, 1, 5] = 0.0
        table[2, 2, 7], table[2, 3], table[2, 4, -1] = NAN, -INF, INF
    return table.to(dtype)


def counters(batch: int) -> tuple[Tensor, Tensor]:
    return torch.arange(batch) + 10, torch.arange(batch) % 3


def grown(batch: int, device: str, config: SpeculationConfig) -> Tree:
    request, round_index = counters(batch)
    parts = tables(batch).to(device), request.to(device), round_index.to(device)
    return grow_from_table(*parts, config)[0]


def columns(tree: Tree) -> dict[str, Tensor]:
    return {part.name: getattr(tree, part.name) for part in fields(Tree) if part.name not in SIZES}


@pytest.mark.parametrize("config", CONFIGS)
def test_nothing_reads_a_value_on_the_way(config: SpeculationConfig) -> None:
    """Meta tensors have shapes and no values: reading one, or a shape made of values, raises."""
    batch = 4
    real = columns(grown(batch, "cpu", config))
    done = columns(grown(batch, "meta", config))
    for name, column in real.items():
        assert done[name].is_meta and done[name].shape == column.shape, name
        assert done[name].dtype == column.dtype, name


def test_a_read_on_the_way_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from rheocheck.gpu import layers

    original = layers.best_first

    def waits(score: Tensor) -> Tensor:
        return original(score * int((score < 0).any()))

    monkeypatch.setattr(layers, "best_first", waits)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        grown(2, "meta", CONFIGS[0])


def compare_compiled(backend: str, config: SpeculationConfig, batches: tuple[int, ...]) -> None:
    torch._dynamo.reset()

    def step(table: Tensor, request: Tensor, round_index: Tensor) -> Tree:
        return grow_from_table(table, request, round_index, config, 0.7)[0]

    compiled: Callable[..., Tree] = torch.compile(step, backend=backend, fullgraph=True)
    for batch in batches:
        parts = (tables(batch), *counters(batch))
        expected, found = columns(step(*parts)), columns(compiled(*parts))
        for name, column in expected.items():
            if column.is_floating_point() and backend == "inductor":
                # Fused kernels may contract a multiplication and an addition.
                torch.testing.assert_close(found[name], column, rtol=1e-13, atol=1e-15)
            else:
                assert torch.equal(found[name], column), name


def test_growth_compiles_to_one_graph() -> None:
    compare_compiled("aot_eager", CONFIGS[0].model_copy(update={"depth": 2}), (3,))


@pytest.mark.nightly
# Torch's own: inductor imports a module that uses it.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_growth_compiles_with_every_backend(backend: str, config: SpeculationConfig) -> None:
    compare_compiled(backend, config, (3, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_row_is_the_same_in_any_company_bit_for_bit(dtype: torch.dtype) -> None:
    batch, config = 7, CONFIGS[0]
    table, (request, round_index) = tables(batch, dtype), counters(batch)
    together = columns(grow_from_table(table, request, round_index, config, 0.7)[0])
    companies = [[row] for row in range(batch)]
    companies += [[6, 5, 4, 3, 2, 1, 0], [3, 3, 3], [2, 0], [*range(7)] * 5]
    for rows in companies:
        picked = columns(
            grow_from_table(table[rows], request[rows], round_index[rows], config, 0.7)[0]
        )
        for name, column in together.items():
            assert torch.equal(picked[name], column[rows]), (name, rows)


def test_a_row_is_the_same_at_full_size_bit_for_bit() -> None:
    """Vector widths and parallel reductions come into play from some thousand values on."""
    config = SpeculationConfig()
    table, (request, round_index) = tables(4, vocab=32_000), counters(4)
    together = columns(grow_from_table(table, request, round_index, config)[0])
    for row in range(4):
        kept = slice(row, row + 1)
        alone = columns(grow_from_table(table[kept], request[kept], round_index[kept], config)[0])
        for name, column in together.items():
            assert torch.equal(alone[name], column[kept]), name


def test_a_seed_replays_and_another_does_not() -> None:
    config = CONFIGS[0]
    parts = (tables(4), *counters(4))
    first, again = (columns(grow_from_table(*parts, config, seed=2**63 - 1)[0]) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = columns(grow_from_table(*parts, config, seed=2**63 - 2)[0])
    assert not torch.equal(first["token"], other["token"])
