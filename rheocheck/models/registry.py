"""Model pairs by name, or from folders: where their files are, and both models ready to decode.

Nothing here opens a connection. A published pair is looked for in the local Hugging Face cache; if
it is not there, the error says in two lines what is missing and how to get it.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rheocheck.errors import InputError, WeightsError
from rheocheck.models.tiny_pair import END_OF_TEXT, VOCAB_SIZE, ByteTokenizer, tiny_paths

if TYPE_CHECKING:
    import torch

    from rheocheck.gpu.drafting import EagleDrafter
    from rheocheck.gpu.eagle3 import Eagle3Head
    from rheocheck.gpu.eagle3_config import AuxConvention
    from rheocheck.gpu.target import TargetModel

TINY = "tiny"


@dataclass(frozen=True, slots=True)
class PublishedPair:
    """Repositories of a published pair on the Hugging Face hub.

    Attributes:
      target: Of the target.
      draft: Of its EAGLE-3 head.
    """

    target: str
    draft: str


PUBLISHED: Mapping[str, PublishedPair] = {
    "llama31": PublishedPair(
        "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    ),
    "vicuna13b": PublishedPair("lmsys/vicuna-13b-v1.3", "yuhuili/EAGLE3-Vicuna1.3-13B"),
    "dsl8b": PublishedPair(
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B"
    ),
}
NAMES = (TINY, *PUBLISHED)

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of token ids."""
        ...


@dataclass(frozen=True, slots=True)
class PairPaths:
    """Where a pair's files are.

    Attributes:
      name: Name of the pair, or "custom" if a folder was given.
      target: Folder of the target.
      draft: Folder of the head.
    """

    name: str
    target: Path
    draft: Path


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A target and its draft head, checked to belong together.

    Attributes:
      paths: Where they came from.
      target: The target, which has passed its start-up check.
      head: The head.
      tokenizer: Of both.
      eos: Tokens that end a text, increasing; may be empty.
    """

    paths: PairPaths
    target: "TargetModel"
    head: "Eagle3Head"
    tokenizer: Tokenizer
    eos: tuple[int, ...]

    def new_drafter(self, batch: int) -> "EagleDrafter":
        """A drafter for `batch` rows without verified tokens."""
        from rheocheck.gpu.drafting import EagleDrafter

        return EagleDrafter(self.head, batch)


def load_pair(
    name: str = TINY,
    *,
    target: Path | None = None,
    draft: Path | None = None,
    device: str = "cpu",
    dtype: "torch.dtype | None" = None,
    attention: str = "sdpa",
    aux_convention: "AuxConvention | None" = None,
) -> Pair:
    """Load both models of a pair.

    Args:
      name: One of `NAMES`.
      target: Folder that takes the place of the named target.
      draft: Folder that takes the place of the named head.
      device: Where torch computes.
      dtype: Of both models; None is float32 on the CPU, bfloat16 elsewhere.
      attention: "sdpa" or "eager".
      aux_convention: What explicit fused-layer numbers of the head's config mean.

    Raises:
      InputError: An unknown name, or a folder that needs its counterpart.
      WeightsError: Files are missing, damaged, or do not belong together.
      BackendError: The target runs trees wrongly.
    """
    paths = resolve(name, target, draft)
    import torch

    from rheocheck.gpu import hf_adapter, hf_loading
    from rheocheck.gpu.eagle3_loading import load_head
    from rheocheck.gpu.target import TargetModel

    if dtype is None:
        dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    model: Any = hf_loading.load_model(paths.target, dtype, torch.device(device), attention)
    # Refuses a head whose vocabulary, width or draft-to-target map does not fit the target.
    head = load_head(
        paths.draft,
        embedding=model.get_input_embeddings().weight.detach(),
        num_target_layers=model.config.num_hidden_layers,
        aux_convention=aux_convention,
        dtype=dtype,
    )
    # The head says which hidden states it reads.
    wrapped = TargetModel(hf_adapter.wrap(model, head.config.aux_layers))
    eos = end_of_sequence_tokens(paths.target, wrapped.vocab_size)
    return Pair(paths, wrapped, head, find_tokenizer(paths.target, wrapped.vocab_size), eos)


def resolve(name: str, target: Path | None = None, draft: Path | None = None) -> PairPaths:
    """Find a pair's folders: the given ones, else the embedded or the cached ones.

    Args:
      name: One of `NAMES`; not looked at where both folders are given.
      target: Folder of a target, or None.
      draft: Folder of a head, or None.

    Raises:
      InputError: An unknown name, or one folder given beside the tiny pair.
      WeightsError: A published pair is not in the cache; two lines say what to do.
    """
    if target is not None and draft is not None:
        return PairPaths("custom", target, draft)
    if name not in NAMES:
        raise InputError(
            f"unknown model {name!r}: must be one of {', '.join(NAMES)}, or give both folders with "
            "--target and --draft"
        )
    if name == TINY:
        if target is not None or draft is not None:
            given, other = ("--target", "--draft") if draft is None else ("--draft", "--target")
            raise InputError(
                f"{given} was given without {other}: the tiny pair's own {other[2:]} fits no other "
                "model; give both folders, or name a published pair with --model"
            )
        return PairPaths(TINY, *tiny_paths())
    return resolve_published(name, target, draft)


def resolve_published(name: str, target: Path | None, draft: Path | None) -> PairPaths:
    """The given folders of a published pair, the others from the cache."""
    pair = PUBLISHED[name]
    found_target = target or find_snapshot(pair.target)
    found_draft = draft or find_snapshot(pair.draft)
    if found_target is not None and found_draft is not None:
        whole = target is None and draft is None
        return PairPaths(name if whole else "custom", found_target, found_draft)
    missing = [
        (repository, what, flag)
        for repository, what, flag, found in (
            (pair.target, "target", "--target", found_target),
            (pair.draft, "draft head", "--draft", found_draft),
        )
        if found is None
    ]
    names = " and ".join(f"{repository} ({what})" for repository, what, _ in missing)
    commands = " && ".join(f"hf download {repository}" for repository, _, _ in missing)
    flags = " ".join(f"{flag} FOLDER" for _, _, flag in missing)
    gated = ", after accepting its licence there" if "meta-llama" in names else ""
    raise WeightsError(
        f"model {name} lacks {names}: not, or not completely, in {cache_folder()}\n"
        f"get it by `{commands}`{gated}, or give local copies with {flags}"
    )


def cache_folder() -> Path:
    """Where the Hugging Face hub's client keeps its files, read from the same variables."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def find_snapshot(repository: str) -> Path | None:
    """The folder of a repository in the cache, with all its files; None if there is none.

    The revision that `main` names goes first, then the others, newest first.
    """
    root = cache_folder() / ("models--" + repository.replace("/", "--"))
    snapshots = root / "snapshots"
    if not snapshots.is_dir():
        return None
    found = sorted(snapshots.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    reference = root / "refs" / "main"
    if reference.is_file():
        main = reference.read_text(encoding="utf-8").strip()
        found.sort(key=lambda path: path.name != main)
    return next((path for path in found if is_complete(path)), None)


def is_complete(folder: Path) -> bool:
    """Whether a folder has a configuration and weights, all shards if there is an index of them."""
    if not (folder / "config.json").is_file():
        return False
    return any(
        (folder / name).is_file() or has_all_shards(folder / f"{name}.index.json")
        for name in WEIGHT_FILES
    )


def has_all_shards(index: Path) -> bool:
    """Whether an index of shards is there, and every shard that it names."""
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return False
    return bool(shards) and all((index.parent / str(shard)).is_file() for shard in shards)


def end_of_sequence_tokens(folder: Path, vocab_size: int) -> tuple[int, ...]:
    """Tokens that end a text, from generation_config.json or else config.json; may be none.

    Raises:
      WeightsError: A value that is no token of the vocabulary.
    """
    for name in ("generation_config.json", "config.json"):
        try:
            value = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if value is None:
            continue
        tokens = value if isinstance(value, list) else [value]
        for token in tokens:
            if type(token) is not int or not 0 <= token < vocab_size:
                raise WeightsError(
                    f"{folder / name}: eos_token_id {token!r} is no token of the vocabulary "
                    f"[0, {vocab_size})"
                )
        return tuple(sorted(set(tokens)))
    return ()


def find_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """The tokenizer in a target's folder, or bytes for a target of bytes that has none.

    Raises:
      WeightsError: There is none and the vocabulary is not that of bytes, or it cannot be read.
    """
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        from rheocheck.gpu.hf_loading import load_tokenizer

        return load_tokenizer(folder)
    if vocab_size != VOCAB_SIZE:
        raise WeightsError(
            f"no tokenizer in {folder}: one of {', '.join(TOKENIZER_FILES)} is required; only a "
            f"target of {VOCAB_SIZE} tokens (bytes, and {END_OF_TEXT} for the end) needs none"
        )
    return ByteTokenizer()
