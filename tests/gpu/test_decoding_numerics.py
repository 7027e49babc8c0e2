"""Laws read by verification agree with plainly computed ones; greedy text is the target's."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu.decoding import generate
from rheocheck.gpu.decoding_numerics import EmissionLog, check_greedy, verify_row_deviation
from rheocheck.gpu.drafting import EagleDrafter
from rheocheck.gpu.generation import Generation
from rheocheck.gpu.plain_decoding import generate_plain
from tests.gpu.random_models import random_head, random_target

TARGET = random_target()
NEW_DRAFTER = partial(EagleDrafter, random_head(TARGET))
SCHEME = SpeculationConfig(top_k=4, num_top=1, budget=12, depth=4, support_size=8)
PROMPTS = [[(7 * row + 3 * place) % 19 for place in range(1 + row % 9)] for row in range(64)]


def test_the_log_holds_uncut_emissions_and_their_logits() -> None:
    log, settings = EmissionLog(), SamplingConfig(max_new_tokens=6)
    found = generate(TARGET, NEW_DRAFTER, PROMPTS[:5], SCHEME, settings, observer=log)
    for made, prompt in zip(found, PROMPTS, strict=False):
        emitted = [token for facts in made.rounds for token in facts.emission]
        assert log.prompts[made.request] == tuple(prompt)
        assert log.emitted[made.request] == emitted
        assert sum(map(len, log.logits[made.request])) == len(emitted)


# Exponents that are off by at most e = noise * max|logit| / T move a softmax by at most e in total
# variation.
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_laws_of_the_tree_path_are_the_plain_ones(temperature: float) -> None:
    log, settings = EmissionLog(), SamplingConfig(max_new_tokens=12, temperature=temperature)
    generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, settings, observer=log)
    found = verify_row_deviation(TARGET, log, settings)
    assert list(map(len, found.values())) == list(map(len, log.emitted.values()))
    largest = max(part.abs().max().item() for parts in log.logits.values() for part in parts)
    worst = max(deviation.max().item() for deviation in found.values())
    assert 0 < worst <= TARGET.logit_noise() * largest / temperature


def test_a_deviation_is_a_total_variation() -> None:
    log, settings = EmissionLog(), SamplingConfig(max_new_tokens=4)
    generate(TARGET, NEW_DRAFTER, PROMPTS[:1], SCHEME, settings, observer=log)
    other = torch.full((1, 19), -torch.inf)
    other[0, 3] = 0
    [first, *rest] = log.logits[0]
    log.logits[0] = [torch.cat((other, first[1:])), *rest]
    plain = TARGET.plain_logits([log.prompts[0]])[0][-1].double().softmax(-1)
    assert verify_row_deviation(TARGET, log, settings)[0][0] == pytest.approx(1 - plain[3].item())


@pytest.fixture(scope="module")
def greedy() -> list[Generation]:
    settings = SamplingConfig(max_new_tokens=16, temperature=0.0)
    return generate(TARGET, NEW_DRAFTER, PROMPTS, SCHEME, settings)


def test_greedy_text_of_64_prompts_is_the_targets(greedy: list[Generation]) -> None:
    report = check_greedy(TARGET, PROMPTS, greedy)
    print(f"{report.num_close} of {report.num_tokens} margins below noise")
    assert report.num_tokens == 64 * 16
    assert report.unexplained == ()
    plain = generate_plain(TARGET, PROMPTS, SamplingConfig(max_new_tokens=16, temperature=0.0))
    differing = [a for a, b in zip(greedy, plain, strict=True) if a.tokens != b.tokens]
    assert len(differing) <= report.num_close


def test_a_token_that_is_not_the_argmax_is_reported(greedy: list[Generation]) -> None:
    token = greedy[0].tokens[-1]
    wrong = replace(greedy[0], tokens=(*greedy[0].tokens[:-1], (token + 1) % 19))
    report = check_greedy(TARGET, PROMPTS, [wrong, *greedy[1:]])
    (difference,) = report.unexplained
    assert (difference.request, difference.index, difference.best) == (0, 15, token)
    assert difference.emitted == (token + 1) % 19
    assert difference.margin > difference.noise


def test_a_tie_is_explained() -> None:
    """Tokens 3 and 4 always have one logit; either is greedy."""
    target = random_target()
    weight = target.hf.model.get_parameter("lm_head.weight")
    with torch.no_grad():
        weight[3] = 1.01 * weight.sum(0)
        weight[4] = weight[3]
    settings = SamplingConfig(max_new_tokens=8, temperature=0.0)
    made = generate_plain(target, PROMPTS, settings)
    other = [replace(row, tokens=tuple(4 if t == 3 else t for t in row.tokens)) for row in made]
    changed = sum(row.tokens.count(4) for row in other)
    report = check_greedy(target, PROMPTS, [replace(row, tokens=row.tokens[:1]) for row in other])
    assert changed and report.explained and report.num_close >= len(report.explained)
    assert report.unexplained == ()
