"""Processed laws one text at a time in NumPy, apart from the code under test.

They are written from the definitions in `rheocheck.config.ProcessorConfig`: no tree, no batch, no
counts that are carried from round to round.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.laws import softmax
from rheocheck.config import SamplingConfig


def adjusted_logits(
    logits: NDArray[np.floating],
    text: Sequence[int],
    prompt_length: int,
    sampling: SamplingConfig,
) -> NDArray[np.float64]:
    """Logits after bias, penalties and bans.

    Args:
      logits: [vocab] raw logits after `text`.
      text: Prompt and output before the token.
      prompt_length: Leading tokens of `text` that are the prompt.
      sampling: The settings.

    Returns:
      [vocab] float64.
    """
    values = np.array(logits, dtype=np.float64)
    for token, bias in sampling.logit_bias:
        values[token] += bias
    if sampling.repetition_penalty != 1:
        for token in set(text):
            if values[token] > 0:
                values[token] /= sampling.repetition_penalty
            else:
                values[token] *= sampling.repetition_penalty
    if sampling.frequency_penalty != 0 or sampling.presence_penalty != 0:
        for token, count in Counter(text[prompt_length:]).items():
            values[token] -= sampling.frequency_penalty * count
            values[token] -= sampling.presence_penalty
    for token in sampling.banned_tokens:
        values[token] = -np.inf
    return values


def filtered_law(values: NDArray[np.float64], sampling: SamplingConfig) -> NDArray[np.float64]:
    """Law of adjusted logits under temperature, top-k, top-p and min-p.

    Args:
      values: [vocab] adjusted logits.
      sampling: Temperature above 0, and filters.

    Returns:
      [vocab] probabilities summing to 1.
    """
    law = softmax(values, sampling.temperature)
    if 0 < sampling.top_k_filter < len(values):
        law = np.where(values >= np.sort(values)[-sampling.top_k_filter], law, 0.0)
        law /= law.sum()
    if sampling.top_p < 1:
        # Least probable first, the lower id first among equals; the last one is never dropped.
        order = np.lexsort((np.arange(len(law)), law))
        dropped = order[:-1][np.cumsum(law[order])[:-1] <= 1 - sampling.top_p]
        law[dropped] = 0.0
        law /= law.sum()
    if sampling.min_p > 0:
        law = np.where(law >= sampling.min_p * law.max(), law, 0.0)
        law /= law.sum()
    return law
