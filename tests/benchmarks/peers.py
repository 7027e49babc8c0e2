"""Samples needed to reject, on the same samples: directed scores, chi-square on all cells, MMD.

    pip install --no-deps 'model-equality-testing>=0.0.2'   # or the extra [peers]; optional here
    python tests/benchmarks/peers.py --out reports/gallery

writes peers.json and peers.md. One sample is one emitted token at one of 120 prompts, drawn evenly,
V = 32,000, laws known. Every statistic looks at the same tokens and rejects above the 99 % quantile
of its own null replays, so all have level 0.01; a sample size is enough at power 0.9.

* Directed scores know each prompt's laws: surprisal, clip(ln q/p), 1{q > p}; two-sided.
* Chi-square over all cells: of the mixture over prompts (V cells), of every prompt (36 V cells),
  and of the mixture with cells that expect fewer than 5 pooled.
* MMD with the Hamming kernel, two samples: as many tokens again from the sound sampler (its sample
  size is per arm). The statistic is model-equality-testing's `mmd_hamming` on completions of one
  token, computed from counts; where the package is installed the two are compared.

Faults: the draft token comes from the draft's top 50 while the test and the residual use the raw
draft, or the test alone does; the residual is replaced by the target, or goes through a softmax.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from rheocheck.stats import mutants  # noqa: E402
from rheocheck.stats.eprocess import chernoff_p  # noqa: E402
from rheocheck.stats.scores import (  # noqa: E402
    ScoreSums,
    above_target,
    draft_score,
    score_moments,
    surprisal,
)
from tests.benchmarks.context_tables import Contexts, running_sums, tabulated  # noqa: E402
from tests.benchmarks.contexts import synthetic_contexts  # noqa: E402

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
LEVEL, POWER = 0.01, 0.9


def raw_ratio_cut_residual(target: Floats, draft: Floats, context: int = 0) -> Floats:
    """Draws from the draft's top 50, with its residual; only the accept test uses the raw draft."""
    drawn = mutants.truncated(draft, 50)
    accept = mutants.accept_probability(target, draft)
    return mutants.single_draft_law(drawn, accept, mutants.residual_law(target, drawn))


FAULTS: dict[str, Callable[[Floats, Floats, int], Floats]] = {
    "draft top-50, raw ratio and residual": mutants.draft_truncated_elsewhere,
    "draft top-50, raw ratio": raw_ratio_cut_residual,
    "resample from target": mutants.residual_is_target,
    "residual softmaxed": mutants.residual_softmaxed,
}
OURS = ("surprisal", "draft score", "above target")
CHI_SQUARES = (
    "chi-square, all cells of the mixture",
    "chi-square, all cells of every prompt",
    "chi-square, mixture, pooled at 5",
)
MMD = "MMD, Hamming kernel"
VALID = {"draft score": "draft score, Chernoff p", "surprisal": "surprisal, Chernoff p"}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Counts of (prompt, token) pairs.

    Attributes:
      key: [pairs] prompt * vocab + token, ascending, each once.
      count: [pairs] how often.
      num_samples: Their sum.
    """

    key: Ints
    count: Ints
    num_samples: int


class Statistics:
    """All statistics of one sample (and one of the sound sampler), larger where it fits worse."""

    def __init__(self, contexts: Contexts) -> None:
        """Prepare the null moments."""
        self.contexts = contexts
        self.num_prompts, self.vocab = contexts.target.shape
        self.mixture = contexts.target.mean(axis=0)
        scores = {
            "surprisal": surprisal(contexts.target),
            "draft score": draft_score(contexts.target, contexts.draft),
            "above target": above_target(contexts.target, contexts.draft),
        }
        self.moments = {n: score_moments(contexts.target, score) for n, score in scores.items()}
        self.flat_scores = {name: score.ravel() for name, score in scores.items()}

    def sample(
        self, num_samples: int, rng: np.random.Generator, sums: Floats | None = None
    ) -> Sample:
        """Draw tokens at evenly drawn prompts."""
        prompt = rng.integers(0, self.num_prompts, num_samples)
        token = self.contexts.draw(prompt, rng, sums)
        key, count = np.unique(prompt * self.vocab + token, return_counts=True)
        return Sample(key, count.astype(np.int64), num_samples)

    def all(self, sample: Sample, sound: Sample) -> dict[str, float]:
        """Every statistic by name; the last ones are -ln of a p-value that needs no replays."""
        prompts = np.bincount(
            sample.key // self.vocab, sample.count, minlength=self.num_prompts
        ).astype(np.float64)
        found: dict[str, float] = {}
        for name in OURS:
            sums = self._sums(name, sample, prompts)
            found[name] = abs(sums.z)
            if name in VALID:
                found[VALID[name]] = -np.log(max(chernoff_p(sums), 1e-300))
        by_token = np.bincount(sample.key % self.vocab, sample.count, minlength=self.vocab)
        found[CHI_SQUARES[0]] = pearson_all_cells(by_token, self.mixture)
        law = self.contexts.target.ravel()[sample.key] / self.num_prompts
        n = sample.num_samples
        # sum (O - E)^2 / E = sum O^2 / E - n, and only drawn cells enter.
        found[CHI_SQUARES[1]] = float((sample.count**2 / (n * law)).sum()) - n
        found[CHI_SQUARES[2]] = pearson_pooled(by_token, self.mixture)
        found[MMD] = mmd_hamming(sample, sound, self.vocab)
        return found

    def _sums(self, name: str, sample: Sample, prompts: Floats) -> ScoreSums:
        mean, variance, cumulant = self.moments[name]
        total = float(self.flat_scores[name][sample.key] @ sample.count)
        return ScoreSums(
            sample.num_samples,
            total - float(mean @ prompts),
            float(variance @ prompts),
            prompts @ cumulant,
        )


def pearson_all_cells(counts: NDArray[Any], law: Floats) -> float:
    """Pearson's statistic with every cell on its own, however rare."""
    n = float(counts.sum())
    drawn = counts > 0
    return float((counts[drawn] ** 2 / (n * law[drawn])).sum()) - n


def pearson_pooled(counts: NDArray[Any], law: Floats) -> float:
    """Pearson's statistic, cells that expect fewer than 5 as one; 0 where that leaves one cell."""
    expected = counts.sum() * law
    large = expected >= 5.0
    rest = float(expected[~large].sum())
    value = float(((counts[large] - expected[large]) ** 2 / expected[large]).sum())
    if rest > 0 and large.any():
        value += (float(counts[~large].sum()) - rest) ** 2 / rest
    return value if large.any() else 0.0


def mmd_hamming(first: Sample, other: Sample, vocab: int) -> float:
    """Unbiased MMD^2 with kernel 1{same prompt} * 1{same token}, over pairs of one prompt.

    mean over pairs within `first` - 2 * mean across + mean within `other`; 0 for a mean without
    pairs.
    """
    within = [_same_pairs(sample, vocab) for sample in (first, other)]
    at = np.searchsorted(other.key, first.key)
    at_safe = np.minimum(at, len(other.key) - 1)
    shared = np.where(other.key[at_safe] == first.key, other.count[at_safe], 0)
    prompts = [
        np.bincount(sample.key // vocab, sample.count, minlength=int(_prompts(first, other, vocab)))
        for sample in (first, other)
    ]
    pairs = float(prompts[0] @ prompts[1])
    across = float(first.count @ shared) / pairs if pairs else 0.0
    return within[0] - 2.0 * across + within[1]


def _prompts(first: Sample, other: Sample, vocab: int) -> int:
    return int(max(first.key[-1], other.key[-1])) // vocab + 1


def _same_pairs(sample: Sample, vocab: int) -> float:
    """Share of ordered pairs of one prompt that have the same token."""
    prompts = np.bincount(sample.key // vocab, sample.count)
    pairs = float((prompts * (prompts - 1)).sum())
    same = float((sample.count * (sample.count - 1)).sum())
    return same / pairs if pairs else 0.0


def powers(
    statistics: Statistics,
    faults: dict[str, Floats],
    num_samples: int,
    replays: tuple[int, int],
    rng: np.random.Generator,
) -> dict[str, dict[str, float]]:
    """Power of every statistic against every fault at one sample size.

    Args:
      statistics: Of the contexts.
      faults: Running sums of the faulty laws by name.
      num_samples: Tokens a sample.
      replays: Null replays (they set the thresholds) and replays a fault.
      rng: All draws.
    """

    def replay(sums: Floats | None, count: int) -> dict[str, Floats]:
        runs = [
            statistics.all(
                statistics.sample(num_samples, rng, sums), statistics.sample(num_samples, rng)
            )
            for _ in range(count)
        ]
        return {name: np.array([run[name] for run in runs]) for name in runs[0]}

    null = replay(None, replays[0])
    bars = {name: float(np.quantile(values, 1.0 - LEVEL)) for name, values in null.items()}
    for name in VALID.values():
        # The smallest number above the bar's predecessor: the p-value itself is the test.
        bars[name] = float(np.nextafter(-np.log(LEVEL), 0.0))
    found = {}
    for fault, sums in faults.items():
        values = replay(sums, replays[1])
        found[fault] = {name: float((values[name] > bars[name]).mean()) for name in bars}
    return found


def samples_needed(sizes: Sequence[int], power: Sequence[float]) -> float | None:
    """Sample size of power 0.9, between two sizes on a logarithmic scale; None if never reached.

    The first crossing after which the power stays up; the first size if it is enough.
    """
    below = [index for index, value in enumerate(power) if value < POWER]
    if not below:
        return float(sizes[0])
    last = below[-1]
    if last == len(sizes) - 1:
        return None
    low, high = power[last], power[last + 1]
    share = (POWER - low) / (high - low)
    return float(np.exp(np.log(sizes[last]) + share * np.log(sizes[last + 1] / sizes[last])))


def peer_check(statistics: Statistics, num_samples: int = 300) -> dict[str, Any]:
    """Compare `mmd_hamming` with the package's own where it is installed."""
    try:
        from importlib.metadata import version

        import torch
        from model_equality_testing.distribution import CompletionSample
        from model_equality_testing.tests import mmd_hamming as theirs
    except ImportError as error:
        return {"installed": False, "why": str(error)}
    largest = 0.0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        samples = [statistics.sample(num_samples, rng) for _ in range(2)]
        converted = []
        for sample in samples:
            key = torch.from_numpy(np.repeat(sample.key, sample.count))
            converted.append(
                CompletionSample(
                    key // statistics.vocab,
                    (key % statistics.vocab)[:, None],
                    statistics.num_prompts,
                )
            )
        ours = mmd_hamming(samples[0], samples[1], statistics.vocab)
        largest = max(largest, abs(ours - float(theirs(*converted))))
    name = "model-equality-testing"
    return {"installed": True, "version": version(name), "largest_difference": largest}


def _times(ratio: dict[str, Any]) -> str:
    """Three figures; a ratio that is only a lower bound is cut, never rounded up."""
    if not ratio["at_least"]:
        return f"{ratio['ratio']:.3g}"
    unit = 10.0 ** (math.floor(math.log10(ratio["ratio"])) - 2)
    return f"at least {math.floor(ratio['ratio'] / unit) * unit:.3g}"


def markdown(record: dict[str, Any]) -> str:
    """The table as text."""
    lines = [
        "# Samples needed to reject, against peers on the same samples",
        "",
        f"Tokens at {record['prompts']} prompts, V = {record['vocab']:,}, laws known; level "
        f"{LEVEL}, power {POWER}; `python tests/benchmarks/peers.py`.",
        f"Thresholds: 99 % quantile of {record['replays'][0]} null replays a size; power from "
        f"{record['replays'][1]} replays; sizes double from {record['sizes'][0]} to "
        f"{record['sizes'][-1]:,}.",
        "MMD's size is per arm. `>` means that the largest size was not enough. A Chernoff p-value "
        "needs no null replays and holds at every size.",
        "Mean total variation: "
        + ", ".join(f"{tv:.3f} ({name})" for name, tv in record["mean_total_variation"].items())
        + ".",
        "",
        "| statistic | " + " | ".join(record["needed"]) + " |",
        "|---" * (len(record["needed"]) + 1) + "|",
    ]
    for name in next(iter(record["needed"].values())):
        cells = []
        for needed in record["needed"].values():
            size = needed[name]
            cells.append(f"> {record['sizes'][-1]:,}" if size is None else f"{size:,.0f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Samples of each peer over those of the best of the three scores:", ""]
    for fault, ratios in record["ratios"].items():
        parts = [f"{_times(ratio)} times ({peer})" for peer, ratio in ratios.items()]
        lines.append(f"* {fault}: " + ", ".join(parts))
    check = record["peer"]
    lines += [
        "",
        "The best score is named after the fact; an audit runs all three at a third of the level, "
        "which takes about a fifth more samples at level 0.01.",
        "",
        f"`mmd_hamming` against model-equality-testing {check['version']}: largest difference "
        f"{check['largest_difference']:.1e} over five pairs of samples."
        if check["installed"]
        else "model-equality-testing was not installed: its statistic was not compared.",
    ]
    return "\n".join(lines) + "\n"


def ratios(needed: dict[str, float | None], largest: int) -> dict[str, dict[str, Any]]:
    """How many times fewer samples the best directed score takes than each peer."""
    reached = [size for name in OURS if (size := needed[name]) is not None]
    found: dict[str, dict[str, Any]] = {}
    for peer in (*CHI_SQUARES, MMD):
        size = needed[peer]
        if reached:
            found[peer] = {
                "ratio": (largest if size is None else size) / min(reached),
                "at_least": size is None,
            }
    return found


def main() -> int:
    """Run, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=120)
    parser.add_argument("--largest", type=int, default=65_536)
    parser.add_argument("--replays", type=int, nargs=2, default=(500, 150))
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "gallery")
    given = parser.parse_args()
    begin = time.perf_counter()
    contexts = tabulated(*synthetic_contexts(given.prompts, 32_000, 20))
    statistics = Statistics(contexts)
    laws = {
        name: np.stack(
            [
                law(p, q, row)
                for row, (p, q) in enumerate(zip(contexts.target, contexts.draft, strict=True))
            ]
        )
        for name, law in FAULTS.items()
    }
    distances: dict[str, float] = {
        name: float(0.5 * np.abs(law - contexts.target).sum(axis=1).mean())
        for name, law in laws.items()
    }
    sums = {name: running_sums(law) for name, law in laws.items()}
    sizes = [8 << step for step in range(40) if 8 << step <= given.largest]
    rng = np.random.default_rng(given.seed)
    table = []
    for size in sizes:
        table.append(powers(statistics, sums, size, tuple(given.replays), rng))
        print(f"{size:>8} samples, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    needed = {
        fault: {
            name: samples_needed(sizes, [row[fault][name] for row in table])
            for name in table[0][fault]
        }
        for fault in FAULTS
    }
    record = {
        "level": LEVEL,
        "power": POWER,
        "seed": given.seed,
        "prompts": statistics.num_prompts,
        "vocab": statistics.vocab,
        "replays": list(given.replays),
        "sizes": sizes,
        "mean_total_variation": distances,
        "needed": needed,
        "ratios": {fault: ratios(found, sizes[-1]) for fault, found in needed.items()},
        "peer": peer_check(statistics),
        "seconds": round(time.perf_counter() - begin, 1),
        "powers": table,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "peers.json").write_text(json.dumps(record, indent=1) + "\n")
    (given.out / "peers.md").write_text(markdown(record))
    print(markdown(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
