"""Text from outside: shown, quoted for a shell that reads it back, and read as numbers."""

import math
import os
import subprocess
from fractions import Fraction

import pytest

from rheocheck.cli.console import printable
from rheocheck.text import as_fraction, exactly, shell_word, visible

ODD = [
    "plain", "a b", "it's", "line\nbreak", "back\\slash", "\u202ebidi", "\x1b[31m", "nbsp\xa0",
]  # fmt: skip


@pytest.mark.parametrize("word", [*ODD, os.fsdecode(b"bytes\xff\xfe")])
def test_a_shell_word_is_visible_and_reads_back(word: str) -> None:
    written = shell_word(word)
    assert written.isprintable() and visible(written) == written
    found = subprocess.run(
        ["bash", "-c", f"printf %s {written}"], capture_output=True, check=True
    ).stdout  # fmt: skip
    assert found == os.fsencode(word)


def test_what_acts_on_a_reader_is_shown() -> None:
    assert visible("a\x1b[0m\u202eb\ud800") == "a\\x1b[0m\\u202eb\\ud800"
    assert visible("a\nb", keep="\n") == "a\nb"
    assert printable("a\\n\n") == "a\\\\n\\n"


@pytest.mark.parametrize("value", [1.0, 0.7, 1.0000001, 0.1 + 0.2, 1e-300, 5.0])
def test_numbers_read_back_exactly(value: float) -> None:
    assert float(exactly(value)) == value
    assert (exactly(1.0), exactly(0.7)) == ("1", "0.7")


def test_fractions_are_read_within_bounds() -> None:
    assert as_fraction("1/3") == Fraction(1, 3)
    assert as_fraction("1e-12") == Fraction(1, 10**12)
    assert math.isclose(float(as_fraction("0.25")), 0.25)
    for text in ("1e-99999999", "1e99999999", "1E+2000 ", "9" * 2000, "1/0", "x", ""):
        with pytest.raises(ValueError):
            as_fraction(text)
