"""Trees through the target give what its paths give, before and after a commit."""

from pathlib import Path

import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from torch import Tensor

from rheocheck.errors import BackendError, InputError, WeightsError
from rheocheck.gpu import hf_adapter, hf_loading, target_check
from rheocheck.gpu.target import TargetModel, TargetState, TreeOutput
from tests.gpu.random_models import VOCAB, random_llama, random_target

prefill = jaxtyped(typechecker=beartype)(TargetModel.prefill)
tree_forward = jaxtyped(typechecker=beartype)(TargetModel.tree_forward)
commit = jaxtyped(typechecker=beartype)(TargetModel.commit)
TARGET = random_target()
# Of the largest logit: what the model's dtype explains.
NOISE = TARGET.logit_noise()


def run_tree(
    target: TargetModel, prompts: list[list[int]], trees: list[list[tuple[int, int]]]
) -> tuple[TargetState, TreeOutput]:
    """Run trees given as (parent node, token) lists; node 0 is the last prompt token."""
    width = max(len(prompt) for prompt in prompts) - 1
    nodes = max(len(tree) for tree in trees) + 1
    cached = [prompt[:-1] + [0] * (width + 1 - len(prompt)) for prompt in prompts]
    length = torch.tensor([len(prompt) - 1 for prompt in prompts])
    state, _ = prefill(
        target, torch.tensor(cached, dtype=torch.int64).reshape(len(prompts), width), length
    )
    token = torch.zeros(len(prompts), nodes, dtype=torch.int64)
    depth = torch.zeros_like(token)
    visible = torch.eye(nodes, dtype=torch.bool).repeat(len(prompts), 1, 1)
    for row, (prompt, tree) in enumerate(zip(prompts, trees, strict=True)):
        token[row, 0] = prompt[-1]
        for node, (parent, drafted) in enumerate(tree, start=1):
            token[row, node] = drafted
            depth[row, node] = depth[row, parent] + 1
            visible[row, node] |= visible[row, parent]
    return state, tree_forward(target, state, token, depth, visible)


def path_to(tree: list[tuple[int, int]], node: int) -> list[int]:
    """Tokens from the root's child to `node`."""
    if node == 0:
        return []
    parent, token = tree[node - 1]
    return [*path_to(tree, parent), token]


def nodes_to(tree: list[tuple[int, int]], node: int) -> list[int]:
    """Node indices from the root to `node`."""
    return [0] if node == 0 else [*nodes_to(tree, tree[node - 1][0]), node]


def assert_close(logits: Tensor, others: Tensor) -> None:
    assert target_check.relative_deviation(logits, others) <= NOISE


TOKENS = st.integers(0, VOCAB - 1)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """A prompt and a tree under its last token."""
    prompt = draw(st.lists(TOKENS, min_size=1, max_size=6))
    size = draw(st.integers(0, 5))
    return prompt, [(draw(st.integers(0, node)), draw(TOKENS)) for node in range(size)]


@settings(max_examples=25, deadline=None)
@given(batch=st.lists(rows(), min_size=1, max_size=3), data=st.data())
def test_trees_of_ragged_rows_agree_with_their_paths(
    batch: list[tuple[list[int], list[tuple[int, int]]]], data: st.DataObject
) -> None:
    prompts, trees = [prompt for prompt, _ in batch], [tree for _, tree in batch]
    state, output = run_tree(TARGET, prompts, trees)
    for row, (prompt, tree) in enumerate(batch):
        paths = [[*prompt, *path_to(tree, node)] for node in range(len(tree) + 1)]
        plain = torch.stack([found[-1] for found in TARGET.plain_logits(paths)])
        assert_close(output.logits[row, : len(paths)], plain)

    ends = [data.draw(st.integers(0, len(tree))) for tree in trees]
    kept = [nodes_to(tree, end) for tree, end in zip(trees, ends, strict=True)]
    width = max(map(len, kept))
    padded = torch.tensor([nodes + [-1] * (width - len(nodes)) for nodes in kept])
    state = commit(TARGET, state, output, padded)
    assert state.num_slots == int(state.length.max())
    following = torch.full((len(batch), 1), 5)
    alone = torch.ones(len(batch), 1, 1, dtype=torch.bool)
    after = TARGET.tree_forward(state, following, torch.zeros_like(following), alone)
    finished = [
        [*prompt, *path_to(tree, end), 5]
        for prompt, tree, end in zip(prompts, trees, ends, strict=True)
    ]
    plain = torch.stack([found[-1] for found in TARGET.plain_logits(finished)])
    assert_close(after.logits[:, 0], plain)


def test_features_of_prefill_and_tree_are_those_of_one_causal_pass() -> None:
    prompt, tree = [3, 1, 4, 1], [(0, 5), (0, 9), (2, 2)]
    _, whole = TARGET.prefill(torch.tensor([[3, 1, 4, 1, 9, 2]]), torch.tensor([6]))
    _, output = run_tree(TARGET, [prompt], [tree])
    assert output.features.shape == (1, 4, 3 * TARGET.hidden_size)
    assert output.features[0, [0, 2, 3]] == pytest.approx(whole[0, 3:], abs=1e-4)


def test_selected_rows_go_on_as_they_would_have() -> None:
    prompts = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10]]
    state, _ = run_tree(TARGET, prompts, [[], [], []])
    rows = torch.tensor([2, 1])
    fewer = TARGET.select(state, rows)
    assert fewer.length.tolist() == [2, 0] and fewer.num_slots == 2
    alone, token = torch.ones(2, 1, 1, dtype=torch.bool), torch.tensor([[10], [7]])
    logits = TARGET.tree_forward(fewer, token, torch.zeros_like(token), alone).logits[:, 0]
    plain = torch.stack([found[-1] for found in TARGET.plain_logits([prompts[2], prompts[1]])])
    assert_close(logits, plain)
    assert TARGET.select(state, torch.tensor([1])).num_slots == 0


def test_plain_logits_start_where_asked() -> None:
    sequences = [[1, 2, 3, 4], [5, 6], [7, 8, 9]]
    whole = TARGET.plain_logits(sequences)
    assert [len(found) for found in whole] == [4, 2, 3]
    late = TARGET.plain_logits(sequences, [3, 1, 0], batch_size=2)
    for found, full, start in zip(late, whole, [3, 1, 0], strict=True):
        assert_close(found, full[start:])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_check_passes_a_right_target(attention: str, dtype: torch.dtype) -> None:
    target = random_target(attention=attention, dtype=dtype, check=False)
    assert target_check.check_tree_attention(target) <= target.logit_noise()


def test_the_noise_bound_lies_between_rounding_and_faults() -> None:
    """The faults below deviate by 0.1 and more; were the bound near that, the check were blind."""
    deviations = [
        max(target_check.tree_deviations(random_target(seed=seed, check=False)).values())
        for seed in range(5)
    ]
    assert 10 * max(deviations) <= NOISE <= 1e-3


def test_a_model_of_nan_is_refused() -> None:
    model = random_llama()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(BackendError, match="by nan of the largest logit"):
        TargetModel(hf_adapter.wrap(model))


PROMPTS = [[1, 2, 3]]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1], []], "prompt 1 is empty; at least one token"),
        ([[1, VOCAB]], rf"token 1 of prompt 0 is {VOCAB}, outside the vocabulary \[0, {VOCAB}\)"),
        ([[1], [2, -1]], "token 1 of prompt 1 is -1"),
        ([[0] * 120], "max_position_embeddings = 128"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(prompts: list[list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TARGET.check_prompts(prompts, num_more=9)


def test_a_prompt_that_just_fits_is_taken() -> None:
    TARGET.check_prompts([[0] * 119], num_more=9)


def test_a_target_loads_from_a_folder(tmp_path: Path) -> None:
    with hf_loading.quiet_loading():
        random_llama().save_pretrained(tmp_path)
    target = TargetModel.load(tmp_path, fused_layers=(1, 2, 3), attention="eager")
    assert (target.vocab_size, target.hidden_size, target.max_positions) == (VOCAB, 16, 128)
    assert target.hf.fused_layers == (1, 2, 3)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightsError):
        TargetModel.load(tmp_path)


# Planted faults: each must be refused at start-up.


def test_a_boolean_mask_in_eager_attention_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rheocheck.gpu.target.additive_mask", lambda visible, dtype: visible[:, None]
    )
    with pytest.raises(BackendError, match=r"runs trees wrongly.*\(attention 'eager'\)"):
        random_target(attention="eager")
    random_target(attention="sdpa")


def test_a_mask_that_is_ignored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rheocheck.gpu.target.additive_mask",
        lambda visible, dtype: torch.zeros(visible[:, None].shape, dtype=dtype),
    )
    with pytest.raises(BackendError, match="the tree mask, positions or cache are not honoured"):
        random_target()


def test_a_node_that_sees_its_sibling_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TargetModel.tree_forward

    def wrong(
        self: TargetModel, state: TargetState, token: Tensor, depth: Tensor, visible: Tensor
    ) -> TreeOutput:
        visible = visible.clone()
        visible[:, 2:, 1:2] = True
        return right(self, state, token, depth, visible)

    monkeypatch.setattr(TargetModel, "tree_forward", wrong)
    with pytest.raises(BackendError, match="of a tree of three nodes"):
        random_target()


def test_positions_by_index_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TargetModel.tree_forward

    def wrong(
        self: TargetModel, state: TargetState, token: Tensor, depth: Tensor, visible: Tensor
    ) -> TreeOutput:
        index = torch.arange(token.shape[1]).expand_as(token)
        return right(self, state, token, index, visible)

    monkeypatch.setattr(TargetModel, "tree_forward", wrong)
    with pytest.raises(BackendError, match="of a tree of three nodes"):
        random_target()


def test_a_rejected_node_that_stays_in_the_cache_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = TargetModel.commit

    def wrong(
        self: TargetModel, state: TargetState, output: TreeOutput, kept: Tensor
    ) -> TargetState:
        first = torch.arange(kept.shape[1]).expand_as(kept)
        return right(self, state, output, torch.where(kept >= 0, first, kept))

    monkeypatch.setattr(TargetModel, "commit", wrong)
    with pytest.raises(BackendError, match="after a commit that rejects a sibling"):
        random_target()


def test_a_slot_too_many_after_a_commit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TargetModel.commit

    def wrong(
        self: TargetModel, state: TargetState, output: TreeOutput, kept: Tensor
    ) -> TargetState:
        kept = torch.cat((kept[:, :1], torch.full_like(kept[:, :1], 1), kept[:, 1:]), dim=1)
        return right(self, state, output, kept)

    monkeypatch.setattr(TargetModel, "commit", wrong)
    with pytest.raises(BackendError, match="after a commit that rejects a sibling"):
        random_target()
