"""The benchmark of verification runs, on sizes that cost nothing."""

import torch

from tests.benchmarks.bench_verification import dense_expansion, instance, verification_row


def test_the_instances_accept_and_the_row_has_its_figures() -> None:
    row = verification_row(2, 700)
    assert {"walk_ratio", "all_nodes_ratio", "extra_memory", "accepted"} <= row.keys()
    assert row["accepted"] > 0
    tree, logits, _ = instance(16, 300)
    assert logits.shape == (16, 60, 300) and tree.token.shape[0] == 16


def test_the_dense_expansion_draws_from_the_whole_vocabulary() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0] + [-9.0] * 20])
    top, drawn = dense_expansion(logits, torch.tensor([0.05]))
    assert top[0, :3].tolist() == [2, 1, 0] and drawn.tolist() == [0]
