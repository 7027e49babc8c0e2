"""EAGLE's own `evaluate_posterior` on our trees, from the reader's checkout of EAGLE.

Nothing of EAGLE is in this repository: `load` imports `eagle/model/utils.py` of a checkout by its
path, and without one nothing is measured. That function takes one row, candidate paths from root to
leaf and the target logits gathered along them; it treats every drafted token as a point mass, which
is the rule "onehot" here.

Source: EAGLE (Li, Wei, Zhang, Zhang), github.com/SafeAILab/EAGLE, Apache License 2.0.
"""

import importlib.util
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rheocheck.bench.random_laws import RandomLaws
from rheocheck.config import SpeculationConfig
from rheocheck.gpu.randomness import round_uniforms
from rheocheck.gpu.tree import Tree, grow
from rheocheck.gpu.verification import verify

UTILITIES = Path("eagle", "model", "utils.py")


def load(checkout: Path) -> ModuleType:
    """The module of a checkout that has `evaluate_posterior`; SystemExit where there is none."""
    path = checkout / UTILITIES
    spec = importlib.util.spec_from_file_location("eagle_utilities", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SystemExit(f"--eagle {checkout}: there is no {UTILITIES} in it")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaf_paths(tree: Tree, row: int) -> Tensor:
    """[leaves, longest + 1] nodes from the root to each leaf of a row; -1 beyond it."""
    size = int(tree.valid[row].sum())
    parent = [-1, *tree.parent[row, :size].tolist()]
    paths = []
    for leaf in sorted(set(range(size + 1)) - set(parent[1:])):
        path = [leaf]
        while path[0] > 0:
            path.insert(0, parent[path[0]])
        paths.append(path)
    width = max(map(len, paths))
    return torch.tensor([path + [-1] * (width - len(path)) for path in paths])


def timed(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds after one run that is not counted, and the last result."""
    done, times = run(), []
    for _ in range(repeats):
        started = time.perf_counter()
        done = run()
        times.append(time.perf_counter() - started)
    return sorted(times)[repeats // 2], done


def beside_eagle(
    eagle: ModuleType, vocab: int, temperature: float, spread: float, rows: int = 8
) -> dict[str, Any]:
    """Times of both at batch 1, and of the gather that EAGLE's function needs before it.

    Args:
      eagle: From `load`.
      vocab: Tokens.
      temperature: 1, or 0 for greedy, where both must decide alike.
      spread: Of the draft logits.
      rows: Trees; every one is verified by itself.

    Returns:
      Mean milliseconds a row, mean accepted tokens, and rows that differ (greedy; else None).
    """
    config = SpeculationConfig(rule="onehot")
    processor = None if temperature == 0 else eagle.prepare_logits_processor(temperature)
    tables, request = RandomLaws(rows, vocab, 0, spread), torch.arange(rows)
    random.seed(0)
    seconds = {"ours": 0.0, "eagle": 0.0, "gather": 0.0}
    accepted, different = {"ours": 0, "eagle": 0}, 0
    for row in range(rows):
        own = RandomLaws(1, 1, 0)
        own.draft, own.target = tables.draft[row : row + 1], tables.target[row : row + 1]
        here = request[row : row + 1]
        draw = round_uniforms(0, here, torch.zeros_like(here), config)
        tree = grow(own, draw, config, temperature, check=False)
        logits, paths = own.target_logits(tree), leaf_paths(tree, 0)
        token = torch.nn.functional.pad(tree.token[0], (1, 0), value=0)
        candidates = torch.where(paths >= 0, token[paths.clamp_min(0)], -1)
        gather, along = timed(lambda: logits[0, paths], 3)  # noqa: B023
        theirs, (_, length, last) = timed(
            lambda: eagle.evaluate_posterior(along, candidates, processor),  # noqa: B023
            3,
        )
        mine, done = timed(
            lambda: verify(tree, logits, draw, "onehot", temperature),  # noqa: B023
            3,
        )
        for name, value in (("ours", mine), ("eagle", theirs), ("gather", gather)):
            seconds[name] += value
        accepted["ours"] += int(done.num_accepted)
        accepted["eagle"] += int(length)
        if temperature == 0:
            found = int(done.num_accepted), int(done.final_token)
            different += found != (int(length), int(last.argmax()))
    return {
        "vocab": vocab, "temperature": temperature, "rows": rows,
        "milliseconds": {name: 1e3 * value / rows for name, value in seconds.items()},
        "accepted": {name: value / rows for name, value in accepted.items()},
        "rows_that_differ": different if temperature == 0 else None,
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """One printed line."""
    took, taken = row["milliseconds"], row["accepted"]
    differ = row["rows_that_differ"]
    return (
        f"V = {row['vocab']:>7,}  batch 1, temperature {row['temperature']:g}: verify "
        f"{took['ours']:.2f} ms, EAGLE's evaluate_posterior {took['eagle']:.2f} ms "
        f"({took['eagle'] / took['ours']:.2f}x), its gather {took['gather']:.2f} ms; accepted "
        f"{taken['ours']:.2f} and {taken['eagle']:.2f}"
        + ("" if differ is None else f"; {differ} of {row['rows']} rows decide otherwise")
    )
