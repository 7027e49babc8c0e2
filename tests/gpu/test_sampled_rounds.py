"""Many rounds of the torch path: the joint law of the emission against the exact one.

Emissions of all rounds are counted and compared with the law that the class enumerator gives for
the same laws in fractions, by chi-square over pooled cells and by the plug-in distance beside its
exact null mean.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from rheocheck.config import RULES, Rule, SpeculationConfig
from rheocheck.gpu import verification
from rheocheck.gpu.verification import verify
from rheocheck.reference import lossless_defect, round_law
from rheocheck.stats.chi_square import pool_cells
from rheocheck.stats.total_variation import plug_in
from tests.gpu.table_drafter import grow_from_table, next_state, node_states

STATES = 5
Path = tuple[int, ...]


def tables(vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """[states, vocab] integer weights of target and draft: zeros, ties, and a common part."""
    rng = np.random.default_rng(vocab)
    target = rng.integers(0, 6, size=(STATES, vocab)) ** 2
    draft = np.where(rng.random((STATES, vocab)) < 0.5, target, rng.integers(0, 5, target.shape))
    target[:, 0] += 1
    draft[:, 0] += 1
    return target, draft


def exact_law(vocab: int, config: SpeculationConfig) -> dict[Path, Fraction]:
    """Law of a round's emission, exactly; certified lossless on the way."""
    target, draft = tables(vocab)

    def law(weights: np.ndarray, path: Path) -> tuple[Fraction, ...]:
        state = torch.zeros(1, dtype=torch.int64)
        for token in path:
            state = next_state(state, torch.tensor([token]), STATES)
        row = [int(weight) for weight in weights[int(state)]]
        return tuple(Fraction(weight, sum(row)) for weight in row)

    found = round_law(lambda path: law(target, path), lambda path: law(draft, path), config)
    assert lossless_defect(found, lambda path: law(target, path)) == 0
    return dict(found.emissions)


def sample(
    vocab: int, config: SpeculationConfig, rounds: int, seed: int, temperature: float
) -> Counter[Path]:
    """Emissions of that many rounds, in large batches, each row with draws of its own."""
    target, draft = (torch.from_numpy(table).double().log() for table in tables(vocab))
    size = min(rounds, 2**19 // vocab)
    counts: Counter[Path] = Counter()
    for start in range(0, rounds, size):
        rows = min(size, rounds - start)
        request = torch.arange(start, start + rows)
        tree, draws = grow_from_table(
            draft.expand(rows, -1, -1), request, torch.zeros_like(request), config, seed=seed
        )
        logits = target[node_states(tree, STATES).clamp(0, STATES - 1)]
        done = verify(tree, logits, draws, config.rule, temperature)
        values, number = np.unique(done.emitted.numpy(), axis=0, return_counts=True)
        for emission, count in zip(values.tolist(), number.tolist(), strict=True):
            counts[tuple(token for token in emission if token >= 0)] += count
    return counts


def compare(
    vocab: int, rule: Rule, rounds: int, seed: int, temperature: float = 1.0
) -> tuple[float, float]:
    """p-value of the chi-square test; distance above its null mean, in null spreads."""
    config = SpeculationConfig(top_k=3, num_top=1, budget=4, depth=2, rule=rule)
    law = exact_law(vocab, config)
    counts = sample(vocab, config, rounds, seed, temperature)
    assert counts.keys() <= law.keys(), "an emission of probability 0"
    expected = np.array([float(mass) for mass in law.values()])
    observed = np.array([counts[emission] for emission in law])
    assert observed.sum() == rounds
    pooled = pool_cells(expected * rounds)
    cells, masses = np.bincount(pooled, observed), np.bincount(pooled, expected)
    fit = stats.chisquare(cells, masses / masses.sum() * rounds)
    return float(fit.pvalue), plug_in(observed, expected / expected.sum()).z


@pytest.mark.parametrize("vocab", [8, 64])
@pytest.mark.parametrize("rule", RULES)
def test_emissions_have_their_exact_joint_law(vocab: int, rule: Rule) -> None:
    """Level 1e-9; a target tempered by 1.1, or lost rejections, are found at this size (below)."""
    p_value, z = compare(vocab, rule, 60_000, 1)
    assert p_value > 1e-9 and z < 7


@pytest.mark.parametrize("vocab", [8, 64])
def test_a_target_tempered_by_a_tenth_is_found(vocab: int) -> None:
    p_value, _ = compare(vocab, "rheo", 60_000, 1, temperature=1.1)
    assert p_value < 1e-9


@pytest.mark.parametrize("vocab", [8, 64])
def test_a_test_that_sometimes_loses_a_rejection_is_found(
    vocab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every acceptance is raised by a tenth."""
    monkeypatch.setattr(
        verification, "accept_tests", lambda uniform, acceptance: uniform < 1.1 * acceptance
    )
    p_value, z = compare(vocab, "rheo", 60_000, 1)
    assert p_value < 1e-9 and z > 7


@pytest.mark.nightly
@pytest.mark.parametrize("vocab", [8, 64])
@pytest.mark.parametrize("rule", RULES)
def test_ten_million_emissions_have_their_exact_joint_law(vocab: int, rule: Rule) -> None:
    p_value, z = compare(vocab, rule, 10_000_000, 2)
    print(f"V = {vocab}, {rule}: p = {p_value:.3g}, plug-in TV {z:.2f} null spreads above its mean")
    assert p_value > 1e-6 and z < 5
