"""What real decoding emitted, beside the target's law by plain passes over the finished text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.audit.accept_rate import accept_rates, accept_sums
from rheocheck.audit.choices import Choice, choice_uniforms
from rheocheck.audit.drawn_tokens import Drawn
from rheocheck.audit.laws import draft_law, softmax
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.audit.token_pilot import pilot_faults
from rheocheck.audit.token_power import PilotFault
from rheocheck.audit.token_statistics import Statistic, merged, statistics
from rheocheck.audit.token_witness import WitnessSets
from rheocheck.config import SpeculationConfig
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.stats.scores import NO_SCORES, ScoreSums, off_support
from rheocheck.traces.laws import Laws

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
      accept_rate: [emitted] probability, given the tree, that a child of the node is accepted; 0
        at nodes without children.
      accepted: [emitted] whether one was.
    """

    start: int
    text: list[int]
    verified: list[NDArray[np.float64]] = field(default_factory=list)
    draft: list[NDArray[np.float64]] = field(default_factory=list)
    uniform: list[float] = field(default_factory=list)
    place: list[tuple[int, int]] = field(default_factory=list)
    accept_rate: list[float] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)


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
        rates = accept_rates(trace, self._config.rule, self._temperature)
        accepted = trace.verification.num_accepted.tolist()
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
                emitted.accept_rate.append(float(rates[row, step]))
                emitted.accepted.append(step < accepted[row])

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
    """Emitted tokens of some prompts against plain decoding; `join` puts parts of a run together.

    Attributes:
      num_tokens: Emitted tokens.
      statistics: All of `rheocheck.audit.token_statistics`, with what they saw.
      sets: For the witness.
      accept: Sums of 1{a child was accepted} at the nodes that have children.
      pilot: Named faults on some of the contexts; empty for parts that were not asked.
      off_support: Emitted tokens of probability 0, as (prompt, round, position, token).
    """

    num_tokens: int
    statistics: list[Statistic]
    sets: WitnessSets
    accept: ScoreSums
    pilot: tuple[PilotFault, ...]
    off_support: list[tuple[int, int, int, int]]


def join(parts: Sequence[EmissionFindings]) -> EmissionFindings:
    """The findings of several sets of prompts as one; of none, findings without tokens."""
    accept, sets = NO_SCORES, WitnessSets()
    for part in parts:
        accept += part.accept
        sets.merge(part.sets)
    return EmissionFindings(
        num_tokens=sum(part.num_tokens for part in parts),
        statistics=merged([part.statistics for part in parts]),
        sets=sets,
        accept=accept,
        pilot=next((part.pilot for part in parts if part.pilot), ()),
        off_support=[place for part in parts for place in part.off_support],
    )


def compare(
    rows: dict[int, Emitted],
    plain_logits: PlainLogits,
    temperature: float,
    config: SpeculationConfig,
    pilot_tv: float | None = None,
) -> EmissionFindings:
    """Compare emitted tokens with plain passes over the finished text.

    Args:
      rows: By prompt.
      plain_logits: The target's plain passes; no tree, mask, cache or position of ours in them.
      temperature: Of the requests.
      config: The scheme.
      pilot_tv: Total variation of the named faults that are tried out on some of the contexts, or
        None to try none.

    Returns:
      The findings over all prompts.
    """
    return compare_with(rows, plain_laws(rows, plain_logits, temperature), config, pilot_tv)


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
    rows: dict[int, Emitted],
    plain_by_prompt: dict[int, NDArray[np.float64]],
    config: SpeculationConfig,
    pilot_tv: float | None = None,
) -> EmissionFindings:
    """Compare emitted tokens with plain laws of `plain_laws`; see `compare`."""
    emitted = list(rows.values())
    if not any(row.verified for row in emitted):
        return join([])
    plain = np.concatenate([plain_by_prompt[request] for request in rows])
    draft = np.concatenate([np.stack(row.draft) for row in emitted])
    token = np.array([token for row in emitted for token in row.text[row.start :]], dtype=np.int64)
    place = [
        (request, round_index, step)
        for request, row in rows.items()
        for round_index, step in row.place
    ]
    drawn = Drawn(
        laws=Laws(None, plain, draft, None, None, token, np.zeros(len(token))),
        uniform=np.array([value for row in emitted for value in row.uniform]),
        place=np.array([(0, *where) for where in place]),
        num_top=config.num_top,
        num_candidates=config.top_k,
    )
    found, sets = statistics(), WitnessSets()
    for statistic in found:
        statistic.observe(drawn)
    sets.observe(drawn)
    return EmissionFindings(
        num_tokens=len(token),
        statistics=found,
        sets=sets,
        accept=accept_sums(
            np.array([value for row in emitted for value in row.accept_rate]),
            np.array([value for row in emitted for value in row.accepted], dtype=np.bool_),
        ),
        pilot=() if pilot_tv is None else pilot_faults(drawn, pilot_tv),
        off_support=[(*place[index], int(token[index])) for index in off_support(plain, token)],
    )
