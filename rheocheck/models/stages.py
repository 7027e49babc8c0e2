"""A training stage: fixed steps, seeded batches, a schedule, checkpoints from which it resumes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rheocheck.errors import WeightsError

LOG_EVERY = 50
SAVE_EVERY = 100


@dataclass(frozen=True, slots=True)
class Stage:
    """Settings of one training stage.

    Attributes:
      name: Of its checkpoint file; also keys its random batches.
      steps: Optimiser steps; the learning rate falls linearly to zero at the last.
      learning_rate: Peak, reached after `warmup` steps.
      clip: Largest norm of the gradient.
      weight_decay: Of matrices; vectors are never decayed.
      batch: Windows a step.
      length: Tokens a window.
      warmup: Steps of linear rise.
      seed: Key of the batches.
    """

    name: str
    steps: int
    learning_rate: float
    clip: float
    weight_decay: float
    batch: int
    length: int
    warmup: int = 50
    seed: int = 0

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        rise = (step + 1) / self.warmup
        fall = (self.steps - step) / max(1, self.steps - self.warmup)
        return self.learning_rate * min(1.0, rise, fall)

    def windows(self, tokens: NDArray[np.int64], step: int) -> Tensor:
        """[batch, length] windows at random places: a function of the seed, the stage, the step.

        No state is carried from step to step, so a resumed run sees the batches it would have seen.
        """
        key = [self.seed, int.from_bytes(self.name.encode()), step]
        starts = np.random.default_rng(key).integers(0, len(tokens) - self.length, self.batch)
        return torch.from_numpy(tokens[starts[:, None] + np.arange(self.length)])


def train(
    stage: Stage,
    module: nn.Module,
    tokens: NDArray[np.int64],
    loss: Callable[[Tensor], Tensor],
    work: Path,
    log: Callable[[str], None],
) -> float:
    """Run a stage to its end, from its checkpoint where there is one.

    Args:
      stage: What to do.
      module: Trained in place; parameters without a gradient stay as they are.
      tokens: [tokens] training stream.
      loss: Of a [batch, length] window tensor.
      work: Folder of checkpoints; one file a stage, `NAME.pt`.
      log: Receives a line now and then.

    Returns:
      Seconds of training, those before a resume included.

    Raises:
      WeightsError: The checkpoint belongs to another plan.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": stage.weight_decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
    )
    path = work / f"{stage.name}.pt"
    first, seconds = 0, 0.0
    if path.exists():
        state = torch.load(path, weights_only=True)
        if state["plan"] != repr(stage):
            raise WeightsError(f"{path} is a checkpoint of {state['plan']}, not of {stage!r}")
        module.load_state_dict(state["module"])
        optimiser.load_state_dict(state["optimiser"])
        first, seconds = state["step"], state["seconds"]
        log(f"{stage.name}: resumed at step {first}")
    start, losses = time.monotonic() - seconds, []
    for step in range(first, stage.steps):
        for group in optimiser.param_groups:
            group["lr"] = stage.rate(step)
        value = loss(stage.windows(tokens, step))
        optimiser.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, stage.clip)
        optimiser.step()
        losses.append(value.item())
        done, seconds = step + 1, time.monotonic() - start
        if done % LOG_EVERY == 0:
            log(
                f"{stage.name}: step {done} of {stage.steps}, "
                f"loss {np.mean(losses):.4f}, {seconds:.0f} s"
            )
            losses.clear()
        if done % SAVE_EVERY == 0 or done == stage.steps:
            work.mkdir(parents=True, exist_ok=True)
            state = {
                "plan": repr(stage),
                "step": done,
                "seconds": seconds,
                "module": module.state_dict(),
                "optimiser": optimiser.state_dict(),
            }
            # Written beside and moved over, so that an interruption leaves a whole file.
            torch.save(state, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
    return seconds
