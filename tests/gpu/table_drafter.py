"""A draft model in tensors alone: one table of logits a row, walked by a rule of arithmetic."""

import torch
from torch import Tensor

from rheocheck.config import SpeculationConfig
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms
from rheocheck.gpu.tree import Tree, grow

_FACTOR, _SHIFT = 3, 1


class TableDrafter:
    """Logits by state; the state after a token is (3 * state + token + 1) mod states."""

    def __init__(self, table: Tensor, token_ids: Tensor | None = None) -> None:
        """Start every row of `table` [batch, states, vocab] in state 0."""
        self._table = table
        self._token_ids = token_ids
        self._state = torch.zeros(table.shape[0], 1, dtype=torch.int64, device=table.device)

    @property
    def token_ids(self) -> Tensor | None:
        """[vocab] target ids, or None."""
        return self._token_ids

    def root(self) -> Tensor:
        """[batch, vocab] logits."""
        self._state = torch.zeros_like(self._state[:, :1])
        return self._table[:, 0]

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        """[batch, top_k, vocab] logits."""
        self._state = next_state(self._state.gather(1, parent), token, self._table.shape[1])
        row = torch.arange(self._table.shape[0], device=token.device).unsqueeze(1)
        return self._table[row, self._state]


def next_state(state: Tensor, token: Tensor, num_states: int) -> Tensor:
    """State after `token`; both of any one shape."""
    return (_FACTOR * state + token + _SHIFT) % num_states


def node_states(tree: Tree, num_states: int) -> Tensor:
    """[batch, budget + 1] state at the root and at each survivor; any value on padding."""
    state = torch.zeros_like(tree.probe_rank)
    parent = torch.nn.functional.pad(tree.parent, (1, 0))
    token = torch.nn.functional.pad(tree.token, (1, 0))
    for _ in range(tree.depth):
        state = torch.cat(
            [state[:, :1], next_state(state.gather(1, parent), token, num_states)[:, 1:]], dim=1
        )
    return state


def grow_from_table(
    table: Tensor,
    request: Tensor,
    round_index: Tensor,
    config: SpeculationConfig,
    temperature: float = 1.0,
    seed: int = 0,
) -> tuple[Tree, RoundUniforms]:
    """Uniforms and trees of one round, nothing checked on the way: what a graph would hold."""
    uniforms = round_uniforms(seed, request, round_index, config, check=False)
    return grow(TableDrafter(table), uniforms, config, temperature, check=False), uniforms
