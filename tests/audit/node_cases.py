"""Random nodes of a white box, without any model."""

import numpy as np
import torch

from rheocheck.audit.node_law import ReachedNode
from rheocheck.config import SpeculationConfig
from rheocheck.gpu.protocols import ForcedProbe
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.tree import Tree, grow


class FixedDrafter:
    """Gives the same logits everywhere; `token_ids` maps them into a larger vocabulary."""

    def __init__(self, logits: torch.Tensor, token_ids: torch.Tensor | None, rows: int = 1) -> None:
        self.logits = logits
        self.token_ids = token_ids
        self.rows = rows

    def root(self) -> torch.Tensor:
        return self.logits.expand(self.rows, -1)

    def extend(
        self, parent: torch.Tensor, token: torch.Tensor, valid: torch.Tensor
    ) -> torch.Tensor:
        return self.logits.expand(*token.shape, -1)

    def advance(self, features: torch.Tensor, token: torch.Tensor, count: torch.Tensor) -> None:
        raise AssertionError("no test advances it")

    def keep_rows(self, rows: torch.Tensor) -> None:
        self.rows = len(rows)


def uniforms_of(value: float, config: SpeculationConfig, rows: int = 1) -> RoundUniforms:
    """All draws equal to `value`."""
    shape = (rows, config.depth, config.top_k)
    return RoundUniforms(
        probe=torch.full(shape, value, dtype=torch.float64),
        accept=torch.full((*shape, config.top_k), value, dtype=torch.float64),
        final=torch.full((rows,), value, dtype=torch.float64),
    )


def random_node(
    seed: int,
    config: SpeculationConfig,
    temperature: float = 1.0,
    *,
    vocab: int = 12,
    draft_vocab: int = 8,
) -> tuple[ReachedNode, torch.Tensor]:
    """A root with random laws, grown by the code under test, and the draft's token ids."""
    rng = np.random.default_rng(seed)
    token_ids = torch.as_tensor(np.sort(rng.choice(vocab, draft_vocab, replace=False)))
    # Few distinct values, so that ties are common.
    logits = torch.as_tensor(
        np.round(2.0 * rng.normal(size=draft_vocab)) / 2.0, dtype=torch.float32
    )
    target = rng.dirichlet(np.full(vocab, 0.4))
    alone = config.model_copy(update={"depth": 1})
    tree: Tree = grow(
        FixedDrafter(logits, token_ids), uniforms_of(float(rng.random()), alone), alone, temperature
    )
    tokens = torch.nn.functional.pad(tree.token[0], (1, 0), value=-1)
    roles = torch.nn.functional.pad(tree.role[0], (1, 0), value=-1)
    child = tree.child[0, 0]
    node = ReachedNode(
        request=0,
        round_index=0,
        node=0,
        draft_logits=logits,
        target_logits=torch.as_tensor(temperature * np.log(target)),
        target_law=torch.as_tensor(target),
        child_token=tokens[child],
        support=tree.support[0, 0],
        probe_law=tree.probe_law[0, 0],
        probe_survived=bool((roles[child] == 1).any()),
    )
    return node, token_ids


__all__ = ["FixedDrafter", "ForcedProbe", "random_node", "uniforms_of"]
