"""The audit's own laws, made in NumPy from raw logits, apart from the code under test."""

import numpy as np
from numpy.typing import NDArray


def softmax(logits: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """Softmax at a temperature, in float64.

    Args:
      logits: [..., vocab] of any float type; minus infinity is probability 0.
      temperature: Above 0.

    Returns:
      [..., vocab] probabilities, each row summing to 1.
    """
    values = np.asarray(logits, dtype=np.float64)
    weights = np.exp((values - values.max(axis=-1, keepdims=True)) / temperature)
    law: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return law


def rank_order(logits: NDArray[np.floating], support_size: int) -> NDArray[np.int64]:
    """Indices of the draft's support: by (logit descending, index ascending), zeros left out.

    Args:
      logits: [draft vocab].
      support_size: Most indices kept.

    Returns:
      [support] indices into the draft vocabulary.
    """
    values = np.asarray(logits, dtype=np.float64)
    order = np.arange(len(values))
    if support_size < len(values):
        least = np.partition(values, -support_size)[-support_size]
        order = np.flatnonzero(values >= least)
    order = order[np.lexsort((order, -values[order]))][:support_size]
    return np.asarray(order[values[order] > -np.inf], dtype=np.int64)


def draft_law(
    logits: NDArray[np.floating],
    support_size: int,
    temperature: float,
    token_ids: NDArray[np.int64] | None,
    vocab: int,
) -> NDArray[np.float64]:
    """The draft's truncated law at the request's temperature, over the target's vocabulary.

    Args:
      logits: [draft vocab] raw logits.
      support_size: The draft keeps its largest so many.
      temperature: Above 0.
      token_ids: [draft vocab] target ids, or None where the vocabularies agree.
      vocab: Size of the target's vocabulary.

    Returns:
      [vocab] probabilities summing to 1.
    """
    kept = rank_order(logits, support_size)
    law = np.zeros(vocab)
    law[kept if token_ids is None else token_ids[kept]] = softmax(logits[kept], temperature)
    return law


def total_variation(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the L1 distance along the last axis: [..., vocab], [..., vocab] -> [...]."""
    distance: NDArray[np.float64] = 0.5 * np.abs(first - second).sum(axis=-1)
    return distance
