"""Loading an EAGLE-3 head from a checkpoint folder, with every silent failure made loud.

Reads `config.json` and `model.safetensors`, or else `pytorch_model.bin` (plain tensors only; no
code in a pickle is ever run). Tensor names may say `midlayer.` or `layers.0.`.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rheocheck.errors import InputError, WeightsError
from rheocheck.gpu.eagle3 import Eagle3Head, HeadConfig
from rheocheck.gpu.eagle3_config import AuxConvention, parse_config

EMBEDDING, DRAFT_TO_TARGET, TARGET_TO_DRAFT = "embed_tokens.weight", "d2t", "t2d"


def load_head(
    folder: Path,
    *,
    embedding: Tensor,
    num_target_layers: int,
    aux_convention: AuxConvention | None = None,
    dtype: torch.dtype = torch.float32,
    overrides: Mapping[str, Any] | None = None,
) -> Eagle3Head:
    """Build the head of a checkpoint folder for one target.

    Args:
      folder: Holds config.json and one weight file; model.safetensors goes first.
      embedding: [vocab, target_hidden] the target's input embedding. It fixes the vocabulary, the
        target's width and the device, and stands in where the file has no embedding.
      num_target_layers: The target's number of layers.
      aux_convention: What explicit layer numbers of the config mean; see `parse_config`.
      dtype: Of the head's floating tensors, whatever the file's.
      overrides: Fields of `HeadConfig` that replace the config's, e.g. {"rope_theta": 1e4}.

    Returns:
      The head, frozen, in evaluation mode, on the embedding's device.

    Raises:
      WeightsError: The folder, its config or a tensor is missing, damaged or contradictory.
      InputError: aux_convention is needed and missing, or an override names no field.
    """
    vocab, target_hidden = embedding.shape
    path = folder / "config.json"
    config = parse_config(
        read_config(path),
        source=str(path),
        vocab_size=vocab,
        target_hidden_size=target_hidden,
        num_target_layers=num_target_layers,
        aux_convention=aux_convention,
    )
    if overrides:
        known = {field.name for field in fields(HeadConfig)}
        for name in overrides:
            if name not in known:
                raise InputError(f"override {name!r}: must be one of {', '.join(sorted(known))}")
        config = replace(config, **overrides)
    path, tensors = read_tensors(folder)
    tensors = canonical_names(tensors, path)
    d2t, t2d = vocabulary_map(
        tensors.pop(DRAFT_TO_TARGET, None),
        tensors.pop(TARGET_TO_DRAFT, None),
        config.draft_vocab_size,
        vocab,
        path,
    )
    if EMBEDDING not in tensors:
        if config.hidden_size != target_hidden:
            raise WeightsError(
                f"{path}: {EMBEDDING} is missing, and the target's (width {target_hidden}) cannot "
                f"stand in for one of width {config.hidden_size}"
            )
        tensors[EMBEDDING] = embedding.detach()
    # On the meta device nothing is allocated and no random number is drawn.
    with torch.device("meta"):
        head = Eagle3Head(config)
    check_tensors(tensors, head, path)
    state = {name: value.to(embedding.device, dtype) for name, value in tensors.items()}
    state[DRAFT_TO_TARGET] = d2t.to(embedding.device)
    state[TARGET_TO_DRAFT] = t2d.to(embedding.device)
    head.load_state_dict(state, assign=True)
    return head.eval().requires_grad_(False)


def read_config(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file.

    Raises:
      WeightsError: No such file, no JSON, or no object.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise WeightsError(f"{path}: must hold a JSON object, not {type(raw).__name__}")
    return raw


def read_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """All tensors of the folder's weight file, on the CPU.

    Returns:
      The file, and its tensors by name.

    Raises:
      WeightsError: Neither file is there, or the one taken is corrupt or truncated.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            if name.endswith(".bin"):
                loaded = torch.load(path, map_location="cpu", weights_only=True)
            else:
                loaded = load_file(path)
        # torch.load fails in as many ways as a damaged zip or pickle can; all mean the same here.
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise WeightsError(
                f"{path}: corrupt, truncated, or not plain tensors: {reason}"
            ) from None
        if not isinstance(loaded, dict) or not all(isinstance(t, Tensor) for t in loaded.values()):
            raise WeightsError(f"{path}: must hold a table of tensors and nothing else")
        return path, loaded
    raise WeightsError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there")


def canonical_names(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors under the official names; buffers that carry no information are left out."""
    renamed: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.startswith("verifier_") or name.endswith("rotary_emb.inv_freq"):
            continue
        canonical = name
        if name.startswith("layers.0."):
            canonical = "midlayer." + name.removeprefix("layers.0.")
        elif name.startswith("layers."):
            raise WeightsError(f"{path}: tensor {name}: only heads of one layer can be read")
        if canonical in renamed:
            raise WeightsError(f"{path}: tensor {canonical} is there under both of its names")
        renamed[canonical] = value
    return renamed


def check_tensors(tensors: Mapping[str, Tensor], head: Eagle3Head, path: Path) -> None:
    """Compare names, shapes and kinds with what the head needs; refuse what is not finite."""
    expected = {
        name: tuple(value.shape)
        for name, value in head.state_dict().items()
        if name not in (DRAFT_TO_TARGET, TARGET_TO_DRAFT)
    }
    missing = sorted(expected.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        raise WeightsError(
            f"{path}: missing tensors: {', '.join(missing) or 'none'}; "
            f"unexpected tensors: {', '.join(unexpected) or 'none'}"
        )
    for name, shape in expected.items():
        value = tensors[name]
        if tuple(value.shape) != shape:
            raise WeightsError(
                f"{path}: tensor {name} has shape {list(value.shape)}, "
                f"but config.json and the target ask for {list(shape)}"
            )
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise WeightsError(f"{path}: tensor {name} ({value.dtype}) must hold finite floats")


def vocabulary_map(
    d2t: Tensor | None, t2d: Tensor | None, draft_vocab: int, vocab: int, path: Path
) -> tuple[Tensor, Tensor]:
    """Check the map from draft tokens to target tokens.

    Args:
      d2t: [draft_vocab] offsets, or None where the file has none.
      t2d: [vocab] True (or 1) at the target tokens that can be drafted, or None.
      draft_vocab: Size of the draft vocabulary.
      vocab: Size of the target's.
      path: The weight file, for messages.

    Returns:
      d2t as int64 and t2d as bool, both present.

    Raises:
      WeightsError: The map is missing although the vocabularies differ, leaves the vocabulary, is
        not strictly increasing (so also: many-to-one), or is not what t2d says.
    """
    if draft_vocab > vocab:
        raise WeightsError(
            f"{path}: draft_vocab_size = {draft_vocab} exceeds the target's vocabulary of {vocab}"
        )
    if d2t is None:
        d2t = torch.zeros(draft_vocab, dtype=torch.int64)
    if tuple(d2t.shape) != (draft_vocab,) or d2t.is_floating_point() or d2t.dtype == torch.bool:
        raise WeightsError(
            f"{path}: d2t must be {draft_vocab} integers, got {d2t.dtype} {list(d2t.shape)}"
        )
    d2t = d2t.long()
    if draft_vocab < vocab and not bool(d2t.any()):
        raise WeightsError(
            f"{path}: d2t is missing or all zero, although only {draft_vocab} of {vocab} tokens "
            f"can be drafted: it would silently mean the first {draft_vocab} token ids"
        )
    ids = torch.arange(draft_vocab) + d2t
    outside = ((ids < 0) | (ids >= vocab)).nonzero().flatten().tolist()
    if outside:
        i = outside[0]
        raise WeightsError(
            f"{path}: d2t[{i}] = {d2t[i].item()} sends draft token {i} to target token "
            f"{ids[i].item()}, outside 0..{vocab - 1}; d2t holds offsets, not token ids"
        )
    stalled = (ids[1:] <= ids[:-1]).nonzero().flatten().tolist()
    if stalled:
        i = stalled[0] + 1
        raise WeightsError(
            f"{path}: d2t[{i}] = {d2t[i].item()} sends draft token {i} to target token "
            f"{ids[i].item()}, not above draft token {i - 1}'s {ids[i - 1].item()}; "
            f"i + d2t[i] must be strictly increasing"
        )
    image = torch.zeros(vocab, dtype=torch.bool)
    image[ids] = True
    if t2d is None:
        return d2t, image
    if tuple(t2d.shape) != (vocab,) or bool(((t2d != 0) & (t2d != 1)).any()):
        raise WeightsError(
            f"{path}: t2d must be a mask (0 or 1) over {vocab} target tokens, "
            f"got {t2d.dtype} {list(t2d.shape)}"
        )
    # With equal vocabularies the published files leave the unused mask at zero.
    unused = draft_vocab == vocab and not bool(t2d.any())
    differing = [] if unused else (t2d.bool() != image).nonzero().flatten().tolist()
    if differing:
        i = differing[0]
        reaches = "reaches" if image[i] else "never reaches"
        raise WeightsError(
            f"{path}: t2d[{i}] = {bool(t2d[i])}, but d2t {reaches} target token {i}: "
            f"t2d must mark exactly the tokens i + d2t[i]"
        )
    return d2t, image
