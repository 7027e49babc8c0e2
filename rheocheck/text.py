"""Text from outside and for people: characters made visible, numbers read and written."""

import os
import re
import shlex
import unicodedata
from fractions import Fraction

# A number that a person writes; longer ones, and exponents beyond, are taken for attacks.
_LONGEST_NUMBER = 1000
_LARGEST_EXPONENT = 1000


def visible(text: str, keep: str = "") -> str:
    """`text` with every character that could act on a terminal or a page shown by its code.

    Control characters, bidirectional overrides, odd spaces and lone surrogates are written as
    escape sequences; those in `keep` stay.
    """
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character)[0] in "CZ" and character not in (" ", *keep)
        else character
        for character in text
    )


def shell_word(text: str) -> str:
    """`text` as one word of a shell line that can be printed as it stands.

    Where a character would not show, bash's $'...' names the bytes.
    """
    if visible(text) == text and "\\" not in text:
        return shlex.quote(text)
    written = []
    for byte in os.fsencode(text):
        character = chr(byte)
        if 32 <= byte < 127 and character not in "'\\":
            written.append(character)
        else:
            written.append(f"\\x{byte:02x}")
    return "$'" + "".join(written) + "'"


def exactly(value: float) -> str:
    """A number that reads back as the same float; as short as `:g` where that does."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def as_fraction(text: str) -> Fraction:
    """The number that a text stands for, such as 1/3, 0.25 or 1e-12.

    Raises:
      ValueError: No number, a denominator of 0, or one too long to be meant.
    """
    exponent = re.search(r"[eE]([-+]?\d+)\s*$", text[-24:])
    if len(text) > _LONGEST_NUMBER or (exponent and abs(int(exponent[1])) > _LARGEST_EXPONENT):
        raise ValueError(f"{text[:40]!r} is too long for a number")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"{text!r} has the denominator 0") from None
