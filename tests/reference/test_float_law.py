"""Exact laws of rounded draws: by hand, by brute force over every uniform, at full vocabulary."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rheocheck.errors import InputError
from rheocheck.reference.exact_softmax import softmax_weights
from rheocheck.reference.float_law import (
    Branch,
    DyadicLaw,
    Floats,
    accept_counts,
    draw_counts,
    exact_distance,
    node_law,
    read_floats,
)

FULL_VOCAB = 128_256


def drawn_by_hand(running: Floats, positive: Sequence[bool], uniform: np.floating) -> int:
    """The draw that `draw_counts` counts, for one uniform."""
    threshold = uniform * running[-1]
    for index, (total, has_mass) in enumerate(zip(running, positive, strict=True)):
        if has_mass and total > threshold:
            return index
    return max(index for index, has_mass in enumerate(positive) if has_mass)


@given(values=st.lists(st.floats(0, 2.0**40, allow_subnormal=True), min_size=1, max_size=6))
@example(values=[0.0])
@example(values=[5e-324, 1.0])
@example(values=[1.7e308, 3.0])
def test_floats_are_read_as_they_are(values: list[float]) -> None:
    assert read_floats(np.array(values)).fractions() == tuple(map(Fraction, values))


def test_narrow_floats_are_read_as_they_are() -> None:
    for dtype in (np.float16, np.float32):
        law = read_floats(np.array([0.1, 0.25], dtype=dtype))
        assert law.fractions() == (Fraction(float(dtype(0.1))), Fraction(1, 4))


@pytest.mark.parametrize(
    ("values", "text"),
    [([0.5, -0.5], r"mass\[1\]"), ([np.nan], r"mass\[0\]"), ([1.0, np.inf], r"mass\[1\] is inf")],
)
def test_masses_that_are_none_are_refused(values: list[float], text: str) -> None:
    with pytest.raises(InputError, match=text):
        read_floats(np.array(values))


def test_types_wider_than_float64_are_refused() -> None:
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("no wider type here")
    with pytest.raises(InputError, match="float64 or narrower"):
        read_floats(np.array([0.5], dtype=np.longdouble))


@given(threshold=st.floats(-0.5, 1.5))
@example(threshold=0.0)
@example(threshold=1.0)
@example(threshold=0.25)
@example(threshold=float(np.nextafter(0.25, 1)))
@example(threshold=5e-324)
def test_accept_counts_are_numbers_of_uniforms_below(threshold: float) -> None:
    bits = 6
    below = sum(uniform / 2**bits < threshold for uniform in range(2**bits))
    assert accept_counts(np.array([threshold]), bits).tolist() == [below]


def test_acceptance_zero_never_accepts_one_always_does_nan_never() -> None:
    assert accept_counts(np.array([0.0, 1.0, 2.0, np.nan])).tolist() == [0, 2**53, 2**53, 0]


def test_a_threshold_below_one_fails_for_one_uniform_only() -> None:
    assert accept_counts(np.array([1 - 2.0**-53])).tolist() == [2**53 - 1]


@given(
    masses=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=7).filter(any),
    noise=st.lists(st.integers(-3, 3), min_size=7, max_size=7),
    dtype=st.sampled_from((np.float32, np.float64)),
)
@settings(max_examples=200, deadline=None)
@example(masses=[0.0, 1.0, 0.0], noise=[0] * 7, dtype=np.float32)
@example(masses=[0.5, 0.5, 0.25], noise=[0, 3, -3, 0, 0, 0, 0], dtype=np.float32)
def test_draws_are_counted_as_a_loop_over_all_uniforms_counts_them(
    masses: list[float],
    noise: list[int],
    dtype: type[np.floating],
) -> None:
    """Also where rounding (here: noise) makes running sums fall."""
    array = np.array(masses, dtype=dtype)
    ulps = np.array(noise[: len(masses)], dtype=dtype) / 64
    running = np.cumsum(array) * (1 + ulps)
    if not running[-1] > 0:
        return
    bits = 7
    counts = [0] * len(masses)
    for uniform in range(2**bits):
        counts[drawn_by_hand(running, (array > 0).tolist(), dtype(uniform / 2**bits))] += 1
    assert draw_counts(running, array > 0, bits).tolist() == counts


def test_a_token_without_mass_is_never_drawn() -> None:
    """Three tenths sum to more than 0.3: the last uniforms lie above every threshold but one."""
    masses = np.array([0.0, 0.1, 0.1, 0.1, 0.0])
    counts = draw_counts(masses.cumsum(), masses > 0)
    assert counts[0] == counts[4] == 0
    assert counts.sum() == 2**53


def test_unscaled_draws_give_what_is_above_the_rounded_total_to_the_last_token() -> None:
    masses = np.array([0.25, 0.25])
    assert draw_counts(masses.cumsum(), masses > 0, 4, scaled=False).tolist() == [4, 12]
    assert draw_counts(masses.cumsum(), masses > 0, 4).tolist() == [8, 8]


def test_draws_without_mass_or_with_too_fine_uniforms_are_refused() -> None:
    with pytest.raises(InputError, match="some mass"):
        draw_counts(np.zeros(2), np.zeros(2, dtype=bool))
    with pytest.raises(InputError, match="at most 24"):
        draw_counts(np.ones(1, dtype=np.float32), np.ones(1, dtype=bool))


def test_a_node_by_hand() -> None:
    """Probe 0 or 1, each half the time; probe 0 is kept 3 times in 4, else token 1 or 2 follows."""
    branches = [Branch(2, ((0, 3),), 0), Branch(2, ((1, 4),), 0)]
    law = node_law(branches, [np.array([0, 1, 3])], bits=2)
    assert law.fractions() == (Fraction(3, 8), Fraction(17, 32), Fraction(3, 32))


def test_a_node_without_tests_is_its_last_draw() -> None:
    law = node_law([Branch(4, (), 0)], [np.array([1, 3])], bits=2)
    assert law.fractions() == (Fraction(1, 4), Fraction(3, 4))


def test_distance_by_hand_and_between_weights() -> None:
    assert exact_distance(DyadicLaw([1, 3], 2), DyadicLaw([1, 1], 0)) == Fraction(1, 4)
    assert exact_distance(DyadicLaw([2, 6], 5), DyadicLaw([1, 3], 0)) == 0
    with pytest.raises(InputError, match="required: equal"):
        exact_distance(DyadicLaw([1], 0), DyadicLaw([1, 1], 0))
    with pytest.raises(InputError, match="positive sum"):
        exact_distance(DyadicLaw([0], 0), DyadicLaw([1], 0))


def test_a_full_vocabulary_is_drawn_exactly() -> None:
    """The running sum of float32 terms costs about 1e-3 of total variation; float64 1e-12."""
    generator = np.random.default_rng(0)
    weights = np.exp(generator.normal(size=FULL_VOCAB) * 2)
    law = weights / weights.sum()
    distances = {}
    for dtype, bits in ((np.float64, 53), (np.float32, 24)):
        masses = law.astype(dtype)
        counts = draw_counts(masses.cumsum(), masses > 0, bits)
        assert counts.sum() == 2**bits
        drawn = node_law([Branch(1 << bits, (), 0)], [counts], bits)
        distances[dtype] = exact_distance(drawn, read_floats(masses))
    assert 0 < distances[np.float64] < Fraction(1, 10**10)
    assert Fraction(1, 10**5) < distances[np.float32] < Fraction(1, 10**2)


def test_softmax_in_integers_by_hand() -> None:
    weights = softmax_weights(np.array([1.0, -np.inf, 1.0, 0.0]), bits=64)
    assert weights.numerators[1] == 0
    assert weights.numerators[0] == weights.numerators[2]
    assert abs(weights.numerators[0] - 2**64) < 4
    one_over_e = 6786177901268885274  # floor(2^64 / e)
    assert abs(weights.numerators[3] - one_over_e) < 4


@given(
    logits=st.lists(st.floats(-40, 40), min_size=1, max_size=5),
    bits=st.sampled_from((64, 96)),
)
def test_softmax_in_integers_agrees_with_more_digits_of_itself(
    logits: list[float], bits: int
) -> None:
    array = np.array(logits)
    coarse, fine = softmax_weights(array, bits), softmax_weights(array, bits + 64)
    for mass, wanted in zip(coarse.numerators, fine.numerators, strict=True):
        assert abs(mass - (wanted >> 64)) < 4
    floats = np.exp(array - array.max())
    assert exact_distance(read_floats(floats), fine) < Fraction(len(logits), 10**14)


def test_a_float32_softmax_is_measured_against_the_ideal() -> None:
    logits = np.random.default_rng(1).normal(size=4096).astype(np.float32) * 3
    weights = np.exp(logits - logits.max())
    ideal = softmax_weights(logits)
    narrow = exact_distance(read_floats(weights / weights.sum()), ideal)
    half = exact_distance(read_floats((weights / weights.sum()).astype(np.float16)), ideal)
    assert 0 < narrow < Fraction(1, 10**6) < half


@pytest.mark.parametrize("logits", [[np.nan, 0.0], [np.inf], [-np.inf, -np.inf]])
def test_softmax_of_bad_logits_is_refused(logits: list[float]) -> None:
    with pytest.raises(InputError, match="finite"):
        softmax_weights(np.array(logits))
