"""Processed target laws at nodes of trees: by hand, against Hugging Face, against plain text."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from transformers.generation import logits_process as hf

from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu.all_nodes import node_paths
from rheocheck.gpu.processing import filter_logits
from rheocheck.gpu.processors import Processors, penalise
from rheocheck.gpu.processors import node_laws as plain_node_laws
from rheocheck.gpu.tree import Tree, grow
from tests.gpu.path_drafter import PathDrafter, draws, random_logits
from tests.gpu.plain_processing import adjusted_logits, filtered_law

INF = float("inf")
VOCAB = 9
node_laws = jaxtyped(typechecker=beartype)(plain_node_laws)


def random_tree(seed: int, batch: int, depth: int = 4, budget: int = 11) -> Tree:
    config = SpeculationConfig(top_k=3, num_top=1, budget=budget, depth=depth, support_size=6)
    drafter = PathDrafter(random_logits(seed, VOCAB), batch)
    return grow(drafter, draws(config, batch, seed), config, 0.7)


def paths_by_walking(tree: Tree, row: int) -> list[list[int]]:
    """Path of every survivor of a row, the root first, from token and parent alone."""
    paths: list[list[int]] = [[]]
    for node in range(int(tree.valid[row].sum())):
        paths.append([*paths[int(tree.parent[row, node])], int(tree.token[row, node])])
    return paths


def one_law(
    logits: list[float], path: list[int], prompt: list[int], **settings: Any
) -> list[float]:
    """Law after a prompt and a drafted path, as the batched code has it."""
    sampling = SamplingConfig(**settings)
    made = Processors.start(sampling, [prompt], [len(prompt)], len(logits))
    law = made.laws(torch.tensor([logits]), torch.tensor([0]), torch.tensor([path]).long())
    found: list[float] = law[0].tolist()
    return found


HALVES = [float(np.log(mass)) for mass in (4.0, 2.0, 1.0, 1.0)]


@pytest.mark.parametrize(
    ("given_settings", "masses"),
    [
        # Tokens 1 and 2 are in the prompt, 0 twice on the path; ln 4 / 2 = ln 2, ln 2 / 2.
        ({"repetition_penalty": 2.0}, [2.0, 2**0.5, 1.0, 1.0]),
        ({"presence_penalty": float(np.log(4))}, [1.0, 2.0, 1.0, 1.0]),
        ({"frequency_penalty": float(np.log(2))}, [1.0, 2.0, 1.0, 1.0]),
        ({"logit_bias": {3: float(np.log(2))}}, [4.0, 2.0, 1.0, 2.0]),
        ({"logit_bias": {3: -INF}}, [4.0, 2.0, 1.0, 0.0]),
        ({"banned_tokens": (0, 3)}, [0.0, 2.0, 1.0, 0.0]),
        ({"min_p": 0.4}, [4.0, 2.0, 0.0, 0.0]),
        ({"min_p": 1.0}, [4.0, 0.0, 0.0, 0.0]),
        # Masses 16, 4, 1, 1 at T = 1/2: 2/22 is dropped by top_p = 0.9; at T = 1 only 1/8 is.
        ({"top_p": 0.9, "temperature": 0.5}, [16.0, 4.0, 0.0, 0.0]),
        ({"top_p": 0.9}, [4.0, 2.0, 1.0, 1.0]),
        # Bias makes 0 and 1 tie before both are penalised.
        ({"logit_bias": {1: float(np.log(2))}, "repetition_penalty": 2.0}, [2.0, 2.0, 1.0, 1.0]),
        ({"temperature": 0.0, "presence_penalty": float(np.log(4))}, [0.0, 1.0, 0.0, 0.0]),
    ],
)
def test_laws_by_hand(given_settings: dict[str, Any], masses: list[float]) -> None:
    wanted = [mass / sum(masses) for mass in masses]
    found = one_law(HALVES, [0, 0, -1], [1, 2], **given_settings)
    # The logits are float32: 2**-24 of each.
    assert found == pytest.approx(wanted, rel=1e-6)
    assert [mass == 0 for mass in found] == [mass == 0 for mass in wanted]


def test_a_repetition_penalty_multiplies_what_is_negative() -> None:
    found = one_law([-1.0, -1.0, 0.0], [0], [], repetition_penalty=2.0)
    weights = np.exp([-2.0, -1.0, 0.0])
    assert found == pytest.approx(list(weights / weights.sum()))


def test_the_prompt_counts_for_repetition_and_not_for_presence_or_frequency() -> None:
    plain = one_law(HALVES, [-1], [])
    assert one_law(HALVES, [-1], [0, 0], presence_penalty=1.0, frequency_penalty=1.0) == plain
    assert one_law(HALVES, [-1], [0, 0], repetition_penalty=2.0)[0] < plain[0]
    once = one_law(HALVES, [-1], [0], repetition_penalty=2.0)
    assert one_law(HALVES, [0], [0, 0], repetition_penalty=2.0) == once


@given(seed=st.integers(0, 10**6), depth=st.integers(0, 5), budget=st.integers(0, 20))
@settings(max_examples=40)
@example(seed=0, depth=0, budget=5)
@example(seed=0, depth=3, budget=0)
def test_paths_are_those_of_the_tree(seed: int, depth: int, budget: int) -> None:
    tree = random_tree(seed, 3, depth, budget)
    paths = node_paths(tree)
    assert paths.shape == (3, budget + 1, depth)
    for row in range(3):
        walked = paths_by_walking(tree, row)
        for node, found in enumerate(paths[row].tolist()):
            path = walked[node] if node < len(walked) else []
            assert found == path + [-1] * (depth - len(path))


MANY_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.3, 0.7, 2.0]),
        "top_k_filter": st.integers(0, 12),
        "top_p": st.sampled_from([0.05, 0.5, 0.9, 0.95]),
        "min_p": st.sampled_from([0.05, 0.3, 1.0]),
        "repetition_penalty": st.sampled_from([0.5, 1.3, 3.0]),
        "presence_penalty": st.sampled_from([-1.0, 0.7, 5.0]),
        "frequency_penalty": st.sampled_from([-0.5, 0.3, 2.0]),
        "logit_bias": st.dictionaries(
            st.integers(0, VOCAB - 1), st.sampled_from([-INF, -2.0, 0.5, 30.0]), max_size=3
        ),
        "banned_tokens": st.sets(st.integers(0, VOCAB - 1), max_size=3),
    },
)


def texts_of(seed: int, batch: int) -> tuple[list[list[int]], list[int]]:
    """Texts and the lengths of their prompts, empty outputs among them."""
    random = np.random.default_rng(seed)
    texts = [random.integers(0, VOCAB, random.integers(1, 9)).tolist() for _ in range(batch)]
    return texts, [int(random.integers(1, len(text) + 1)) for text in texts]


def deviation(
    laws: torch.Tensor, logits: torch.Tensor, tree: Tree, texts: Any, lengths: Any, sampling: Any
) -> float:
    """Largest difference from plain decoding of each node's own text, row by row."""
    worst = 0.0
    for row, text in enumerate(texts):
        for node, path in enumerate(paths_by_walking(tree, row)):
            raw = logits[row, node].double().numpy()
            values = adjusted_logits(raw, [*text, *path], lengths[row], sampling)
            wanted = filtered_law(values, sampling)
            worst = max(worst, float(np.abs(laws[row, node].numpy() - wanted).max()))
    return worst


@given(seed=st.integers(0, 10**6), given_settings=MANY_SETTINGS)
@settings(max_examples=80)
def test_every_node_has_the_law_of_plain_decoding_after_its_own_text(
    seed: int, given_settings: dict[str, Any]
) -> None:
    sampling = SamplingConfig(**given_settings)
    tree, (texts, lengths) = random_tree(seed, 3), texts_of(seed, 3)
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(3, 12, VOCAB, generator=generator)
    made = Processors.start(sampling, texts, lengths, VOCAB)
    laws = node_laws(logits, tree, made)
    assert deviation(laws, logits, tree, texts, lengths, sampling) < 1e-12
    # The same history, taken in by emissions and not at once, with a row that leaves.
    prompts = [text[:length] for text, length in zip(texts, lengths, strict=True)]
    grown = Processors.start(sampling, prompts, lengths, VOCAB)
    longest = max(map(len, texts))
    for place in range(longest):
        late = [text[length:] for text, length in zip(texts, lengths, strict=True)]
        emitted = [[tail[place], -1] if place < len(tail) else [-1, -1] for tail in late]
        grown.advance(torch.tensor(emitted))
    grown.keep_rows(torch.tensor([2, 0]))
    row = torch.tensor([0, 1])
    swapped = grown.laws(logits[[2, 0], 3], row, node_paths(tree)[[2, 0], 3])
    assert torch.equal(swapped, laws[[2, 0], 3])


FAULTY_SETTINGS = {
    "repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.3, "top_p": 0.9,
    "temperature": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("fault", ["round start", "one token of the path", "prompt counted"])
def test_penalties_of_another_text_are_caught(fault: str) -> None:
    sampling = SamplingConfig(**cast(Any, FAULTY_SETTINGS))
    tree, (texts, lengths) = random_tree(1, 3), texts_of(1, 3)
    logits = 3 * torch.randn(3, 12, VOCAB, generator=torch.Generator().manual_seed(1))
    row, path = torch.arange(3)[:, None].expand(3, 12), node_paths(tree)[:, :12]
    made = Processors.start(sampling, texts, lengths, VOCAB)
    assert deviation(made.laws(logits, row, path), logits, tree, texts, lengths, sampling) < 1e-12
    if fault == "round start":
        path = torch.full_like(path, -1)
    elif fault == "one token of the path":
        path = torch.where(torch.arange(path.shape[-1]) == 0, path, -1)
    else:
        made = Processors.start(sampling, texts, [0] * 3, VOCAB)
    assert deviation(made.laws(logits, row, path), logits, tree, texts, lengths, sampling) > 0.01


def huggingface_scores(logits: torch.Tensor, ids: torch.Tensor, sampling: SamplingConfig) -> Any:
    """Processed scores by transformers' own classes, in the order of its generate()."""
    chain: list[Any] = []
    if sampling.logit_bias:
        bias = {(token,): value for token, value in sampling.logit_bias}
        chain.append(hf.SequenceBiasLogitsProcessor(cast(Any, bias)))
    if sampling.repetition_penalty != 1:
        chain.append(hf.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.banned_tokens:
        chain.append(hf.SuppressTokensLogitsProcessor(sampling.banned_tokens))
    chain.append(hf.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k_filter:
        chain.append(hf.TopKLogitsWarper(sampling.top_k_filter))
    if sampling.top_p < 1:
        chain.append(hf.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        chain.append(hf.MinPLogitsWarper(sampling.min_p))
    scores: Any = logits
    for processor in chain:
        scores = processor(cast(Any, ids), scores)
    return scores


HF_SETTINGS = MANY_SETTINGS.map(
    lambda values: {
        name: value
        for name, value in values.items()
        if name not in ("presence_penalty", "frequency_penalty")
    }
)


@given(
    seed=st.integers(0, 10**6),
    given_settings=HF_SETTINGS,
    levels=st.sampled_from([0, 2, 4]),
    holes=st.booleans(),
)
@settings(max_examples=200)
@example(seed=1, given_settings={"top_k_filter": 2}, levels=2, holes=False)
@example(seed=1, given_settings={"min_p": 1.0}, levels=2, holes=True)
@example(seed=2, given_settings={"top_p": 0.5}, levels=2, holes=True)
def test_processed_logits_are_hugging_faces(
    seed: int, given_settings: dict[str, Any], levels: int, holes: bool
) -> None:
    """Ties are common with few levels; sets agree exactly, values to 1e-6."""
    sampling = SamplingConfig(**given_settings)
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(5, VOCAB, generator=generator, dtype=torch.float64)
    if levels:
        logits = torch.randint(-levels, levels, (5, VOCAB), generator=generator).double()
    if holes:
        logits[:, 1::3] = -INF
    ids = torch.randint(0, VOCAB, (5, 6), generator=generator)
    theirs = huggingface_scores(logits, ids, sampling)
    made = Processors.start(sampling, ids[:, :2].tolist(), [2] * 5, VOCAB)
    ours = filter_logits(made.adjust(logits, torch.arange(5), ids[:, 2:]), sampling)
    possible = theirs.amax(-1) > -INF  # bias, bans and holes may leave nothing
    assert torch.equal((ours > -INF)[possible], (theirs > -INF)[possible])
    assert torch.allclose(
        ours.softmax(-1)[possible], theirs.softmax(-1)[possible], rtol=1e-6, atol=0
    )
    assert not bool(ours[~possible].amax(-1).isfinite().any())


def test_a_custom_processor_sees_the_text_of_each_node() -> None:
    """It bans the successor of the last token; the laws are those of bans by hand."""
    seen: list[Any] = []

    def ban_successor(logits: Any, text: Any, length: Any) -> Any:
        seen.append(
            [row[:count] for row, count in zip(text.tolist(), length.tolist(), strict=True)]
        )
        last = text.gather(1, length[:, None] - 1)
        return logits.scatter(1, (last + 1) % VOCAB, -INF)

    tree, (texts, lengths) = random_tree(3, 2), texts_of(3, 2)
    logits = torch.randn(2, 5, VOCAB, generator=torch.Generator().manual_seed(3))
    made = Processors.start(SamplingConfig(), texts, lengths, VOCAB, custom=ban_successor)
    made.advance(torch.tensor([[4, -1], [5, 6]]))
    laws = node_laws(logits, tree, made)
    histories = [[*texts[0], 4], [*texts[1], 5, 6]]
    wanted = [[*histories[r], *paths_by_walking(tree, r)[n]] for r in (0, 1) for n in range(5)]
    assert seen == [wanted]
    for law, raw, text in zip(laws.flatten(0, 1), logits.flatten(0, 1), wanted, strict=True):
        raw = raw.clone()
        raw[(text[-1] + 1) % VOCAB] = -INF
        assert torch.allclose(law, raw.double().softmax(-1))


def test_a_custom_processor_of_another_shape_is_refused() -> None:
    made = Processors.start(
        SamplingConfig(), [[1]], [1], 4, custom=lambda logits, text, length: logits[:, :2]
    )
    with pytest.raises(InputError, match=r"returned shape \(1, 2\); required: \(1, 4\)"):
        made.laws(torch.zeros(1, 4), torch.tensor([0]), torch.empty(1, 0).long())


def test_a_row_that_bans_leave_nothing_of_is_named() -> None:
    logits = torch.tensor([[[0.0, 1.0, 2.0]] * 2, [[0.0, 1.0, 2.0], [-INF, 1.0, -INF]]])
    made = Processors.start(SamplingConfig(banned_tokens=(1,)), [[0], [0]], [1, 1], 3)
    row, path = torch.tensor([[0, 0], [1, 1]]), torch.empty(2, 2, 0).long()
    message = r"after bias, penalties and bans: row 1, position \(1,\) has -inf at every token"
    with pytest.raises(InputError, match=message):
        made.laws(logits, row, path)
    laws = made.laws(logits, row, path, check=False)
    assert laws[1, 1].tolist() == [0, 0, 0]
    assert laws.sum(-1).flatten().tolist() == pytest.approx([1, 1, 1, 0])


def test_a_penalty_that_overflows_is_refused() -> None:
    with pytest.raises(InputError, match=r"row 0 has \+inf at token 0"):
        one_law([1.0, 0.0], [0], [], repetition_penalty=1e-320)
    with pytest.raises(InputError, match=r"row 0 has \+inf at token 0"):
        one_law([1.0, 0.0], [0, 0], [], frequency_penalty=-1.5e308)


def test_a_batch_without_rows_has_no_laws() -> None:
    made = Processors.start(SamplingConfig(repetition_penalty=2.0), [], [], 4)
    laws = made.laws(torch.zeros(0, 3, 4), torch.zeros(0, 3).long(), torch.zeros(0, 3, 2).long())
    assert laws.shape == (0, 3, 4)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    sampling = SamplingConfig(**cast(Any, FAULTY_SETTINGS))
    texts, lengths = texts_of(5, 4)
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(5))
    path = torch.tensor([[1, 2], [3, -1], [-1, -1], [4, 4]])
    together = Processors.start(sampling, texts, lengths, VOCAB).laws(logits, torch.arange(4), path)
    for row in range(4):
        alone = Processors.start(sampling, texts[row : row + 1], lengths[row : row + 1], VOCAB)
        law = alone.laws(logits[row : row + 1], torch.tensor([0]), path[row : row + 1])
        assert torch.equal(law[0], together[row])


def test_penalties_leave_minus_infinity() -> None:
    values = torch.tensor([[-INF, 1.0]]).double()
    seen = torch.ones(1, 2)
    sampling = SamplingConfig(repetition_penalty=2.0, frequency_penalty=-3.0, presence_penalty=-1.0)
    assert penalise(values, seen > 0, seen, sampling).tolist() == [[-INF, 4.5]]


@pytest.mark.parametrize("bad", [float("nan"), INF])
@pytest.mark.parametrize("settings", [{"banned_tokens": [1]}, {"logit_bias": {1: -INF}}])
def test_a_ban_does_not_hide_a_broken_logit(bad: float, settings: dict[str, Any]) -> None:
    made = Processors.start(SamplingConfig(**settings), [[0]], [1], 3)
    logits, none = torch.tensor([[0.0, bad, 1.0]]), torch.zeros(1, 0, dtype=torch.int64)
    assert not bool(made.adjust(logits, torch.tensor([0]), none)[0, 1].isfinite())
    with pytest.raises(InputError, match="target logits"):
        made.laws(logits, torch.tensor([0]), none)
