"""The exact law of a rounded node at full vocabulary: time, and distance from the ideal.

Run `python tests/benchmarks/bench_float_law.py --json out.json` on a quiet machine; it uses one
core. Three kinds of line: the torch path's own code (with torch installed), models of float64,
float32 and bfloat16 verification, and the softmax alone. Distances are exact total variations.
"""

import argparse
import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from rheocheck.config import Rule, SpeculationConfig  # noqa: E402
from rheocheck.reference.exact_softmax import softmax_weights  # noqa: E402
from rheocheck.reference.float_law import (  # noqa: E402
    DyadicLaw,
    Floats,
    exact_distance,
    read_floats,
)
from rheocheck.reference.float_node import (  # noqa: E402
    BFLOAT16,
    FLOAT32,
    FLOAT64,
    FloatNode,
    float_node,
)

VOCAB, SUPPORT, FILLERS = 128_256, 128, 8
RULES: tuple[Rule, ...] = ("rheo", "rrsw", "onehot")
Row = dict[str, Any]


def row(what: str, rule: str, seconds: float, law: DyadicLaw, ideal: DyadicLaw) -> Row:
    """One line: the law's own time, the distance's, and the distance."""
    started = time.process_time()
    distance: Fraction = exact_distance(law, ideal)
    return {
        "what": what,
        "rule": rule,
        "law_seconds": seconds,
        "distance_seconds": time.process_time() - started,
        "total_variation": float(distance),
    }


def model_rows(logits: Floats, draft: Floats) -> list[Row]:
    """Models of three arithmetics; the ideal is the law that the model was given."""
    order = np.argsort(-draft)[:SUPPORT]
    weights = np.exp(draft[order[1:]] - draft[order[1]])
    rows = []
    for arithmetic in (FLOAT64, FLOAT32, BFLOAT16):
        target = np.exp(logits - logits.max())
        target = arithmetic.rounded(target / target.sum())
        probe_law = arithmetic.rounded(weights / weights.sum())
        node = FloatNode(target, (int(order[0]),), tuple(order[1:].tolist()), probe_law, FILLERS)
        for rule in RULES:
            started = time.process_time()
            law = float_node(node, rule, arithmetic)
            seconds = time.process_time() - started
            rows.append(row(f"model, {arithmetic.name}", rule, seconds, law, read_floats(target)))
    return rows


def torch_rows(logits: Floats, draft: Floats) -> list[Row]:
    """The shipped torch code at its default scheme."""
    try:
        import torch
    except ImportError:
        return []
    from rheocheck.audit.float_round import torch_node_law

    torch.set_num_threads(1)
    rows = []
    for dtype in (torch.float64, torch.float32):
        values = torch.from_numpy(logits).to(dtype)
        ideal = softmax_weights(values.numpy())
        for rule in RULES:
            started = time.process_time()
            law = torch_node_law(values, torch.from_numpy(draft), SpeculationConfig(rule=rule), 1.0)
            seconds = time.process_time() - started
            name = f"torch path, {str(dtype).removeprefix('torch.')} logits"
            rows.append(row(name, rule, seconds, law, ideal))
    return rows


def softmax_rows(logits: Floats) -> list[Row]:
    """Softmaxes of float32 logits against the exact one."""
    narrow = logits.astype(np.float32)
    started = time.process_time()
    ideal = softmax_weights(narrow)
    seconds = time.process_time() - started
    exponential = np.exp(narrow - narrow.max())
    made = {
        "softmax, float16": (exponential / exponential.sum()).astype(np.float16),
        "softmax, float32": exponential / exponential.sum(dtype=np.float32),
        "softmax, float32 exp summed in float64": exponential / exponential.sum(dtype=np.float64),
        "softmax, float64": np.exp(narrow.astype(np.float64) - float(narrow.max())),
    }
    return [row(name, "-", seconds, read_floats(law), ideal) for name, law in made.items()]


def main() -> None:
    """Run everything, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    logits = generator.normal(size=VOCAB) * 2.5
    draft = 0.9 * logits + 0.8 * generator.normal(size=VOCAB)
    rows = [*torch_rows(logits, draft), *model_rows(logits, draft), *softmax_rows(logits)]
    print(f"{'one node, V = 128,256':40} {'rule':5} {'law s':>7} {'TV s':>7} {'TV':>10}")
    for line in rows:
        print(
            f"{line['what']:40} {line['rule']:5} {line['law_seconds']:7.3f} "
            f"{line['distance_seconds']:7.3f} {line['total_variation']:10.2e}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
