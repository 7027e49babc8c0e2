"""Prompts of an audit: the committed file, or one that the user names."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rheocheck.errors import InputError

COMMITTED = "prompts.jsonl"
# Lines longer than this are cut in messages.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt and the line that it came from.

    Attributes:
      line: Line number, from 1.
      text: Never empty.
    """

    line: int
    text: str


def read_prompts(path: Path | None, count: int, *, all_of_them: bool = False) -> list[Prompt]:
    """The first `count` prompts of a file.

    Args:
      path: A `.jsonl` file (each line a string, or an object with a string `prompt` or `text`), any
        other file as text with one prompt a line, or None for the committed prompts.
      count: At least 1; fewer are returned where the file has fewer.
      all_of_them: Refuse a file that has fewer.

    Returns:
      Prompts in the file's order. A last line without text, as most editors leave, is no prompt.

    Raises:
      InputError: The file is missing, is no UTF-8, holds no prompt or fewer than were required, or
        a line is empty or malformed; the message names the line.
    """
    name, content = _read(path)
    lines = content.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{name} is empty: at least one prompt is required, one a line")
    if all_of_them and len(lines) < count:
        raise InputError(
            f"{name} has {len(lines):,} prompts, {count:,} were asked for: ask for no more than it "
            "has, or leave the number out to use as many as there are"
        )
    as_json = path is None or path.suffix == ".jsonl"
    found = []
    for number, line in enumerate(lines[:count], start=1):
        text = _parse(line, number, name) if as_json else line.rstrip("\r")
        if not text.strip():
            raise InputError(f"{name}, line {number}: the prompt is empty; every line needs text")
        found.append(Prompt(number, text))
    return found


def _read(path: Path | None) -> tuple[str, str]:
    """Name for messages and content."""
    if path is None:
        folder = resources.files("rheocheck.audit") / "data"
        return COMMITTED, (folder / COMMITTED).read_text(encoding="utf-8")
    try:
        return str(path), path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"prompts file {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"prompts file {path}: byte {error.start} is no UTF-8") from None


def _parse(line: str, number: int, name: str) -> str:
    shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
    try:
        value = json.loads(line) if line.strip() else ""
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {number}: {shown!r} is no JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}, line {number}: {shown!r} is no JSON ({error})") from None
    if isinstance(value, dict):
        value = value.get("prompt", value.get("text"))
    if not isinstance(value, str):
        raise InputError(
            f"{name}, line {number}: {shown!r} must be a JSON string or an object with a string "
            "'prompt' or 'text'"
        )
    return value
