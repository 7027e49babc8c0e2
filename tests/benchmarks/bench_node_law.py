"""The white box at 128,256 tokens: one node's exact law over all outcomes of its probe.

Run `python tests/benchmarks/bench_node_law.py` on a quiet machine, one core: milliseconds of
processor time a node, median of 41, through the expansion and verification under test, beside one
float64 softmax over the node's logits.
"""

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

import torch  # noqa: E402

from rheocheck.audit.laws import softmax  # noqa: E402
from rheocheck.audit.node_law import ReachedNode, check_node  # noqa: E402
from rheocheck.config import RULES, SpeculationConfig  # noqa: E402
from rheocheck.gpu.expansion import expand  # noqa: E402

VOCAB, REPEATS = 128_256, 41


def milliseconds(run: Callable[[], Any]) -> float:
    """Median processor time."""
    run()
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return 1e3 * sorted(times)[REPEATS // 2]


def reached(draft_vocab: int, config: SpeculationConfig) -> tuple[ReachedNode, torch.Tensor | None]:
    """A node with random logits, the draft's those of the target with noise."""
    generator = torch.Generator().manual_seed(0)
    target = 2.5 * torch.randn(VOCAB, generator=generator)
    ids = torch.randperm(VOCAB, generator=generator)[:draft_vocab].sort().values
    draft = 0.9 * target[ids] + 0.8 * torch.randn(draft_vocab, generator=generator)
    token_ids = None if draft_vocab == VOCAB else ids
    uniform = torch.full((1, 1), 0.3, dtype=torch.float64)
    made = expand(draft.view(1, 1, -1), uniform, config, 1.0, token_ids=token_ids)
    law = torch.from_numpy(softmax(target.numpy(), 1.0))
    node = ReachedNode(
        0, 0, 0, draft, target, law, made.token[0, 0], made.support[0, 0], made.probe_law[0, 0],
        True,
    )  # fmt: skip
    return node, token_ids


def main() -> None:
    """Print a line for each rule and draft vocabulary."""
    torch.set_num_threads(1)
    for draft_vocab in (VOCAB, 32_000):
        for rule in RULES:
            config = SpeculationConfig(rule=rule)
            node, token_ids = reached(draft_vocab, config)
            found = check_node(node, config, 1.0, token_ids)
            assert not found.is_violation
            took = milliseconds(lambda: check_node(node, config, 1.0, token_ids))  # noqa: B023
            base = milliseconds(lambda: softmax(node.target_logits.numpy(), 1.0))  # noqa: B023
            print(
                f"draft vocabulary {draft_vocab:>7,}, {rule:6}: {took:5.1f} ms a node, "
                f"{took / base:5.1f} softmaxes; {found.num_outcomes} outcomes, "
                f"TV {found.total_variation:.1e}"
            )


if __name__ == "__main__":
    main()
