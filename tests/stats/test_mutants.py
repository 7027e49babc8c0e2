"""The mutants' laws, against exact enumeration of the sampler as a program."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from rheocheck import exact_law
from rheocheck.errors import InputError
from rheocheck.reference.choices import Choose
from rheocheck.stats import mutants
from rheocheck.stats.mutants import MUTANTS

P = [Fraction(k, 40) for k in (16, 9, 7, 5, 3, 0)]
Q = [Fraction(k, 50) for k in (12, 20, 3, 9, 0, 6)]
TARGET, DRAFT = np.array(P, dtype=np.float64), np.array(Q, dtype=np.float64)


def program(
    drawn: list[Fraction],
    accept: Callable[[int], Fraction],
    residual: list[Fraction],
) -> NDArray[np.float64]:
    def run(choose: Choose) -> int:
        token = choose.categorical(drawn)
        if choose.bernoulli(accept(token)):
            return token
        return choose.categorical(residual)

    law = exact_law(run)
    return np.array([float(law.get(token, 0)) for token in range(len(drawn))])


def ratio(token: int, factor: Fraction = Fraction(1)) -> Fraction:
    return min(Fraction(1), factor * P[token] / Q[token])


def residual() -> list[Fraction]:
    excess = [max(Fraction(0), p - q) for p, q in zip(P, Q, strict=True)]
    return [value / sum(excess) for value in excess]


def test_the_sound_sampler_emits_the_target() -> None:
    assert program(Q, ratio, residual()) == pytest.approx(TARGET)
    assert mutants.sound(TARGET, DRAFT) == pytest.approx(TARGET)
    assert mutants.sound(TARGET, TARGET) == pytest.approx(TARGET)


def test_a_draft_cut_after_the_ratio() -> None:
    top = [Q[0], Q[1], Fraction(0), Q[3], Fraction(0), Fraction(0)]
    cut = [value / sum(top) for value in top]
    law = mutants.draft_truncated_elsewhere(TARGET, DRAFT, support_size=3)
    assert law == pytest.approx(program(cut, ratio, residual()))


def test_no_residual() -> None:
    assert mutants.residual_is_target(TARGET, DRAFT) == pytest.approx(program(Q, ratio, P))


def test_a_softmax_of_the_residual() -> None:
    powers = np.exp([float(max(Fraction(0), p - q)) for p, q in zip(P, Q, strict=True)])
    softmax = [Fraction(value) for value in powers / powers.sum()]
    softmax[-1] += 1 - sum(softmax)
    law = mutants.residual_softmaxed(TARGET, DRAFT)
    assert law == pytest.approx(program(Q, ratio, softmax))


@pytest.mark.parametrize("factor", [Fraction(102, 100), Fraction(1002, 1000), Fraction(3, 2)])
def test_a_lenient_accept_test(factor: Fraction) -> None:
    law = mutants.lenient(TARGET, DRAFT, factor=float(factor))
    assert law == pytest.approx(program(Q, lambda token: ratio(token, factor), residual()))


def test_a_leak_of_unverified_drafts() -> None:
    def run(choose: Choose) -> int:
        return choose.categorical(Q if choose.bernoulli(Fraction(1, 100)) else P)

    exact = exact_law(run)
    expected = [float(exact.get(token, 0)) for token in range(6)]
    assert mutants.draft_leak(TARGET, DRAFT) == pytest.approx(expected)


def test_temperature_tail_and_noise_by_hand() -> None:
    expected = TARGET ** (1 / 1.25)
    hot = mutants.tempered(TARGET, DRAFT, 0, 1.25)
    assert hot == pytest.approx(expected / expected.sum())
    dropped = mutants.tail_dropped(TARGET, DRAFT, 0, 0.1)
    assert dropped == pytest.approx(np.array([16, 9, 7, 5, 0, 0]) / 37)
    assert mutants.tail_dropped(TARGET, DRAFT, 0, 0.9) == pytest.approx(TARGET)
    noisy = mutants.per_token_noise(TARGET, DRAFT, 3)
    again = mutants.per_token_noise(TARGET, DRAFT, 3)
    other = mutants.per_token_noise(TARGET, DRAFT, 4)
    assert (noisy == again).all() and (noisy != other).any()
    many = np.full(20_000, 1 / 20_000)
    spread = np.log(mutants.per_token_noise(many, many) * 20_000).std()
    assert spread == pytest.approx(0.02, rel=0.04)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_emits_a_law_and_is_no_sound_sampler(mutant: mutants.Mutant) -> None:
    rng = np.random.default_rng(0)
    target = rng.dirichlet(np.full(3000, 0.05))
    draft = target**0.9 * np.exp(rng.normal(0, 0.8, 3000))
    draft /= draft.sum()
    law = mutant.law(target, draft, 0)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert (law >= 0).all()
    assert 0.5 * np.abs(law - target).sum() > 1e-4
    point = np.eye(4)[0]
    assert mutant.law(point, np.full(4, 0.25), 0).sum() == pytest.approx(1.0)


def test_truncation_orders_by_mass_then_id() -> None:
    law = np.array([0.2, 0.3, 0.2, 0.3])
    assert mutants.truncated(law, 3) == pytest.approx([0.25, 0.375, 0.0, 0.375])
    assert (mutants.truncated(law, None) == law).all()
    assert (mutants.truncated(law, 9) == law).all()
    with pytest.raises(InputError, match="support_size = 0"):
        mutants.truncated(law, 0)
