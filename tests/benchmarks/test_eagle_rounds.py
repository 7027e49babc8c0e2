"""What is handed to EAGLE's function, shown on a stand-in: no EAGLE is needed here."""

from pathlib import Path

import pytest

from tests.benchmarks.eagle_rounds import UTILITIES, beside_eagle, line, load

GREEDY = """
import torch

def evaluate_posterior(logits, candidates, logits_processor):
    assert logits_processor is None
    best = logits.argmax(-1)
    paths = [0] * len(candidates)
    for path, tokens in enumerate(candidates.tolist()):
        while paths[path] + 1 < len(tokens) and tokens[paths[path] + 1] == best[path, paths[path]]:
            paths[path] += 1
    path = max(range(len(paths)), key=lambda number: paths[number])
    return torch.tensor(path), paths[path], logits[path, paths[path] - SHIFT]
"""


def checkout(folder: Path, shift: int) -> Path:
    path = folder / UTILITIES
    path.parent.mkdir(parents=True)
    path.write_text(GREEDY.replace("SHIFT", str(shift)))
    return folder


def test_greedy_decisions_agree_with_a_stand_in(tmp_path: Path) -> None:
    row = beside_eagle(load(checkout(tmp_path, 0)), 64, 0.0, 2.5, rows=4)
    assert row["rows_that_differ"] == 0 and row["accepted"]["ours"] > 0
    assert "0 of 4 rows decide otherwise" in line(row)


def test_a_wrong_last_token_would_be_seen(tmp_path: Path) -> None:
    assert beside_eagle(load(checkout(tmp_path, 1)), 64, 0.0, 2.5, rows=4)["rows_that_differ"] > 0


def test_a_folder_without_eagle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no eagle/model/utils\.py"):
        load(tmp_path)
