"""The page's writer is short, is the one shipped, and writes traces that the audit takes."""

import re
import subprocess
import sys
from pathlib import Path

import rheocheck.traces
from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import Verdict

FOLDER = Path(rheocheck.traces.__file__).parent
PAGE = (FOLDER / "TRACE.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
MADE_UP = """
import sys
rng = np.random.default_rng(1)
laws = rng.dirichlet(np.ones(32000), size=64).astype(np.float32)
rounds = [
    (n, 0, [int(rng.choice(32000, p=law / law.sum(dtype=float)))], law[None])
    for n, law in enumerate(laws.astype(float))
]
"""


def test_the_writer_is_under_fifty_lines_and_the_shipped_one() -> None:
    assert BLOCKS[0] == (FOLDER / "writer.py").read_text(encoding="utf-8")
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) < 50
    imported = re.findall(r"^(?:from|import) (\w+)", BLOCKS[0], flags=re.MULTILINE)
    assert set(imported) <= {"json", "pathlib", "typing", "numpy", "safetensors"}


def test_the_page_run_as_it_stands_writes_a_trace_that_passes(tmp_path: Path) -> None:
    program = tmp_path / "engine.py"
    program.write_text(BLOCKS[0] + MADE_UP + BLOCKS[1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", str(program)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = run_trace_audit(tmp_path / "mytrace")
    assert report.verdict is Verdict.NO_EVIDENCE
    assert report.facts["tokens"] == 64
    assert any("no draft laws" in line for line in report.facts["not_checked"])
