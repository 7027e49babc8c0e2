"""The target model: prefill, a forward pass over a tree of drafted tokens, and cache compaction.

A row's verified tokens are all but its last in the cache, slot i at position i. The last one is
the root of the round's tree: it is run together with the drafted nodes, which gives the target's
law at the root and at every node in one pass. What a token sees is said by an explicit mask, so
rows of different length and trees of different shape share a batch.

States are values: no method changes one, so an audit may run the same round twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from rheocheck.errors import InputError
from rheocheck.gpu import hf_adapter, hf_loading
from rheocheck.gpu.hf_adapter import HfModel, LayerKeyValues
from rheocheck.gpu.target_check import check_tree_attention


@dataclass(frozen=True, slots=True)
class TargetState:
    """What the target remembers between rounds.

    Attributes:
      key_values: Each layer's keys and values, [batch, kv_heads, slots, head_dim]; () when no row
        has a cached token.
      length: [batch] int64, tokens in the cache. Row b's are in slots 0..length[b] - 1, at the
        position of the same number; its later slots are padding that nothing may see.
    """

    key_values: LayerKeyValues
    length: Int64[Tensor, " batch"]

    @property
    def num_slots(self) -> int:
        """Cache slots a row, padding included."""
        return int(self.key_values[0][0].shape[2]) if self.key_values else 0


@dataclass(frozen=True, slots=True)
class TreeOutput:
    """One forward pass over the trees of all rows.

    Attributes:
      logits: [batch, node, vocab] the target's logits after each node, model dtype; node 0 = root.
      features: [batch, node, 3 * hidden] the fused hidden states at each node.
      key_values: The state's slots followed by one slot a node.
    """

    logits: Float[Tensor, "batch node vocab"]
    features: Float[Tensor, "batch node fused"]
    key_values: LayerKeyValues


class TargetModel:
    """A Llama-like target that can run trees; refuses at start-up if it runs them wrongly.

    Attributes:
      hf: The wrapped model.
    """

    def __init__(self, hf: HfModel, *, check: bool = True) -> None:
        """Wrap a model that `hf_adapter.wrap` has accepted.

        Args:
          hf: The model.
          check: Compare a tree of three nodes with its paths, see `check_tree_attention`.

        Raises:
          BackendError: The comparison failed.
        """
        self.hf = hf
        if check:
            # Type checkers see this file under two names, hence two classes of one.
            itself: Any = self
            check_tree_attention(itself)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        fused_layers: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        attention: str = "sdpa",
    ) -> "TargetModel":
        """Load from a folder in Hugging Face's layout, offline.

        Raises:
          WeightsError: The folder is missing or damaged.
          BackendError: The model cannot run trees.
          InputError: Not three distinct fused layers.
        """
        model = hf_loading.load_model(folder, dtype, torch.device(device), attention)
        return cls(hf_adapter.wrap(model, fused_layers))

    @property
    def vocab_size(self) -> int:
        """Logits a position."""
        return int(self.hf.config.vocab_size)

    @property
    def hidden_size(self) -> int:
        """Width of one hidden state."""
        return int(self.hf.config.hidden_size)

    @property
    def max_positions(self) -> int:
        """Positions the model was made for."""
        return int(self.hf.config.max_position_embeddings)

    @property
    def device(self) -> torch.device:
        """Where token ids must be."""
        return self.hf.device

    @torch.no_grad()
    def prefill(
        self, token: Int64[Tensor, "batch width"], length: Int64[Tensor, " batch"]
    ) -> tuple[TargetState, Float[Tensor, "batch width fused"]]:
        """Cache the first tokens of every row.

        Args:
          token: [batch, width] token ids, each row's at its start, any padding after them.
          length: [batch] int64 in [0, width].

        Returns:
          The state, and features [batch, width, 3 * hidden], meaningless at padding.
        """
        batch, width = token.shape
        if width == 0:
            features = torch.zeros(batch, 0, 3 * self.hidden_size, dtype=self.hf.dtype)
            return TargetState((), length), features.to(self.device)
        causal = torch.ones(width, width, dtype=torch.bool, device=self.device).tril()
        position = torch.arange(width, device=self.device).expand(batch, width)
        # Padding stands to the right of its row's tokens, where causal attention never looks.
        mask = additive_mask(causal.expand(batch, width, width), self.hf.dtype)
        output = hf_adapter.forward(self.hf, token, position, mask, (), num_logits=1)
        return TargetState(output.key_values, length), output.features

    @torch.no_grad()
    def tree_forward(
        self,
        state: TargetState,
        token: Int64[Tensor, "batch node"],
        depth: Int64[Tensor, "batch node"],
        visible: Bool[Tensor, "batch node node"],
    ) -> TreeOutput:
        """Run each row's root and drafted nodes, each seeing the cache, its ancestors and itself.

        Args:
          state: All verified tokens but the root.
          token: [batch, node] token ids; node 0 is the root, padding nodes may hold any token.
          depth: [batch, node] edges from the root. A node's position is its row's length + depth.
          visible: [batch, node, node] bool, True where the first node sees the second; a node sees
            itself, padding nodes included (a row that sees nothing has no softmax).
        """
        batch, nodes = token.shape
        slot = torch.arange(state.num_slots, device=self.device)
        cached = (slot < state.length[:, None])[:, None].expand(batch, nodes, -1)
        mask = additive_mask(torch.cat((cached, visible), dim=-1), self.hf.dtype)
        position = state.length[:, None] + depth
        output = hf_adapter.forward(self.hf, token, position, mask, state.key_values)
        return TreeOutput(output.logits, output.features, output.key_values)

    def commit(
        self, state: TargetState, output: TreeOutput, kept: Int64[Tensor, "batch steps"]
    ) -> TargetState:
        """Keep the root and the accepted nodes in the cache; every other node leaves it.

        Args:
          state: The state that `output` was computed from.
          output: The round's forward pass.
          kept: [batch, steps] int64 node indices along the accepted path, root (0) first, then
            padding by -1.

        Returns:
          A state in which row b has length[b] + (its kept nodes) tokens, slot i at position i.
        """
        count = (kept >= 0).sum(-1)
        length = state.length + count
        slot = torch.arange(int(length.max()), device=self.device).expand(len(length), -1)
        step = slot - state.length[:, None]
        node = kept.gather(1, step.clamp(0, kept.shape[1] - 1))
        source = torch.where(step < 0, slot, state.num_slots + node.clamp_min(0))
        return TargetState(gather_slots(output.key_values, source), length)

    def select(self, state: TargetState, rows: Int64[Tensor, " kept"]) -> TargetState:
        """The state of some rows only. `rows`: [kept] int64 batch indices."""
        length = state.length[rows]
        width = int(length.max()) if len(rows) else 0
        key_values = tuple(
            (keys[rows, :, :width], values[rows, :, :width]) for keys, values in state.key_values
        )
        return TargetState(key_values if width else (), length)

    @torch.no_grad()
    def plain_logits(
        self,
        sequences: Sequence[Sequence[int]],
        starts: Sequence[int] | None = None,
        batch_size: int = 32,
    ) -> list[Float[Tensor, "positions vocab"]]:
        """Logits of finished sequences by ordinary causal passes, independent of the tree path.

        No mask, position, cache or root of ours takes part, so a fault in any of them shows as a
        difference between these logits and `tree_forward`'s.

        Args:
          sequences: Token ids, each at least one.
          starts: The first position wanted of each sequence; None = 0.
          batch_size: Sequences a pass.

        Returns:
          For each sequence [length - start, vocab]: row i holds the logits after token start + i.
        """
        begins = [0] * len(sequences) if starts is None else list(starts)
        found: list[Tensor] = []
        for begin in range(0, len(sequences), batch_size):
            chunk = sequences[begin : begin + batch_size]
            first = begins[begin : begin + batch_size]
            kept = torch.arange(min(first), max(map(len, chunk)), device=self.device)
            logits = hf_adapter.plain_forward(self.hf, pad(chunk, self.device), kept)
            found += [
                row[start - min(first) : len(sequence) - min(first)]
                for row, start, sequence in zip(logits, first, chunk, strict=True)
            ]
        return found

    def logit_noise(self) -> float:
        """How far two computations of one logit may differ, relative to the row's largest |logit|.

        A rounding is off by at most u = eps / 2, to either side. A logit passes through 2 L half
        layers and the final product, each of which adds up n rounded terms (n = the widest inner
        product): a random walk of (2 L + 1) n steps, whose standard deviation is at most
        sqrt((2 L + 1) n) u. Four of them cover the largest of some thousand logits.
        Half-precision products accumulate in float32 and round once, so n = 1 there. Norms and
        rotations are float32 whatever the model's dtype: float64 is taken as float32 with n = 1.

        Layers also pass on and amplify earlier errors, by a gain that depends on the weights. Trees
        against plain passes measured at most 0.6 (float32) and 3 (half precision) standard
        deviations at usual weights, 3 and 9 at weights of ten times that size. Float32 has room for
        a gain of 8: what a wrong mask or position does is thousands of times larger. Half precision
        has none to spare.
        """
        config = self.hf.config
        eps = max(torch.finfo(self.hf.dtype).eps, torch.finfo(torch.float32).eps)
        is_half = torch.finfo(self.hf.dtype).bits < 32
        width = max(config.hidden_size, config.intermediate_size)
        terms = width if self.hf.dtype == torch.float32 else 1
        deviation = math.sqrt((2 * config.num_hidden_layers + 1) * terms) * eps / 2
        return 4 * deviation if is_half else 4 * 8 * deviation

    def check_prompts(self, prompts: Sequence[Sequence[int]], num_more: int) -> None:
        """Refuse prompts that the model cannot take.

        Args:
          prompts: Token ids.
          num_more: Positions that decoding may use after a prompt.

        Raises:
          InputError: An empty prompt, a token outside the vocabulary, or too many positions; the
            message gives the prompt's index.
        """
        for index, prompt in enumerate(prompts):
            if not len(prompt):
                raise InputError(f"prompt {index} is empty; at least one token is required")
            for place, token in enumerate(prompt):
                if not 0 <= token < self.vocab_size:
                    raise InputError(
                        f"token {place} of prompt {index} is {token}, outside the vocabulary "
                        f"[0, {self.vocab_size})"
                    )
            if len(prompt) + num_more > self.max_positions:
                raise InputError(
                    f"prompt {index} has {len(prompt)} tokens and decoding may use {num_more} "
                    f"positions after it, but the target has max_position_embeddings = "
                    f"{self.max_positions}; shorten the prompt, max_new_tokens or the tree's depth"
                )


def additive_mask(
    visible: Bool[Tensor, "batch query key"], dtype: torch.dtype
) -> Float[Tensor, "batch 1 query key"]:
    """[batch, 1, query, key] 0 where visible, else the dtype's least.

    Not minus infinity: a fully hidden row would be NaN and spread through 0 * NaN.
    """
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


def gather_slots(key_values: LayerKeyValues, source: Int64[Tensor, "batch slot"]) -> LayerKeyValues:
    """New slot i of row b is old slot source[b, i]."""
    rows = torch.arange(source.shape[0], device=source.device)[:, None]
    # Advanced indices around a slice put their axes first: [batch, slots, kv_heads, head_dim].
    return tuple(
        (keys[rows, :, source].transpose(1, 2), values[rows, :, source].transpose(1, 2))
        for keys, values in key_values
    )


def pad(sequences: Sequence[Sequence[int]], device: torch.device) -> Int64[Tensor, "batch longest"]:
    """Each sequence at its row's start, zeros after it."""
    width = max(map(len, sequences), default=0)
    rows = [[*sequence, *[0] * (width - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.int64, device=device).reshape(len(sequences), width)
