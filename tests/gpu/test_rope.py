import pytest
import torch

from rheocheck.gpu.rope import RopeScaling, rope_frequencies, rotate, widen

PLAIN = RopeScaling()


def test_rotation_by_a_quarter_turn_by_hand() -> None:
    heads = torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    angle = torch.tensor([torch.pi / 2, 0.0]).reshape(1, 1, 1, 2)
    expected = torch.tensor([-3.0, 2.0, 1.0, 4.0])
    torch.testing.assert_close(rotate(heads, angle).flatten(), expected)


def test_frequencies_by_hand() -> None:
    frequency = rope_frequencies(4, 100.0, PLAIN, torch.float64)
    assert frequency.tolist() == pytest.approx([1.0, 0.1])


def test_linear_scaling_divides_every_frequency() -> None:
    scaled = rope_frequencies(6, 1e4, RopeScaling("linear", factor=4.0))
    torch.testing.assert_close(scaled * 4, rope_frequencies(6, 1e4, PLAIN))


def test_llama3_scaling_keeps_fast_and_divides_slow_frequencies() -> None:
    plain = rope_frequencies(64, 500_000.0, PLAIN)
    scaled = rope_frequencies(64, 500_000.0, RopeScaling("llama3", 8.0))
    turns = 8192 * plain / (2 * torch.pi)
    torch.testing.assert_close(scaled[turns > 4], plain[turns > 4])
    torch.testing.assert_close(scaled[turns < 1], plain[turns < 1] / 8)
    between = (turns > 1) & (turns < 4)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()


@pytest.mark.parametrize(
    ("given", "wide"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_widening_never_narrows(given: torch.dtype, wide: torch.dtype) -> None:
    assert widen(torch.ones(1, dtype=given)).dtype == wide
