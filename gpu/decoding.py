"""The decoding loop: draft a tree, run the target over it, verify, emit; batched.

A row's text is its prompt and what was emitted. All of it but the last token is in the caches of
target and draft; the last token is the root of the next round's tree. A round emits its accepted
path and one token more. Rows need not have the same length, and a row's uniforms depend on its
request alone: what it emits does not depend on its neighbours, up to the rounding of the forward
passes, whose order of summation may follow the shape of the batch.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from rheocheck.config import SamplingConfig, SpeculationConfig, check_config
from rheocheck.errors import InputError
from rheocheck.gpu.all_nodes import node_paths
from rheocheck.gpu.generation import Generation, RoundFacts, Row, start_rows
from rheocheck.gpu.processing import check_logits
from rheocheck.gpu.processors import CustomProcessor, Processors, node_laws
from rheocheck.gpu.protocols import Drafter
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms
from rheocheck.gpu.target import TargetModel, TargetState, TreeOutput, pad
from rheocheck.gpu.tree import Tree, grow
from rheocheck.gpu.verification import Verification, verify


class RoundDrafter(Drafter, Protocol):
    """A drafter that keeps what it knows of the verified tokens between rounds."""

    def advance(self, features: Tensor, token: Tensor, count: Tensor) -> None:
        """Take in verified tokens.

        Args:
          features: [batch, new, 3 * hidden] the target's, at the token before each token.
          token: [batch, new] token ids.
          count: [batch] leading entries that are meant; the rest is padding.
        """

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with some rows only. `rows`: [kept] int64 batch indices."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundTrace:
    """All that one round of a batch was decided from, for observers.

    Attributes:
      request: [batch] request numbers.
      round_index: [batch] number of the round within each request.
      text: Prompt and emitted tokens of each row before the round; the last one is the root.
      tree: The drafted tree.
      target_logits: [batch, node, vocab] raw, node 0 = root; nodes that no row has are left out.
      processors: Of the batch, in their state of this round; with the logits they make the laws.
      uniforms: The round's draws.
      verification: What was decided.
      drafter: In its state of this round, so that `grow` can be run on it again.
    """

    request: Int64[Tensor, " batch"]
    round_index: Int64[Tensor, " batch"]
    text: Sequence[tuple[int, ...]]
    tree: Tree
    target_logits: Float[Tensor, "batch node vocab"]
    processors: Processors
    uniforms: RoundUniforms
    verification: Verification
    drafter: RoundDrafter

    def target_laws(self) -> Float64[Tensor, "batch node vocab"]:
        """[batch, node, vocab] laws of all nodes, made anew; padding with bad logits gets zeros."""
        return node_laws(self.target_logits, self.tree, self.processors, check=False)

    def target_law_at(self, row: int, node: int) -> Float64[Tensor, " vocab"]:
        """[vocab] law at one node of one row of the batch."""
        at = torch.tensor([row], device=self.target_logits.device)
        path = node_paths(self.tree)[row, node].unsqueeze(0)
        logits = self.target_logits[row, node].unsqueeze(0)
        return self.processors.laws(logits, at, path, check=False).squeeze(0)

    def emission_nodes(self) -> Int64[Tensor, "batch length"]:
        """[batch, depth + 1] the node after which each emitted token stands; -1 beyond the last."""
        return torch.nn.functional.pad(self.verification.accepted, (1, 0))


Observer: TypeAlias = Callable[[RoundTrace], None]


def generate(
    target: TargetModel,
    new_drafter: Callable[[int], RoundDrafter],
    prompts: Sequence[Sequence[int]],
    speculation: SpeculationConfig,
    sampling: SamplingConfig,
    *,
    eos: Collection[int] = (),
    requests: Sequence[int] | None = None,
    max_rounds: int | None = None,
    batch_size: int = 32,
    observer: Observer | None = None,
    processor: CustomProcessor | None = None,
) -> list[Generation]:
    """Decode speculatively.

    Args:
      target: The model whose law is to be kept.
      new_drafter: Makes a drafter for so many rows without verified tokens.
      prompts: Token ids, each at least one.
      speculation: The scheme.
      sampling: Temperature (0 is greedy), processors, length limit and seed.
      eos: Tokens that end a row.
      requests: The number that keys each row's uniforms; None numbers the prompts.
      max_rounds: Stop rows after so many rounds; None = no limit.
      batch_size: Rows decoded together.
      observer: Called after each round's verification, before the caches move on.
      processor: A processor of your own, which sees the text before each node.

    Returns:
      One generation a prompt, in the prompts' order.

    Raises:
      InputError: An empty prompt, a token outside the vocabulary, more positions than the target
        has, repeated or missing requests, logits that are not numbers or from which processors
        leave nothing, settings that do not fit the vocabulary, or a batch_size or max_rounds
        below 1; `speculation` is no legal SpeculationConfig.
    """
    check_config(speculation)
    if batch_size < 1 or (max_rounds is not None and max_rounds < 1):
        raise InputError(
            f"batch_size = {batch_size}, max_rounds = {max_rounds}: at least 1 required"
        )
    sampling.check_vocabulary(target.vocab_size)
    limit = sampling.max_new_tokens
    # Tokens after the prompt when the last round starts; its tree is depth levels deeper.
    longest = limit - 1
    if max_rounds is not None:
        longest = min(longest, (max_rounds - 1) * (speculation.depth + 1))
    target.check_prompts(prompts, longest + speculation.depth)
    rows = start_rows(prompts, requests)
    # Rows of similar length share a batch, which saves padding; results do not depend on it.
    by_length = sorted(rows, key=lambda row: row.prompt_length)
    for begin in range(0, len(rows), batch_size):
        chosen = by_length[begin : begin + batch_size]
        processors = Processors.start(
            sampling, [row.text for row in chosen], [row.prompt_length for row in chosen],
            target.vocab_size, target.device, processor,
        )  # fmt: skip
        batch = _start(target, new_drafter, chosen, processors)
        while batch.rows and (max_rounds is None or batch.round_index < max_rounds):
            _run_round(target, batch, speculation, sampling, frozenset(eos), observer)
    return [row.finish() for row in rows]


@dataclass(slots=True)
class _Batch:
    """Rows that are decoded together and have not ended, with the caches of both models."""

    rows: list[Row]
    state: TargetState
    drafter: RoundDrafter
    processors: Processors
    round_index: int = 0


def _start(
    target: TargetModel,
    new_drafter: Callable[[int], RoundDrafter],
    rows: list[Row],
    processors: Processors,
) -> _Batch:
    """Cache all tokens of the prompts but the last."""
    device = target.device
    known = [row.text[:-1] for row in rows]
    length = torch.tensor([len(tokens) for tokens in known], device=device)
    state, features = target.prefill(pad(known, device), length)
    drafter = new_drafter(len(rows))
    # The draft reads each token beside the target's feature of the one before it.
    drafter.advance(features, pad([row.text[1:] for row in rows], device), length)
    return _Batch(rows, state, drafter, processors)


def _run_round(
    target: TargetModel,
    batch: _Batch,
    speculation: SpeculationConfig,
    sampling: SamplingConfig,
    eos: frozenset[int],
    observer: Observer | None,
) -> None:
    """Draft, verify, emit; then move the caches on and let go of rows that have ended."""
    device = target.device
    request = torch.tensor([row.request for row in batch.rows], device=device)
    round_index = torch.full_like(request, batch.round_index)
    draws = round_uniforms(sampling.seed, request, round_index, speculation)
    tree = grow(batch.drafter, draws, speculation, sampling.temperature)
    root = torch.tensor([[row.text[-1]] for row in batch.rows], device=device)
    output = target.tree_forward(batch.state, *tree_inputs(tree, root))
    verification = verify(
        tree, output.logits, draws, speculation.rule, sampling.temperature,
        process=batch.processors.process(),
    )  # fmt: skip
    _check_usable(verification, output.logits)
    if observer is not None:
        text = [tuple(row.text) for row in batch.rows]
        observer(
            RoundTrace(
                request, round_index, text, tree, output.logits, batch.processors.snapshot(), draws,
                verification,
                batch.drafter,
            )
        )  # fmt: skip
    num_accepted, sizes = verification.num_accepted.tolist(), tree.num_survivors().tolist()
    for row, emitted, accepted, size in zip(
        batch.rows, verification.emitted.tolist(), num_accepted, sizes, strict=True
    ):
        emission = emitted[: accepted + 1]
        kept = row.emit(emission, sampling.max_new_tokens, eos)
        row.rounds.append(RoundFacts(tuple(emission), accepted, size, kept))
    batch.round_index += 1
    _move_on(target, batch, output, verification)


def _check_usable(verification: Verification, logits: Tensor) -> None:
    """Refuse target logits that verification came to and could not use."""
    bad = (~verification.usable()).nonzero()
    if len(bad):
        row = int(bad[0])
        node = int(verification.final_node[row])
        check_logits(logits[row, node], f"target logits at row {row}, node {node}")
        raise InputError(
            f"the target law at row {row}, node {node} has no token left after its processors; "
            "required: at least one"
        )


def tree_inputs(
    tree: Tree, root: Int64[Tensor, "batch 1"]
) -> tuple[
    Int64[Tensor, "batch node"], Int64[Tensor, "batch node"], Bool[Tensor, "batch node node"]
]:
    """Tokens, depths and visibility of root and drafted nodes, as `TargetModel.tree_forward` wants.

    Nodes that no row has are left out; a budget may be far larger than any tree.
    """
    nodes = 1 + int(tree.num_survivors().max())
    token = torch.cat((root, tree.token.clamp_min(0)), dim=1)
    return token[:, :nodes], tree.depths()[:, :nodes], tree.ancestor_mask()[:, :nodes, :nodes]


def _move_on(
    target: TargetModel, batch: _Batch, output: TreeOutput, verification: Verification
) -> None:
    """Take the accepted path into caches and processors, for the rows that have not ended."""
    going = [index for index, row in enumerate(batch.rows) if row.stop is None]
    if not going:
        batch.rows = []
        return
    count = verification.num_accepted + 1
    steps = int(count.max())
    path = torch.nn.functional.pad(verification.accepted, (1, 0))[:, :steps]
    batch.state = target.commit(batch.state, output, path)
    row = torch.arange(len(batch.rows), device=path.device)[:, None]
    features = output.features[row, path.clamp_min(0)]
    batch.drafter.advance(features, verification.emitted[:, :steps], count)
    batch.processors.advance(verification.emitted[:, :steps])
    if len(going) < len(batch.rows):
        index = torch.tensor(going, device=path.device)
        batch.state = target.select(batch.state, index)
        batch.drafter.keep_rows(index)
        batch.processors.keep_rows(index)
        batch.rows = [batch.rows[place] for place in going]
