"""What real decoding emitted, beside the target's law by plain passes over the finished text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.audit.choices import Choice, choice_uniforms
from rheocheck.audit.laws import draft_law, softmax
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.config import SpeculationConfig
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.stats.cells import RANK_STARTS
from rheocheck.stats.pit import draft_target_order, randomised_pit
from rheocheck.stats.scores import ScoreSums, draft_score, off_support, score_sums, surprisal

# Up to this vocabulary every token is a cell of its own; beyond it cells are ranks under the
# target.
LARGEST_TOKEN_CELLS = 1024

PlainLogits = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[Tensor]]
"""Plain causal passes: sequences and first positions wanted -> [positions, vocab] logits each."""


@dataclass(slots=True)
class Emitted:
    """Uncut rounds of one prompt, one entry for each emitted token.

    Attributes:
      start: Tokens of the prompt.
      text: Prompt and all emitted tokens, the last round uncut.
      verified: [emitted] arrays [vocab], the law that the verifier used.
      draft: [emitted] arrays [vocab], the draft's law there; zeros where nothing was drafted.
      uniform: [emitted] uniforms for the PIT.
      place: [emitted] (round, position within the round's emission).
    """

    start: int
    text: list[int]
    verified: list[NDArray[np.float64]] = field(default_factory=list)
    draft: list[NDArray[np.float64]] = field(default_factory=list)
    uniform: list[float] = field(default_factory=list)
    place: list[tuple[int, int]] = field(default_factory=list)


class EmissionRecorder:
    """Records every emitted token with the laws at its node.

    By the chain rule each emitted token, given all before it and given that its position is
    reached, follows the target's law; so every token of every uncut round counts, whether it was
    accepted or is the final one. What must not be conditioned on is which of the two it was.
    """

    def __init__(self, seed: int, config: SpeculationConfig, temperature: float) -> None:
        """`seed` keys the PIT's uniforms; scheme and temperature give the draft's law."""
        self._seed = seed
        self._config = config
        self._temperature = temperature
        self._rows: dict[int, Emitted] = {}

    def observe(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        nodes = trace.emission_nodes().cpu().numpy()
        tokens = trace.verification.emitted.cpu().numpy()
        uniform = choice_uniforms(
            self._seed, trace.request, trace.round_index, Choice.TOKEN_PIT, nodes.shape[1]
        )
        for row, request in enumerate(trace.request.tolist()):
            text = trace.text[row]
            emitted = self._rows.setdefault(request, Emitted(len(text), list(text)))
            for step, node in enumerate(nodes[row]):
                if node < 0:
                    break
                emitted.text.append(int(tokens[row, step]))
                emitted.verified.append(trace.target_law_at(row, int(node)).cpu().numpy())
                emitted.draft.append(self._draft_law(trace, row, int(node)))
                emitted.uniform.append(float(uniform[row, step]))
                emitted.place.append((int(trace.round_index[row]), step))

    def rows(self) -> dict[int, Emitted]:
        """By prompt, in the order of the prompts."""
        return {request: self._rows[request] for request in sorted(self._rows)}

    def _draft_law(self, trace: RoundTrace, row: int, node: int) -> NDArray[np.float64]:
        drafter = trace.drafter
        assert isinstance(drafter, RecordingDrafter)
        vocab = trace.target_logits.shape[-1]
        logits = drafter.node_logits(trace.tree, row, node)
        if logits is None:
            return np.zeros(vocab)
        ids = drafter.token_ids
        return draft_law(
            logits.float().cpu().numpy(),
            self._config.support_size,
            self._temperature,
            None if ids is None else ids.cpu().numpy(),
            vocab,
        )


@dataclass(frozen=True, slots=True, eq=False)
class EmissionFindings:
    """Emitted tokens of some prompts against plain decoding; parts of a run are concatenated.

    Attributes:
      surprisal: Sums of -ln of the target law.
      draft: Sums of the clipped log ratio draft/target.
      pit: [emitted] PIT values, tokens ordered by draft/target.
      cell: [emitted] cell of each token: the token, or its rank bucket in a large vocabulary.
      cell_law: [emitted, cells] law of the cell in that context.
      off_support: Emitted tokens of probability 0, as (prompt, round, position, token).
    """

    surprisal: ScoreSums
    draft: ScoreSums
    pit: NDArray[np.float64]
    cell: NDArray[np.int64]
    cell_law: NDArray[np.float64]
    off_support: list[tuple[int, int, int, int]]


def join(parts: Sequence[EmissionFindings]) -> EmissionFindings:
    """The findings of several sets of prompts, at least one, as one."""
    first, *others = parts
    surprisals, drafts = first.surprisal, first.draft
    for part in others:
        surprisals, drafts = surprisals + part.surprisal, drafts + part.draft
    return EmissionFindings(
        surprisal=surprisals,
        draft=drafts,
        pit=np.concatenate([part.pit for part in parts]),
        cell=np.concatenate([part.cell for part in parts]),
        cell_law=np.concatenate([part.cell_law for part in parts]),
        off_support=[place for part in parts for place in part.off_support],
    )


def compare(
    rows: dict[int, Emitted], plain_logits: PlainLogits, temperature: float
) -> EmissionFindings:
    """Compare emitted tokens with plain passes over the finished text.

    Args:
      rows: By prompt.
      plain_logits: The target's plain passes; no tree, mask, cache or position of ours in them.
      temperature: Of the requests.

    Returns:
      The findings over all prompts.
    """
    return compare_with(rows, plain_laws(rows, plain_logits, temperature))


def plain_laws(
    rows: dict[int, Emitted], plain_logits: PlainLogits, temperature: float
) -> dict[int, NDArray[np.float64]]:
    """By prompt: [emitted, vocab] the target's law by plain passes at each emitted token."""
    logits = plain_rows(rows, plain_logits)
    return {request: softmax(part, temperature) for request, part in logits.items()}


def plain_rows(
    rows: dict[int, Emitted], plain_logits: PlainLogits
) -> dict[int, NDArray[np.float32]]:
    """By prompt: [emitted, vocab] the target's logits by plain passes at each emitted token."""
    emitted = list(rows.values())
    logits = plain_logits([row.text for row in emitted], [row.start - 1 for row in emitted])
    # The last position's logits say what would come next; nothing was emitted after it.
    return {
        request: part[: len(row.verified)].float().cpu().numpy()
        for (request, row), part in zip(rows.items(), logits, strict=True)
    }


def compare_with(
    rows: dict[int, Emitted], plain_by_prompt: dict[int, NDArray[np.float64]]
) -> EmissionFindings:
    """Compare emitted tokens with plain laws of `plain_laws`."""
    emitted = list(rows.values())
    plain = np.concatenate([plain_by_prompt[request] for request in rows])
    draft = np.concatenate([np.stack(row.draft) for row in emitted])
    token = np.array([token for row in emitted for token in row.text[row.start :]], dtype=np.int64)
    uniform = np.array([value for row in emitted for value in row.uniform])
    place = [
        (request, round_index, step)
        for request, row in rows.items()
        for round_index, step in row.place
    ]
    cell, cell_law = cells(plain, token)
    return EmissionFindings(
        surprisal=score_sums(plain, surprisal(plain), token),
        draft=score_sums(plain, draft_score(plain, draft), token),
        pit=randomised_pit(plain, token, uniform, draft_target_order(plain, draft)),
        cell=cell,
        cell_law=cell_law,
        off_support=[(*place[index], int(token[index])) for index in off_support(plain, token)],
    )


def cells(
    law: NDArray[np.float64], token: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Cells of a chi-square test, fixed before any token is looked at.

    Args:
      law: [emitted, vocab] laws.
      token: [emitted] tokens.

    Returns:
      [emitted] cell of each token, and [emitted, cells] the cells' law in each context: the tokens
      themselves, or ranks 1, 2, 3-5, 6-20, 21-100 and the rest under the context's law.
    """
    if law.shape[1] <= LARGEST_TOKEN_CELLS:
        return token, law
    order = np.argsort(-law, axis=1, kind="stable")
    rank = np.argmax(order == token[:, None], axis=1) + 1
    ranked = np.take_along_axis(law, order, axis=1)
    starts = np.array(RANK_STARTS) - 1
    buckets = np.add.reduceat(ranked, starts, axis=1)
    return np.searchsorted(np.array(RANK_STARTS), rank, side="right") - 1, buckets
