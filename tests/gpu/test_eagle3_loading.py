"""Checkpoints of the published formats, made small: what loads, and what each bad one is told."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from rheocheck.errors import InputError, WeightsError
from rheocheck.gpu.eagle3 import Eagle3Head
from rheocheck.gpu.eagle3_loading import load_head
from rheocheck.gpu.rope import RopeScaling
from tests.gpu.random_heads import DRAFT_VOCAB, KEPT, TARGET_HIDDEN, VOCAB, head_config, random_head

LAYERS = 8
EMBEDDING = torch.arange(VOCAB * TARGET_HIDDEN).reshape(VOCAB, TARGET_HIDDEN) / 100

# The layout of the Llama-3.1-8B head: a draft vocabulary below the target's, no rope_theta, no
# layer numbers, no embedding.
LLAMA31: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": TARGET_HIDDEN,
    "intermediate_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "vocab_size": VOCAB,
    "draft_vocab_size": DRAFT_VOCAB,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
# The Vicuna-13B head's: equal vocabularies, no map, and the target's number of layers.
VICUNA: dict[str, Any] = {
    **{name: value for name, value in LLAMA31.items() if name != "num_key_value_heads"},
    "draft_vocab_size": VOCAB,
    "num_hidden_layers": 40,
}
SPECULATORS: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": DRAFT_VOCAB,
    "norm_before_residual": True,
    "transformer_layer_config": {
        "model_type": "llama",
        "hidden_size": TARGET_HIDDEN,
        "intermediate_size": 20,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB,
        "rope_parameters": {"rope_theta": 123.0, "rope_type": "default"},
    },
    "speculators_config": {"algorithm": "eagle3"},
}


def llama31_tensors() -> dict[str, Tensor]:
    """Random weights with d2t and t2d, without an embedding."""
    config = head_config(hidden_size=TARGET_HIDDEN, head_dim=2)
    state = random_head(config).float().state_dict()
    return {n: t.contiguous() for n, t in state.items() if n != "embed_tokens.weight"}


def vicuna_tensors() -> dict[str, Tensor]:
    """Random weights without any map."""
    config = head_config(
        hidden_size=TARGET_HIDDEN, head_dim=2, num_kv_heads=4, draft_vocab_size=VOCAB
    )
    state = random_head(config).float().state_dict()
    return {
        n: t.contiguous()
        for n, t in state.items()
        if n not in ("embed_tokens.weight", "d2t", "t2d")
    }


def as_layers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The other naming scheme."""
    return {name.replace("midlayer.", "layers.0."): t for name, t in tensors.items()}


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], kind: str) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if kind == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    else:
        torch.save(tensors, folder / "pytorch_model.bin")
    return folder


def load(folder: Path, **more: Any) -> Eagle3Head:
    return load_head(folder, embedding=EMBEDDING, num_target_layers=LAYERS, **more)


def reload(folder: Path, tensors: dict[str, Tensor], **config: Any) -> Eagle3Head:
    """Write a llama31 checkpoint with some fields changed, and load it."""
    return load(write(folder, {**LLAMA31, **config}, tensors, "safetensors"))


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("rename", [dict, as_layers], ids=["midlayer", "layers.0"])
def test_a_llama31_head_loads(
    tmp_path: Path, kind: str, rename: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    tensors = llama31_tensors()
    head = load(write(tmp_path, LLAMA31, rename(tensors), kind))
    assert head.token_ids.tolist() == list(KEPT)
    assert head.config.aux_layers == (2, 4, 5)
    assert head.config.rope_theta == 10_000.0
    assert torch.equal(head.embed_tokens.weight, EMBEDDING)
    for name, value in tensors.items():
        assert torch.equal(head.state_dict()[name], value)
    assert not head.training
    assert not any(p.requires_grad for p in head.parameters())


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("rename", [dict, as_layers], ids=["midlayer", "layers.0"])
@pytest.mark.parametrize("zero_map", [False, True])
def test_a_vicuna_head_loads(
    tmp_path: Path,
    kind: str,
    rename: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    zero_map: bool,
) -> None:
    """Equal vocabularies: the map is absent or all zero, and means the identity."""
    tensors = vicuna_tensors()
    if zero_map:
        tensors["d2t"] = torch.zeros(VOCAB, dtype=torch.int64)
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
    head = load(write(tmp_path, VICUNA, rename(tensors), kind))
    assert head.token_ids.tolist() == list(range(VOCAB))
    assert head.t2d.all()


def test_a_speculators_head_loads(tmp_path: Path) -> None:
    head = load(write(tmp_path, SPECULATORS, as_layers(llama31_tensors()), "safetensors"))
    assert head.config.norm_before_residual
    assert head.config.norm_before_lm_head
    assert not head.config.feed_back_normed
    assert head.config.rope_theta == 123.0


def test_half_precision_files_become_float32(tmp_path: Path) -> None:
    tensors = {n: t.half() if t.is_floating_point() else t for n, t in llama31_tensors().items()}
    head = reload(tmp_path, tensors)
    assert {p.dtype for p in head.parameters()} == {torch.float32}
    assert torch.equal(head.fc.weight, tensors["fc.weight"].float())


def test_safetensors_go_before_bin(tmp_path: Path) -> None:
    tensors = llama31_tensors()
    write(tmp_path, LLAMA31, {n: t * 2 for n, t in tensors.items()}, "bin")
    assert torch.equal(reload(tmp_path, tensors).fc.weight, tensors["fc.weight"])


def test_an_embedding_in_the_file_is_taken(tmp_path: Path) -> None:
    own = torch.randn(VOCAB, TARGET_HIDDEN)
    head = reload(tmp_path, {**llama31_tensors(), "embed_tokens.weight": own})
    assert torch.equal(head.embed_tokens.weight, own)


def test_loading_draws_no_random_number(tmp_path: Path) -> None:
    tensors = llama31_tensors()
    before = torch.get_rng_state()
    reload(tmp_path, tensors)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_missing_mask_is_made_from_the_map(tmp_path: Path) -> None:
    tensors = llama31_tensors()
    expected = tensors.pop("t2d")
    assert torch.equal(reload(tmp_path, tensors).t2d, expected)


@pytest.mark.parametrize(
    ("given", "convention", "fused"),
    [
        ([2, 4, 5], "input", (2, 4, 5)),
        ([1, 3, 4], "output", (2, 4, 5)),
        ([5, 2, 4], "input", (2, 4, 5)),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_layer_numbers_follow_the_convention(
    tmp_path: Path, given: list[int], convention: Any, fused: tuple[int, int, int], nested: bool
) -> None:
    field = {"eagle_aux_hidden_state_layer_ids": given}
    config = {**LLAMA31, **({"eagle_config": field} if nested else field)}
    write(tmp_path, config, llama31_tensors(), "safetensors")
    assert load(tmp_path, aux_convention=convention).config.aux_layers == fused


def test_speculators_layer_numbers_need_no_convention(tmp_path: Path) -> None:
    config = {**SPECULATORS, "eagle_aux_hidden_state_layer_ids": [1, 3, 6]}
    write(tmp_path, config, llama31_tensors(), "safetensors")
    assert load(tmp_path).config.aux_layers == (1, 3, 6)


@pytest.mark.parametrize(
    ("base", "norm_output", "before_lm_head", "fed_back"),
    [
        (LLAMA31, None, True, False),
        (LLAMA31, True, True, False),
        (LLAMA31, False, False, False),
        (SPECULATORS, None, True, False),
        (SPECULATORS, False, True, False),
        (SPECULATORS, True, True, True),
    ],
)
def test_norm_output_means_what_its_format_says(
    tmp_path: Path,
    base: dict[str, Any],
    norm_output: bool | None,
    before_lm_head: bool,
    fed_back: bool,
) -> None:
    write(tmp_path, {**base, "norm_output": norm_output}, llama31_tensors(), "safetensors")
    config = load(tmp_path).config
    assert (config.norm_before_lm_head, config.feed_back_normed) == (before_lm_head, fed_back)


@pytest.mark.parametrize(
    ("switch", "extra"),
    [
        ("norm_before_fc", {"input_norm.weight": torch.ones(3 * TARGET_HIDDEN)}),
        ("fc_norm", {f"fc_norm.{i}.weight": torch.ones(TARGET_HIDDEN) for i in range(3)}),
    ],
)
def test_norms_before_the_fusion_load(
    tmp_path: Path, switch: str, extra: dict[str, Tensor]
) -> None:
    head = reload(tmp_path, {**llama31_tensors(), **extra}, **{switch: True})
    assert getattr(head.config, switch)


def test_overrides_replace_fields_of_the_config(tmp_path: Path) -> None:
    write(tmp_path, {**LLAMA31, "rope_theta": 1e6}, llama31_tensors(), "safetensors")
    assert load(tmp_path).config.rope_theta == 1e6
    assert load(tmp_path, overrides={"rope_theta": 1e4}).config.rope_theta == 1e4
    with pytest.raises(InputError, match=r"override 'theta': must be one of aux_layers, "):
        load(tmp_path, overrides={"theta": 1.0})


def test_llama3_scaling_is_read(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 4096,
    }
    head = reload(tmp_path, llama31_tensors(), rope_scaling=scaling)
    assert head.config.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 4096)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size = None: must be a positive integer"),
        ({"intermediate_size": "20"}, "intermediate_size = '20': must be a positive integer"),
        ({"rms_norm_eps": -1.0}, r"rms_norm_eps = -1\.0: must be a positive number"),
        ({"fc_norm": 1}, "fc_norm = 1: must be true or false"),
        ({"fc_norm": True, "norm_before_fc": True}, "norm_before_fc and fc_norm are both true"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu': only 'silu'"),
        ({"num_attention_heads": 3}, "hidden_size = 8 is no multiple of num_attention_heads = 3"),
        ({"num_key_value_heads": 3}, "4 attention heads on 3 key-value heads of width 2"),
        ({"rope_scaling": {"type": "yarn"}}, "rope scaling of type 'yarn'"),
        ({"vocab_size": 14}, "the head's vocab_size is 14, the target's 13"),
        ({"target_hidden_size": 16}, "width 16, the target's hidden size is 8"),
        ({"draft_vocab_size": 14}, "draft_vocab_size = 14 exceeds the target's vocabulary of 13"),
        ({"intermediate_size": 24}, r"mlp\.gate_proj\.weight has shape \[20, 8\], .* \[24, 8\]"),
        ({"speculators_model_type": "eagle"}, "speculators_model_type = 'eagle'"),
    ],
)
def test_a_bad_config_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        reload(tmp_path, llama31_tensors(), **changes)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([2, 2, 5], r"fuse hidden states \[2, 2, 5\] .* three distinct ones between 0 and 7"),
        ([2, 5], r"fuse hidden states \[2, 5\]"),
        ([2, 5, 8], r"fuse hidden states \[2, 5, 8\]"),
        (["2", 4, 5], "must be a list of integers"),
    ],
)
def test_fewer_than_three_distinct_fused_layers_are_refused(
    tmp_path: Path, ids: list[Any], message: str
) -> None:
    config = {**LLAMA31, "eagle_aux_hidden_state_layer_ids": ids}
    write(tmp_path, config, llama31_tensors(), "safetensors")
    with pytest.raises(WeightsError, match=message):
        load(tmp_path, aux_convention="input")


@pytest.mark.parametrize("layers", [1, 2, 4, 5, 6])
def test_a_target_too_shallow_for_three_layers_is_refused(tmp_path: Path, layers: int) -> None:
    write(tmp_path, LLAMA31, llama31_tensors(), "safetensors")
    with pytest.raises(WeightsError, match=f"the default for a target of {layers} layers"):
        load_head(tmp_path, embedding=EMBEDDING, num_target_layers=layers)


@pytest.mark.parametrize(("convention", "message"), [(None, "can mean"), ("both", "'both'")])
def test_layer_numbers_without_a_convention_are_refused(
    tmp_path: Path, convention: Any, message: str
) -> None:
    config = {**LLAMA31, "eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    write(tmp_path, config, llama31_tensors(), "safetensors")
    with pytest.raises(InputError, match=message):
        load(tmp_path, aux_convention=convention)


def offsets(*ids: int) -> Tensor:
    """d2t that sends draft token i to ids[i]."""
    return torch.tensor(ids) - torch.arange(len(ids))


@pytest.mark.parametrize(
    ("d2t", "message"),
    [
        (None, "d2t is missing or all zero, although only 9 of 13 tokens can be drafted"),
        (torch.zeros(9, dtype=torch.int64), "d2t is missing or all zero"),
        (torch.arange(9), r"d2t\[7\] = 7 sends draft token 7 to target token 14, outside 0\.\.12"),
        (offsets(-1, 2, 3, 5, 6, 8, 9, 11, 12), r"d2t\[0\] = -1 .* target token -1, outside"),
        (offsets(0, 2, 2, 5, 6, 8, 9, 11, 12), r"d2t\[2\] = 0 .* token 2, not above .* 1's 2"),
        (offsets(0, 3, 2, 5, 6, 8, 9, 11, 12), r"i \+ d2t\[i\] must be strictly increasing"),
        (offsets(0, 2, 3, 5, 6, 8, 9, 10, 12), r"t2d\[10\] = False, but d2t reaches target"),
        (torch.zeros(8, dtype=torch.int64), r"d2t must be 9 integers, got torch\.int64 \[8\]"),
        (torch.ones(9), r"d2t must be 9 integers, got torch\.float32"),
    ],
)
def test_a_bad_vocabulary_map_is_refused(tmp_path: Path, d2t: Tensor | None, message: str) -> None:
    tensors = llama31_tensors()
    del tensors["d2t"]
    if d2t is not None:
        tensors["d2t"] = d2t
    with pytest.raises(WeightsError, match=message):
        reload(tmp_path, tensors)


@pytest.mark.parametrize(
    ("t2d", "message"),
    [
        (
            torch.ones(13, dtype=torch.bool),
            r"t2d\[1\] = True, but d2t never reaches target token 1",
        ),
        (torch.zeros(13, dtype=torch.bool), r"t2d\[0\] = False, but d2t reaches target token 0"),
        (torch.arange(13), "t2d must be a mask"),
        (torch.ones(9, dtype=torch.bool), r"over 13 target tokens, got torch\.bool \[9\]"),
    ],
)
def test_a_mask_that_is_not_the_image_of_the_map_is_refused(
    tmp_path: Path, t2d: Tensor, message: str
) -> None:
    with pytest.raises(WeightsError, match=message):
        reload(tmp_path, {**llama31_tensors(), "t2d": t2d})


def test_a_map_that_moves_equal_vocabularies_is_refused(tmp_path: Path) -> None:
    tensors = {**vicuna_tensors(), "d2t": torch.arange(VOCAB)}
    write(tmp_path, VICUNA, tensors, "safetensors")
    with pytest.raises(WeightsError, match="d2t holds offsets, not token ids"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("fc.weight", None, r"missing tensors: fc\.weight; unexpected tensors: none"),
        ("extra.bias", torch.ones(1), r"missing tensors: none; unexpected tensors: extra\.bias"),
        ("layers.1.mlp.up_proj.weight", torch.ones(1), "only heads of one layer"),
        ("layers.0.hidden_norm.weight", torch.ones(8), "hidden_norm.* under both of its names"),
        ("norm.weight", torch.ones(9), r"norm\.weight has shape \[9\], .* \[8\]"),
        ("norm.weight", torch.full((8,), torch.nan), "must hold finite floats"),
        ("norm.weight", torch.ones(8, dtype=torch.int64), "must hold finite floats"),
        ("embed_tokens.weight", torch.ones(12, 8), r"has shape \[12, 8\], .* \[13, 8\]"),
    ],
)
def test_a_bad_tensor_is_refused(
    tmp_path: Path, name: str, value: Tensor | None, message: str
) -> None:
    tensors = llama31_tensors()
    tensors.pop(name, None)
    if value is not None:
        tensors[name] = value
    with pytest.raises(WeightsError, match=message):
        reload(tmp_path, tensors)


@pytest.mark.parametrize("name", ["verifier_norm.weight", "midlayer.rotary_emb.inv_freq"])
def test_tensors_without_information_are_left_out(tmp_path: Path, name: str) -> None:
    reload(tmp_path, {**llama31_tensors(), name: torch.ones(1)})


def test_a_head_of_another_width_needs_its_own_embedding(tmp_path: Path) -> None:
    config = head_config(head_dim=6)
    tensors = random_head(config).float().state_dict()
    fields = {**LLAMA31, "hidden_size": 12, "head_dim": 6, "target_hidden_size": TARGET_HIDDEN}
    write(tmp_path, fields, dict(tensors), "safetensors")
    assert load(tmp_path).embed_tokens.weight.shape == (VOCAB, 12)
    del tensors["embed_tokens.weight"]
    write(tmp_path, fields, dict(tensors), "safetensors")
    with pytest.raises(WeightsError, match=r"embed_tokens\.weight is missing, and the target's"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("left", [0, 7, 300, -9])
def test_a_truncated_file_is_refused(tmp_path: Path, kind: str, left: int) -> None:
    write(tmp_path, LLAMA31, llama31_tensors(), kind)
    path = next(p for p in tmp_path.iterdir() if p.name != "config.json")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(WeightsError, match=f"{path.name}: corrupt, truncated, or not plain"):
        load(tmp_path)


def test_a_pickle_with_code_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    write(tmp_path, LLAMA31, {}, "bin")
    torch.save({"fc.weight": Bomb()}, tmp_path / "pytorch_model.bin", pickle_module=pickle)
    with pytest.raises(WeightsError, match="not plain tensors"):
        load(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    write(tmp_path, LLAMA31, {}, "bin")
    torch.save([torch.ones(1)], tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="a table of tensors and nothing else"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"config\.json: cannot be read as JSON: .*No such file"),
        ('{"hidden_size": ', r"config\.json: cannot be read as JSON: Expecting value"),
        ("[]", "must hold a JSON object, not list"),
    ],
)
def test_a_bad_config_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(WeightsError, match=message):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA31))
    with pytest.raises(WeightsError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        load(tmp_path)
