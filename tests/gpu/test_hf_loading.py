"""Loading is offline and quiet, and refuses folders that are not a whole Llama model."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from rheocheck.errors import WeightsError
from rheocheck.gpu import hf_loading
from tests.gpu.random_models import random_llama


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    with hf_loading.quiet_loading():
        random_llama().save_pretrained(folder)
    return folder


def copy_of(folder: Path, to: Path) -> Path:
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def load(folder: Path) -> Any:
    return hf_loading.load_model(folder, torch.float32, torch.device("cpu"), "eager")


def test_a_saved_model_loads_quietly(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, token = load(saved), torch.tensor([[1, 2, 3, 4]])
    assert model.config._attn_implementation == "eager"
    assert capfd.readouterr() == ("", "")
    with torch.no_grad():
        loaded, original = model(input_ids=token).logits, random_llama()(input_ids=token).logits
    assert loaded == pytest.approx(original, abs=1e-4)


def test_bin_files_load_too(saved: Path, tmp_path: Path) -> None:
    copy_of(saved, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(random_llama().state_dict(), tmp_path / "pytorch_model.bin")
    assert torch.equal(load(tmp_path).lm_head.weight, random_llama().lm_head.weight)


def test_a_bin_file_with_code_in_it_is_refused(saved: Path, tmp_path: Path) -> None:
    copy_of(saved, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Path("not a tensor")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        load(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no target model in .*nowhere: config\.json"):
        load(tmp_path / "nowhere")


def test_missing_weights_are_refused(saved: Path, tmp_path: Path) -> None:
    (copy_of(saved, tmp_path) / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="cannot be loaded"):
        load(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 4000])
def test_a_truncated_file_is_refused(saved: Path, tmp_path: Path, kept: int) -> None:
    file = copy_of(saved, tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(WeightsError, match="cannot be loaded") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_corrupt_configuration_is_refused(saved: Path, tmp_path: Path) -> None:
    (copy_of(saved, tmp_path) / "config.json").write_text("{")
    with pytest.raises(WeightsError, match="is not a JSON file"):
        load(tmp_path)


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_another_architecture_is_refused(saved: Path, tmp_path: Path) -> None:
    edit_config(copy_of(saved, tmp_path), model_type="mamba")
    with pytest.raises(WeightsError, match="model_type 'mamba'; the target must be a 'llama'"):
        load(tmp_path)


def test_a_vocabulary_other_than_the_weights_is_refused(saved: Path, tmp_path: Path) -> None:
    edit_config(copy_of(saved, tmp_path), vocab_size=23)
    with pytest.raises(WeightsError, match=r"embed_tokens|lm_head|mismatch"):
        load(tmp_path)


@pytest.mark.parametrize(("layers", "kind"), [(9, "missing"), (7, "unexpected")])
def test_tensors_must_be_those_of_the_configuration(
    saved: Path, tmp_path: Path, layers: int, kind: str
) -> None:
    edit_config(copy_of(saved, tmp_path), num_hidden_layers=layers)
    with pytest.raises(WeightsError, match=rf"9 tensors are {kind}, the first is model\.layers\."):
        load(tmp_path)


def test_loading_opens_no_connection(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from .bin files, which transformers offers to convert on its site."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    load(saved)
    copy_of(saved, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(random_llama().state_dict(), tmp_path / "pytorch_model.bin")
    load(tmp_path)
    save_tokenizer(tmp_path)
    hf_loading.load_tokenizer(tmp_path)


def save_tokenizer(folder: Path) -> None:
    """A tokenizer of three words that puts token 0 first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {"<s>": 0, "a": 1, "b": 2, "<unk>": 3}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer: Any = PreTrainedTokenizerFast
    tokenizer(tokenizer_object=inner, bos_token="<s>", unk_token="<unk>").save_pretrained(folder)


def test_a_tokenizer_adds_and_drops_special_tokens(saved: Path, tmp_path: Path) -> None:
    save_tokenizer(copy_of(saved, tmp_path))
    tokenizer = hf_loading.load_tokenizer(tmp_path)
    assert tokenizer.encode("b a") == [0, 2, 1]
    assert tokenizer.decode([0, 2, 1]) == "b a"


def test_a_folder_without_a_tokenizer_is_refused(saved: Path) -> None:
    with pytest.raises(WeightsError, match="no tokenizer can be loaded from"):
        hf_loading.load_tokenizer(saved)


def test_a_tokenizer_that_wants_to_run_code_is_refused(saved: Path, tmp_path: Path) -> None:
    copy_of(saved, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}})
    )
    (tmp_path / "own.py").write_text("raise SystemExit('code was run')")
    with pytest.raises(WeightsError, match="no tokenizer can be loaded from"):
        hf_loading.load_tokenizer(tmp_path)
