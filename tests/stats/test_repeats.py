"""Equal uniforms are judged by how fine the uniforms are."""

import numpy as np
import pytest

from rheocheck.stats.repeats import SHARED_LEVEL, lattice_bits, repeats_p_value

NONE = np.zeros(0)


@pytest.mark.parametrize("bits", [8, 24, 32, 53])
def test_the_lattice_is_read_off_the_values(bits: int) -> None:
    drawn = np.random.default_rng(1).integers(0, 2**bits, 400, dtype=np.uint64)
    assert lattice_bits(np.ldexp(drawn.astype(np.float64), -bits)) == bits


@pytest.mark.parametrize("bits", [16, 24, 32])
def test_chance_repeats_of_coarse_uniforms_are_no_fault(bits: int) -> None:
    """Twice as many draws as make one chance repeat, in 40 runs: none is called a fault."""
    rng = np.random.default_rng(2)
    count = int(2 * 2 ** (bits / 2))
    seen = 0
    for _ in range(40):
        values = np.sort(np.ldexp(rng.integers(0, 2**bits, count).astype(float), -bits))
        repeated = values[1:][np.diff(values) == 0]
        seen += len(repeated)
        assert repeats_p_value(values, repeated, count * (count - 1) / 2) > SHARED_LEVEL
    assert seen > 20


def test_one_fine_uniform_used_twice_is_a_fault_and_a_coarse_one_is_not() -> None:
    values = np.random.default_rng(3).random(10_000)
    pairs = 10_000 * 9_999 / 2
    # A value's last bits can be 0 by chance, and then it counts as coarser than it is.
    odd = np.array([np.ldexp(2**53 - 1, -53)])
    assert repeats_p_value(values, odd, pairs) == pytest.approx(pairs * 2.0**-53)
    assert repeats_p_value(values, odd, pairs) < SHARED_LEVEL
    assert repeats_p_value(values, values[:2], pairs) < SHARED_LEVEL
    assert repeats_p_value(values, np.array([0.0, 0.5, 0.5]), pairs) == 1.0
    assert repeats_p_value(values, NONE, pairs) == 1.0


def test_a_shared_stream_is_found_in_coarse_uniforms_too() -> None:
    coarse = np.ldexp(np.random.default_rng(4).integers(0, 2**24, 1000).astype(float), -24)
    assert repeats_p_value(coarse, coarse[:500], 1000 * 999 / 2) < 1e-12
