"""The CUDA benchmark without a GPU: every part runs on tiny shapes, and it says what it skips."""

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks.bench_cuda import main


def test_smoke_runs_every_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--smoke", "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert all(found[part] for part in ("verification", "expansion", "rounds", "drafting"))
    assert found["rounds"][0]["launched"] > 100
    assert "graph skipped: no CUDA device" in capsys.readouterr().out


def test_without_a_device_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 2
    assert "no CUDA device here" in capsys.readouterr().err
