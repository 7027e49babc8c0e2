"""The differential stage: what it compares, what it excuses, how it reports."""

from collections import Counter
from fractions import Fraction

import pytest
import torch

from rheocheck.audit import differential
from rheocheck.audit.differential import (
    Finding,
    compare_batch,
    describe,
    differential_stage,
    exact_decisions,
    run_torch,
    torch_decisions,
)
from rheocheck.audit.differential_explain import Difference, explain
from rheocheck.audit.differential_instances import (
    LARGEST_UNIFORM,
    NUM_TABLES,
    ExactRow,
    Family,
    TableDrafter,
    make_batch,
)
from rheocheck.certificate import Verdict
from rheocheck.errors import InputError
from rheocheck.gpu import layers
from rheocheck.reference.replay import Replay, replay_round


def exact_round(family: Family, number: int, row: int) -> tuple[ExactRow, Replay]:
    batch = make_batch(0, family, number)
    exact = ExactRow(batch, row)
    replay = replay_round(
        exact.target,
        exact.draft,
        batch.config,
        batch.probe[row].tolist(),
        batch.accept[row].tolist(),
        float(batch.final[row]),
    )
    return exact, replay


@pytest.mark.parametrize("seed", [1, 11, 12, 13])
def test_five_thousand_rounds_agree(seed: int) -> None:
    result = differential_stage(rounds=5000, seed=seed, large_rounds=50)
    assert result.verdict is Verdict.NO_EVIDENCE
    assert result.statistic == 0 and result.threshold == 1
    assert result.sample_size == 5050
    assert result.power == pytest.approx(1 - 0.998**5050)
    # About one in 2,000; 2 % would be inconclusive.
    assert result.details["explained_differences"] <= 10
    assert result.details["counterexamples"] == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20, 30))
def test_a_hundred_thousand_rounds_agree(seed: int) -> None:
    """Ten times: 1,000,000 rounds at vocabularies up to 32, 10,000 up to 512."""
    result = differential_stage(rounds=100_000, seed=seed, large_rounds=1000)
    assert result.verdict is Verdict.NO_EVIDENCE
    assert result.details["explained_differences"] <= 200


def test_a_seed_replays_and_progress_counts_every_round() -> None:
    done: list[int] = []
    first = differential_stage(rounds=100, seed=3, large_rounds=1, progress=done.append)
    second = differential_stage(rounds=100, seed=3, large_rounds=1)
    assert sum(done) == 101
    assert first.details == second.details
    assert first.replay is not None and "differential_stage(100, 3, large_rounds=1)" in first.replay


def test_instances_cover_what_they_should() -> None:
    batches = [make_batch(0, "small", number) for number in range(200)]
    assert {batch.power for batch in batches} == {0, 1, 2, 3}
    assert {batch.config.rule for batch in batches} == {"rheo", "rrsw", "onehot"}
    assert {0, 1, 2} <= {batch.config.num_top for batch in batches}
    assert any(batch.config.num_top >= batch.config.top_k for batch in batches)
    assert any(batch.config.budget == 0 for batch in batches)
    assert any(batch.config.depth == 0 for batch in batches)
    assert any(batch.draft is not batch.ranking for batch in batches)
    assert any(batch.token_ids is not None for batch in batches)
    assert any(batch.config.support_size < batch.vocab.max() for batch in batches)
    assert max(int(batch.vocab.max()) for batch in batches) == 32
    weights = torch.cat([torch.from_numpy(batch.ranking[:, 0]).flatten() for batch in batches])
    assert float((weights == 0).double().mean()) > 0.2
    uniforms = torch.cat([torch.from_numpy(batch.accept).flatten() for batch in batches])
    for edge in (0.0, LARGEST_UNIFORM):
        assert float((uniforms == edge).double().mean()) > 0.05
    sizes = Counter(
        int(size) for batch in batches[:20] for size in run_torch(batch).tree.num_survivors()
    )
    assert len(sizes) >= 5


def test_large_instances_cut_the_support() -> None:
    batches = [make_batch(0, "large", number) for number in range(20)]
    assert max(int(batch.vocab.max()) for batch in batches) > 256
    assert all(8 <= batch.config.support_size < batch.ranking.shape[-1] // 2 for batch in batches)


def test_both_sides_read_the_same_law_at_every_path() -> None:
    batch = make_batch(0, "small", 3)
    drafter, row = TableDrafter(batch), 5
    vocab = int(batch.vocab[row])
    exact = ExactRow(batch, row)
    drafter.root()
    rows = len(batch.vocab)
    token = torch.full((rows, 1), vocab - 1)
    logits = drafter.extend(torch.zeros(rows, 1).long(), token, torch.ones(rows, 1).bool())
    ranking = logits[0] if isinstance(logits, tuple) else logits
    law = exact.draft((vocab - 1,))
    law = law[0] if isinstance(law[0], tuple) else law
    seen = ranking[row, 0, :vocab].softmax(-1).tolist()
    assert seen == pytest.approx([float(mass) for mass in law])
    tables = {exact._table((first, second)) for first in range(vocab) for second in range(vocab)}
    assert tables <= set(range(NUM_TABLES))


def test_a_wrong_final_token_is_a_counterexample() -> None:
    exact, replay = exact_round("small", 1, 0)
    expected = exact_decisions(replay)
    wrong = differential.Decisions(expected.nodes, expected.accepted, expected.final + 1)
    difference = explain(exact.batch, 0, exact, replay, expected, wrong)
    assert difference.decision == "final" and not difference.is_explained
    assert f"final token {expected.final + 1}, expected {expected.final}" in difference.text


def test_a_missing_survivor_is_a_counterexample() -> None:
    for number in range(20):
        exact, replay = exact_round("small", number, 0)
        expected = exact_decisions(replay)
        if expected.nodes:
            wrong = differential.Decisions(expected.nodes[:-1], (), expected.final)
            difference = explain(exact.batch, 0, exact, replay, expected, wrong)
            assert difference.decision == "tree shape" and not difference.is_explained
            return
    raise AssertionError("no batch had a survivor")


def test_a_tie_in_the_wrong_order_is_no_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reversing all ties changes no score: the gap is 0, and still nothing excuses it."""

    def reversed_ties(score: torch.Tensor) -> torch.Tensor:
        order = score.flip(1).argsort(dim=1, descending=True, stable=True)
        return score.shape[1] - 1 - order

    monkeypatch.setattr(layers, "best_first", reversed_ties)
    findings = [item for number in range(20) for item in compare_batch(0, "small", number)]
    orders = [item.difference for item in findings if item.difference.decision == "score order"]
    assert any("differ by 0" in difference.text for difference in orders)
    assert not any(difference.is_explained for difference in orders)


def test_scores_without_the_grid_are_explained_but_not_by_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Raw log sums order exact ties by their rounding errors: all such differences are excused."""
    monkeypatch.setattr(layers, "comparable_score", lambda score: score)
    findings = [item for number in range(60) for item in compare_batch(0, "small", number)]
    assert all(item.difference.is_explained for item in findings)
    assert any(item.difference.decision == "score order" for item in findings)


def test_too_many_explained_differences_are_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    excused = Finding("small", 0, 0, Difference("final", True, "close"))
    monkeypatch.setattr(differential, "compare_batch", lambda *_: [excused] * 2)
    result = differential_stage(rounds=64, seed=0, large_rounds=0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.details["explained_by_decision"] == {"final": 4}


def test_a_counterexample_is_printed_with_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding("small", 0, 3, Difference("accept", False, "node 0 leads astray"))
    monkeypatch.setattr(differential, "compare_batch", lambda *_: [found])
    result = differential_stage(rounds=32, seed=5, large_rounds=0)
    assert result.verdict is Verdict.LOSSY and result.statistic == 1
    shown = result.details["counterexamples"][0]
    assert shown["difference"] == "node 0 leads astray"
    assert "scheme: top_k = " in shown["instance"] and "final uniform" in shown["instance"]
    assert "describe(5, 'small', 0, 3)" in shown["replay"]
    assert result.replay == shown["replay"]
    monkeypatch.undo()
    assert describe(5, "small", 0, 3).endswith("the twins agree on this row")


@pytest.mark.parametrize(
    "bad", [{"rounds": -1}, {"seed": -1}, {"large_rounds": -2}, {"rounds": 0, "large_rounds": 0}]
)
def test_bad_numbers_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="none may be negative, and at least one round"):
        differential_stage(**({"rounds": 1} | bad))  # type: ignore[arg-type]


def test_the_torch_side_is_read_back_by_key() -> None:
    batch = make_batch(0, "small", 2)
    done = run_torch(batch)
    decisions = torch_decisions(done, 0)
    assert len(decisions.nodes) == int(done.tree.num_survivors()[0])
    assert len(decisions.accepted) == int(done.verification.num_accepted[0])


def test_exact_laws_sum_to_one_at_every_temperature() -> None:
    for number in range(30):
        batch = make_batch(4, "small", number)
        exact = ExactRow(batch, 0)
        assert sum(exact.target(()), Fraction(0)) == 1
