"""Loading a target and its tokenizer from a folder with transformers, offline and quietly.

This file and `hf_adapter` hold all that depends on the version of transformers. What differs here
is the keyword for a load's dtype and what is written to the terminal.
"""

import contextlib
import json
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from rheocheck.errors import WeightsError

# What a damaged or foreign file makes the libraries raise; anything else is a defect of ours.
LOADING_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    ImportError,
    SafetensorError,
    pickle.UnpicklingError,
)


@dataclass(frozen=True, slots=True)
class HfTokenizer:
    """A tokenizer of transformers behind the two calls that this project makes.

    Attributes:
      inner: The tokenizer.
    """

    inner: Any

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the model expects around it."""
        return [int(token) for token in self.inner(text)["input_ids"]]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of token ids, special tokens left out."""
        return str(self.inner.decode(list(tokens), skip_special_tokens=True))


def load_model(folder: Path, dtype: torch.dtype, device: torch.device, attention: str) -> nn.Module:
    """Load a Llama model from a folder; never from the network, never running code found there.

    Args:
      folder: Holds config.json and safetensors, or .bin files that hold tensors only.
      dtype: Of the weights.
      device: Where to put them.
      attention: "eager" or "sdpa".

    Raises:
      WeightsError: The folder, its configuration or its weights are missing, damaged, or not those
        of a Llama model.
    """
    import transformers

    refuse_other_architectures(folder)
    try:
        with quiet_loading():
            # Untyped on purpose: the versions annotate from_pretrained differently.
            model_class: Any = transformers.LlamaForCausalLM
            model, info = model_class.from_pretrained(
                str(folder),
                local_files_only=True,
                weights_only=True,
                attn_implementation=attention,
                output_loading_info=True,
                **{dtype_argument(): dtype},
            )
    except LOADING_ERRORS as error:
        raise WeightsError(
            f"the target in {folder} cannot be loaded: {type(error).__name__}: {shorten(error)}"
        ) from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        # Old checkpoints also store the rotary frequencies, which follow from the configuration.
        names = sorted(
            str(name) for name in info.get(kind) or () if not str(name).endswith("inv_freq")
        )
        if names:
            raise WeightsError(
                f"the weights in {folder} do not fit their config.json: {len(names)} tensors are "
                f"{kind.removesuffix('_keys')}, the first is {names[0]}"
            )
    return model.to(device)  # type: ignore[no-any-return]


def refuse_other_architectures(folder: Path) -> None:
    """Raise WeightsError unless the folder has a readable config.json of a Llama model."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WeightsError(
            f"no target model in {folder}: config.json cannot be read ({error.strerror})"
        ) from error
    except ValueError as error:
        raise WeightsError(f"{path} is not a JSON file: {shorten(error)}") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "llama":
        raise WeightsError(f"{path} has model_type {kind!r}; the target must be a 'llama' model")


def load_tokenizer(folder: Path) -> HfTokenizer:
    """The tokenizer in a model's folder; never from the network, never running code found there.

    Raises:
      WeightsError: There is none, or it cannot be read.
    """
    from transformers import AutoTokenizer

    tokenizer_class: Any = AutoTokenizer
    try:
        with quiet_loading():
            inner = tokenizer_class.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
    except LOADING_ERRORS as error:
        raise WeightsError(
            f"no tokenizer can be loaded from {folder}: {type(error).__name__}: {shorten(error)}"
        ) from error
    return HfTokenizer(inner)


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep transformers' progress bars and load reports off the terminal, then restore them."""
    from transformers.utils import logging as untyped_logging

    logging: Any = untyped_logging
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def dtype_argument() -> str:
    """What the installed version calls the dtype of a load: `torch_dtype` before 4.56."""
    import transformers

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def shorten(error: Exception, limit: int = 300) -> str:
    """An error's text on one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
