"""README's Python runs and prints what README says; its commands are the ones CI calls."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, flags=re.DOTALL)


def test_readme_has_examples_with_output() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_python_example_prints_what_readme_says(code: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed.strip()


@pytest.mark.parametrize("name", ["audit", "tests"])
def test_readme_has_the_command_that_ci_calls(name: str) -> None:
    script = ROOT / ".ci" / "readme_command.py"
    done = subprocess.run(
        [sys.executable, str(script), name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "-c constraints.txt" in done.stdout


def test_every_relative_link_in_readme_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if not link.startswith(("http://", "https://")):
            assert (ROOT / link).exists(), link
