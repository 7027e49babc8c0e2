"""All sampled-stage statistics of a context against one softmax over its logits, at 128,256 tokens.

Run `python tests/benchmarks/bench_stats.py --json out.json` on a quiet machine, one core. The
softmax is this package's own way: float32 exp(logit - max), summed in float64, normalised. Other
softmaxes are timed beside it. Contexts range from peaked to flat; times are medians, interleaved.
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

from rheocheck.stats.context_pass import ContextPass, ContextStatistics  # noqa: E402
from rheocheck.stats.eprocess import EProcess  # noqa: E402
from rheocheck.stats.scores import ScoreTerms  # noqa: E402

VOCAB, SUPPORT = 128_256, 128
LARGEST_RATIO = 3.0
Logits = NDArray[np.float32]


def softmax(logits: Logits) -> Logits:
    """Float32 exp(logit - max), summed in float64."""
    power: Logits = np.exp(logits - logits.max())
    power *= np.float32(1.0 / power.sum(dtype=np.float64))
    return power


def double_softmax(logits: Logits) -> NDArray[np.float64]:
    """The same in float64 throughout."""
    power = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(power / power.sum())


def contexts(rng: np.random.Generator) -> dict[str, Logits]:
    """Logits of several shapes."""
    noise = rng.normal(size=VOCAB)
    ranks = np.log(rng.permutation(VOCAB) + 1.0)
    made = {f"Zipf {exponent}": -exponent * ranks + noise for exponent in (1.2, 1.6, 2.0, 2.6)}
    made["flat (all tokens within 12 nats)"] = 0.3 * noise
    return {name: values.astype(np.float32) for name, values in made.items()}


def measure(logits: Logits, rounds: int, rng: np.random.Generator) -> dict[str, Any]:
    """Medians over interleaved rounds."""
    draft_logits = 0.9 * logits + rng.normal(0, 0.8, VOCAB)
    support = np.sort(np.argsort(-draft_logits)[:SUPPORT])
    draft = np.exp(draft_logits[support] - draft_logits[support].max())
    draft /= draft.sum()
    token = int(rng.choice(VOCAB, p=double_softmax(logits)))
    whole = ContextPass(VOCAB)
    states = [EProcess(1e-6) for _ in range(3)]
    batch: list[ContextStatistics] = []

    def statistics() -> None:
        batch.append(whole.observe(logits, support, draft, token, 0.5))

    def advance() -> float:
        """Seconds a context of moving the three e-processes on, a look after each context."""
        started = time.perf_counter()
        deviation = np.array([found.deviation for found in batch])
        variance = np.array([found.variance for found in batch])
        cumulant = np.array([found.cumulant for found in batch])
        for index in range(3):
            terms = ScoreTerms(deviation[:, index], variance[:, index], cumulant[:, index])
            states[index] = states[index].observe(terms)
        return (time.perf_counter() - started) / len(batch)

    work: dict[str, Callable[[], object]] = {
        "softmax": lambda: softmax(logits),
        "softmax float64": lambda: double_softmax(logits),
        "statistics": statistics,
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
    found = {name: float(np.median(values)) for name, values in times.items()}
    found["e-processes"] = advance()
    found["statistics"] += found["e-processes"]
    ratio = found["statistics"] / found["softmax"]
    return {"seconds": found, "ratio": ratio, "met": ratio <= LARGEST_RATIO}


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
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
