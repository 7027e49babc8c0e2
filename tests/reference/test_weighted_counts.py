"""Exact weighted sums of integer vectors, against Python's integers."""

import random

import numpy as np
import pytest

from rheocheck.reference.weighted_counts import weighted_counts


@pytest.mark.parametrize("vectors", [1, 2, 63, 64, 65, 130])
@pytest.mark.parametrize("bits", [1, 16, 53, 700])
def test_sums_are_those_of_python_integers(vectors: int, bits: int) -> None:
    rng = random.Random(vectors * 1000 + bits)
    weights = [rng.choice([0, 1, (1 << bits) - 1, rng.getrandbits(bits)]) for _ in range(vectors)]
    rows = [
        [rng.choice([0, 1, 1 << 53, (1 << 54) - 1, rng.getrandbits(53)]) for _ in range(37)]
        for _ in range(vectors)
    ]
    expected = [
        sum(w * row[item] for w, row in zip(weights, rows, strict=True)) for item in range(37)
    ]
    assert weighted_counts(weights, [np.array(row) for row in rows]) == expected


def test_largest_terms_do_not_round() -> None:
    for vectors in (64, 256, 257, 1100):
        rows = [np.full(3, (1 << 54) - 1)] * vectors
        assert (
            weighted_counts([(1 << 640) - 1] * vectors, rows)
            == [vectors * ((1 << 640) - 1) * ((1 << 54) - 1)] * 3
        )


def test_nothing_to_add() -> None:
    assert weighted_counts([], []) == []
    assert weighted_counts([0, 0], [np.arange(2), np.arange(2)]) == [0, 0]
