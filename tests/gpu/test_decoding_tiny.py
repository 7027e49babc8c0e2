"""The loop on the embedded pair: greedy text, numerics, acceptance, faults at full tree size."""

import json
from importlib import resources
from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.errors import BackendError
from rheocheck.gpu.decoding import generate
from rheocheck.gpu.decoding_numerics import EmissionLog, check_greedy, verify_row_deviation
from rheocheck.gpu.plain_decoding import generate_plain
from rheocheck.gpu.target import TargetModel
from rheocheck.gpu.target_check import check_tree_attention
from rheocheck.models.registry import Pair, load_pair


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair()


@pytest.fixture(scope="module")
def prompts(pair: Pair) -> list[list[int]]:
    """Tokens of the first 64 committed prompts."""
    text = (resources.files("rheocheck.audit") / "data" / "prompts.jsonl").read_text("utf-8")
    found = [json.loads(line) for line in text.splitlines()[:64]]
    return [
        pair.tokenizer.encode(line if isinstance(line, str) else line["prompt"]) for line in found
    ]


def test_greedy_text_of_64_real_prompts_is_the_targets(
    pair: Pair, prompts: list[list[int]]
) -> None:
    greedy = SamplingConfig(temperature=0.0, max_new_tokens=10)
    found = generate(
        pair.target, pair.new_drafter, prompts, SpeculationConfig(), greedy, eos=pair.eos
    )
    report = check_greedy(pair.target, prompts, found)
    print(f"{report.num_close} of {report.num_tokens} margins below float noise")
    assert len(found) == 64 and report.unexplained == ()
    plain = generate_plain(pair.target, prompts, greedy, eos=pair.eos)
    differing = [a for a, b in zip(found, plain, strict=True) if a.tokens != b.tokens]
    assert len(differing) <= len(report.explained)
    rounds = [facts for made in found for facts in made.rounds]
    # A head that drafts nothing useful would make the rest of this file vacuous.
    assert sum(facts.num_accepted for facts in rounds) > len(rounds)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_laws_of_real_rounds_are_the_plain_ones(
    pair: Pair, prompts: list[list[int]], temperature: float
) -> None:
    # Measured: 2e-6 at worst, 2e-7 on average. The faults below reach 1e-2 and more.
    assert worst_deviation(pair, prompts[:32], temperature) < 2e-5


def worst_deviation(pair: Pair, prompts: list[list[int]], temperature: float = 1.0) -> float:
    """Largest total variation between a verification law and the plain one in two rounds."""
    log, settings = EmissionLog(), SamplingConfig(temperature=temperature)
    generate(
        pair.target, pair.new_drafter, prompts, SpeculationConfig(), settings, max_rounds=2,
        observer=log,
    )  # fmt: skip
    found = verify_row_deviation(pair.target, log, settings)
    return max(deviation.max().item() for deviation in found.values())


def plant(monkeypatch: pytest.MonkeyPatch, method: str, wrong: Any) -> None:
    """Replace a method of the target by `wrong(right, self, ...)`."""
    right = getattr(TargetModel, method)
    monkeypatch.setattr(
        TargetModel, method, lambda self, *given, **named: wrong(right, self, *given, **named)
    )


def sees_its_sibling(right: Any, self: TargetModel, *given: Any) -> Any:
    state, token, depth, visible = given
    visible = visible.clone()
    visible[:, 2:3, 1:2] = True
    return right(self, state, token, depth, visible)


def position_by_index(right: Any, self: TargetModel, *given: Any) -> Any:
    state, token, _, visible = given
    return right(self, state, token, torch.arange(token.shape[1]).expand_as(token), visible)


def keeps_rejected_nodes(right: Any, self: TargetModel, *given: Any) -> Any:
    state, output, kept = given
    first = torch.arange(kept.shape[1]).expand_as(kept)
    return right(self, state, output, torch.where(kept >= 0, first, kept))


def forgets_the_mask(right: Any, self: TargetModel, *given: Any) -> Any:
    state, token, depth, visible = given
    return right(self, state, token, depth, torch.ones_like(visible))


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("tree_forward", sees_its_sibling),
        ("tree_forward", position_by_index),
        ("tree_forward", forgets_the_mask),
        ("commit", keeps_rejected_nodes),
    ],
)
def test_a_fault_is_refused_at_start_up_and_would_show_in_the_laws(
    pair: Pair,
    prompts: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    wrong: Any,
) -> None:
    plant(monkeypatch, method, wrong)
    with pytest.raises(BackendError, match="runs trees wrongly"):
        check_tree_attention(pair.target)
    assert worst_deviation(pair, prompts[:8]) > 1e-2


def test_the_start_up_check_has_room_on_both_sides(pair: Pair) -> None:
    """Rounding lies a factor 10 below the bound; what faults do is checked above."""
    assert check_tree_attention(pair.target) < pair.target.logit_noise() / 10


def test_features_of_a_tree_feed_the_head_as_those_of_a_chain(
    pair: Pair, prompts: list[list[int]]
) -> None:
    """After some rounds the drafter's root logits are those of one that read the text at once."""
    texts: list[tuple[int, ...]] = []
    roots: list[Tensor] = []

    def observe(trace: Any) -> None:
        texts[:] = trace.text
        roots[:] = [trace.drafter.root()]

    generate(
        pair.target, pair.new_drafter, prompts[:4], SpeculationConfig(), SamplingConfig(),
        max_rounds=3, observer=observe,
    )  # fmt: skip
    for row, text in enumerate(texts):
        token = torch.tensor([text])
        length = torch.tensor([len(text) - 1])
        _, features = pair.target.prefill(token[:, :-1], length)
        drafter = pair.new_drafter(1)
        drafter.advance(features, token[:, 1:], length)
        assert roots[0][row] == pytest.approx(drafter.root()[0], abs=1e-3)
