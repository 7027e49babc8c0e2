"""Anderson-Darling: statistic by its definition, tail by tables and by another formula."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from rheocheck.errors import InputError
from rheocheck.stats.anderson_darling import anderson_darling, anderson_darling_tail


@pytest.mark.parametrize(
    ("statistic", "tail"), [(1.248, 0.25), (1.933, 0.10), (2.492, 0.05), (3.878, 0.01)]
)
def test_tail_equals_the_published_points(statistic: float, tail: float) -> None:
    assert anderson_darling_tail(statistic) == pytest.approx(tail, rel=2e-3)


@pytest.mark.parametrize("statistic", [0.2, 0.7, 2.5])
def test_tail_equals_the_inverted_characteristic_function(statistic: float) -> None:
    """Gil-Pelaez's integral over the weighted chi-squares; weights after the 3,000th by mean."""
    weights = 1.0 / (np.arange(1, 3001) * np.arange(2, 3002))

    def integrand(t: float) -> float:
        log_product = -0.5 * np.log(1.0 - 2j * t * weights).sum() + 1j * t / 3001
        return float(np.exp(log_product - 1j * t * statistic).imag / t)

    value = integrate.quad(integrand, 1e-12, 300.0, limit=1000)[0]
    assert anderson_darling_tail(statistic) == pytest.approx(0.5 + value / math.pi, abs=1e-6)


def test_tail_is_a_decreasing_probability_from_one_to_nothing() -> None:
    tails = [anderson_darling_tail(x) for x in np.geomspace(0.01, 500.0, 60)]
    assert tails[0] == 1.0 and 0.0 <= tails[-1] < 1e-100
    assert all(a >= b for a, b in pairwise(tails))


def test_statistic_equals_its_integral() -> None:
    values = np.array([0.1, 0.35, 0.7, 0.72])

    def integrand(u: float) -> float:
        return float(((values <= u).mean() - u) ** 2 / (u * (1 - u)))

    integral = integrate.quad(integrand, 0, 1, points=list(values), limit=500)[0]
    assert anderson_darling(values)[0] == pytest.approx(4 * integral, rel=1e-6)


def test_p_values_are_uniform_from_ten_draws_on() -> None:
    """1,000 replays; Kolmogorov-Smirnov distance 0.104 has probability 1e-9."""
    rng = np.random.default_rng(8)
    p_values = [anderson_darling(rng.random(10))[1] for _ in range(1000)]
    assert stats.kstest(p_values, "uniform").statistic < 0.104


def test_it_sees_a_crowded_end() -> None:
    values = np.random.default_rng(9).random(2000)
    values[:60] = 1e-9
    assert anderson_darling(values)[1] < 1e-9
    assert stats.kstest(values, "uniform").pvalue > 1e-4


def test_edges_and_errors() -> None:
    assert anderson_darling([]) == (0.0, 1.0)
    assert math.isfinite(anderson_darling([0.0, 1.0])[0])
    assert math.isnan(anderson_darling_tail(math.nan))
    with pytest.raises(InputError, match=r"values\[1\] = nan"):
        anderson_darling([0.5, np.nan])
