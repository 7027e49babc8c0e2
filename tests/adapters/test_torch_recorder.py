"""Unmodified torch code gets its exact law, in its own floats and in rationals."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from rheocheck.adapters.recorder import recorded_law
from rheocheck.errors import ProgramError

torch = pytest.importorskip("torch")

from rheocheck.adapters.noise import LogMass  # noqa: E402
from rheocheck.adapters.object_tensor import ObjectTensor, object_tensor  # noqa: E402

QUARTER, THIRD, HALF = Fraction(1, 4), Fraction(1, 3), Fraction(1, 2)
LAW = [QUARTER, HALF, QUARTER]


def exact(values: list[Any], *shape: int) -> ObjectTensor:
    return object_tensor(values, shape or (len(values),), torch.float64)


THIRD_TENSOR: Any = exact([THIRD])


def race(weights: Any) -> int:
    noise = torch.empty_like(weights)
    noise.exponential_()
    return int(weights.div(noise).argmax(dim=-1).item())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: int(torch.multinomial(torch.tensor([0.25, 0.5, 0.25]), 1)),
        lambda: int(torch.multinomial(torch.tensor([[1.0, 2.0, 1.0]]), num_samples=1).squeeze()),
        lambda: int(torch.tensor([1.0, 2.0, 1.0]).multinomial(1).item()),
        lambda: int(torch.multinomial(exact(LAW), 1)),
        lambda: int((torch.rand(2) < 0.5).sum()),
        lambda: int((torch.rand((1, 2)) <= torch.tensor([[0.5, 0.5]])).sum().item()),
        lambda: int((torch.tensor([0.5, 0.5]) > torch.rand(size=(2,))).sum()),
        lambda: int((torch.rand_like(torch.zeros(2)).unsqueeze(0)[0] * 2 < 1).sum()),
        lambda: sum(int(u.item() < 0.5) for u in torch.rand(2)),
        lambda: sum(int(0.5 >= torch.rand(1)[0]) for _ in range(2)),
        lambda: int(torch.searchsorted(torch.tensor([0.25, 0.75]), torch.rand(1))),
        lambda: int((torch.rand(1) > torch.cumsum(torch.tensor([0.25, 0.5]), 0)).sum()),
        lambda: int((torch.empty(2).uniform_() < 0.5).sum()),
        lambda: int((torch.empty(2).uniform_(-1, 1) < 0).sum()),
        lambda: int(torch.bernoulli(torch.tensor([0.5, 0.5])).sum()),
        lambda: int(torch.empty(2).bernoulli_(0.5).sum()),
        lambda: int(torch.randint(2, (2,)).sum()),
        lambda: int(torch.where(torch.rand(2) < 0.5, 1, 0).sum()),
        lambda: race(torch.tensor([1.0, 2.0, 1.0])),
        lambda: race(exact(LAW)),
        lambda: int((torch.empty(3).exponential_() / torch.tensor([1.0, 2.0, 1.0])).argmin()),
        lambda: int((-(-torch.rand(3).log()).log() + exact([LogMass(x) for x in LAW])).argmax()),
        lambda: int((exact([LogMass(x) for x in LAW]) - torch.rand(3).log().neg().log()).argmax()),
        lambda: int((torch.rand(2).log() < exact([LogMass(HALF)] * 2)).sum()),
        lambda: int(torch.distributions.Categorical(torch.tensor([0.25, 0.5, 0.25])).sample()),
    ],
)
def test_the_usual_ways_to_draw_are_followed(draw: Callable[[], int]) -> None:
    assert recorded_law(draw) == {0: QUARTER, 1: HALF, 2: QUARTER}


def test_gumbel_noise_on_float_logits_is_followed_up_to_one_rounded_exponential() -> None:
    logits = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).log()
    law = recorded_law(
        lambda: int((logits - torch.empty_like(logits).exponential_().log()).argmax())
    )
    assert [float(law[token]) for token in range(3)] == pytest.approx([0.25, 0.5, 0.25], abs=1e-15)


def test_float32_thresholds_are_the_dyadic_rationals_they_are() -> None:
    law = recorded_law(lambda: bool(torch.rand(1) < torch.tensor([0.1])))
    assert law[True] == Fraction(torch.tensor(0.1).item()) != Fraction(1, 10)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: torch.randn(2), "cannot be followed"),
        (lambda: torch.randperm(3), "cannot be followed"),
        (lambda: torch.empty(2).normal_(), "cannot be followed"),
        (lambda: torch.rand(2).sin(), "torch function sin"),
        (lambda: float(torch.rand(1)), "float()"),
        (lambda: torch.rand(2).sum(), "two draws"),
        (lambda: torch.rand(2).int(), "torch function int"),
        (lambda: torch.rand(2).to(torch.int64), "floating dtype"),
        (lambda: bool(torch.rand(1)), "truth value"),
        (lambda: torch.rand(2, out=torch.empty(2)), "no out"),
        (lambda: torch.multinomial(torch.tensor([0.0, 0.0]), 1), "all 0"),
        (lambda: torch.multinomial(torch.tensor([0.5, math.nan]), 1), "at index 1"),
        (lambda: torch.multinomial(torch.tensor([0.5, -1.0]), 1), "at index 1"),
        (lambda: torch.rand(1) < torch.tensor([math.nan]), "NaN"),
        (lambda: torch.empty(2).exponential_(2.0), "required: 1"),
        (lambda: torch.empty(2).exponential_().argmax(), "noise divided by weights"),
        (lambda: exact([THIRD, 1 - THIRD]).log2(), "torch function log2"),
        (lambda: exact([Fraction(0)] * 2) / exact([Fraction(0)] * 2), "0 was divided by 0"),
        (lambda: exact([THIRD]).sum(dtype=torch.float32) and torch.rand(1).sum(1, True, x=1), "x"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        recorded_law(lambda: str(draw()))


def test_noise_that_decides_two_draws_is_refused() -> None:
    def reused() -> tuple[int, int]:
        noise = torch.empty(2).exponential_()
        weights = torch.tensor([1.0, 1.0])
        return int((weights / noise).argmax()), int((weights / noise).argmax())

    with pytest.raises(ProgramError, match="decided two draws"):
        recorded_law(reused)

    def compared_too() -> tuple[int, bool]:
        uniforms = torch.rand(2)
        return int((uniforms.log().neg()).argmin()), bool(uniforms[0] < 0.5)

    with pytest.raises(ProgramError, match="one use of each draw"):
        recorded_law(compared_too)


def test_views_share_their_elements_and_copies_do_not() -> None:
    law = exact([THIRD, THIRD, THIRD])
    view, copy = law[1:].unsqueeze(0), law.clone()
    law[1] = 0
    law.div_(law.sum())
    assert law.tolist() == [HALF, 0, HALF]
    assert view.tolist() == [[0, HALF]]
    assert copy.tolist() == [THIRD] * 3
    # A conversion to another dtype copies, one to the same dtype does not, as in torch.
    assert law.double() is law and law.to(torch.float32) is not law
    assert law.float().dtype == torch.float32


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda p: torch.clamp(p - THIRD_TENSOR, min=0), [0, Fraction(1, 6), 0]),
        (lambda p: torch.relu(p - THIRD_TENSOR), [0, Fraction(1, 6), 0]),
        (lambda p: p.cumsum(0), [QUARTER, Fraction(3, 4), 1]),
        (lambda p: p.cumprod(-1), [QUARTER, Fraction(1, 8), Fraction(1, 32)]),
        (lambda p: p.masked_fill(p == HALF, 0.0), [QUARTER, 0, QUARTER]),
        (lambda p: torch.where(p > 0.3, p, torch.zeros_like(p)), [0, HALF, 0]),
        (lambda p: torch.cat((p[:1], torch.tensor([0.5]))), [QUARTER, HALF]),
        (lambda p: torch.minimum(p, THIRD_TENSOR), [QUARTER, THIRD, QUARTER]),
        (lambda p: torch.topk(p, 2).values, [HALF, QUARTER]),
        (lambda p: torch.sort(p, descending=True).indices, [1, 0, 2]),
        (lambda p: p.argsort(), [0, 2, 1]),
        (lambda p: p.max(dim=0).indices, 1),
        (lambda p: p.max(), HALF),
        (lambda p: p.reshape(1, 3).sum(dim=-1, keepdim=True), [[1]]),
        (lambda p: torch.stack([p, p]).T[1], [HALF, HALF]),
        (lambda p: p.log().softmax(0), LAW),
        (lambda p: torch.log_softmax(p.log() / 0.5, -1).exp() * 6, [1, 4, 1]),
        (lambda p: p.scatter(0, torch.tensor([1]), 0.0), [QUARTER, 0, QUARTER]),
        (lambda p: p.gather(0, torch.tensor([1, 1])), [HALF, HALF]),
        (lambda p: (2 - p) * (1 / p), [7, 3, 7]),
        (lambda p: p / exact([Fraction(0)] * 3), [math.inf] * 3),
        (lambda p: p.new_zeros(2).add_(p[:2]), [QUARTER, HALF]),
        (lambda p: torch.empty_like(p).copy_(p).clamp_(max=0.25), [QUARTER] * 3),
        (lambda p: p.clamp(min=THIRD_TENSOR), [THIRD, HALF, THIRD]),
        (lambda p: torch.nn.functional.softmax(p.log(), dim=0), LAW),
        (lambda p: len(p) + p.ndim + p.size(0) + p.numel(), 10),
    ],
)  # fmt: skip
def test_rational_tensors_compute_without_rounding(compute: Any, expected: Any) -> None:
    result = compute(exact(list(LAW)))
    assert (result.tolist() if isinstance(result, torch.Tensor) else result) == expected


def test_a_comparison_of_laws_is_a_plain_tensor() -> None:
    law: Any = exact(list(LAW))
    decided = law >= QUARTER
    assert type(decided) is torch.Tensor and decided.tolist() == [True] * 3
    assert repr(exact([HALF])) == "ObjectTensor([Fraction(1, 2)])"
    assert exact(list(LAW)).numpy().tolist() == LAW
