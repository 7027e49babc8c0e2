"""The laws that verification used, and plain ones again at other shapes, beside plain decoding's.

Nothing is sampled here: two laws of one context are compared as they are. How far plain decoding is
from itself when only the shape of its passes changes is what rounding does, measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.emissions import Emitted, PlainLogits, plain_rows
from rheocheck.audit.law_distance import LawDistances, join_distances, law_distances
from rheocheck.audit.laws import softmax
from rheocheck.gpu.plain_decoding import cached_logits
from rheocheck.gpu.target import TargetModel


@dataclass(frozen=True, slots=True, eq=False)
class NumericsFindings:
    """Verifier's laws of some prompts beside plain ones; parts of a run are concatenated.

    Attributes:
      prompt: [tokens] number of the prompt.
      round: [tokens] number of the round.
      position: [tokens] place within the round's emission.
      distances: [tokens] of the law that verification used.
      worst: Where the total variation is largest: prompt, round, position, token, probabilities.
      flip: The flip that is furthest beyond rounding, or None.
      null: By shape of the plain passes: distances of the same texts' laws.
      null_prompts: Prompts in `null`.
    """

    prompt: NDArray[np.int64]
    round: NDArray[np.int64]
    position: NDArray[np.int64]
    distances: LawDistances
    worst: dict[str, Any] | None
    flip: dict[str, Any] | None
    null: dict[str, LawDistances]
    null_prompts: int

    @property
    def null_max(self) -> float:
        """Largest total variation between two plain passes; 0 without a null arm."""
        arms = self.null.values()
        return max((float(arm.total_variation.max(initial=0.0)) for arm in arms), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class PlainPass:
    """What plain passes said of some prompts.

    Attributes:
      laws: By prompt: [tokens, vocab] law before each emitted token.
      rounding: By prompt: [tokens] nats by which rounding may move one log-weight.
    """

    laws: dict[int, NDArray[np.float64]]
    rounding: dict[int, NDArray[np.float64]]


def plain_pass(
    rows: dict[int, Emitted], plain_logits: PlainLogits, temperature: float, noise: float
) -> PlainPass:
    """Run plain passes over the finished texts.

    Args:
      rows: By prompt.
      plain_logits: The target's plain passes.
      temperature: Of the requests.
      noise: What `TargetModel.logit_noise` says of the target.

    Returns:
      The laws.
    """
    laws, rounding = {}, {}
    for prompt, logits in plain_rows(rows, plain_logits).items():
        laws[prompt] = softmax(logits, temperature)
        largest = np.abs(np.where(np.isfinite(logits), logits, 0.0)).max(axis=1)
        rounding[prompt] = noise * largest.astype(np.float64) / temperature
    return PlainPass(laws, rounding)


def compare_laws(rows: dict[int, Emitted], plain: PlainPass) -> NumericsFindings:
    """Compare the laws that verification used with plain ones.

    Args:
      rows: By prompt.
      plain: Of the same prompts.

    Returns:
      The findings, without a null arm.
    """
    parts, worst, flip = [], [], []
    for prompt, row in rows.items():
        # One prompt at a time: at a large vocabulary a batch of laws is gigabytes.
        verified, law = np.stack(row.verified), plain.laws[prompt]
        found = law_distances(verified, law, plain.rounding[prompt])
        parts.append(found)
        at = int(found.total_variation.argmax())
        worst.append(_witness(prompt, row, at, verified[at], law[at], found))
        beyond = np.where(found.is_unexplained_flip, found.gap - 2 * found.rounding, -np.inf)
        if found.is_unexplained_flip.any():
            at = int(beyond.argmax())
            flip.append(_flip(prompt, row, at, verified[at], law[at], found))
    place = [(prompt, *place) for prompt, row in rows.items() for place in row.place]
    columns = np.array(place, dtype=np.int64).reshape(len(place), 3)
    return NumericsFindings(
        prompt=columns[:, 0],
        round=columns[:, 1],
        position=columns[:, 2],
        distances=join_distances(parts),
        worst=_largest(worst, "total_variation"),
        flip=_largest(flip, "gap"),
        null={},
        null_prompts=0,
    )


def null_arm(
    rows: dict[int, Emitted], target: TargetModel, plain: PlainPass, temperature: float
) -> dict[str, LawDistances]:
    """Plain passes over the same texts at other shapes, beside the ones that `plain` is from.

    Args:
      rows: By prompt.
      target: The model.
      plain: Of the same prompts.
      temperature: Of the requests.

    Returns:
      By shape, distances of all tokens.
    """
    found = {}
    for shape, plain_logits in null_shapes(target).items():
        logits = plain_rows(rows, plain_logits)
        found[shape] = join_distances(
            [
                law_distances(
                    softmax(logits[prompt], temperature), plain.laws[prompt], plain.rounding[prompt]
                )
                for prompt in rows
            ]
        )
    return found


def null_shapes(target: TargetModel) -> dict[str, PlainLogits]:
    """The target's plain passes in several shapes, by what is said of them."""
    whole: Callable[..., Any] = target.plain_logits
    pieces: Callable[..., Any] = partial(cached_logits, target)
    return {
        "whole texts, one a pass": partial(whole, batch_size=1),
        "whole texts, 8 a pass": partial(whole, batch_size=8),
        "prompt from a cache, 8 texts a pass": partial(pieces, batch_size=8, piece=None),
        "one token a pass from a cache, 32 texts": partial(pieces, batch_size=32, piece=1),
    }


def join_numerics(parts: Sequence[NumericsFindings]) -> NumericsFindings:
    """The findings of several sets of prompts, at least one, as one."""
    shapes = dict.fromkeys(shape for part in parts for shape in part.null)
    return NumericsFindings(
        prompt=np.concatenate([part.prompt for part in parts]),
        round=np.concatenate([part.round for part in parts]),
        position=np.concatenate([part.position for part in parts]),
        distances=join_distances([part.distances for part in parts]),
        worst=_largest([part.worst for part in parts], "total_variation"),
        flip=_largest([part.flip for part in parts], "gap"),
        null={
            shape: join_distances([part.null[shape] for part in parts if shape in part.null])
            for shape in shapes
        },
        null_prompts=sum(part.null_prompts for part in parts),
    )


def _largest(found: Sequence[dict[str, Any] | None], key: str) -> dict[str, Any] | None:
    there = [item for item in found if item is not None]
    return max(there, key=lambda item: float(item[key]), default=None)


def _witness(
    prompt: int,
    row: Emitted,
    at: int,
    verified: NDArray[np.float64],
    plain: NDArray[np.float64],
    found: LawDistances,
) -> dict[str, Any]:
    """A token, and the one whose two probabilities differ the most there."""
    other = int(np.nan_to_num(np.abs(verified - plain), nan=2.0).argmax())
    return {
        "prompt": prompt,
        "round": row.place[at][0],
        "position": row.place[at][1],
        "emitted_token": int(row.text[row.start + at]),
        "total_variation": float(found.total_variation[at]),
        "divergence": float(found.divergence[at]),
        "margin": float(found.margin[at]),
        "token": other,
        "verifier": float(np.nan_to_num(verified[other])),
        "plain": float(np.nan_to_num(plain[other])),
    }


def _flip(
    prompt: int,
    row: Emitted,
    at: int,
    verified: NDArray[np.float64],
    plain: NDArray[np.float64],
    found: LawDistances,
) -> dict[str, Any]:
    """A token whose argmax differs by more than rounding explains."""
    return {
        "prompt": prompt,
        "round": row.place[at][0],
        "position": row.place[at][1],
        "emitted_token": int(row.text[row.start + at]),
        "token": int(plain.argmax()),
        "other_token": int(np.nan_to_num(verified).argmax()),
        "gap": float(found.gap[at]),
        "rounding": float(2 * found.rounding[at]),
        "total_variation": float(found.total_variation[at]),
    }
