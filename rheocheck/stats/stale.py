"""Are the laws of a trace shifted against its tokens? A detector, with an error bound.

A trace pairs the token of each row with a law. If the writer took the logits one position too late
or too early, every token stands beside its neighbour's law, and a plain test only says that the
tokens do not fit. Here each shift k is a hypothesis of its own,

    H_k: the token of row t follows the law recorded at row t + k, given the tokens before it,

and is tested against flatter laws. With p the law that H_k names for the token,

    E_k = mean over tilts s in (0, 1] of prod_t p(x_t)^(-s) / sum_x p(x)^(1-s)

multiplies likelihood ratios of the flattened law p^(1-s) to p. Under H_k the law of x_t is fixed
before x_t is drawn, so E_k has expectation at most 1 and E_k >= 1/alpha refutes H_k at level alpha,
at every length and without an approximation. A misplaced law gives its token too little probability
and E_k grows exponentially. The shifts that are not refuted are a confidence set: the true one is
missing from it with probability at most alpha. So a trace whose laws are in place is called stale
with probability at most alpha.

A token that was drawn counts, whatever it was: to leave out the last of a text, because no row
follows it, would leave out every end-of-text token, and tilt the rest. At k > 0 the law that H_k
names for the last k tokens of a text is not in the trace. Their factor is then replaced by the
least that any law of V tokens allows, V^(-s), which only weakens the evidence.

H_1 is "stale by one row": row t holds the law of the token before. H_-1 is "early by one row". Laws
that hardly change from row to row cannot be placed: then several shifts remain, and nothing is
claimed. Tokens that fit no shift (another fault) leave the set empty.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rheocheck.errors import InputError
from rheocheck.stats.inputs import checked_laws, checked_level, checked_tokens

# Exponents taken off the law; the last is the uniform law on its support.
TILTS: NDArray[np.float64] = np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.0])
DEFAULT_ALPHA = 1e-6
# Rows taken at a time, so that no second array of the laws' size is made.
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Shift:
    """Evidence on where the laws of a trace stand.

    Attributes:
      num_rows: Tokens of the trace.
      num_compared: Tokens that have a law under each shift.
      log_e: Log of the evidence against each shift; infinite where a token has probability 0.
      log_likelihood: Mean ln p of the tokens that have a law under each shift, nats a token; -inf
        likewise.
      alpha: Level of the set.
    """

    num_rows: int
    num_compared: dict[int, int]
    log_e: dict[int, float]
    log_likelihood: dict[int, float]
    alpha: float

    @property
    def remaining(self) -> tuple[int, ...]:
        """Shifts that are not refuted: the true one is missing with probability <= alpha."""
        bar = -math.log(self.alpha)
        return tuple(shift for shift, evidence in self.log_e.items() if evidence < bar)

    @property
    def found(self) -> int | None:
        """The shift, where exactly one remains; None where none or several do."""
        return self.remaining[0] if len(self.remaining) == 1 else None

    @property
    def stale(self) -> bool:
        """The laws stand beside the wrong tokens: 0 is refuted and one other shift fits."""
        return self.found not in (None, 0)

    def p_value(self, shift: int = 0) -> float:
        """min(1, 1/E) of one shift; of 0, that the laws are in place.

        Raises:
          InputError: A shift that was not tried.
        """
        if shift not in self.log_e:
            raise InputError(f"shift = {shift}: one of {sorted(self.log_e)} required")
        return min(1.0, math.exp(-max(0.0, self.log_e[shift])))

    def describe(self) -> str:
        """One sentence for people."""
        if self.found == 0:
            return f"the laws stand beside their own tokens ({self.num_rows:,} rows)"
        if self.found is None:
            return (
                "the tokens fit the laws at no shift"
                if not self.remaining
                else f"rows too few or too alike to place the laws; left: {list(self.remaining)}"
            )
        count = "one row" if abs(self.found) == 1 else f"{abs(self.found)} rows"
        kind = "stale" if self.found > 0 else "early"
        return (
            f"the laws in this trace are {kind} by {count}: row t holds the law of token "
            f"t{-self.found:+d} (in place: p <= {self.p_value(0):.2g}, {self.num_rows:,} rows)"
        )


def detect_shift(
    laws: NDArray[np.float64],
    token: NDArray[np.int64],
    sequence: NDArray[np.int64] | None = None,
    max_shift: int = 1,
    alpha: float = DEFAULT_ALPHA,
) -> Shift:
    """Test every shift from -max_shift to max_shift.

    Args:
      laws: [rows, vocab] recorded laws, in the order of the text.
      token: [rows] token recorded beside each.
      sequence: [rows] which text a row belongs to; rows of one text are consecutive, and no law is
        carried over to another text. None: all rows are one text.
      max_shift: Largest shift tried, at least 1.
      alpha: Level of the confidence set, in (0, 1).

    Returns:
      The evidence.

    Raises:
      LawError: A row of `laws` that is no law.
      InputError: A token outside the vocabulary, rows of a text that are not consecutive,
        max_shift below 1.
    """
    laws = checked_laws(laws)
    token = checked_tokens(token, len(laws), laws.shape[1])
    checked_level(alpha)
    if max_shift < 1:
        raise InputError(f"max_shift = {max_shift}: at least 1 required")
    text = _texts(len(laws), sequence)
    rows = np.arange(len(laws))
    compared, log_e, log_likelihood = {}, {}, {}
    for shift in range(-max_shift, max_shift + 1):
        there = (rows + shift >= 0) & (rows + shift < len(rows))
        there[there] = text[rows[there] + shift] == text[there]
        lost = int((~there).sum()) if shift > 0 else 0
        evidence, likelihood = _log_evidence(laws, rows[there] + shift, token[there], lost)
        compared[shift], log_e[shift] = int(there.sum()), evidence
        log_likelihood[shift] = likelihood / compared[shift] if compared[shift] else 0.0
    return Shift(len(laws), compared, log_e, log_likelihood, alpha)


def _texts(num_rows: int, sequence: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """[rows] the text that a row belongs to."""
    text = np.zeros(num_rows, dtype=np.int64) if sequence is None else np.asarray(sequence)
    if text.shape != (num_rows,):
        raise InputError(f"sequence has shape {text.shape}: ({num_rows},) required")
    num_texts = int((text[1:] != text[:-1]).sum()) + 1 if num_rows else 0
    if len(np.unique(text)) != num_texts:
        raise InputError("sequence: the rows of one text must be consecutive")
    return text


def _log_evidence(
    laws: NDArray[np.float64], rows: NDArray[np.int64], token: NDArray[np.int64], lost: int
) -> tuple[float, float]:
    """Log e-value against "token i follows laws[rows[i]]", and the tokens' log-likelihood.

    `lost` more tokens count whose laws are not known.
    """
    exponents = -TILTS * lost * math.log(laws.shape[1])
    likelihood = 0.0
    for first in range(0, len(rows), _CHUNK):
        law = laws[rows[first : first + _CHUNK]]
        drawn = law[np.arange(len(law)), token[first : first + _CHUNK]]
        if (drawn <= 0).any():
            return math.inf, -math.inf
        surprisal = -float(np.log(drawn).sum())
        likelihood -= surprisal
        log_law = np.log(law, out=np.full_like(law, -np.inf), where=law > 0)
        log_total = np.log(law.sum(axis=1))
        for index, tilt in enumerate(TILTS):
            flat = np.where(law > 0, np.exp((1.0 - tilt) * np.maximum(log_law, -1e300)), 0.0)
            # Rounded laws sum to nearly 1; dividing by the total keeps the mean of e at 1.
            norm = np.log(flat.sum(axis=1)) - log_total
            exponents[index] += tilt * surprisal - float(norm.sum())
    return float(special.logsumexp(exponents) - math.log(len(TILTS))), likelihood
