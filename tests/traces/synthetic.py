"""Small traces of made-up laws, honest or with a fault, written by the writer of the page."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.traces.writer import TraceWriter

VOCAB = 12


def random_laws(rng: np.random.Generator, rows: int, vocab: int = VOCAB) -> NDArray[np.float64]:
    """Laws with some mass everywhere."""
    return rng.dirichlet(np.full(vocab, 0.7), size=rows)


def write_minimal(
    folder: Path, rounds: int, seed: int = 0, draft: bool = False, **options: Any
) -> Path:
    """One token a round, drawn from its law: an honest trace of target laws."""
    rng = np.random.default_rng(seed)
    trace = TraceWriter(folder, VOCAB, {"temperature": 1.0}, **options)
    for number in range(rounds):
        law = random_laws(rng, 1)
        token = [int(rng.choice(VOCAB, p=law[0]))]
        more = {"draft_law": random_laws(rng, 1)} if draft else {}
        trace.add(number, 0, token, target_law=law, **more)
    trace.close()
    return folder


def inverse_cdf(law: NDArray[np.float64], uniform: float) -> int:
    """First token whose running sum exceeds uniform * total."""
    return int(np.searchsorted(np.cumsum(law), uniform * law.sum(), side="right"))


def write_chains(
    folder: Path,
    rounds: int,
    seed: int = 0,
    depth: int = 2,
    fault: str = "",
    uniforms: bool = True,
    **options: Any,
) -> Path:
    """Chains of `depth` single drafts, each drawn from its draft law.

    Faults: "residual" draws the final token from the target after a rejection, "lenient" accepts
    with twice the probability, "ratio" verifies with another law than it drafted from.
    """
    rng = np.random.default_rng(seed)
    settings = {"temperature": 1.0, "rule": "rheo", "top_k": 1, "num_top": 0}
    trace = TraceWriter(folder, VOCAB, settings, **options)
    for number in range(rounds):
        target, draft = random_laws(rng, depth + 1), random_laws(rng, depth + 1)
        draft[depth] = 0
        probe = random_laws(rng, depth + 1) if fault == "ratio" else draft
        coins, draws, final = rng.random(depth), rng.random(depth), float(rng.random())
        drafted = [inverse_cdf(draft[level], draws[level]) for level in range(depth)]
        kept = 0
        while kept < depth:
            ratio = target[kept, drafted[kept]] / probe[kept, drafted[kept]]
            if not coins[kept] < ratio * (2 if fault == "lenient" else 1):
                break
            kept += 1
        left = target[kept]
        if kept < depth and fault != "residual":
            left = np.maximum(target[kept] - probe[kept], 0)
        tokens = [*drafted[:kept], inverse_cdf(left, final)]
        steps = kept + 1
        ids = np.tile(np.arange(VOCAB), steps)
        size = np.where(draft[:steps].any(1), VOCAB, 0)
        has = np.repeat(size > 0, VOCAB)
        more: dict[str, Any] = {}
        if uniforms:
            more = {"node_uniform": coins, "final_uniform": [final], "probe_uniform": draws}
        at = [draft[level, drafted[level]] for level in range(depth)]
        trace.add(
            number // 3,
            number % 3,
            tokens,
            target_law=target[:steps],
            draft_size=size,
            draft_id=ids[has],
            draft_mass=draft[:steps].ravel()[has],
            probe_mass=probe[:steps].ravel()[has],
            num_nodes=[depth],
            node_token=drafted,
            node_parent=np.arange(depth),
            node_role=np.ones(depth, dtype=int),
            at_node=np.arange(steps),
            probe_below=[draft[level, : drafted[level]].sum() for level in range(depth)],
            probe_at=at,
            **more,
        )
    trace.close()
    return folder
