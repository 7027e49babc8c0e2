"""The embedded tiny pair: where its files lie and how its text becomes tokens."""

from collections.abc import Iterable
from pathlib import Path

END_OF_TEXT = 256
VOCAB_SIZE = 257


class ByteTokenizer:
    """UTF-8 bytes as token ids 0..255, and one id that separates documents.

    Attributes:
      vocab_size: 257.
      eos_id: 256, the end of a document.
    """

    vocab_size: int = VOCAB_SIZE
    eos_id: int = END_OF_TEXT

    def encode(self, text: str) -> list[int]:
        """The bytes of `text`; the empty text gives the empty list."""
        return list(text.encode("utf-8"))

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`: end-of-text ids are left out, ill-formed bytes become U+FFFD."""
        return bytes(t for t in tokens if t != END_OF_TEXT).decode("utf-8", errors="replace")


def tiny_paths() -> tuple[Path, Path]:
    """Folders of the target (Hugging Face Llama) and of the EAGLE-3 head, in this package."""
    root = Path(__file__).parent / "tiny"
    return root / "target", root / "draft"
