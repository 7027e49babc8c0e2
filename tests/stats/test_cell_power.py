"""Power of the bucket test: what is computed is what drawing and judging gives."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from rheocheck.errors import InputError, LawError
from rheocheck.stats.cell_power import cell_power, cell_samples, quadratic_form_tail
from rheocheck.stats.chi_square import bucket_chi_square
from rheocheck.stats.fault_power import noncentrality_samples

Array = NDArray[np.float64]
EVEN = np.full((1, 4), 0.25)


def measured(null: Array, fault: Array, visits: NDArray[np.int64], alpha: float) -> float:
    """Share of 400 samples that the shipped test rejects."""
    rng = np.random.default_rng(1)
    rows = np.repeat(null, visits, axis=0)
    rejected = 0
    for _ in range(400):
        counts = sum(rng.multinomial(count, law) for count, law in zip(visits, fault, strict=True))
        rejected += bucket_chi_square(counts, rows).p_value <= alpha
    return rejected / 400


@pytest.mark.parametrize("emptied", [0.9, 0.5, -0.5])
def test_power_is_what_the_test_does(emptied: float) -> None:
    """Cells that the fault empties, half empties or fills: seven standard errors at most."""
    null = np.random.default_rng(2).dirichlet([8.0, 4.0, 2.0, 1.0], size=6)
    null = 0.9 * null + 0.025
    fault = null.copy()
    fault[:, 2:] *= 1.0 - emptied
    fault[:, :2] *= (1.0 - fault[:, 2:].sum(axis=1) / 1.0)[:, None] / fault[:, :2].sum(
        axis=1, keepdims=True
    )
    size = cell_samples(null, fault, 1e-6, 0.8)
    visits = np.full(6, math.ceil(size / 6))
    computed = cell_power(null, fault, visits.astype(float), 1e-6)
    assert computed == pytest.approx(0.8, abs=0.05)
    assert measured(null, fault, visits, 1e-6) == pytest.approx(computed, abs=0.14)


def test_a_fault_that_empties_a_cell_is_found_more_surely_than_a_noncentral_chi_square() -> None:
    """The plain formula would say 0.95 where the test never fails."""
    null, fault = np.array([[0.9, 0.05, 0.05]]), np.array([[1.0, 0.0, 0.0]])
    drift = 0.1**2 / 0.9 + 2 * 0.05**2 / 0.05
    size = round(noncentrality_samples(drift, 2, 1e-6))
    assert cell_power(null, fault, np.array([1.1 * size]), 1e-6) == 1.0
    assert measured(null, fault, np.array([round(1.1 * size)]), 1e-6) == 1.0
    assert cell_samples(null, fault, 1e-6) < size


def test_small_faults_have_the_noncentral_chi_square() -> None:
    tilted = np.array([[0.2501, 0.2499, 0.25, 0.25]])
    plain = noncentrality_samples(2 * 0.0001**2 / 0.25, 3, 1e-6)
    assert cell_samples(EVEN, tilted, 1e-6) == pytest.approx(plain, rel=2e-3)
    assert cell_samples(EVEN, EVEN, 1e-6) == math.inf


def test_samples_count_the_pooling() -> None:
    """A rare cell that a fault fills is pooled away in a small sample."""
    target, fault = np.array([[0.999, 0.001]]), np.array([[0.9, 0.1]])
    needed = cell_samples(target, fault, 1e-6)
    # The rare cell stands by itself from 5 / 0.001 draws on.
    assert needed == pytest.approx(5000, rel=1e-3)
    for size, found in ((4900, False), (5010, True)):
        counts = np.array([size - size // 10, size // 10])
        assert (bucket_chi_square(counts, np.repeat(target, size, axis=0)).p_value <= 1e-6) == found
        assert cell_power(target, fault, np.array([float(size)]), 1e-6) == float(found)


def test_the_tail_of_a_quadratic_form() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 5):
        root = rng.normal(size=(size, size))
        mean = 3.0 * rng.normal(size=size)
        drawn = ((rng.normal(size=(400_000, size)) @ root.T + mean) ** 2).sum(axis=1)
        for level in (0.02, 0.3, 0.5, 0.95):
            threshold = float(np.quantile(drawn, 1.0 - level))
            found = quadratic_form_tail(threshold, mean, root @ root.T)
            assert found == pytest.approx(level, abs=0.004)
    unit = quadratic_form_tail(9.0, np.array([1.0, 2.0]), np.eye(2))
    assert unit == pytest.approx(stats.ncx2.sf(9.0, 2, 5.0), abs=1e-5)
    still = np.diag([1.0, 0.0])
    assert quadratic_form_tail(9.0, np.array([0.0, 3.1]), still) == 1.0
    below = quadratic_form_tail(9.0, np.array([0.0, 2.0]), still)
    assert below == pytest.approx(stats.chi2.sf(5.0, 1))
    assert quadratic_form_tail(9.0, np.array([1.0, 2.0]), np.zeros((2, 2))) == 0.0


def test_the_tail_far_out_and_with_terms_that_hardly_vary() -> None:
    mean, covariance = np.array([1.0, 0.5]), np.diag([1.0, 0.3])
    assert quadratic_form_tail(400.0, mean, covariance) == pytest.approx(0.0, abs=1e-9)
    assert quadratic_form_tail(400.0, 1e9 * mean, covariance) == 1.0
    nearly = np.diag([1.0, 1e-7, 1e-7])
    found = quadratic_form_tail(9.0, np.array([2.0, 1.0, 1.0]), nearly)
    assert found == pytest.approx(stats.ncx2.sf(7.0, 1, 4.0), abs=1e-3)
    wide = quadratic_form_tail(2e4, np.full(7, 50.0), np.eye(7))
    assert wide == pytest.approx(stats.ncx2.sf(2e4, 7, 7 * 2500.0), abs=1e-6)


def test_bad_input_is_refused() -> None:
    with pytest.raises(LawError):
        cell_power(EVEN, EVEN * 1.1, np.ones(1), 1e-6)
    with pytest.raises(InputError, match="shape"):
        cell_power(EVEN, np.full((2, 4), 0.25), np.ones(1), 1e-6)
    with pytest.raises(InputError, match="no contexts"):
        cell_samples(np.zeros((0, 4)), np.zeros((0, 4)), 1e-6)
    for visits in (np.ones(2), np.array([-1.0]), np.array([np.nan])):
        with pytest.raises(InputError, match="visits must be 1 finite"):
            cell_power(EVEN, EVEN, visits, 1e-6)
    with pytest.raises(InputError, match="alpha"):
        cell_power(EVEN, EVEN, np.ones(1), 0.0)
