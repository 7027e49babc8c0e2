"""Randomised probability integral transform (PIT) of draws from known discrete laws.

If the tokens are in some fixed order, a token is drawn from `law`, and W is an independent uniform,
then mass before the token + W * mass of the token is uniform on [0, 1). The converse makes it a
test: the order decides which deviations show most. Sorting by draft/target is the direction in
which wrong verification errs; sorting by token id sees next to nothing.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.anderson_darling import anderson_darling
from rheocheck.stats.inputs import (
    checked_laws,
    checked_level,
    checked_tokens,
    checked_unit_values,
)

NUM_BINS = 20
# Below this many draws a bin expects fewer than five, and the chi-square form is not used.
MIN_BINNED = 5 * NUM_BINS


@dataclass(frozen=True, slots=True)
class Uniformity:
    """Three tests of whether PIT values are uniform.

    Attributes:
      num_samples: Values tested.
      chi_square: Statistic over 20 equal bins; None below 100 values.
      chi_square_p: Its p-value (19 degrees of freedom, approximate); None below 100 values.
      ks: Kolmogorov-Smirnov distance between the empirical and the uniform distribution function.
      ks_p: Its exact p-value.
      anderson_darling: Anderson-Darling statistic.
      anderson_darling_p: Its p-value by the limiting law.
      p_value: Bonferroni over the three: min(1, 3 * smallest). Below 100 values the KS p-value
        alone, the only one that is exact there.
    """

    num_samples: int
    chi_square: float | None
    chi_square_p: float | None
    ks: float
    ks_p: float
    anderson_darling: float
    anderson_darling_p: float
    p_value: float


def randomised_pit(
    law: NDArray[np.float64],
    token: NDArray[np.int64],
    uniform: NDArray[np.float64],
    order: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """PIT value of each draw.

    Args:
      law: [draws, vocab] probabilities, each row summing to 1.
      token: [draws] tokens drawn, 0 <= token < vocab.
      uniform: [draws] independent uniforms in [0, 1).
      order: [draws, vocab] sort key; tokens come in ascending key, ties by token id. It may depend
        on the context, never on the token drawn. None keeps the order of the columns.

    Returns:
      [draws] values in [0, 1]. A token of probability 0 gets the point between its neighbours.
      None for no draws.

    Raises:
      LawError: A row of `law` that is no law.
      InputError: A token outside the vocabulary, a uniform outside [0, 1], an order of another
        shape or with NaN.
    """
    law = checked_laws(law, "law")
    token = checked_tokens(token, len(law), law.shape[1])
    uniform = checked_unit_values(uniform, "uniform")
    if uniform.shape != token.shape:
        raise InputError(f"uniform has shape {uniform.shape}: {token.shape} required")
    if order is not None and (order.shape != law.shape or np.isnan(order).any()):
        raise InputError(f"order has shape {order.shape} or NaN: {law.shape} numbers required")
    rows = np.arange(len(token))
    mass = law[rows, token]
    if order is None:
        before = np.arange(law.shape[1])[None, :] < token[:, None]
    else:
        key = order[rows, token][:, None]
        before = (order < key) | (
            (order == key) & (np.arange(law.shape[1])[None, :] < token[:, None])
        )
    below = np.where(before, law, 0.0).sum(axis=1)
    values: NDArray[np.float64] = np.clip(below + uniform * mass, 0.0, 1.0)
    return values


def draft_target_order(
    target: NDArray[np.float64], draft: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sort key draft/target: [draws, vocab], ascending; tokens without target mass come last.

    Args:
      target: [draws, vocab] target law.
      draft: [draws, vocab] draft law; zero rows (no draft at this context) order by token id.

    Raises:
      InputError: Unlike shapes, or a draft value that is negative or no number.
    """
    if target.shape != draft.shape:
        raise InputError(f"target has shape {target.shape}, draft {draft.shape}: equal ones needed")
    if not (draft >= 0).all():
        row = int(np.flatnonzero(~(draft >= 0).all(axis=-1))[0])
        raise InputError(f"draft, row {row}: probabilities of at least 0 required")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = draft / target
    order: NDArray[np.float64] = np.where(target > 0, ratio, np.inf)
    return order


def target_order(target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sort key for descending target: [draws, vocab], the likeliest token first.

    The direction of errors shaped by rank: a wrong temperature, a cut tail.
    """
    key: NDArray[np.float64] = -target
    return key


def uniformity(values: ArrayLike) -> Uniformity:
    """Test PIT values for uniformity on [0, 1].

    Args:
      values: [draws] independent PIT values.

    Returns:
      All three tests. For no values every p-value is 1.

    Raises:
      InputError: A value outside [0, 1] or not a number.
    """
    pit = checked_unit_values(values)
    if pit.size == 0:
        return Uniformity(0, None, None, 0.0, 1.0, 0.0, 1.0, 1.0)
    ks = stats.kstest(pit, "uniform")
    distance, ks_p = float(ks.statistic), float(ks.pvalue)
    squared, squared_p = anderson_darling(pit)
    if pit.size < MIN_BINNED:
        return Uniformity(pit.size, None, None, distance, ks_p, squared, squared_p, ks_p)
    counts = np.histogram(pit, bins=NUM_BINS, range=(0.0, 1.0))[0]
    expected = pit.size / NUM_BINS
    statistic = float(((counts - expected) ** 2 / expected).sum())
    chi_square_p = float(stats.chi2.sf(statistic, NUM_BINS - 1))
    all_three = min(1.0, 3.0 * min(ks_p, chi_square_p, squared_p))
    return Uniformity(
        pit.size, statistic, chi_square_p, distance, ks_p, squared, squared_p, all_three
    )


def ecdf_band(num_samples: int, alpha: float) -> float:
    """Half-width of the simultaneous band around a distribution function.

    Args:
      num_samples: Values behind the empirical distribution function, at least 1.
      alpha: Chance that the empirical function leaves the band anywhere, under the null.

    Raises:
      InputError: No values, or alpha outside (0, 1).

    Source: Massart (1990), the tight constant of the Dvoretzky-Kiefer-Wolfowitz inequality.
    """
    if num_samples < 1:
        raise InputError(f"num_samples = {num_samples}: at least 1 required")
    checked_level(alpha)
    return math.sqrt(math.log(2.0 / alpha) / (2.0 * num_samples))
