"""The exact law of the token after a node of real decoding, against the target's.

The tree around the node is as it was decoded; its probe is not: every token that the draft could
have drawn there is put in its place, the children are made and verified by the code under test, and
the outcomes are added up with the probabilities of the draws. Nothing is sampled except which node.

What it cannot see: survival is taken as given. A tree whose pruning looks at the probe's identity
passes here; the probe stage is there for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rheocheck.audit.choices import Choice, choice_uniforms
from rheocheck.audit.laws import total_variation
from rheocheck.audit.node_mixture import emitted_law
from rheocheck.audit.node_outcomes import DraftedNode, outcomes_of
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.config import SpeculationConfig
from rheocheck.gpu import expansion
from rheocheck.gpu.all_nodes import node_paths
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.gpu.node_law import OrderedChildren, list_nodes
from rheocheck.gpu.row_mass import wide_enough

# The law of a node is a few hundred float64 operations away from its logits.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class ReachedNode:
    """A node of a real round, with all that its verification read.

    Attributes:
      request: Prompt that it belongs to.
      round_index: Round of that prompt.
      node: Node of the round's tree; 0 is the root.
      draft_logits: [draft vocab] raw, or None where the node was not expanded.
      target_logits: [vocab] target logits that the verifier read, processed.
      target_law: [vocab] their law at the request's temperature.
      child_token: [top_k] surviving child in each slot; -1 where none.
      support: [n] draft support as recorded in the tree.
      probe_law: [n] law of the probe as recorded in the tree.
      probe_survived: The node's probe is among the surviving children.
    """

    request: int
    round_index: int
    node: int
    draft_logits: Tensor | None
    target_logits: Tensor
    target_law: Tensor
    child_token: Tensor
    support: Tensor
    probe_law: Tensor
    probe_survived: bool


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """Exact law of one node against its target.

    Attributes:
      request: Prompt.
      round_index: Round.
      node: Node.
      num_outcomes: Probe outcomes enumerated; 1 where no probe survived.
      total_variation: Distance over the whole vocabulary.
      token: Token with the largest deviation.
      got: Its probability in the node's law.
      wanted: Its target probability.
      misdrawn: First (uniform, token wanted, token drawn) where the draw is not by the probe's law,
        or None.
    """

    request: int
    round_index: int
    node: int
    num_outcomes: int
    total_variation: float
    token: int
    got: float
    wanted: float
    misdrawn: tuple[float, int, int] | None

    @property
    def is_violation(self) -> bool:
        """The node's law is not the target's, or its probe is not drawn by its law."""
        # A law with NaN in it compares as a violation too.
        return not self.total_variation <= TOLERANCE or self.misdrawn is not None


class NodeChooser:
    """Chooses one reached node of each prompt, uniformly over all of them and all rounds.

    Reached means: verification stood there, at the root or at an accepted node. Nodes with
    surviving children go first, because elsewhere the emitted token is simply a sample of the
    target's law; a prompt that never reaches one contributes a node without children. Of the k-th
    candidate seen, the choice moves to it with probability 1/k, so every node has the same chance
    whatever their number.
    """

    def __init__(self, seed: int) -> None:
        """`seed` keys the choices."""
        self._seed = seed
        self._seen: dict[int, int] = {}
        self._chosen: dict[int, ReachedNode] = {}
        self._fallback: dict[int, ReachedNode] = {}

    def observe(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        path = trace.emission_nodes().cpu().numpy()
        has_child = (trace.tree.child > 0).any(-1).cpu().numpy()
        uniform = choice_uniforms(
            self._seed, trace.request, trace.round_index, Choice.NODE, path.shape[1]
        )
        for row, request in enumerate(trace.request.tolist()):
            for step, node in enumerate(path[row]):
                if node < 0:
                    break
                if has_child[row, node]:
                    seen = self._seen[request] = self._seen.get(request, 0) + 1
                    if uniform[row, step] * seen < 1.0:
                        self._chosen[request] = _take(trace, row, int(node))
                elif request not in self._fallback:
                    self._fallback[request] = _take(trace, row, int(node))

    def nodes(self) -> list[ReachedNode]:
        """One node a prompt, in the order of the prompts."""
        chosen = {**self._fallback, **self._chosen}
        return [chosen[request] for request in sorted(chosen)]


def check_nodes(
    nodes: Sequence[ReachedNode],
    config: SpeculationConfig,
    temperature: float,
    token_ids: Tensor | None,
) -> list[NodeFinding]:
    """Exact law of each node, through the expansion and verification under test.

    Args:
      nodes: Chosen nodes.
      config: Scheme.
      temperature: Of the request.
      token_ids: [draft vocab] target ids, or None.

    Returns:
      One finding a node.
    """
    return [check_node(node, config, temperature, token_ids) for node in nodes]


def check_node(
    node: ReachedNode, config: SpeculationConfig, temperature: float, token_ids: Tensor | None
) -> NodeFinding:
    """Exact law of one node; see `check_nodes`."""
    if node.probe_survived and node.draft_logits is not None:
        drafted = DraftedNode(node.draft_logits, config, temperature, token_ids)
        weights, children, misdrawn = outcomes_of(drafted)
        child_token = torch.where(node.child_token >= 0, children, -1)
    else:
        child_token, weights, misdrawn = node.child_token[None], np.ones(1), None
    outcomes = len(child_token)
    role = expansion.slot_roles(config, child_token.device).expand(outcomes, -1)
    nodes = list_nodes(
        child_token,
        node.support.expand(outcomes, -1),
        node.probe_law.expand(outcomes, -1),
        OrderedChildren.of(role, child_token >= 0, config.rule),
    )
    wanted = node.target_law.cpu().numpy()
    emitted = emitted_law(node.target_logits, nodes, child_token, weights, wanted, temperature)
    deviation = np.abs(emitted - wanted)
    token = int(deviation.argmax())
    return NodeFinding(
        request=node.request,
        round_index=node.round_index,
        node=node.node,
        num_outcomes=outcomes,
        total_variation=float(total_variation(emitted, wanted)),
        token=token,
        got=float(emitted[token]),
        wanted=float(wanted[token]),
        misdrawn=misdrawn,
    )


def _take(trace: RoundTrace, row: int, node: int) -> ReachedNode:
    """Copy what the node's verification read; the round's tensors are gone afterwards."""
    tree = trace.tree
    survivor = tree.child[row, node] - 1
    token = torch.nn.functional.pad(tree.token[row], (1, 0), value=-1)
    drafter = trace.drafter
    assert isinstance(drafter, RecordingDrafter)
    logits = drafter.node_logits(tree, row, node)
    roles = torch.nn.functional.pad(tree.role[row], (1, 0), value=-1)[survivor + 1]
    return ReachedNode(
        request=int(trace.request[row]),
        round_index=int(trace.round_index[row]),
        node=node,
        draft_logits=None if logits is None else logits.clone(),
        target_logits=_processed(trace, row, node),
        target_law=trace.target_law_at(row, node),
        child_token=token[survivor + 1],
        support=tree.support[row, node].clone(),
        probe_law=tree.probe_law[row, node].clone(),
        probe_survived=bool((roles == expansion.Role.PROBE).any()),
    )


def _processed(trace: RoundTrace, row: int, node: int) -> Tensor:
    """[vocab] copy of one node's target logits, as verification reads them."""
    logits = trace.target_logits[row, node].clone()
    process = trace.processors.process()
    if process is None:
        return logits
    path = node_paths(trace.tree)[row : row + 1, node]
    index = torch.tensor([row], device=logits.device)
    return process(wide_enough(logits.unsqueeze(0)), index, path).squeeze(0)
