"""Draws stage: rounds follow from their recorded draws, and no uniform decides two things.

Every round of decoding is decided again, from the tree, the logits, the seed and the verification
that the other stages have examined: the loop must have used exactly these. So a loop that verifies
by another law or other draws than it shows is found at its first wrong decision.

Stages that look at laws take each uniform for a fresh draw. Code that reads one uniform twice (for
a probe and its own accept test, for two siblings, two layers, two rounds, two requests) can have
every law right and the joint law wrong. A reuse shows as two equal float64 numbers, which
independent draws of 53 bits give with a probability that the stage prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.gpu import processors, randomness, verification
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.stats.repeats import SHARED_LEVEL, repeats_p_value

# Of a round no more uniforms are compared, so that chance coincidences stay rare in large trees.
MOST_A_ROUND = 1000
# Of each round, these draws are compared with those of all other rounds of the audit.
KEPT = ("probe of the root", "first accept test", "final draw")


@dataclass(frozen=True, slots=True, eq=False)
class DrawFindings:
    """Draws of some prompts.

    Attributes:
      num_draws: Uniforms looked at, within rounds.
      num_pairs: Pairs of uniforms compared within rounds.
      problem: The first round that is decided otherwise when decided again, or uniform outside
        [0, 1), or None.
      repeats: Uniforms that occur twice in one round: prompt, round, uniform.
      request: [kept] prompt of each kept uniform.
      round_index: [kept] its round.
      kind: [kept] index into `KEPT`.
      uniform: [kept] the uniforms to compare across rounds.
    """

    num_draws: int
    num_pairs: float
    problem: dict[str, Any] | None
    repeats: list[dict[str, Any]]
    request: NDArray[np.int64]
    round_index: NDArray[np.int64]
    kind: NDArray[np.int64]
    uniform: NDArray[np.float64]


class DrawWatcher:
    """Decides every round again and looks at its uniforms."""

    def __init__(self, config: SpeculationConfig, sampling: SamplingConfig) -> None:
        """`config` and `sampling` are what the rounds were asked for."""
        self._config, self._sampling = config, sampling
        self._num_draws, self._num_pairs = 0, 0.0
        self._problem: dict[str, Any] | None = None
        self._repeats: list[dict[str, Any]] = []
        self._kept: list[NDArray[np.float64]] = []
        self._prompt_length: dict[int, int] = {}

    def observe(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        if self._problem is None:
            self._problem = self._decide_again(trace)
        draws = trace.uniforms
        batch = draws.final.shape[0]
        every = torch.cat(
            [draws.final[:, None], draws.probe.reshape(batch, -1), draws.accept.reshape(batch, -1)],
            dim=1,
        )[:, :MOST_A_ROUND]
        values = np.sort(every.cpu().numpy(), axis=1)
        per_row = values.shape[1]
        self._num_draws += values.size
        self._num_pairs += batch * per_row * (per_row - 1) / 2
        # NaN fails the comparison too.
        bad = ~((values >= 0) & (values < 1))
        if self._problem is None and bad.any():
            row, column = (int(found[0]) for found in bad.nonzero())
            self._problem = {
                **_place(trace, row, values[row, column]),
                "cause": "a uniform is outside [0, 1)",
            }
        for row, column in zip(*(values[:, 1:] == values[:, :-1]).nonzero(), strict=True):
            self._repeats.append(_place(trace, int(row), values[row, column]))
        first = [draws.probe.reshape(batch, -1)[:, :1], draws.accept.reshape(batch, -1)[:, :1]]
        for kind, column_values in enumerate([*first, draws.final[:, None]]):
            if column_values.shape[1]:
                row_values = column_values[:, 0].cpu().numpy()
                self._kept.append(
                    np.stack(
                        [
                            trace.request.cpu().numpy().astype(np.float64),
                            trace.round_index.cpu().numpy().astype(np.float64),
                            np.full(batch, float(kind)),
                            row_values,
                        ]
                    )
                )

    def _decide_again(self, trace: RoundTrace) -> dict[str, Any] | None:
        """The first row that the recorded round does not decide as it was decided, or None."""
        draws = randomness.round_uniforms(
            self._sampling.seed, trace.request, trace.round_index, self._config
        )
        for request, text in zip(trace.request.tolist(), trace.text, strict=True):
            self._prompt_length.setdefault(request, len(text))
        # From the text alone: what the loop carried from round to round is not looked at.
        fresh = processors.Processors.start(
            self._sampling,
            trace.text,
            [self._prompt_length[request] for request in trace.request.tolist()],
            trace.target_logits.shape[-1],
            trace.target_logits.device,
        )
        again = verification.verify(
            trace.tree, trace.target_logits, draws, self._config.rule, self._sampling.temperature,
            process=fresh.process(),
        )  # fmt: skip
        other = (again.emitted != trace.verification.emitted).any(1).nonzero()
        if not len(other):
            return None
        row = int(other[0])
        return {
            "prompt": int(trace.request[row]),
            "round": int(trace.round_index[row]),
            "emitted": _tokens(trace.verification.emitted[row]),
            "decided_again": _tokens(again.emitted[row]),
            "cause": "verification of the recorded tree and logits with the seed's draws decides "
            "otherwise",
        }

    def findings(self) -> DrawFindings:
        """What was seen."""
        kept = np.concatenate(self._kept, axis=1) if self._kept else np.zeros((4, 0))
        request, round_index, kind = (kept[row].astype(np.int64) for row in range(3))
        return DrawFindings(
            self._num_draws, self._num_pairs, self._problem, self._repeats,
            request, round_index, kind, kept[3],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DrawRun:
    """All prompts at one temperature."""

    temperature: float
    parts: Sequence[DrawFindings]


def draws_stage(runs: Sequence[DrawRun], replay: str) -> StageResult:
    """Conclude the stage.

    Args:
      runs: One entry a temperature.
      replay: Shell line.

    Returns:
      LOSSY with a witness where a round does not follow from what was recorded of it, where a
      uniform is outside [0, 1), or where more uniforms occur twice, within a round or across the
      rounds, prompts and temperatures of the audit, than chance allows; else NO_EVIDENCE.
    """
    problem: dict[str, Any] | None = None
    for run in runs:
        for part in run.parts:
            if problem is None and part.problem is not None:
                problem = {"temperature": run.temperature, **part.problem}
    problem = problem or _repeated_in_a_round(runs) or _repeated(runs)
    num_draws = sum(part.num_draws for run in runs for part in run.parts)
    kept = sum(len(part.uniform) for run in runs for part in run.parts)
    pairs = sum(part.num_pairs for run in runs for part in run.parts) + kept * (kept - 1) / 2
    return StageResult(
        name="draws",
        verdict=Verdict.NO_EVIDENCE if problem is None else Verdict.LOSSY,
        statistic=0.0 if problem is None else 1.0,
        threshold=1.0,
        sample_size=num_draws,
        replay=replay,
        details={
            "summary": (
                f"every round follows from its recorded laws and draws; {num_draws:,} uniforms, "
                f"none used twice in a round, {kept:,} of them compared across rounds"
                if problem is None
                else f"{problem['cause']}"
            ),
            "statistic_is": "1 if a round or a uniform is not as it must be",
            "false_alarm": 2 * SHARED_LEVEL,
            "pairs_compared": pairs,
            "compared_across_rounds": list(KEPT),
            **({} if problem is None else {"witness": problem}),
        },
    )


def _place(trace: RoundTrace, row: int, uniform: float) -> dict[str, Any]:
    return {
        "prompt": int(trace.request[row]),
        "round": int(trace.round_index[row]),
        "uniform": float(uniform),
    }


def _tokens(emitted: Tensor) -> list[int]:
    return [int(token) for token in emitted if token >= 0]


def _repeated_in_a_round(runs: Sequence[DrawRun]) -> dict[str, Any] | None:
    """The first uniform that stands for two draws of a round, beyond chance, or None."""
    found = [
        {"temperature": run.temperature, **repeat}
        for run in runs
        for part in run.parts
        for repeat in part.repeats
    ]
    values = np.array([repeat["uniform"] for repeat in found])
    every = [part.uniform for run in runs for part in run.parts]
    pairs = sum(part.num_pairs for run in runs for part in run.parts)
    if not found or repeats_p_value(np.concatenate(every), values, pairs) > SHARED_LEVEL:
        return None
    return {**found[0], "cause": "one uniform stands for two draws of a round"}


def _repeated(runs: Sequence[DrawRun]) -> dict[str, Any] | None:
    """The first kept uniform that two rounds of the audit share beyond chance, or None."""
    parts = [(run.temperature, part) for run in runs for part in run.parts]
    if not parts:
        return None
    uniform = np.concatenate([part.uniform for _, part in parts])
    temperature = np.concatenate([np.full(len(part.uniform), value) for value, part in parts])
    request, round_index, kind = (
        np.concatenate([getattr(part, name) for _, part in parts])
        for name in ("request", "round_index", "kind")
    )
    order = np.argsort(uniform, kind="stable")
    same = (uniform[order][1:] == uniform[order][:-1]).nonzero()[0]
    pairs = len(uniform) * (len(uniform) - 1) / 2.0
    if repeats_p_value(uniform, uniform[order[same]], pairs) > SHARED_LEVEL:
        return None
    one, other = (int(order[same[0] + step]) for step in (0, 1))
    return {
        "prompt": int(request[one]),
        "round": int(round_index[one]),
        "temperature": float(temperature[one]),
        "draw": KEPT[kind[one]],
        "other_prompt": int(request[other]),
        "other_round": int(round_index[other]),
        "other_temperature": float(temperature[other]),
        "other_draw": KEPT[kind[other]],
        "uniform": float(uniform[one]),
        "cause": "one uniform stands for draws of two rounds",
    }
