"""All sampled-stage statistics of a token against one softmax over its logits, at 128,256 tokens.

Run `python tests/benchmarks/bench_stats.py --json out.json` on a quiet machine, one core. Timed is
what an audit does with the laws of emitted tokens: its ten statistics and the witness's sets, on
batches of 16. The softmax is the one by which it makes those laws, float64; others are timed beside
it. Contexts range from peaked to flat; times are medians, interleaved.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from rheocheck.audit.drawn_tokens import Drawn  # noqa: E402
from rheocheck.audit.laws import softmax  # noqa: E402
from rheocheck.audit.token_statistics import statistics  # noqa: E402
from rheocheck.audit.token_witness import WitnessSets  # noqa: E402
from rheocheck.traces.laws import Laws  # noqa: E402

VOCAB, SUPPORT, BATCH = 128_256, 128, 16
LARGEST_RATIO = 3.0
Logits = NDArray[np.float32]


def narrow_softmax(logits: Logits) -> Logits:
    """Float32 exp(logit - max), summed in float64."""
    power: Logits = np.exp(logits - logits.max())
    power *= np.float32(1.0 / power.sum(dtype=np.float64))
    return power


def contexts(rng: np.random.Generator) -> dict[str, Logits]:
    """Logits of several shapes."""
    noise = rng.normal(size=VOCAB)
    ranks = np.log(rng.permutation(VOCAB) + 1.0)
    made = {f"Zipf {exponent}": -exponent * ranks + noise for exponent in (1.2, 1.6, 2.0, 2.6)}
    made["flat (all tokens within 12 nats)"] = 0.3 * noise
    return {name: values.astype(np.float32) for name, values in made.items()}


def drawn(logits: Logits, rng: np.random.Generator) -> Drawn:
    """Emitted tokens of a batch of contexts: the logits in other orders."""
    rows = np.stack([rng.permutation(logits) for _ in range(BATCH)])
    law, draft = softmax(rows, 1.0), np.zeros((BATCH, VOCAB))
    for own, values in zip(draft, 0.9 * rows + rng.normal(0, 0.8, rows.shape), strict=True):
        support = np.argsort(-values)[:SUPPORT]
        own[support] = softmax(values[support], 1.0)
    token = np.array([rng.choice(VOCAB, p=row) for row in law])
    place = np.stack([np.zeros(BATCH, np.int64), *[np.arange(BATCH)] * 3], axis=1)
    laws = Laws(None, law, draft, None, None, token, np.zeros(BATCH))
    return Drawn(laws, rng.random(BATCH), place, num_top=1, num_candidates=10)


def measure(logits: Logits, rounds: int, rng: np.random.Generator) -> dict[str, Any]:
    """Medians over interleaved rounds, a token."""
    tokens, found, sets = drawn(logits, rng), statistics(), WitnessSets()

    def observe() -> None:
        fresh = Drawn(tokens.laws, tokens.uniform, tokens.place, 1, 10)
        for statistic in found:
            statistic.observe(fresh)
        sets.observe(fresh)

    work: dict[str, Callable[[], object]] = {
        "softmax": lambda: softmax(logits, 1.0),
        "softmax float32": lambda: narrow_softmax(logits),
        "statistics": observe,
    }
    try:
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(logits)
        work["torch softmax float32"] = lambda: torch.softmax(tensor, -1)
        work["torch softmax float64"] = lambda: torch.softmax(tensor.double(), -1)
    except ImportError:
        pass
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            started = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - started)
    seconds = {name: float(np.median(values)) for name, values in times.items()}
    seconds["statistics"] /= BATCH
    ratio = seconds["statistics"] / seconds["softmax"]
    return {"seconds": seconds, "ratio": ratio, "met": ratio <= LARGEST_RATIO}


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = {}
    for name, logits in contexts(rng).items():
        rows[name] = row = measure(logits, options.rounds, rng)
        shown = ", ".join(f"{key} {value * 1e6:.0f} us" for key, value in row["seconds"].items())
        print(f"{name}: {shown}; statistics/softmax {row['ratio']:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"vocab": VOCAB, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
