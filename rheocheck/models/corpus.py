"""Training text of the tiny pair: reading, splitting by file, and drawing prompts.

Whole files are held out, so that neither the evaluation nor a prompt has a neighbour in training.
"""

import hashlib
import itertools
import json
import re
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
# In characters.
MIN_PROMPT_LENGTH, MAX_PROMPT_LENGTH = 24, 80
PROMPT_KEY = "rheocheck prompts"


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


def draw_prompts(documents: Sequence[Document], count: int, key: str = PROMPT_KEY) -> list[str]:
    """Draw `count` prompts from the documents, independently and with replacement.

    The population: every pair of a word of the documents and a length of 24 to 80 characters whose
    piece of text, from the beginning of that word on, so long and then cut back to the end of its
    last whole word, lies in one document and still has 24 characters. Each draw is uniform on the
    pairs, so a prompt may occur twice. Line breaks are kept as they stand.

    Args:
      documents: Where to draw from, in this order; bytes that are no UTF-8 are replaced.
      count: How many; at least 0.
      key: Draw k is a function of SHA-256(key, k), the same on every machine.

    Returns:
      The prompts in the order of the draws: fewer are the first of more.

    Raises:
      InputError: No pair qualifies.
    """
    texts = [document.text.decode("utf-8", errors="replace") for document in documents]
    begins = [(text, match.start()) for text in texts for match in re.finditer(r"\S+", text)]
    lengths = range(MIN_PROMPT_LENGTH, MAX_PROMPT_LENGTH + 1)
    if not any(_cut(text, begin, length) for text, begin in begins for length in lengths):
        raise InputError(
            f"{len(begins)} words in {len(documents)} documents, none of which begins a piece of "
            f"{MIN_PROMPT_LENGTH} to {MAX_PROMPT_LENGTH} characters; one is required"
        )
    found: list[str] = []
    for number in itertools.count():
        if len(found) == count:
            return found
        digest = hashlib.sha256(f"{key} {number}".encode()).digest()
        text, begin = begins[_below(digest[:16], len(begins))]
        # Refused pairs are drawn again, which leaves the draw uniform on the others.
        prompt = _cut(text, begin, lengths[_below(digest[16:], len(lengths))])
        if prompt is not None:
            found.append(prompt)
    raise AssertionError("the numbers have no end")


def _cut(text: str, begin: int, length: int) -> str | None:
    """The piece without its unfinished last word, or None where too little is left."""
    end = begin + length
    if end > len(text):
        return None
    piece = text[begin:end]
    if end < len(text) and not text[end].isspace():
        piece = piece[: max((match.start() for match in re.finditer(r"\s", piece)), default=0)]
    piece = piece.rstrip()
    return piece if len(piece) >= MIN_PROMPT_LENGTH else None


def _below(digest: bytes, bound: int) -> int:
    """A number below `bound` from 16 random bytes; uniform up to bound / 2**128."""
    return int.from_bytes(digest) * bound >> 128


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    """One JSON object a line: {"prompt": "..."}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts), encoding="utf-8")
