"""Regrown trees on a drafter without a model: same above the probe, or a witness."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.audit.recording import RecordingDrafter
from rheocheck.audit.regrow import ChosenProbe, ProbeChooser, RegrowFinding, regrow
from rheocheck.config import SpeculationConfig
from rheocheck.gpu import tree
from rheocheck.gpu.expansion import Role
from tests.audit.node_cases import FixedDrafter, uniforms_of
from tests.defects import torch_faults

CONFIG = SpeculationConfig(top_k=3, num_top=1, budget=8, depth=3, support_size=8)


def chosen_probe(
    seed: int, config: SpeculationConfig = CONFIG, temperature: float = 1.0
) -> ChosenProbe | None:
    """A random surviving probe of a tree whose every node has the same random logits."""
    rng = np.random.default_rng(seed)
    logits = torch.as_tensor(np.round(2.0 * rng.normal(size=8)) / 2.0, dtype=torch.float32)
    drafter = FixedDrafter(logits, None)
    uniforms = uniforms_of(0.0, config)
    uniforms = replace(uniforms, probe=torch.as_tensor(rng.random(uniforms.probe.shape)))
    grown = tree.grow(drafter, uniforms, config, temperature)
    probes = np.flatnonzero((grown.valid & (grown.role == Role.PROBE))[0].numpy())
    if not probes.size:
        return None
    survivor = int(rng.choice(probes))
    parent = int(grown.parent[0, survivor])
    return ChosenProbe(
        request=0,
        round_index=0,
        node=survivor + 1,
        layer=int(grown.layer[0, survivor]),
        parent_rank=int(grown.parent_rank[0, survivor]),
        tokens=grown.support[0, parent][grown.probe_law[0, parent] > 0].numpy(),
        drawn=int(grown.token[0, survivor]),
        drafter=drafter,
        uniforms=uniforms,
        tree=grown,
    )


def findings(num_seeds: int = 40) -> list[RegrowFinding]:
    probes = [chosen_probe(seed) for seed in range(num_seeds)]
    return [regrow(probe, CONFIG, 1.0) for probe in probes if probe is not None]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from([1.0, 0.6]),
)
@settings(max_examples=60, deadline=None)
def test_no_identity_changes_what_ranks_above_it(
    seed: int, top_k: int, num_top: int, budget: int, depth: int, temperature: float
) -> None:
    config = SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=7
    )
    probe = chosen_probe(seed, config, temperature)
    if probe is None:
        return
    finding = regrow(probe, config, temperature)
    assert finding.violation is None
    assert finding.num_rounded == 0
    assert finding.num_outcomes == len(probe.tokens) - 1


@pytest.mark.parametrize(
    "plant",
    [
        torch_faults.probe_scored_by_itself,
        torch_faults.ties_by_token_id,
        torch_faults.unstable_topk,
    ],
    ids=lambda plant: plant.__name__,
)
def test_each_planted_fault_of_the_tree_leaves_a_witness(
    plant: torch_faults.Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    broken = [finding for finding in findings() if finding.violation is not None]
    assert broken
    assert {"probe_token", "other_token", "first_difference_at_rank"} <= set(
        broken[0].violation or {}
    )


def test_a_pruning_that_looks_at_the_token_leaves_a_witness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Probes of the last token do not survive: a fault that no law of one node shows."""
    right = tree.grow

    def wrong(*given: Any, **more: Any) -> tree.Tree:
        grown = right(*given, **more)
        cut = (grown.role == Role.PROBE) & (grown.token == 7)
        return replace(grown, layer=torch.where(cut, -1, grown.layer))

    probes = [chosen_probe(seed) for seed in range(20)]
    monkeypatch.setattr(tree, "grow", wrong)
    found = [regrow(probe, CONFIG, 1.0) for probe in probes if probe is not None]
    assert any(finding.violation is not None for finding in found)


def test_noise_within_rounding_is_counted_and_is_no_violation() -> None:
    """Rows of a batch that differ by a few 1e-7 may swap close nodes, but not accuse the tree."""

    class Noisy(FixedDrafter):
        def extend(
            self, parent: torch.Tensor, token: torch.Tensor, valid: torch.Tensor
        ) -> torch.Tensor:
            logits = super().extend(parent, token, valid)
            noise = torch.rand(logits.shape, generator=torch.Generator().manual_seed(0))
            return logits.double() + 1e-7 * noise

    probes = [probe for seed in range(20) if (probe := chosen_probe(seed)) is not None]
    found = []
    for probe in probes:
        assert isinstance(probe.drafter, FixedDrafter)
        noisy = Noisy(probe.drafter.logits, None)
        found.append(regrow(replace(probe, drafter=noisy), CONFIG, 1.0))
    assert all(finding.violation is None for finding in found)
    assert sum(finding.num_rounded for finding in found) > 0


def test_every_surviving_probe_is_chosen_equally_often() -> None:
    """1,000 seeds over the probes of one tree: a chi-square at level 1e-6."""
    from scipy import stats

    logits = torch.as_tensor(np.random.default_rng(5).normal(size=8), dtype=torch.float32)
    drafter = RecordingDrafter(FixedDrafter(logits, None))
    uniforms = uniforms_of(0.4, CONFIG)
    grown = tree.grow(drafter, uniforms, CONFIG, 1.0)
    num_probes = int((grown.valid & (grown.role == Role.PROBE)).sum())
    trace: Any = _Trace(grown, drafter, uniforms)
    picked = []
    for seed in range(1000):
        chooser = ProbeChooser(seed, {0})
        chooser.observe(trace)
        picked.append(chooser.probes()[0].node)
    counts = np.unique(picked, return_counts=True)[1]
    assert len(counts) == num_probes > 2
    assert stats.chisquare(counts).pvalue > 1e-6


class _Trace:
    """The part of a `RoundTrace` that the chooser reads."""

    def __init__(self, grown: tree.Tree, drafter: RecordingDrafter, uniforms: Any) -> None:
        self.tree, self.drafter, self.uniforms = grown, drafter, uniforms
        self.request, self.round_index = torch.tensor([0]), torch.tensor([0])
