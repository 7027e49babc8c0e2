"""Power is what simulation finds; Holm by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck.stats.multiplicity import holm
from rheocheck.stats.power import (
    chi_square_detectable,
    chi_square_power,
    event_detectable_probability,
    mean_shift_detectable,
)


def test_the_table_of_sample_sizes_comes_back() -> None:
    """64 cells, TV 1 %, alpha 1e-6, power 0.95 need 2.6e5 draws."""
    assert chi_square_detectable(260_000, 63, 1e-6) == pytest.approx(0.01, rel=0.02)


def test_detectable_distance_has_the_power_asked_for() -> None:
    distance = chi_square_detectable(5000, 19, 1e-3, 0.8)
    assert chi_square_power(5000, 19, distance, 1e-3) == pytest.approx(0.8, abs=1e-6)


def test_power_agrees_with_simulation() -> None:
    """20 bins, 1,000 draws, TV 0.06 spread evenly, level 0.01: 600 replays within 4 sd."""
    rng = np.random.default_rng(0)
    law = np.full(20, 0.05) * (1 + 0.12 * np.tile([1, -1], 10))
    counts = rng.multinomial(1000, law, size=600)
    statistic = ((counts - 50.0) ** 2 / 50.0).sum(axis=1)
    measured = (statistic > 36.19).mean()
    computed = chi_square_power(1000, 19, 0.06, 0.01)
    assert measured == pytest.approx(computed, abs=4 * 0.5 / np.sqrt(600))


def test_too_few_draws_detect_nothing() -> None:
    assert chi_square_detectable(2, 19, 1e-6) == 1.0


def test_mean_shift_by_hand() -> None:
    assert mean_shift_detectable(10_000, 0.5, 1e-6) == pytest.approx(6.54 * 0.5 / 100, rel=0.01)


def test_exact_checks_miss_only_rare_faults() -> None:
    assert event_detectable_probability(0) == 1.0
    assert (1 - event_detectable_probability(100, 0.95)) ** 100 == pytest.approx(0.05)


def test_holm_by_hand() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({}) == {}


@given(st.dictionaries(st.text(max_size=2), st.floats(0, 1), max_size=6))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: dict[str, float]) -> None:
    adjusted = holm(p_values)
    for name, value in p_values.items():
        assert value <= adjusted[name] <= 1.0
        for other in p_values:
            if value <= p_values[other]:
                assert adjusted[name] <= adjusted[other]
