"""Rounds on random laws: drafting, growth and verification without any model."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rheocheck.bench.phases import Clock, Timed
from rheocheck.config import SpeculationConfig, StaticConfig
from rheocheck.gpu.randomness import round_uniforms
from rheocheck.gpu.static_tree import grow_static, static_uniforms
from rheocheck.gpu.static_verification import verify_static
from rheocheck.gpu.tree import Tree, grow
from rheocheck.gpu.verification import Verification, verify

NUM_STATES = 7
# Logits are normal; the target's are the draft's with noise, so that some drafts are accepted.
SPREAD, NOISE = 6.0, 0.8


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run.

    Attributes:
      vocab: Tokens.
      batch: Rows a round.
      rounds: Rounds that are timed; one more runs before them.
      temperature: Of the requests, above 0.
      seed: Of laws and draws.
    """

    vocab: int
    batch: int
    rounds: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What one scheme took.

    Attributes:
      seconds: Wall time by phase, all rounds together.
      accepted: Mean accepted draft tokens a round and row.
      nodes: Mean drafted nodes that survived, a round and row.
      rounds: Rounds, each row's counted.
    """

    seconds: dict[str, float]
    accepted: float
    nodes: float
    rounds: int


class RandomLaws:
    """Draft and target logits by state; a token leads from one state to the next.

    Attributes:
      draft: [batch, states, vocab] logits.
      target: [batch, states, vocab] logits.
    """

    token_ids = None

    def __init__(
        self,
        batch: int,
        vocab: int,
        seed: int,
        spread: float = SPREAD,
        device: torch.device | str = "cpu",
    ) -> None:
        """Make the tables of every row; the same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, NUM_STATES, vocab)
        self.draft = spread * torch.randn(shape, generator=generator)
        self.target = self.draft + NOISE * torch.randn(shape, generator=generator)
        self.draft, self.target = self.draft.to(device), self.target.to(device)
        self._state = torch.zeros(batch, 1, dtype=torch.int64, device=device)

    def root(self) -> Tensor:
        """[batch, vocab] draft logits."""
        self._state = torch.zeros_like(self._state[:, :1])
        return self.draft[:, 0]

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        """[batch, width, vocab] draft logits."""
        self._state = next_state(self._state.gather(1, parent), token)
        return self.draft[torch.arange(len(token), device=token.device).unsqueeze(1), self._state]

    def target_logits(self, tree: Tree) -> Tensor:
        """[batch, nodes, vocab] target logits at the root and every node."""
        state = torch.zeros_like(tree.probe_rank)
        parent = torch.nn.functional.pad(tree.parent, (1, 0))
        token = torch.nn.functional.pad(tree.token, (1, 0))
        for _ in range(tree.depth):
            state[:, 1:] = next_state(state.gather(1, parent), token)[:, 1:]
        return self.target[torch.arange(len(state), device=state.device).unsqueeze(1), state]


def next_state(state: Any, token: Any) -> Any:
    """State after a token; numbers, or tensors of one shape."""
    return (3 * state + token + 1) % NUM_STATES


def measure(config: SpeculationConfig | StaticConfig, workload: Workload) -> Measured:
    """Run a scheme on random laws.

    Args:
      config: A dynamic scheme, or a static tree of the literature.
      workload: Sizes.

    Returns:
      Times and counts. A static tree's verification reads dense laws of all its nodes.
    """
    laws = RandomLaws(workload.batch, workload.vocab, workload.seed)
    request = torch.arange(workload.batch)
    for number in range(-1, workload.rounds):
        if number <= 0:  # the first round warms up
            clock, accepted, nodes = Clock(), 0.0, 0.0
        index = torch.full_like(request, number + 1)
        done, tree = _round(config, workload, laws, request, index, clock)
        accepted += float(done.num_accepted.double().mean())
        nodes += float(tree.num_survivors().double().mean())
    rounds = workload.rounds
    return Measured(dict(clock.seconds), accepted / rounds, nodes / rounds, rounds * workload.batch)


def _round(
    config: SpeculationConfig | StaticConfig,
    workload: Workload,
    laws: RandomLaws,
    request: Tensor,
    index: Tensor,
    clock: Clock,
) -> tuple[Verification, Tree]:
    drafter = Timed(laws, clock, "draft", ("root", "extend"))
    heat, seed = workload.temperature, workload.seed
    if isinstance(config, StaticConfig):
        fixed = static_uniforms(seed, request, index, config)
        tree: Tree = clock.timed("tree", lambda: grow_static(drafter, fixed, config, heat))
        logits = clock.timed("target", lambda: laws.target_logits(tree))
        done: Verification = clock.timed(
            "verify",
            lambda: verify_static(tree, (logits.double() / heat).softmax(-1), fixed, config),
        )
        return done, tree
    draws = round_uniforms(seed, request, index, config)
    tree = clock.timed("tree", lambda: grow(drafter, draws, config, heat))
    logits = clock.timed("target", lambda: laws.target_logits(tree))
    done = clock.timed("verify", lambda: verify(tree, logits, draws, config.rule, heat))
    return done, tree
