"""Pairs are found by name, by folder or in the local cache, and never fetched."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rheocheck.errors import InputError, WeightsError
from rheocheck.models import registry
from rheocheck.models.registry import NAMES, PUBLISHED, load_pair, resolve
from rheocheck.models.tiny_pair import ByteTokenizer, tiny_paths


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache."""
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def add_snapshot(cache: Path, repository: str, revision: str, *files: str) -> Path:
    """A snapshot with files; an index names two shards."""
    root = cache / ("models--" + repository.replace("/", "--"))
    folder = root / "snapshots" / revision
    folder.mkdir(parents=True)
    for name in files:
        content = {"weight_map": {"a": "one", "b": "two"}} if "index" in name else {}
        (folder / name).write_text(json.dumps(content))
    return folder


def add_pair(cache: Path, name: str) -> tuple[Path, Path]:
    pair = PUBLISHED[name]
    return (
        add_snapshot(cache, pair.target, "r1", "config.json", "model.safetensors"),
        add_snapshot(cache, pair.draft, "r1", "config.json", "pytorch_model.bin"),
    )


def test_the_names_are_those_of_the_published_heads() -> None:
    assert NAMES == ("tiny", "llama31", "vicuna13b", "dsl8b")
    assert all("EAGLE3" in pair.draft for pair in PUBLISHED.values())


def test_the_tiny_pair_is_in_the_package() -> None:
    assert (resolve("tiny").target, resolve("tiny").draft) == tiny_paths()


def test_given_folders_need_no_name(tmp_path: Path) -> None:
    paths = resolve("anything", tmp_path / "t", tmp_path / "d")
    assert (paths.name, paths.target, paths.draft) == ("custom", tmp_path / "t", tmp_path / "d")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown model 'llama4': must be one of tiny, llama31, "):
        resolve("llama4")


@pytest.mark.parametrize(("given", "other"), [("target", "draft"), ("draft", "target")])
def test_half_a_tiny_pair_is_refused(tmp_path: Path, given: str, other: str) -> None:
    with pytest.raises(InputError, match=f"--{given} was given without --{other}"):
        resolve("tiny", **{given: tmp_path})


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_pair_that_is_nowhere_gives_two_lines(cache: Path, name: str) -> None:
    with pytest.raises(WeightsError) as caught:
        resolve(name)
    lines = str(caught.value).split("\n")
    pair = PUBLISHED[name]
    assert len(lines) == 2
    assert lines[0].startswith(f"model {name} lacks {pair.target} (target) and {pair.draft} (draft")
    assert str(cache) in lines[0]
    assert f"`hf download {pair.target} && hf download {pair.draft}`" in lines[1]
    assert lines[1].endswith("give local copies with --target FOLDER --draft FOLDER")


def test_only_what_is_missing_is_named(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        resolve("llama31", target=tmp_path)
    assert "Llama-3.1-8B-Instruct" not in str(caught.value).replace(PUBLISHED["llama31"].draft, "")
    assert str(caught.value).endswith("with --draft FOLDER")
    target, draft = add_pair(cache, "llama31")
    assert resolve("llama31", target=tmp_path).draft == draft
    assert resolve("llama31", draft=tmp_path).target == target


def test_a_pair_in_the_cache_is_found(cache: Path) -> None:
    target, draft = add_pair(cache, "vicuna13b")
    paths = resolve("vicuna13b")
    assert (paths.name, paths.target, paths.draft) == ("vicuna13b", target, draft)


def test_the_revision_of_main_goes_first(cache: Path) -> None:
    repository = PUBLISHED["dsl8b"].draft
    first = add_snapshot(cache, repository, "r1", "config.json", "model.safetensors")
    add_snapshot(cache, repository, "r2", "config.json", "model.safetensors")
    references = first.parent.parent / "refs"
    references.mkdir()
    (references / "main").write_text("r1")
    assert registry.find_snapshot(repository) == first


@pytest.mark.parametrize(
    "files",
    [
        ("config.json",),
        ("model.safetensors",),
        ("config.json", "model.safetensors.index.json"),
        ("config.json", "model.safetensors.index.json", "one"),
    ],
)
def test_a_partial_download_does_not_count(cache: Path, files: tuple[str, ...]) -> None:
    add_snapshot(cache, "a/b", "r1", *files)
    assert registry.find_snapshot("a/b") is None


def test_all_shards_of_an_index_count(cache: Path) -> None:
    files = ("config.json", "pytorch_model.bin.index.json", "one", "two")
    folder = add_snapshot(cache, "a/b", "r1", *files)
    assert registry.find_snapshot("a/b") == folder


def test_the_cache_is_where_the_hubs_client_keeps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert registry.cache_folder() == Path("/home/x/.cache/huggingface/hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert registry.cache_folder() == Path("/c/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/h")
    assert registry.cache_folder() == Path("/h/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    assert registry.cache_folder() == Path("/hub")


def test_finding_a_pair_imports_no_torch() -> None:
    program = (
        "import sys; from rheocheck.models.registry import resolve; resolve('tiny'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the tiny pair's folders, to be damaged."""
    target, draft = tiny_paths()
    shutil.copytree(target, tmp_path / "target")
    shutil.copytree(draft, tmp_path / "draft")
    return tmp_path / "target", tmp_path / "draft"


def change(path: Path, **fields: object) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_the_tiny_pair_loads_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    pair = load_pair()
    assert pair.paths.name == "tiny" and pair.eos == (256,)
    assert isinstance(pair.tokenizer, ByteTokenizer)
    assert pair.target.hf.fused_layers == pair.head.config.aux_layers == (2, 4, 5)
    assert pair.new_drafter(3).root().shape == (3, pair.head.config.draft_vocab_size)


def test_copies_of_the_tiny_pair_load(copies: tuple[Path, Path]) -> None:
    pair = load_pair(target=copies[0], draft=copies[1])
    assert pair.paths.name == "custom" and isinstance(pair.tokenizer, ByteTokenizer)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kept", [0, 1000, 300_000])
def test_a_truncated_weight_file_is_refused(
    copies: tuple[Path, Path], which: int, kept: int
) -> None:
    file = copies[which] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(WeightsError) as caught:
        load_pair(target=copies[0], draft=copies[1])
    assert str(copies[which]) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_folder_is_refused(copies: tuple[Path, Path], which: int) -> None:
    shutil.rmtree(copies[which])
    with pytest.raises(WeightsError, match=str(copies[which])):
        load_pair(target=copies[0], draft=copies[1])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("vocab_size", 300, r"300.*257"), ("target_hidden_size", 64, r"width 64.* is 128")],
)
def test_a_head_of_another_target_is_refused(
    copies: tuple[Path, Path], field: str, value: int, message: str
) -> None:
    change(copies[1] / "config.json", **{field: value})
    with pytest.raises(WeightsError, match=message):
        load_pair(target=copies[0], draft=copies[1])


@pytest.mark.parametrize(("fill", "message"), [(0, "d2t"), (250, r"d2t|257")])
def test_a_map_that_does_not_fit_the_vocabulary_is_refused(
    copies: tuple[Path, Path], fill: int, message: str
) -> None:
    file = copies[1] / "model.safetensors"
    tensors = load_file(file)
    tensors["d2t"] = torch.full_like(tensors["d2t"], fill)
    save_file(tensors, file)
    with pytest.raises(WeightsError, match=message):
        load_pair(target=copies[0], draft=copies[1])


def test_a_target_without_a_tokenizer_must_be_one_of_bytes(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no tokenizer in .*only a target of 257 tokens"):
        registry.find_tokenizer(tmp_path, 32000)
    assert registry.find_tokenizer(tmp_path, 257).encode("ab") == [97, 98]


def test_end_of_sequence_tokens_come_from_the_generation_settings_first(tmp_path: Path) -> None:
    assert registry.end_of_sequence_tokens(tmp_path, 10) == ()
    (tmp_path / "config.json").write_text('{"eos_token_id": 3}')
    assert registry.end_of_sequence_tokens(tmp_path, 10) == (3,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [9, 2, 9]}')
    assert registry.end_of_sequence_tokens(tmp_path, 10) == (2, 9)
    with pytest.raises(
        WeightsError, match=r"eos_token_id 9 is no token of the vocabulary \[0, 9\)"
    ):
        registry.end_of_sequence_tokens(tmp_path, 9)
