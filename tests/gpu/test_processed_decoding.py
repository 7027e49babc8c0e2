"""Penalties, bias, bans and filters inside the decoding loop, against plain decoding."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rheocheck.config import SamplingConfig
from rheocheck.errors import ConfigError, InputError
from rheocheck.gpu import processors
from rheocheck.gpu.decoding import RoundTrace, generate
from rheocheck.gpu.plain_decoding import generate_plain
from tests.gpu.plain_processing import adjusted_logits, filtered_law
from tests.gpu.random_models import VOCAB
from tests.gpu.test_decoding import HEAD, NEW_DRAFTER, PROMPTS, SCHEME, TARGET

assert HEAD is not None
SETTINGS: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": 0.4},
    {"repetition_penalty": 1.5, "frequency_penalty": -0.3, "logit_bias": {3: 1.5, 5: -2.0}},
    {"banned_tokens": [0, 1, 2], "presence_penalty": 1.0},
)
FILTERS: dict[str, Any] = {"top_k_filter": 9, "top_p": 0.9, "min_p": 0.02}


def sampling(**changes: Any) -> SamplingConfig:
    return SamplingConfig.model_validate({"max_new_tokens": 9, "seed": 5} | changes)


@pytest.mark.parametrize("settings", SETTINGS)
def test_greedy_decoding_is_plain_decoding(settings: dict[str, Any]) -> None:
    greedy = sampling(temperature=0.0, **settings)
    found = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, greedy)
    plain = generate_plain(TARGET, PROMPTS, greedy)
    assert [made.tokens for made in found] == [made.tokens for made in plain]
    unprocessed = generate_plain(TARGET, PROMPTS, sampling(temperature=0.0))
    assert [made.tokens for made in plain] != [made.tokens for made in unprocessed]


@pytest.mark.parametrize("settings", [*SETTINGS, FILTERS, FILTERS | SETTINGS[2]])
def test_every_node_of_every_round_has_the_law_of_its_own_text(settings: dict[str, Any]) -> None:
    asked = sampling(temperature=0.7, **settings)
    checked = 0
    prompt_length: dict[int, int] = {}

    def look(trace: RoundTrace) -> None:
        nonlocal checked
        laws = trace.target_laws()
        for row, request in enumerate(trace.request.tolist()):
            length = prompt_length.setdefault(request, len(trace.text[row]))
            paths: list[list[int]] = [[]]
            for node in range(int(trace.tree.valid[row].sum())):
                parent, token = trace.tree.parent[row, node], trace.tree.token[row, node]
                paths.append([*paths[int(parent)], int(token)])
            for node, path in enumerate(paths):
                logits = trace.target_logits[row, node].numpy()
                values = adjusted_logits(logits, [*trace.text[row], *path], length, asked)
                expected = filtered_law(values, asked)
                for found in (laws[row, node], trace.target_law_at(row, node)):
                    assert np.abs(found.numpy() - expected).max() < 1e-9
                checked += 1

    generate(TARGET, NEW_DRAFTER, PROMPTS[:5], SCHEME, asked, observer=look)
    assert checked > 150


def test_banned_tokens_are_never_emitted() -> None:
    asked = sampling(banned_tokens=list(range(VOCAB - 2)))
    found = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, asked)
    assert {token for made in found for token in made.tokens} <= {VOCAB - 2, VOCAB - 1}


def test_penalties_of_the_text_at_the_rounds_start_are_another_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted fault: drafted tokens before a node are not counted."""
    original = processors.Processors.adjust

    def forgets(self: Any, logits: Tensor, row: Tensor, path: Tensor) -> Tensor:
        return original(self, logits, row, torch.full_like(path, -1))

    greedy = sampling(temperature=0.0, **SETTINGS[1])
    plain = generate_plain(TARGET, PROMPTS, greedy)
    monkeypatch.setattr(processors.Processors, "adjust", forgets)
    found = generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, greedy)
    assert [made.tokens for made in found] != [made.tokens for made in plain]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"banned_tokens": [VOCAB]}, "banned_tokens, entry 0: token"),
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias, entry 0: token"),
        ({"banned_tokens": list(range(VOCAB))}, "tokens of the vocabulary are banned"),
    ],
)
def test_settings_that_do_not_fit_the_vocabulary_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, sampling(**settings))


def test_a_processor_that_leaves_nothing_is_named() -> None:
    def nothing(logits: Tensor, text: Tensor, length: Tensor) -> Tensor:
        return torch.full_like(logits, -torch.inf)

    with pytest.raises(InputError, match="no token left after its processors"):
        generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, sampling(), processor=nothing)
