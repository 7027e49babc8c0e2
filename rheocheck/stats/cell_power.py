"""Power of `chi_square.bucket_chi_square` against a named fault, its pooling included.

The statistic is a quadratic form in counts that are nearly Gaussian. Under a fault their mean moves
and their covariance changes too: a fault that empties a cell makes the statistic steadier than a
noncentral chi-square. So the power here is that of the Gaussian quadratic form with the fault's own
covariance. It sizes runs and enters no verdict.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from rheocheck.errors import InputError
from rheocheck.stats.chi_square import MIN_EXPECTED, pool_cells, quadratic_form_variance
from rheocheck.stats.inputs import checked_laws, checked_level
from rheocheck.stats.power import DEFAULT_POWER

Laws = NDArray[np.float64]
LARGEST_SAMPLES = 1e18
SIZE_STEP = 1.05
_LATTICE = 4096


def cell_power(target_cells: Laws, fault_cells: Laws, visits: Laws, alpha: float) -> float:
    """Power of the bucket test at given visits of each context.

    Args:
      target_cells: [contexts, cells] null laws of the cell.
      fault_cells: [contexts, cells] laws under the fault.
      visits: [contexts] draws of each context, not negative; fractions are allowed.
      alpha: Level of the test.

    Returns:
      Probability of rejection, for Gaussian counts; 0 where pooling leaves one cell.

    Raises:
      LawError: A row that is no law.
      InputError: Shapes that do not match, negative visits, alpha outside (0, 1).
    """
    null, fault = _checked(target_cells, fault_cells)
    checked_level(alpha)
    weights = np.asarray(visits, dtype=np.float64)
    if weights.shape != (len(null),) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError(f"visits must be {len(null)} finite numbers that are not negative")
    return _power(null, fault, weights, alpha)


def cell_samples(
    target_cells: Laws, fault_cells: Laws, alpha: float, power: float = DEFAULT_POWER
) -> float:
    """Samples at which the bucket test has `power`, spread evenly over the contexts.

    The test pools cells that expect few draws, so what it can see grows in steps with the sample.
    Sizes are tried from two draws a cell on, 5 % apart, and the first with the power is refined.

    Args:
      target_cells: [contexts, cells] null laws of the cell.
      fault_cells: [contexts, cells] laws under the fault.
      alpha: Level of the test.
      power: Probability of rejection asked for.

    Returns:
      The size; infinite where LARGEST_SAMPLES would not do.

    Raises:
      LawError: A row that is no law.
      InputError: Shapes that do not match, alpha or power outside (0, 1).
    """
    null, fault = _checked(target_cells, fault_cells)
    checked_level(alpha)
    checked_level(power, "power")
    even = np.full(len(null), 1.0 / len(null))

    def surplus(log_size: float) -> float:
        return _power(null, fault, math.exp(log_size) * even, alpha) - power

    size, step = math.log(2.0 * MIN_EXPECTED), math.log(SIZE_STEP)
    if surplus(size) >= 0.0:
        return math.exp(size)
    while size < math.log(LARGEST_SAMPLES):
        if surplus(size + step) >= 0.0:
            # Over a step of the pooling the power jumps; bisection then ends at the jump.
            return math.exp(float(optimize.bisect(surplus, size, size + step, xtol=1e-4)))
        size += step
    return math.inf


def _power(null: Laws, fault: Laws, visits: Laws, alpha: float) -> float:
    cell = pool_cells(visits @ null)
    membership = np.eye(int(cell.max()) + 1)[cell]
    null_cells, fault_cells = null @ membership, fault @ membership
    values, vectors = np.linalg.eigh(_covariance(null_cells, visits))
    # As in the test itself.
    kept = values > max(1e-3, 1e-9 * float(values[-1]))
    df = int(kept.sum())
    if df == 0:
        return 0.0
    whitening = vectors[:, kept] / np.sqrt(values[kept])
    mean = (visits @ (fault_cells - null_cells)) @ whitening
    spread = whitening.T @ _covariance(fault_cells, visits) @ whitening
    form = whitening @ whitening.T
    # At a fraction of a draw a context the exact variance has no meaning and can be negative.
    variance = max(quadratic_form_variance(null_cells, form, df, visits), 0.1 * df)
    scale = variance / (2.0 * df)
    bar = scale * float(stats.chi2.isf(alpha, df / scale))
    return quadratic_form_tail(bar, mean, spread)


def _covariance(laws: Laws, visits: Laws) -> Laws:
    """Of the counts: sum over the contexts of visits * (diag law - law law')."""
    found: Laws = np.diag(visits @ laws) - (laws * visits[:, None]).T @ laws
    return found


def quadratic_form_tail(threshold: float, mean: Laws, covariance: Laws) -> float:
    """P(|Y|^2 > threshold) for Gaussian Y, by inverting its characteristic function on a lattice.

    Source: Davies, "Algorithm AS 155" (1980), for weights that are all positive.

    Args:
      threshold: Positive.
      mean: [n] of Y.
      covariance: [n, n] of Y, may be singular.

    Returns:
      The probability, to about 1e-5.
    """
    weights, vectors = np.linalg.eigh(covariance)
    along = (vectors.T @ mean) ** 2
    # What hardly varies beside the largest term counts with its mean.
    moving = weights > 1e-5 * max(1e-12, float(weights[-1]))
    left = threshold - float((along[~moving] + np.maximum(weights[~moving], 0.0)).sum())
    weights, along = weights[moving], along[moving]
    if left <= 0.0 or not len(weights):
        return float(left <= 0.0)
    if len(weights) == 1:
        return float(stats.ncx2.sf(left / weights[0], 1, along[0] / weights[0]))
    centre = float((weights + along).sum())
    spread = math.sqrt(float((2.0 * weights**2 + 4.0 * weights * along).sum()))
    if abs(left - centre) > 40.0 * spread:
        return float(left < centre)
    # The lattice repeats the distribution with this period, which holds all of it.
    step = 2.0 * math.pi / (left + centre + 40.0 * spread)
    at = (np.arange(_LATTICE) + 0.5) * step
    room = 1.0 - 2.0j * np.outer(at, weights)
    log_phi = (1j * at[:, None] * along / room - 0.5 * np.log(room)).sum(axis=1)
    waves = np.exp(log_phi - 1j * at * left).imag / (np.arange(_LATTICE) + 0.5)
    return float(min(1.0, max(0.0, 0.5 + waves.sum() / math.pi)))


def _checked(target_cells: Laws, fault_cells: Laws) -> tuple[Laws, Laws]:
    null, fault = checked_laws(target_cells, "target_cells"), checked_laws(fault_cells, "fault")
    if not len(null):
        raise InputError("target_cells has no contexts: at least one required")
    if fault.shape != null.shape:
        raise InputError(f"fault_cells has shape {fault.shape}: {null.shape} required")
    return null, fault
