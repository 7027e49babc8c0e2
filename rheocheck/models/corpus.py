"""Training text of the tiny pair: reading, splitting by file, and cutting prompts.

Whole files are held out, so that neither the evaluation nor a prompt has a neighbour in training.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rheocheck.errors import InputError
from rheocheck.models.tiny_pair import END_OF_TEXT

SUFFIXES = (".rst", ".rst.txt", ".txt")
# Of 256 equally likely hash values: a tenth of the files, of any size.
HELD_OUT_OF_256 = 26
MIN_PROMPT_BYTES, MAX_PROMPT_BYTES = 24, 80


@dataclass(frozen=True, slots=True)
class Document:
    """One file of the corpus: its path relative to the corpus, and its bytes."""

    name: str
    text: bytes

    @property
    def held_out(self) -> bool:
        """Whether training never sees it; depends on the name alone."""
        return hashlib.sha256(self.name.encode()).digest()[0] < HELD_OUT_OF_256


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents on either side of the split, each side ordered by name."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]


def read_corpus(folder: Path) -> Corpus:
    """Read every text file below `folder`.

    Args:
      folder: Holds `.rst`, `.rst.txt` or `.txt` files at any depth.

    Returns:
      The documents, split.

    Raises:
      InputError: A side of the split is empty.
    """
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name.endswith(SUFFIXES))
    documents = [Document(p.relative_to(folder).as_posix(), p.read_bytes()) for p in paths]
    training = tuple(d for d in documents if not d.held_out)
    held_out = tuple(d for d in documents if d.held_out)
    if not training or not held_out:
        raise InputError(
            f"corpus {folder}: {len(documents)} text files split into {len(training)} for training "
            f"and {len(held_out)} held out; both sides need at least one"
        )
    return Corpus(training, held_out)


def as_tokens(documents: Iterable[Document]) -> NDArray[np.int64]:
    """[tokens] the documents one after the other, each closed by the end-of-text token."""
    end = np.array([END_OF_TEXT], dtype=np.int64)
    parts = [
        part
        for document in documents
        for part in (np.frombuffer(document.text, dtype=np.uint8).astype(np.int64), end)
    ]
    return np.concatenate(parts)


def extract_prompts(documents: Sequence[Document], count: int) -> list[str]:
    """Cut `count` prompts out of the documents, spread evenly over all lines that qualify.

    A prompt is the beginning of a line of prose, cut at a word boundary, 24 to 80 printable ASCII
    bytes. Where it is cut depends on a hash of the line, so the lengths vary but never change.

    Args:
      documents: Where to cut from, in this order.
      count: How many; at least 1.

    Returns:
      Distinct prompts, ordered by a hash, so that any first few come from all over the text.

    Raises:
      InputError: Fewer lines qualify.
    """
    candidates: dict[str, None] = {}
    for document in documents:
        for line in document.text.decode("utf-8", errors="replace").splitlines():
            prompt = cut_prompt(line)
            if prompt is not None:
                candidates[prompt] = None
    if len(candidates) < count:
        raise InputError(f"{count} prompts asked for, but only {len(candidates)} lines qualify")
    ordered = list(candidates)
    chosen = [ordered[index * len(ordered) // count] for index in range(count)]
    return sorted(chosen, key=lambda prompt: hashlib.sha256(prompt.encode()).digest())


def cut_prompt(line: str) -> str | None:
    """The beginning of a line of prose, or None where the line is none or too short."""
    if not line[:1].isalpha() or not line.isascii() or not line.isprintable():
        return None
    if sum(c.isalpha() or c == " " for c in line) < 0.85 * len(line):
        return None
    span = MAX_PROMPT_BYTES - MIN_PROMPT_BYTES + 1
    limit = MIN_PROMPT_BYTES + int.from_bytes(hashlib.sha256(line.encode()).digest()[:4]) % span
    # The space after the last word is looked for one byte beyond the limit, then dropped.
    cut = line.rfind(" ", 0, limit + 1)
    prompt = line[: max(cut, 0)].rstrip()
    return prompt if len(prompt) >= MIN_PROMPT_BYTES else None


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    """One JSON object a line: {"prompt": "..."}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts), encoding="utf-8")
