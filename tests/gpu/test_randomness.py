"""Counter-based uniforms: known answers, replay, independence of rows and purposes."""

import re
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu.randomness import (
    MAX_LAYER,
    MAX_TOP_K,
    Purpose,
    inverse_cdf,
    node_key,
    philox4x32,
    round_uniforms,
    uniforms,
)

CONFIG = SpeculationConfig(top_k=3, num_top=1, depth=2)
BELOW_ONE = 1 - 2.0**-53


def words(*values: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    first, second, third, fourth = (torch.tensor([value]) for value in values)
    return first, second, third, fourth


# Known answers of philox4x32-10 in the Random123 distribution (kat_vectors).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert tuple(int(word) for word in philox4x32(words(*counter), key)) == expected


def test_a_uniform_is_made_of_53_bits_of_its_own_block() -> None:
    one, two, _, _ = philox4x32(words(5, 6, int(node_key(*words(1, 2, 3, 0)[:3])), 1), (7, 9))
    expected = (int(one) >> 5) * 2**26 + (int(two) >> 6)
    drawn = uniforms(
        7 + 9 * 2**32,
        torch.tensor(5),
        torch.tensor(6),
        node_key(torch.tensor(1), torch.tensor(2), torch.tensor(3)),
        Purpose.ACCEPT,
    )
    assert drawn.dtype == torch.float64
    assert float(drawn) * 2**53 == expected


def test_rows_do_not_depend_on_their_batch() -> None:
    request, round_index = torch.tensor([4, 9, 2**32 - 1]), torch.tensor([0, 7, 3])
    together = round_uniforms(11, request, round_index, CONFIG)
    for row in range(3):
        alone = round_uniforms(11, request[row : row + 1], round_index[row : row + 1], CONFIG)
        assert torch.equal(alone.probe[0], together.probe[row])
        assert torch.equal(alone.accept[0], together.accept[row])
        assert torch.equal(alone.final[0], together.final[row])


def test_shapes_and_a_seed_that_replays() -> None:
    drawn = round_uniforms(3, torch.tensor([0, 1]), torch.tensor([0, 0]), CONFIG)
    again = round_uniforms(3, torch.tensor([0, 1]), torch.tensor([0, 0]), CONFIG)
    other = round_uniforms(4, torch.tensor([0, 1]), torch.tensor([0, 0]), CONFIG)
    assert drawn.probe.shape == (2, 2, 3)
    assert drawn.accept.shape == (2, 2, 3, 3)
    assert drawn.final.shape == (2,)
    assert torch.equal(drawn.accept, again.accept)
    assert not torch.equal(drawn.accept, other.accept)


def test_no_two_draws_of_two_rounds_are_the_same() -> None:
    config = SpeculationConfig(top_k=10, num_top=1, depth=8)
    drawn = round_uniforms(0, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), config)
    values = torch.cat([part.flatten() for part in (drawn.probe, drawn.accept, drawn.final)])
    # Two of n draws of 53 bits agree by chance with probability n**2 / 2**54 < 1e-9.
    assert len(set(values.tolist())) == len(values) == 3 * (80 + 800 + 1)
    assert bool((values >= 0).all()) and bool((values < 1).all())


def test_purposes_share_no_draw() -> None:
    zero = torch.tensor(0)
    drawn = [float(uniforms(0, zero, zero, zero, purpose)) for purpose in Purpose]
    assert len(set(drawn)) == len(Purpose)


def test_node_keys_differ_and_fit_in_a_word() -> None:
    layer, rank, slot = torch.meshgrid(
        torch.tensor([0, 1, MAX_LAYER]),
        torch.tensor([0, 1, MAX_TOP_K - 1]),
        torch.tensor([0, 1, MAX_TOP_K - 1]),
        indexing="ij",
    )
    keys = node_key(layer, rank, slot)
    assert len(set(keys.flatten().tolist())) == keys.numel()
    assert int(keys.min()) == 0 and int(keys.max()) == 2**32 - 1


def test_uniforms_have_the_mean_and_variance_of_uniforms() -> None:
    drawn = uniforms(1, torch.arange(200_000), torch.tensor(0), torch.tensor(0), Purpose.PROBE)
    # 5 standard errors: false alarm 6e-7 each. A stream of 24 bits or a scale off by 1 % fails.
    assert abs(float(drawn.mean()) - 1 / 2) < 5 * (1 / 12 / 200_000) ** 0.5
    assert abs(float(((drawn - 0.5) ** 2).mean()) - 1 / 12) < 5 * (1 / 180 / 200_000) ** 0.5


@pytest.mark.parametrize(
    "seed", [-1, -(2**64), 2**63, 2**64, 2**64 + 1, True, False, 1.0, "1", None]
)
def test_a_seed_out_of_range_is_refused(seed: Any) -> None:
    text = re.escape(f"seed = {seed!r}: a seed must be an integer and lie in [0, 2**63)")
    with pytest.raises(InputError, match=text):
        round_uniforms(seed, torch.tensor([0]), torch.tensor([0]), CONFIG)


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_counters_out_of_range_are_refused(bad: int) -> None:
    good, with_bad = torch.tensor([0, 1]), torch.tensor([0, bad])
    with pytest.raises(InputError, match=rf"request\[1\] = {bad}: a counter must lie in"):
        round_uniforms(0, with_bad, good, CONFIG)
    with pytest.raises(InputError, match=rf"round_index\[1\] = {bad}: a counter must lie in"):
        round_uniforms(0, good, with_bad, CONFIG)
    unchecked = round_uniforms(0, with_bad, good, CONFIG, check=False)
    modulo = round_uniforms(0, with_bad % 2**32, good, CONFIG)
    assert torch.equal(unchecked.accept, modulo.accept)


@pytest.mark.parametrize(("depth", "top_k"), [(MAX_LAYER + 1, 1), (1, MAX_TOP_K + 1)])
def test_a_tree_too_large_for_its_keys_is_refused(depth: int, top_k: int) -> None:
    config = SpeculationConfig(depth=depth, top_k=top_k)
    with pytest.raises(InputError, match="a node's random key holds depth up to"):
        round_uniforms(0, torch.tensor([0]), torch.tensor([0]), config)


def test_depth_zero_has_no_probes() -> None:
    drawn = round_uniforms(
        0, torch.tensor([0]), torch.tensor([0]), SpeculationConfig(top_k=2, depth=0)
    )
    assert drawn.probe.shape == (1, 0, 2) and drawn.final.shape == (1,)


def test_inverse_cdf_by_hand() -> None:
    mass = torch.tensor([0.0, 1.0, 0.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    points = [0.0, 0.25 - 2**-54, 0.25, 0.5, 0.75, BELOW_ONE]
    drawn = inverse_cdf(mass.expand(6, 6), torch.tensor(points, dtype=torch.float64))
    assert drawn.tolist() == [1, 1, 3, 3, 4, 4]


def test_inverse_cdf_of_nothing_is_minus_one() -> None:
    half = torch.tensor([0.5], dtype=torch.float64)
    assert inverse_cdf(torch.zeros(1, 4).double(), half).tolist() == [-1]
    assert inverse_cdf(torch.zeros(1, 0).double(), half).tolist() == [-1]


@given(
    masses=st.lists(st.sampled_from([0.0, 1e-300, 0.1, 1 / 3, 1.0, 7.0, 1e300]), min_size=1),
    uniform=st.floats(0, 1, exclude_max=True),
)
@example(masses=[0.1] * 10 + [0.0], uniform=BELOW_ONE)
@example(masses=[0.0, 1.0], uniform=0.0)
@example(masses=[1.0, 1e-300, 0.0], uniform=BELOW_ONE)
def test_inverse_cdf_never_draws_an_item_without_mass(masses: list[float], uniform: float) -> None:
    mass = torch.tensor([masses], dtype=torch.float64)
    index = int(inverse_cdf(mass, torch.tensor([uniform], dtype=torch.float64)))
    if any(masses):
        assert masses[index] > 0
    else:
        assert index == -1
