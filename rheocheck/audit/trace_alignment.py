"""Whether a trace's laws stand beside their own tokens, or are shifted by a row."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats.stale import DEFAULT_ALPHA, Shift, detect_shift
from rheocheck.traces.reader import Batch

# The detector reads every law eighteen times; so many entries of laws take it a few seconds.
MOST_ENTRIES = 2**24


@dataclass(slots=True)
class Alignment:
    """Evidence on the shift of the laws, over the batches of a trace.

    Attributes:
      num_rows: Tokens looked at.
      num_compared: By shift: tokens that have a law under it.
      log_e: By shift: evidence against it. Batches follow each other, so their e-values multiply.
      log_likelihood: By shift: sum of ln p.
      entries: Entries of laws looked at.
      skipped: Some laws were left out: not complete, or beyond the first so many.
    """

    num_rows: int = 0
    num_compared: dict[int, int] = field(default_factory=dict)
    log_e: dict[int, float] = field(default_factory=dict)
    log_likelihood: dict[int, float] = field(default_factory=dict)
    entries: int = 0
    skipped: bool = False

    def observe(self, batch: Batch) -> None:
        """Take in a batch."""
        size = len(batch.token) * batch.vocab
        if batch.laws.rest.any() or self.entries + size > MOST_ENTRIES:
            self.skipped = True
            return
        self.entries += size
        order, text = _texts(batch)
        laws = _dense(batch)[order]
        found = detect_shift(laws, batch.token[order], text)
        self.num_rows += found.num_rows
        for shift, log_e in found.log_e.items():
            self.log_e[shift] = self.log_e.get(shift, 0.0) + log_e
            count = found.num_compared[shift]
            self.num_compared[shift] = self.num_compared.get(shift, 0) + count
            # No token, no likelihood: 0 times minus infinity is left out.
            mean = found.log_likelihood[shift] * count if count else 0.0
            self.log_likelihood[shift] = self.log_likelihood.get(shift, 0.0) + mean

    def shift(self) -> Shift | None:
        """All evidence together; None where no batch had complete laws."""
        if not self.num_rows:
            return None
        likelihood = {
            key: value / max(1, self.num_compared[key])
            for key, value in self.log_likelihood.items()
        }
        compared = dict(self.num_compared)
        return Shift(self.num_rows, compared, dict(self.log_e), likelihood, DEFAULT_ALPHA)


def _texts(batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows in the order of the texts, and a number for each stretch without a missing round."""
    request, round_index = batch.request[batch.record], batch.round[batch.record]
    order = np.lexsort((batch.step, round_index, request))
    request, round_index = request[order], round_index[order]
    same = (np.diff(request) == 0) & (np.diff(round_index) <= 1)
    # A record that is there twice is no continuation of itself.
    same &= (np.diff(round_index) == 1) == (batch.step[order][1:] == 0)
    return order, np.concatenate([[0], np.cumsum(~same)]).astype(np.int64)


def _dense(batch: Batch) -> NDArray[np.float64]:
    """[emitted, vocab] complete laws."""
    laws = batch.laws
    if laws.ids is None:
        return laws.target
    law = np.zeros((len(laws.ids), batch.vocab))
    row, place = (laws.ids >= 0).nonzero()
    law[row, laws.ids[row, place]] = laws.target[row, place]
    return law
