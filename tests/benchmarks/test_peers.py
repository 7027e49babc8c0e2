"""The peers' statistics equal their definitions; sample sizes come out right on known powers."""

from typing import Any

import numpy as np
import pytest

from tests.benchmarks import peers
from tests.benchmarks.context_tables import running_sums, tabulated
from tests.benchmarks.contexts import synthetic_contexts


@pytest.fixture(scope="module")
def statistics() -> peers.Statistics:
    return peers.Statistics(tabulated(*synthetic_contexts(3, 50, 1)))


def pairs(sample: peers.Sample) -> Any:
    key = np.repeat(sample.key, sample.count)
    return key // 50, key % 50


def test_mmd_equals_the_mean_of_its_kernel(statistics: peers.Statistics) -> None:
    rng = np.random.default_rng(1)
    first, other = statistics.sample(40, rng), statistics.sample(60, rng)

    def mean(one: peers.Sample, two: peers.Sample, drop_diagonal: bool) -> float:
        (prompt, token), (prompts, tokens) = pairs(one), pairs(two)
        same_prompt = prompt[:, None] == prompts[None, :]
        same = same_prompt & (token[:, None] == tokens[None, :])
        if drop_diagonal:
            np.fill_diagonal(same_prompt, False)
            np.fill_diagonal(same, False)
        return float(same.sum() / same_prompt.sum())

    expected = mean(first, first, True) - 2 * mean(first, other, False) + mean(other, other, True)
    assert peers.mmd_hamming(first, other, 50) == pytest.approx(expected)


def test_mmd_equals_the_package(statistics: peers.Statistics) -> None:
    pytest.importorskip("model_equality_testing")
    found = peers.peer_check(statistics, 60)
    assert found["installed"] and found["largest_difference"] < 1e-12


def test_chi_squares_equal_their_sums(statistics: peers.Statistics) -> None:
    sample = statistics.sample(500, np.random.default_rng(2))
    found = statistics.all(sample, sample)
    prompt, token = pairs(sample)
    counts = np.zeros((3, 50))
    np.add.at(counts, (prompt, token), 1)
    expected = 500 * statistics.contexts.target / 3
    assert found[peers.CHI_SQUARES[1]] == pytest.approx(((counts - expected) ** 2 / expected).sum())
    summed, mean = counts.sum(axis=0), expected.sum(axis=0)
    assert found[peers.CHI_SQUARES[0]] == pytest.approx(((summed - mean) ** 2 / mean).sum())
    large = mean >= 5
    pooled = np.append(summed[large], summed[~large].sum())
    pooled_mean = np.append(mean[large], mean[~large].sum())
    by_hand = ((pooled - pooled_mean) ** 2 / pooled_mean).sum()
    assert found[peers.CHI_SQUARES[2]] == pytest.approx(by_hand)


def test_sizes_are_read_between_powers() -> None:
    assert peers.samples_needed([8, 16, 32], [0.1, 0.8, 1.0]) == pytest.approx(16 * 2**0.5)
    assert peers.samples_needed([8, 16], [0.95, 0.99]) == 8
    assert peers.samples_needed([8, 16], [0.1, 0.5]) is None


def test_a_coarse_fault_is_found_and_the_sound_sampler_is_not(
    statistics: peers.Statistics,
) -> None:
    """200 null replays set the thresholds: a rate of 0.01 gives 13 of 100 with probability 1e-9."""
    wrong = 0.5 * statistics.contexts.target + 0.5 * statistics.contexts.draft
    faults = {"half draft": running_sums(wrong), "sound": statistics.contexts.cumulative}
    found = peers.powers(statistics, faults, 600, (200, 100), np.random.default_rng(3))
    assert found["half draft"]["draft score"] > 0.99
    assert max(found["sound"].values()) <= 0.2
