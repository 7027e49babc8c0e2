"""The pass over logits, the two-level draw, and the walk from logits against the dense path."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu import row_mass
from rheocheck.gpu.all_nodes import follow, node_paths, tree_laws
from rheocheck.gpu.final_draw import dense_residual
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.row_mass import BLOCK, read_rows
from rheocheck.gpu.tree import Tree, grow
from rheocheck.gpu.verification import Verification, verify
from tests.gpu import dense_verification as dense
from tests.gpu.path_drafter import PathDrafter, draws, random_logits

INF = float("inf")
CONFIG = SpeculationConfig(top_k=4, num_top=1, budget=9, depth=3, support_size=8)
NONE = torch.full((1, 16), -1)


def a_round(
    seed: int, vocab: int, batch: int = 12, config: SpeculationConfig = CONFIG
) -> tuple[Tree, Tensor, RoundUniforms]:
    """A tree, target logits and draws."""
    uniforms = draws(config, batch, seed)
    tree = grow(PathDrafter(random_logits(seed, vocab), batch), uniforms, config, 0.8)
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch, config.budget + 1, vocab, generator=generator).double()
    return tree, logits, uniforms


def rows_of(values: Any, row: int) -> Any:
    """One row of a tree or of uniforms, as a batch of one."""
    parts = {part.name: getattr(values, part.name) for part in fields(values)}
    kept = {name: part[row : row + 1] for name, part in parts.items() if isinstance(part, Tensor)}
    return replace(values, **kept)


def same(one: Verification, other: Verification) -> bool:
    return all(
        torch.equal(getattr(one, part.name), getattr(other, part.name)) for part in fields(one)
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("vocab", [3, 40, 256, 600])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_walk_is_the_dense_paths(rule: Rule, vocab: int, temperature: float) -> None:
    for seed in range(3):
        tree, logits, uniforms = a_round(seed, vocab)
        if seed == 1:
            logits[..., vocab // 2 :] = -torch.inf
        if temperature == 0:
            laws = torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
        else:
            laws = (logits / temperature).softmax(-1)
        wanted = dense.verify(tree, laws, uniforms, rule)
        found = verify(tree, logits, uniforms, rule, temperature)
        assert wanted.emitted.tolist() == found.emitted.tolist()
        assert wanted.accepted.tolist() == found.accepted.tolist()
        assert wanted.final_node.tolist() == found.final_node.tolist()
        all_laws = tree_laws(tree, logits, rule, temperature)
        assert same(found, follow(tree, all_laws, logits, uniforms, temperature))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-7), (torch.bfloat16, 2e-7)]
)
def test_all_nodes_are_the_dense_paths(rule: Rule, dtype: torch.dtype, bound: float) -> None:
    tree, logits, _ = a_round(5, 700)
    logits = logits.to(dtype)
    target = (logits.double() / 0.7).softmax(-1)
    rows = torch.arange(12)
    wanted = [
        dense._law_at_nodes(tree, target, rows, rows * 0 + node, tree.child[:, node], rule)
        for node in range(10)
    ]

    def by_row(name: str) -> Tensor:
        return torch.stack([getattr(law, name) for law in wanted], 1).flatten(0, 1)

    found = tree_laws(tree, logits, rule, 0.7)
    assert torch.equal(by_row("order"), found.law.order)
    assert (by_row("acceptance") - found.law.acceptance).abs().max() < bound
    residual = dense_residual(found.residual, target.flatten(0, 1))
    assert (by_row("residual") - residual).abs().sum(-1).max() < bound


def test_a_pass_reads_every_token_once() -> None:
    logits = torch.randn(3, 5 * BLOCK + 7, generator=torch.Generator().manual_seed(0))
    listed = torch.full((3, 16), -1)
    listed[0, :3] = torch.tensor([0, 300, 5 * BLOCK + 6])
    listed[1, 2] = 4
    read = read_rows(logits, None, listed, 0.9)
    weights = ((logits.double() - logits.double().amax(-1, keepdim=True)) / 0.9).exp()
    for row in range(3):
        mine = [token for token in listed[row].tolist() if token >= 0]
        left = weights[row].clone()
        left[mine] = 0
        wanted = [float(part.sum()) for part in torch.split(left, BLOCK)]
        assert read.rest[row].tolist() == pytest.approx(wanted, rel=1e-6)
        known = read.listed[row][listed[row] >= 0].tolist()
        assert known == pytest.approx(weights[row, mine].tolist(), rel=1e-14)
        assert read.listed[row][listed[row] < 0].sum() == 0


def test_nothing_outside_the_list_sums_to_zero_exactly() -> None:
    logits = torch.full((1, 600), -torch.inf)
    logits[0, :10] = torch.arange(10.0)
    listed = torch.cat((torch.arange(10), torch.full((6,), -1))).unsqueeze(0)
    assert read_rows(logits, None, listed, 1.0).rest.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-6, 1e30, 1e300])
def test_extreme_temperatures(temperature: float) -> None:
    logits = torch.tensor([[1e38, -1e38, 9e37, -torch.inf]])
    read = read_rows(logits, None, NONE, temperature)
    assert read.rest.isfinite().all()
    assert float(read.rest) == pytest.approx(3.0 if temperature == 1e300 else 1.0)


@pytest.mark.parametrize("bad", [float("nan"), INF, -INF])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bad_row_is_reported_and_others_go_on(bad: float, temperature: float) -> None:
    tree, logits, uniforms = a_round(2, 300)
    right = verify(tree, logits, uniforms, "rheo", temperature)
    logits[4, :] = -INF
    logits[4, :, 17] = bad
    found = verify(tree, logits, uniforms, "rheo", temperature)
    assert found.usable().tolist() == [row != 4 for row in range(12)]
    assert found.emitted[4].tolist() == [-1] * 4 and found.num_accepted[4] == 0
    keep = torch.arange(12) != 4
    assert torch.equal(found.emitted[keep], right.emitted[keep])
    laws = tree_laws(tree, logits, "rheo", temperature)
    assert same(found, follow(tree, laws, logits, uniforms, temperature))


def test_bad_logits_that_no_walk_comes_to_do_not_matter() -> None:
    tree, logits, uniforms = a_round(2, 30)
    right = verify(tree, logits, uniforms, "rheo")
    seen = torch.zeros(12, 10, dtype=torch.bool)
    rows = torch.arange(12).unsqueeze(1)
    seen[rows, right.accepted.clamp_min(0)] = True
    found = verify(tree, torch.where(seen.unsqueeze(2), logits, torch.nan), uniforms, "rheo")
    assert same(found, right)


@pytest.mark.parametrize("shape", [(0, 10, 5), (11, 10, 5), (12, 0, 5), (12, 10, 0), (12, 10)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    tree, _, uniforms = a_round(2, 5)
    with pytest.raises(InputError, match="target logits of shape"):
        verify(tree, torch.zeros(shape), uniforms, "rheo")


@pytest.mark.parametrize("change", [{}, {"budget": 0}, {"depth": 0}])
def test_a_batch_without_rows(change: dict[str, int]) -> None:
    config = CONFIG.model_copy(update=change)
    tree, logits, uniforms = a_round(1, 20, 1, config)
    none = replace(
        tree,
        **{
            p.name: getattr(tree, p.name)[:0]
            for p in fields(tree)
            if p.name not in ("depth", "num_probes")
        },
    )
    draws_of_none = replace(
        uniforms, **{p.name: getattr(uniforms, p.name)[:0] for p in fields(uniforms)}
    )
    found = verify(none, logits[:0], draws_of_none, "rheo")
    assert found.emitted.shape == (0, config.depth + 1)
    laws = tree_laws(none, logits[:0], "rheo")
    assert same(found, follow(none, laws, logits[:0], draws_of_none))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("vocab", [37, 512, 1000, 40_000])
def test_rows_alone_are_bit_for_bit_the_same(dtype: torch.dtype, vocab: int) -> None:
    config = CONFIG.model_copy(update={"budget": 4, "depth": 2})
    tree, logits, uniforms = a_round(3, vocab, 5, config)
    logits = logits.to(dtype)
    laws = tree_laws(tree, logits, "rheo", 0.7)
    together = verify(tree, logits, uniforms, "rheo", 0.7)
    for row in range(5):
        alone = tree_laws(rows_of(tree, row), logits[row : row + 1], "rheo", 0.7)
        span = slice(5 * row, 5 * row + 5)
        for kind in ("law", "residual"):
            for part in fields(getattr(laws, kind)):
                ours = getattr(getattr(laws, kind), part.name)[span]
                assert torch.equal(ours, getattr(getattr(alone, kind), part.name)), part.name
        one = verify(rows_of(tree, row), logits[row : row + 1], rows_of(uniforms, row), "rheo", 0.7)
        assert all(
            torch.equal(getattr(one, part.name)[0], getattr(together, part.name)[row])
            for part in fields(one)
        )


def test_steps_of_the_pass_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, logits, _ = a_round(4, 300)
    whole = tree_laws(tree, logits.float(), "rrsw", 0.7)
    monkeypatch.setattr(row_mass, "_CACHED_LOGITS", 700)
    parts = tree_laws(tree, logits.float(), "rrsw", 0.7)
    assert torch.equal(whole.law.acceptance, parts.law.acceptance)
    assert torch.equal(whole.residual.rest, parts.residual.rest)


@pytest.mark.parametrize("rule", ["rheo", "rrsw"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_compiles_into_one_graph(backend: str, rule: Rule) -> None:
    check_compiled(backend, rule)


@pytest.mark.nightly
# Torch's own: inductor imports a module that uses it.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("rule", ["rheo", "rrsw", "onehot"])
def test_fused_kernels_decide_alike(rule: Rule) -> None:
    check_compiled("inductor", rule)


def check_compiled(backend: str, rule: Rule) -> None:
    """Walk and parallel walk in one graph, against the walk as it stands."""
    tree, logits, uniforms = a_round(1, 12, 6)
    torch._dynamo.reset()

    def both(given: Tensor) -> tuple[Verification, Verification]:
        laws = tree_laws(tree, given, rule, 0.7)
        return verify(tree, given, uniforms, rule, 0.7), follow(tree, laws, given, uniforms, 0.7)

    walk, parallel = torch.compile(both, fullgraph=True, backend=backend)(logits.float())
    assert same(walk, verify(tree, logits.float(), uniforms, rule, 0.7))
    assert same(walk, parallel)
    assert len(set(walk.num_accepted.tolist())) > 1


def test_a_processor_sees_the_path_of_each_node() -> None:
    tree, logits, uniforms = a_round(6, 20)
    paths = node_paths(tree)

    def ban_path(values: Tensor, row: Tensor, path: Tensor) -> Tensor:
        column = torch.where(path >= 0, path, 20)
        wide = torch.nn.functional.pad(values, (0, 1))
        return wide.scatter(1, column, -torch.inf)[:, :20]

    for row in range(12):
        for node in range(1, 1 + int(tree.valid[row].sum())):
            parent = int(tree.parent[row, node - 1])
            above = [token for token in paths[row, parent].tolist() if token >= 0]
            wanted = [*above, int(tree.token[row, node - 1])]
            assert [token for token in paths[row, node].tolist() if token >= 0] == wanted
    all_rows = torch.arange(12).repeat_interleave(10)
    banned = ban_path(logits.flatten(0, 1), all_rows, paths.flatten(0, 1)).view(logits.shape)
    found = verify(tree, logits, uniforms, "rheo", 0.9, process=ban_path)
    assert same(found, verify(tree, banned, uniforms, "rheo", 0.9))
    laws = tree_laws(tree, logits, "rheo", 0.9, process=ban_path)
    assert same(found, follow(tree, laws, logits, uniforms, 0.9, process=ban_path))
    for row in found.emitted.tolist():
        tokens = [token for token in row if token >= 0]
        assert len(tokens) == len(set(tokens))


@pytest.mark.parametrize(
    ("temperature", "high", "low"),
    [(1e39, 3e38, -3e38), (1e-44, 0.0, -1e-42), (1e-300, 0.0, -1e-42), (1e-300, 1e-30, 9.9e-31)],
)
def test_extreme_temperatures_are_those_of_float64(
    temperature: float, high: float, low: float
) -> None:
    logits = torch.full((1, 512), -INF)
    logits[0, 0], logits[0, 300] = high, low
    listed = NONE.clone()
    found = read_rows(logits, None, listed, temperature)
    wanted = ((logits.double() - logits.double().max()) / temperature).exp()[0, [0, 300]]
    assert found.rest[0].tolist() == pytest.approx(wanted.tolist(), rel=1e-6, abs=1e-300)
    config = SpeculationConfig(top_k=1, num_top=0, budget=0, depth=0, support_size=1)
    uniforms = draws(config, 1, 0)
    tree = grow(PathDrafter(random_logits(0, 512), 1), uniforms, config, 1.0)
    first, second = (
        verify(tree, logits.view(1, 1, -1), replace(uniforms, final=final), "rheo", temperature)
        for final in torch.tensor([[0.0], [1 - 2.0**-53]], dtype=torch.float64)
    )
    assert first.final_token.tolist() == [0]
    assert second.final_token.tolist() == [300 if wanted[1] > 1e-15 else 0]


@pytest.mark.parametrize("gap", [700.0, 708.5, 715.0, 720.0, 744.0, 746.0])
@pytest.mark.parametrize("rule", RULES)
def test_next_to_nothing_left_is_no_law_of_infinities(rule: Rule, gap: float) -> None:
    """The children have all mass but exp(-gap), the reciprocal of which a float may not hold."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1, support_size=2)
    uniforms = draws(config, 1, 0)
    tree = grow(
        PathDrafter(lambda row, path: [9.0 - token for token in range(9)], 1), uniforms, config, 1.0
    )
    logits = torch.full((1, 3, 9), -gap).double()
    logits[..., :2] = 0.0
    laws = tree_laws(tree, logits, rule)
    for part in (laws.law.residual, laws.law.scale, laws.residual.rest, laws.law.acceptance):
        assert bool(part.isfinite().all())
