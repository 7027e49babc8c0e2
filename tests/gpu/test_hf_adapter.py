"""The adapter refuses what it cannot run and hands over the right tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, MistralForCausalLM

from rheocheck.errors import BackendError, InputError
from rheocheck.gpu import hf_adapter
from tests.gpu.random_models import random_llama


def causal_inputs(length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, positions and an additive causal mask for one row."""
    token = torch.arange(1, length + 1)[None]
    mask = torch.full((1, 1, length, length), torch.finfo(torch.float32).min).triu(1)
    return token, torch.arange(length)[None], mask


def test_features_are_the_inputs_of_the_fused_layers() -> None:
    model: Any = random_llama()
    seen: dict[int, torch.Tensor] = {}

    def keep(index: int) -> Callable[[Any, Any], None]:
        return lambda _, given: seen.update({index: given[0]})

    for index in (2, 4, 5):
        model.model.layers[index].register_forward_pre_hook(keep(index))
    with torch.no_grad():
        output = hf_adapter.forward(hf_adapter.wrap(model), *causal_inputs(5), ())
    assert torch.equal(output.features, torch.cat([seen[2], seen[4], seen[5]], dim=-1))


@pytest.mark.parametrize("num_layers", [7, 8, 32])
def test_the_default_layers_are_those_of_eagle3(num_layers: int) -> None:
    expected = (2, num_layers // 2, num_layers - 3)
    assert hf_adapter.fused_layer_indices(num_layers) == expected


def test_explicit_layers_are_sorted() -> None:
    assert hf_adapter.fused_layer_indices(4, (3, 0, 1)) == (0, 1, 3)


@pytest.mark.parametrize("num_layers", [2, 4, 5, 6])
def test_a_target_too_shallow_for_three_layers_is_refused(num_layers: int) -> None:
    with pytest.raises(InputError, match=f"three distinct target layers, but with {num_layers}"):
        hf_adapter.fused_layer_indices(num_layers)


@pytest.mark.parametrize("given", [(1, 1, 2), (1, 2), (0, 1, 2, 3)])
def test_explicit_layers_must_be_three(given: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="three distinct target layers"):
        hf_adapter.fused_layer_indices(8, given)


@pytest.mark.parametrize("given", [(0, 1, 8), (-1, 2, 3)])
def test_a_layer_that_is_no_layers_input_is_refused(given: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"outside \[0, 8\)"):
        hf_adapter.fused_layer_indices(8, given)


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention", None])
def test_attention_that_misreads_a_tree_mask_is_refused(kernel: str | None) -> None:
    model = random_llama()
    model.config._attn_implementation_internal = kernel
    with pytest.raises(BackendError, match="read rightly by eager or sdpa"):
        hf_adapter.wrap(model)


def test_a_sliding_window_is_refused() -> None:
    config = MistralConfig(
        vocab_size=19, hidden_size=16, intermediate_size=32, num_hidden_layers=8,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with pytest.raises(BackendError, match="sliding window of 8 tokens"):
        hf_adapter.wrap(MistralForCausalLM(config))


@pytest.mark.parametrize("kind", ["sliding_attention", "linear_attention"])
def test_a_layer_that_is_not_full_attention_is_refused(kind: str) -> None:
    model = random_llama()
    model.config.layer_types = ["full_attention"] * 7 + [kind]
    with pytest.raises(BackendError, match=f"layer 7 of the target is '{kind}'"):
        hf_adapter.wrap(model)


def test_a_cache_round_trips_without_a_copy() -> None:
    past = tuple((torch.rand(2, 2, 3, 4), torch.rand(2, 2, 3, 4)) for _ in range(2))
    again = hf_adapter.read_cache(hf_adapter.make_cache(past))
    assert [[id(part) for part in pair] for pair in again] == [
        [id(part) for part in pair] for pair in past
    ]


def test_a_forward_pass_leaves_the_past_as_it_was() -> None:
    hf = hf_adapter.wrap(random_llama())
    with torch.no_grad():
        past = hf_adapter.forward(hf, *causal_inputs(3), ()).key_values
        copies = [keys.clone() for keys, _ in past]
        mask = torch.zeros(1, 1, 1, 4)
        extended = hf_adapter.forward(hf, torch.tensor([[4]]), torch.tensor([[3]]), mask, past)
    assert extended.key_values[0][0].shape[2] == 4
    assert all(torch.equal(copy, keys) for copy, (keys, _) in zip(copies, past, strict=True))


def test_a_random_configuration_is_not_shared_between_models() -> None:
    first, second = random_llama(attention="eager"), random_llama(attention="sdpa")
    assert isinstance(first.config, LlamaConfig)
    assert hf_adapter.wrap(first).config._attn_implementation == "eager"
    assert hf_adapter.wrap(second).config._attn_implementation == "sdpa"
