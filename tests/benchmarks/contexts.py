"""Synthetic contexts of the power table: Zipf laws with noise, and drafts near them."""

import numpy as np
from numpy.typing import NDArray


def synthetic_contexts(
    num_contexts: int, vocab: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Target and draft laws, [contexts, vocab] each.

    The target is Zipf with an exponent uniform in [1.2, 2.6] times lognormal(1) noise, its tokens
    in random order; the draft's logarithm is 0.9 ln target + N(0, 0.8).
    """
    rng = np.random.default_rng(seed)
    target = np.empty((num_contexts, vocab))
    draft = np.empty((num_contexts, vocab))
    for row, exponent in enumerate(rng.uniform(1.2, 2.6, num_contexts)):
        logs = -exponent * np.log(rng.permutation(vocab) + 1.0) + rng.normal(0, 1, vocab)
        target[row] = np.exp(logs - logs.max())
        target[row] /= target[row].sum()
        draft_logs = 0.9 * np.log(target[row]) + rng.normal(0, 0.8, vocab)
        draft[row] = np.exp(draft_logs - draft_logs.max())
        draft[row] /= draft[row].sum()
    return target, draft
