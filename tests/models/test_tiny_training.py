import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rheocheck.errors import WeightsError
from rheocheck.gpu.drafting import EagleDrafter
from rheocheck.models import test_time_training
from rheocheck.models.stages import Stage, train
from rheocheck.models.test_time_training import agreement, shift_left, test_time_loss, unroll
from tests.gpu.random_heads import TARGET_HIDDEN, VOCAB, random_head

os.environ["HF_HUB_OFFLINE"] = "1"
LENGTH, STEPS = 7, 4
# pytest would collect them by their prefix.
test_time_loss.__test__ = False  # type: ignore[attr-defined]


def window(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Text, target features and target logits; float64."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randint(VOCAB, (2, LENGTH), generator=generator),
        torch.randn(2, LENGTH, 3 * TARGET_HIDDEN, generator=generator).double(),
        torch.randn(2, LENGTH, VOCAB, generator=generator).double() * 3,
    )


def worst_gap_to_drafting() -> float:
    """Training-time test against the drafter that verifies t + 1 pairs and drafts the true text."""
    head = random_head()
    tokens, features, logits = window()
    gap = 0.0
    for step, output in enumerate(unroll(head, tokens, features, logits, STEPS)):
        for last in range(LENGTH - 1 - step):
            drafter = EagleDrafter(head, 2)
            pairs = torch.full((2,), last + 1)
            drafter.advance(features[:, : last + 1], tokens[:, 1 : last + 2], pairs)
            drafted = drafter.root()[:, None]
            for link in range(step):
                token = tokens[:, last + 2 + link, None]
                drafted = drafter.extend(torch.zeros_like(token), token, token >= 0)
            gap = max(gap, float((output.logits[:, last] - drafted[:, 0]).abs().max()))
    return gap


def test_training_sees_what_drafting_sees() -> None:
    """Every position of every step is the chain that drafting would run there."""
    assert worst_gap_to_drafting() < 1e-9


def test_a_step_that_sees_its_successor_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shift that pairs a position with the token after it, one place off."""
    monkeypatch.setattr(test_time_training, "shift_left", lambda v, n: shift_left(v, n + 1))
    assert worst_gap_to_drafting() > 1e-2


def test_the_target_is_its_law_on_the_draft_vocabulary_one_token_further() -> None:
    head = random_head()
    tokens, features, logits = window()
    for step, output in enumerate(unroll(head, tokens, features, logits, STEPS)):
        law = logits[:, 1 + step :].softmax(-1)[..., head.token_ids]
        present = LENGTH - 1 - step
        torch.testing.assert_close(output.target[:, :present], law / law.sum(-1, keepdim=True))
        assert output.present[:, :present].all()
        assert not output.present[:, present:].any()
        kept = torch.isin(logits[:, 1 + step :].argmax(-1), head.token_ids)
        assert torch.equal(output.counted[:, :present], kept)
        assert not output.counted[:, present:].any()


def test_the_loss_is_the_decayed_sum_over_steps() -> None:
    head = random_head()
    tokens, features, logits = window()
    expected = 0.0
    for step, output in enumerate(unroll(head, tokens, features, logits, 3)):
        terms = torch.where(
            output.counted[..., None], output.target * output.logits.log_softmax(-1), 0
        )
        expected -= 0.8**step * float(terms.sum()) / (2 * LENGTH)
    assert float(test_time_loss(head, tokens, features, logits, 3, 0.8)) == pytest.approx(expected)


def test_every_step_sends_gradients_to_the_fusion() -> None:
    head = random_head().requires_grad_(True)
    tokens, features, logits = window()
    sizes = []
    for steps in (1, 2, 3):
        head.zero_grad()
        test_time_loss(head, tokens, features, logits, steps, 1.0).backward()  # type: ignore[no-untyped-call]
        assert head.fc.weight.grad is not None
        sizes.append(head.fc.weight.grad.clone())
    assert not torch.allclose(sizes[0], sizes[1])
    assert not torch.allclose(sizes[1], sizes[2])


def test_a_head_agrees_fully_with_its_own_law() -> None:
    head = random_head()
    tokens, features, logits = window()
    step = next(unroll(head, tokens, features, logits, 1))
    own = torch.full_like(logits, -torch.inf)
    own[:, 1:, head.token_ids] = step.logits[:, :-1]
    agreeing, overlap = agreement(head, tokens, features, own, 1)
    assert agreeing.tolist() == [1.0]
    assert overlap.tolist() == pytest.approx([1.0])


STAGE = Stage(
    "toy", steps=200, learning_rate=0.1, clip=1.0, weight_decay=0.1, batch=4, length=3, warmup=5
)


class Toy(nn.Module):
    """Predicts one number for all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.guess = nn.Parameter(torch.zeros(1, 1))


def run_toy(stage: Stage, work: Path, stop_at: int | None = None) -> tuple[float, list[str]]:
    """Train a toy on a fixed stream; stop as a kill would at a step."""
    toy, lines, done = Toy(), list[str](), 0

    def loss(tokens: Tensor) -> Tensor:
        nonlocal done
        done += 1
        if done == stop_at:
            raise KeyboardInterrupt
        return (tokens.float() - toy.guess).square().mean()

    train(stage, toy, torch.arange(50).numpy(), loss, work, lines.append)
    return toy.guess.item(), lines


def test_an_interrupted_stage_resumes_to_the_same_weights(tmp_path: Path) -> None:
    whole, _ = run_toy(STAGE, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_toy(STAGE, tmp_path / "cut", stop_at=130)
    resumed, lines = run_toy(STAGE, tmp_path / "cut")
    assert lines[0] == "toy: resumed at step 100"
    assert resumed == whole


def test_a_finished_stage_is_not_run_again(tmp_path: Path) -> None:
    first, _ = run_toy(STAGE, tmp_path)
    again, lines = run_toy(STAGE, tmp_path, stop_at=1)
    assert (again, lines) == (first, ["toy: resumed at step 200"])


def test_a_checkpoint_of_another_plan_is_refused(tmp_path: Path) -> None:
    run_toy(STAGE, tmp_path)
    with pytest.raises(WeightsError, match=r"is a checkpoint of Stage.*steps=200.*, not of"):
        run_toy(replace(STAGE, steps=300), tmp_path)


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    rates = [STAGE.rate(step) for step in (0, 4, 5, 102, 199)]
    assert rates == pytest.approx([0.02, 0.1, 0.1, 0.1 * 98 / 195, 0.1 / 195])


def test_batches_depend_on_the_step_and_the_stage_only() -> None:
    stream = torch.arange(1000).numpy()
    assert torch.equal(STAGE.windows(stream, 3), STAGE.windows(stream, 3))
    assert not torch.equal(STAGE.windows(stream, 3), STAGE.windows(stream, 4))
    other = replace(STAGE, name="other")
    assert not torch.equal(STAGE.windows(stream, 3), other.windows(stream, 3))
