"""The tolerant test rejects only what exceeds its tolerance, and its bound covers."""

import numpy as np
import pytest
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.tolerant import log_wealth, tolerant_bound


def test_wealth_has_mean_at_most_one_on_the_boundary() -> None:
    """All outcomes of three sets that each exceed their mass by exactly the tolerance."""
    mass, tolerance = np.array([0.2, 0.5, 0.0]), 0.1
    total = 0.0
    for hits in np.ndindex(2, 2, 2):
        chance = np.prod(np.where(hits, mass + tolerance, 1 - mass - tolerance))
        total += float(chance * np.exp(log_wealth(np.array(hits), mass, tolerance)[-1]))
    assert total == pytest.approx(1.0)


def test_wealth_of_unlike_distances_with_that_mean_is_no_larger() -> None:
    mass, excess = np.array([0.3, 0.3]), np.array([0.0, 0.2])
    total = 0.0
    for hits in np.ndindex(2, 2):
        chance = np.prod(np.where(hits, mass + excess, 1 - mass - excess))
        total += float(chance * np.exp(log_wealth(np.array(hits), mass, 0.1)[-1]))
    assert 0.99 < total < 1.0


def test_the_bound_is_below_the_truth_and_near_it() -> None:
    """TV 0.1 on the witness, 100 runs of 2,000: coverage at alpha 0.05 within a 1e-9 limit."""
    rng = np.random.default_rng(0)
    mass = rng.uniform(0.1, 0.8, 2000)
    bounds = [tolerant_bound(rng.random(2000) < mass + 0.1, mass, 0.05).lower for _ in range(100)]
    assert sum(bound > 0.1 for bound in bounds) <= stats.binom.isf(1e-9, 100, 0.05)
    assert 0.05 < np.median(bounds) < 0.1
    null = [tolerant_bound(rng.random(2000) < mass, mass, 0.05).lower for _ in range(100)]
    assert sum(bound > 0 for bound in null) <= stats.binom.isf(1e-9, 100, 0.05)


def test_the_monitored_tolerant_null_stays_within_the_level() -> None:
    """1,000 runs at the boundary of the hypothesis with a look after each of 500 samples."""
    rng = np.random.default_rng(1)
    mass = rng.uniform(0.0, 0.9, 500)
    crossed = [
        log_wealth(rng.random(500) < mass + 0.05, mass, 0.05).max() >= np.log(20)
        for _ in range(1000)
    ]
    assert sum(crossed) <= stats.binom.isf(1e-9, 1000, 0.05)
    beyond = [
        log_wealth(rng.random(500) < mass + 0.1, mass, 0.0).max() >= np.log(20) for _ in range(100)
    ]
    assert sum(beyond) > 50


def test_the_bound_inverts_the_wealth() -> None:
    rng = np.random.default_rng(2)
    mass = rng.uniform(0.1, 0.5, 800)
    hits = rng.random(800) < mass + 0.2
    lower = tolerant_bound(hits, mass, 1e-3).lower
    assert log_wealth(hits, mass, lower)[-1] == pytest.approx(np.log(1e3), abs=1e-6)


def test_edges() -> None:
    assert tolerant_bound([], [], 0.1).lower == 0.0
    assert len(log_wealth([], [], 0.1)) == 0
    certain = tolerant_bound([1] * 50, [1.0] * 50, 0.01)
    assert (certain.lower, certain.excess) == (0.0, 0.0)
    impossible = tolerant_bound([1] * 50, [0.0] * 50, 0.01)
    assert 0.7 < impossible.lower <= 1.0
    assert np.isfinite(log_wealth([0, 1], [1.0, 0.0], 1.0)).all()
    cases: tuple[tuple[list[float], list[float], str], ...] = (
        ([1, 0], [0.5], "equal length"),
        ([2.0], [0.5], r"inside\[0\] = 2.0"),
        ([1.0], [1.5], r"mass\[0\] = 1.5"),
        ([1.0], [np.nan], r"mass\[0\] = nan"),
    )
    for inside, mass, text in cases:
        with pytest.raises(InputError, match=text):
            tolerant_bound(inside, mass, 0.1)
    with pytest.raises(InputError, match="tolerance = -1"):
        log_wealth([1.0], [0.5], -1.0)
    with pytest.raises(InputError, match="alpha"):
        tolerant_bound([1.0], [0.5], 1.0)
