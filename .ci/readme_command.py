"""Prints a command of README.md: the fenced block that follows `<!-- command: NAME -->`."""

import re
import sys
from pathlib import Path


def readme_command(name: str, readme: str) -> str:
    """Return the text of the block called `name`, or raise SystemExit if README has none."""
    marker = re.escape(f"<!-- command: {name} -->")
    found = re.search(rf"{marker}\s*```[a-z]*\n(.*?)\n```", readme, flags=re.DOTALL)
    if found is None:
        raise SystemExit(f"README.md has no command block called {name!r}")
    return found.group(1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: readme_command.py NAME")
    text = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
    print(readme_command(sys.argv[1], text))
