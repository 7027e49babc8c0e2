"""The loop emits what the target would, replays, and keeps its books."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from rheocheck.config import Rule, SamplingConfig, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu.decoding import RoundTrace, generate, tree_inputs
from rheocheck.gpu.drafting import EagleDrafter
from rheocheck.gpu.generation import Generation, RoundFacts, count_kept
from rheocheck.gpu.plain_decoding import generate_plain
from rheocheck.gpu.processing import target_law
from rheocheck.gpu.tree import grow
from tests.gpu.random_models import VOCAB, OracleDrafter, random_head, random_target

TARGET = random_target()
HEAD = random_head(TARGET, draft_vocab=15)
NEW_DRAFTER = partial(EagleDrafter, HEAD)
SCHEME = SpeculationConfig(top_k=4, num_top=1, budget=12, depth=4, support_size=8)
# One path of top children: at temperature 0 a drafter that knows the target loses none of it.
CHAIN = SpeculationConfig(top_k=1, num_top=1, budget=4, depth=4, support_size=8)


def make_prompts(count: int, seed: int = 0) -> list[list[int]]:
    """Prompts of 1 to 9 tokens."""
    random = np.random.default_rng(seed)
    return [random.integers(0, VOCAB, random.integers(1, 10)).tolist() for _ in range(count)]


PROMPTS = make_prompts(12)


def sampling(**changes: object) -> SamplingConfig:
    return SamplingConfig.model_validate({"max_new_tokens": 9, "seed": 5} | changes)


def decode(prompts: list[list[int]] = PROMPTS, **changes: object) -> list[Generation]:
    return generate(TARGET, NEW_DRAFTER, prompts, SCHEME, sampling(**changes))


@pytest.mark.parametrize("rule", ["rheo", "rrsw", "onehot"])
def test_greedy_decoding_is_the_targets(rule: Rule) -> None:
    scheme = SCHEME.model_copy(update={"rule": rule})
    greedy = sampling(temperature=0.0)
    found = generate(TARGET, NEW_DRAFTER, PROMPTS, scheme, greedy)
    plain = generate_plain(TARGET, PROMPTS, greedy)
    assert [made.tokens for made in found] == [made.tokens for made in plain]
    assert any(facts.num_accepted for made in found for facts in made.rounds)


@pytest.mark.parametrize("changes", [{"budget": 0}, {"depth": 0}])
@pytest.mark.parametrize("filters", [{}, {"temperature": 0.7, "top_k_filter": 5, "top_p": 0.8}])
def test_without_a_tree_the_loop_is_plain_sampling_draw_for_draw(
    changes: dict[str, int], filters: dict[str, float]
) -> None:
    settings = sampling(**filters)
    found = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME.model_copy(update=changes), settings)
    plain = generate_plain(TARGET, PROMPTS, settings)
    assert [made.tokens for made in found] == [made.tokens for made in plain]
    assert all(facts.tree_size == 0 for made in found for facts in made.rounds)


def test_a_seed_replays_and_another_differs() -> None:
    assert decode() == decode()
    assert decode() != decode(seed=6)


def test_a_row_does_not_depend_on_its_batch() -> None:
    together = decode()
    alone = [
        generate(TARGET, NEW_DRAFTER, [prompt], SCHEME, sampling(), requests=[request])[0]
        for request, prompt in enumerate(PROMPTS[:5])
    ]
    assert together[:5] == alone
    assert generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, sampling(), batch_size=5) == together


def test_requests_key_the_uniforms_and_not_places() -> None:
    backwards = generate(
        TARGET, NEW_DRAFTER, PROMPTS[::-1], SCHEME, sampling(), requests=list(range(12))[::-1]
    )
    assert backwards[::-1] == decode()


def test_a_drafter_that_knows_the_target_is_always_right() -> None:
    """Long accepted paths: caches move on by whole rounds, greedy text stays the target's."""
    prompts = [PROMPTS[0]]
    greedy = sampling(temperature=0.0, max_new_tokens=20)
    found = generate(TARGET, partial(OracleDrafter, TARGET, prompts), prompts, CHAIN, greedy)
    assert [facts.num_accepted for facts in found[0].rounds] == [4, 4, 4, 4]
    assert found[0].tokens == generate_plain(TARGET, prompts, greedy)[0].tokens


def test_an_emission_is_cut_at_the_first_end_of_sequence_token() -> None:
    prompts = [PROMPTS[0]]
    greedy = sampling(temperature=0.0)
    whole = generate(TARGET, partial(OracleDrafter, TARGET, prompts), prompts, CHAIN, greedy)[0]
    end = whole.tokens[2]
    first = whole.tokens.index(end)
    cut = generate(
        TARGET, partial(OracleDrafter, TARGET, prompts), prompts, CHAIN, greedy, eos=[end]
    )[0]
    assert cut.tokens == whole.tokens[: first + 1] and cut.stop == "eos"
    assert cut.rounds[0].emission == whole.rounds[0].emission
    assert cut.rounds[0].num_accepted == 4
    assert cut.rounds[0].num_kept == cut.rounds[0].num_kept_accepted == first + 1
    assert generate_plain(TARGET, prompts, greedy, eos=[end])[0].tokens == cut.tokens


def test_the_length_limit_cuts_the_last_round() -> None:
    prompts = [PROMPTS[0]]
    made = generate(
        TARGET,
        partial(OracleDrafter, TARGET, prompts),
        prompts,
        CHAIN,
        sampling(temperature=0.0, max_new_tokens=7),
    )[0]
    assert made.stop == "length" and len(made.tokens) == 7
    assert [len(facts.emission) for facts in made.rounds] == [5, 5]
    assert [facts.num_kept for facts in made.rounds] == [5, 2]
    assert [facts.num_kept_accepted for facts in made.rounds] == [4, 2]


@pytest.mark.parametrize(
    ("emission", "room", "kept"),
    [([1, 2, 3], 5, 3), ([1, 2, 3], 2, 2), ([1, 9, 3], 5, 2), ([1, 9, 3], 1, 1), ([9], 1, 1)],
)
def test_tokens_that_count(emission: list[int], room: int, kept: int) -> None:
    assert count_kept(emission, room, {9}) == kept


def test_the_final_token_is_no_accepted_one() -> None:
    assert RoundFacts((1, 2, 3), num_accepted=2, tree_size=5, num_kept=3).num_kept_accepted == 2
    assert RoundFacts((1, 2, 3), num_accepted=2, tree_size=5, num_kept=1).num_kept_accepted == 1


def test_rounds_can_be_limited() -> None:
    found = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, sampling(), max_rounds=2)
    whole = decode()
    for made, more in zip(found, whole, strict=True):
        assert made.rounds == more.rounds[:2]
        assert made.stop == ("rounds" if len(more.rounds) > 2 else more.stop)


def test_a_budget_beyond_the_tree_changes_nothing() -> None:
    full = SpeculationConfig(top_k=2, num_top=1, budget=6, depth=2, support_size=8)
    huge = full.model_copy(update={"budget": 500})
    runs = [generate(TARGET, NEW_DRAFTER, PROMPTS, each, sampling()) for each in (full, huge)]
    assert runs[0] == runs[1]


def test_an_observer_sees_what_the_round_was_decided_from() -> None:
    traces: list[RoundTrace] = []

    def observe(trace: RoundTrace) -> None:
        again = grow(trace.drafter, trace.uniforms, SCHEME, 1.0)
        assert torch.equal(again.token, trace.tree.token)
        traces.append(trace)

    found = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, sampling(), observer=observe)
    assert found == decode()
    texts = {request: list(prompt) for request, prompt in enumerate(PROMPTS)}
    for number, trace in enumerate(traces):
        assert (trace.round_index == number).all()
        nodes = 1 + int(trace.tree.num_survivors().max())
        assert trace.target_logits.shape == (len(trace.text), nodes, VOCAB)
        assert torch.equal(trace.target_laws(), target_law(trace.target_logits, sampling()))
        node_token = tree_inputs(trace.tree, torch.tensor([[text[-1]] for text in trace.text]))[
            0
        ].gather(1, trace.emission_nodes().clamp_min(0))
        for row, request in enumerate(trace.request.tolist()):
            facts = found[request].rounds[number]
            assert tuple(texts[request]) == trace.text[row]
            path = [trace.text[row][-1], *facts.emission[:-1]]
            assert node_token[row, : len(path)].tolist() == path
            texts[request] += facts.emission


def test_the_first_two_tokens_have_the_targets_joint_law() -> None:
    """Chi-square of 6,000 continuations at level 1e-6, cells below 5 expected pooled.

    `tests/defects` has a planted fault that this size detects.
    """
    statistic, freedom = joint_chi_square(6000)
    assert stats.chi2.sf(statistic, freedom) > 1e-6


def joint_chi_square(count: int, seed: int = 0) -> tuple[float, int]:
    """Statistic and degrees of freedom of the first two tokens after one prompt; 5 tokens."""
    target = random_target(vocab=5)
    head = random_head(target, draft_vocab=4)
    scheme = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2, support_size=3)
    settings = SamplingConfig(max_new_tokens=2, seed=seed)
    prompt = [1, 2, 3]
    found = generate(
        target, partial(EagleDrafter, head), [prompt] * count, scheme, settings, batch_size=500
    )
    plain = target.plain_logits([[*prompt, token] for token in range(5)], [2] * 5)
    laws = target_law(torch.stack(plain), settings).numpy()
    expected = count * (laws[0, 0][:, None] * laws[:, 1]).ravel()
    observed = np.bincount([5 * made.tokens[0] + made.tokens[1] for made in found], minlength=25)
    small = expected < 5
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    kept = expected > 0
    statistic = float(((observed - expected)[kept] ** 2 / expected[kept]).sum())
    return statistic, int(kept.sum()) - 1


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1, 2], []], "prompt 1 is empty"),
        ([[1, 2], [VOCAB]], "token 0 of prompt 1 is 19, outside the vocabulary"),
        ([[1], [0] * 117], "prompt 1 has 117 tokens and decoding may use 12 positions after it"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(prompts: list[list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(prompts)


def test_a_prompt_that_just_fits_decodes() -> None:
    assert len(decode([[0] * 116])[0].tokens) == 9
    assert len(generate_plain(TARGET, [[0] * 120], sampling())[0].tokens) == 9
    with pytest.raises(InputError, match="max_position_embeddings"):
        generate_plain(TARGET, [[0] * 121], sampling())


@pytest.mark.parametrize("requests", [[0, 0], [0], [0, 1, 2]])
def test_request_numbers_must_differ(requests: list[int]) -> None:
    with pytest.raises(InputError, match="2 prompts need 2 different request numbers"):
        generate(TARGET, NEW_DRAFTER, [[1], [2]], SCHEME, sampling(), requests=requests)


@pytest.mark.parametrize("limits", [{"batch_size": 0}, {"max_rounds": 0}])
def test_limits_below_one_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InputError, match="at least 1 required"):
        generate(TARGET, NEW_DRAFTER, [[1]], SCHEME, sampling(), **limits)  # type: ignore[arg-type]


def test_no_prompts_give_no_generations() -> None:
    assert decode([]) == [] and generate_plain(TARGET, [], sampling()) == []
