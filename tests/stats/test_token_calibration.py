"""Per-token calibration finds one broken id; lag-1 pairs find shared randomness."""

import numpy as np
import pytest
from scipy import stats

from rheocheck.errors import InputError
from rheocheck.stats.serial_pairs import serial_pairs
from rheocheck.stats.token_calibration import poisson_log_p, token_calibration


def test_one_token_by_hand() -> None:
    """Mean 8 of variance 4 (16 fair coins), 16 heads: ln p = ln 2 - (16 ln 2 - 8)."""
    found = token_calibration([16.0, 0.0], [8.0, 8.0], [4.0, 4.0], 0.01)
    assert found.z == pytest.approx(-4.0)
    assert (found.num_tested, found.worst) == (2, 1)
    assert found.p_value == pytest.approx(2 * 2 * np.exp(-8.0))
    assert found.rejected == (1,)


def test_the_bound_is_above_the_exact_tails() -> None:
    for mean in (5.0, 17.3, 300.0):
        counts = np.arange(0, int(4 * mean), dtype=np.float64)
        p = np.exp(poisson_log_p(counts, np.full_like(counts, mean)))
        upper, lower = stats.poisson.sf(counts - 1, mean), stats.poisson.cdf(counts, mean)
        assert (p >= np.where(counts > mean, upper, lower) * (1 - 1e-12)).all()


def test_a_lost_token_is_named_and_sound_draws_are_quiet() -> None:
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(40, 0.3), size=4000)
    token = (rng.random(4000)[:, None] > laws.cumsum(axis=1)).sum(axis=1).clip(max=39)
    expected, squares = laws.sum(axis=0), (laws**2).sum(axis=0)
    sound = token_calibration(np.bincount(token, minlength=40), expected, squares, 1e-9)
    assert sound.rejected == () and sound.p_value > 1e-9
    broken = int(np.argsort(-expected)[0])
    lost = np.where(token == broken, (broken + 1) % 40, token)
    found = token_calibration(np.bincount(lost, minlength=40), expected, squares, 1e-9)
    assert found.worst == broken or (broken + 1) % 40 == found.worst
    assert broken in found.rejected


def test_nothing_to_test_and_bad_input() -> None:
    assert token_calibration([0.0], [4.9], [0.0], 0.1).worst is None
    certain = token_calibration([20.0], [20.0], [20.0], 0.1)
    assert (certain.z, certain.p_value) == (0.0, 1.0)
    with pytest.raises(InputError, match=r"expected\[1\] = nan"):
        token_calibration([0.0, 0.0], [1.0, np.nan], [0.0, 0.0], 0.1)
    with pytest.raises(InputError, match="squares has shape"):
        token_calibration([0.0, 0.0], [1.0, 1.0], [0.0], 0.1)
    with pytest.raises(InputError, match="alpha"):
        token_calibration([0.0], [9.0], [0.0], 0.0)


def test_shared_randomness_between_neighbours_is_seen() -> None:
    """Uniform margins, every second value a copy with noise: 4,000 draws against 1e-9."""
    rng = np.random.default_rng(1)
    values = rng.random(4000)
    sound = serial_pairs(values)
    assert sound.num_pairs == 2000 and sound.p_value > 1e-9
    values[1::2] = (values[::2] + rng.uniform(0, 0.3, 2000)) % 1.0
    assert serial_pairs(values).p_value < 1e-9


def test_pairs_never_cross_sequences() -> None:
    """Runs of 3 values have one pair each; a copy across the border is not seen."""
    rng = np.random.default_rng(2)
    values = rng.random(3000)
    values[3::3] = values[2:-1:3]
    found = serial_pairs(values, np.repeat(np.arange(1000), 3))
    assert found.num_pairs == 1000
    assert found.p_value > 1e-9
    values[1::3] = values[::3]
    assert serial_pairs(values, np.repeat(np.arange(1000), 3)).correlation > 0.9


def test_few_pairs_are_no_test() -> None:
    assert serial_pairs([]).p_value == 1.0
    assert serial_pairs([0.5]).num_pairs == 0
    few = serial_pairs([0.0, 1.0, 0.2, 0.4])
    assert (few.num_pairs, few.statistic, few.df) == (2, None, 0)
    with pytest.raises(InputError, match=r"values\[0\] = 2"):
        serial_pairs([2.0])
    with pytest.raises(InputError, match="sequence"):
        serial_pairs([0.5, 0.5], [0])
