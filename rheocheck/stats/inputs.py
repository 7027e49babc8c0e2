"""Checks of laws, counts, tokens and levels at the public edge of the statistics.

Each check returns the value as an array that the statistics can use without looking again, or names
what was given, what is required and the first offender.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rheocheck.errors import InputError, LawError

# Laws rounded to float32 sum to 1 within a few 1e-7.
SUM_TOLERANCE = 1e-6


def checked_law(law: ArrayLike, name: str = "law") -> NDArray[np.float64]:
    """One probability law: [outcomes] float64.

    Raises:
      LawError: Not one axis, no outcome, a value that is negative or not finite, or a sum further
        than 1e-6 from 1.
    """
    array = _floats(law, name, LawError)
    if array.ndim != 1 or array.size == 0:
        raise LawError(f"{name} has shape {array.shape}: one axis of at least one outcome required")
    return checked_laws(array[None, :], name).reshape(-1)


def checked_laws(laws: ArrayLike, name: str = "laws") -> NDArray[np.float64]:
    """One law a row: [contexts, outcomes] float64; no contexts are allowed.

    Raises:
      LawError: Not two axes, or a row that is no law; the message has the first such row.
    """
    array = _floats(laws, name, LawError)
    if array.ndim != 2 or (len(array) and array.shape[1] == 0):
        raise LawError(f"{name} has shape {array.shape}: [contexts, outcomes] required")
    if not len(array):
        return array
    # One pass finds out whether there is anything to complain about; NaN fails both comparisons.
    total, smallest = array.sum(axis=1), array.min(axis=1)
    bad = np.flatnonzero(~((np.abs(total - 1.0) <= SUM_TOLERANCE) & (smallest >= 0.0)))
    if bad.size:
        row = int(bad[0])
        outcome = np.flatnonzero(~((array[row] >= 0.0) & np.isfinite(array[row])))
        if outcome.size:
            first = int(outcome[0])
            raise LawError(
                f"{name}, row {row}, outcome {first} = {array[row, first]}: "
                "a finite probability of at least 0 required"
            )
        raise LawError(f"{name}, row {row} sums to {total[row]}: a sum of 1 required")
    return array


def checked_counts(counts: ArrayLike, num_outcomes: int, name: str = "counts") -> NDArray[np.int64]:
    """Counts of draws: [outcomes] int64.

    Raises:
      InputError: Another number of outcomes than the law, or a count that is negative or no
        integer.
    """
    array = _floats(counts, name, InputError)
    if array.shape != (num_outcomes,):
        raise InputError(f"{name} has shape {array.shape}: ({num_outcomes},) required")
    bad = np.flatnonzero(~((array >= 0) & (array < 2.0**53) & (array == np.floor(array))))
    if bad.size:
        first = int(bad[0])
        raise InputError(f"{name}[{first}] = {array[first]}: an integer of at least 0 required")
    return array.astype(np.int64)


def checked_tokens(
    tokens: ArrayLike, num_contexts: int, vocab: int, name: str = "token"
) -> NDArray[np.int64]:
    """One token a context: [contexts] int64.

    Raises:
      InputError: Another number than of contexts, no integers, or a token outside the vocabulary.
    """
    array = np.asarray(tokens)
    if array.shape != (num_contexts,):
        raise InputError(f"{name} has shape {array.shape}: ({num_contexts},) required")
    if num_contexts == 0:
        return np.zeros(0, dtype=np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name} has type {array.dtype}: integers required")
    bad = np.flatnonzero((array < 0) | (array >= vocab))
    if bad.size:
        first = int(bad[0])
        raise InputError(f"{name}[{first}] = {array[first]}: must lie in 0..{vocab - 1}")
    return array.astype(np.int64)


def checked_unit_values(values: ArrayLike, name: str = "values") -> NDArray[np.float64]:
    """Values in [0, 1]: [draws] float64; none are allowed.

    Raises:
      InputError: Not one axis, or a value outside [0, 1] or not a number.
    """
    array = _floats(values, name, InputError)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: one axis required")
    outside = np.flatnonzero(~((array >= 0.0) & (array <= 1.0)))
    if outside.size:
        first = int(outside[0])
        raise InputError(f"{name}[{first}] = {array[first]}: must lie in [0, 1]")
    return array


def checked_level(alpha: float, name: str = "alpha") -> float:
    """A level or share strictly between 0 and 1.

    Raises:
      InputError: Anything else.
    """
    if not 0.0 < alpha < 1.0:
        raise InputError(f"{name} = {alpha}: must lie in (0, 1)")
    return float(alpha)


def _floats(values: ArrayLike, name: str, error: type[InputError]) -> NDArray[np.float64]:
    try:
        array: NDArray[Any] = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise error(f"{name}: an array of real numbers required") from None
