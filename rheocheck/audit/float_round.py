"""The exact law that the torch path implements, rounding included: whole small trees and one node.

The code under test is run, not modelled. Every probability that it rounds (running sums of probes
and last draws, accept thresholds) is read off as a number of uniforms out of 2^53
(`rheocheck.reference.float_law`); a uniform that leads to the chosen outcome is then handed to
`grow` and `verify`, and what they emit must be what was chosen. Under the choice oracle this gives
the law of the implementation in exact dyadic rationals.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the scheme.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.audit.float_draw import final_counts
from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.errors import BackendError
from rheocheck.gpu.all_nodes import TreeLaws, laws_of, node_paths, tree_laws
from rheocheck.gpu.expansion import Logits, expand
from rheocheck.gpu.final_draw import Residual
from rheocheck.gpu.node_law import NodeLaw, OrderedChildren, list_nodes
from rheocheck.gpu.processors import Processors
from rheocheck.gpu.randomness import RoundUniforms
from rheocheck.gpu.row_mass import Process, wide_enough
from rheocheck.gpu.tree import Tree, grow
from rheocheck.gpu.verification import verify
from rheocheck.reference.choices import Choose
from rheocheck.reference.float_law import (
    UNIFORM_BITS,
    Branch,
    DyadicLaw,
    accept_counts,
    draw_counts,
    node_law,
)
from rheocheck.reference.laws import Path
from rheocheck.reference.oracle import exact_law

LogitsAt: TypeAlias = Callable[[Path], Tensor]
Entry = TypeVar("Entry", NodeLaw, Residual)
ONE = 1 << UNIFORM_BITS
LARGEST_UNIFORM = 1 - 2.0**-UNIFORM_BITS


def torch_round_law(
    target_logits: LogitsAt,
    draft_logits: LogitsAt,
    config: SpeculationConfig,
    sampling: SamplingConfig,
    max_paths: int | None = None,
) -> dict[Path, Fraction]:
    """Exact law of what one round of the torch path emits.

    Args:
      target_logits: path -> [vocab] logits of any float dtype.
      draft_logits: path -> [vocab] logits, on the target's vocabulary.
      config: The scheme; small, since every draw of every expanded node is a branch.
      sampling: Temperature and filters; its seed is not used.
      max_paths: Most runs; None sets no bound.

    Returns:
      Probability of each emission, over a power of two; they sum to 1.

    Raises:
      BackendError: `verify` emitted something else than the uniforms were chosen for.
      BudgetExceededError: `max_paths` was met.
    """

    def program(choose: Choose) -> Path:
        return _Round(target_logits, draft_logits, config, sampling, choose).run()

    return exact_law(program, max_paths)


def torch_node_law(
    target_logits: Tensor, draft_logits: Logits, config: SpeculationConfig, temperature: float
) -> DyadicLaw:
    """Exact law of the token after one node of the torch path, all its children surviving.

    Each outcome of the probe is verified by itself, as a batch of one, so that sums are made as in
    decoding. Outcomes that leave bit for bit the same residual share its last draw.

    Args:
      target_logits: [vocab] processed target logits of any float dtype.
      draft_logits: [vocab] draft logits or a pair of them, on the target's vocabulary.
      config: top_k, num_top, support_size and rule.
      temperature: Of the request.

    Returns:
      [vocab] law, summing to exactly 1.
    """
    zero = torch.zeros(1, 1, dtype=torch.float64)
    logits: Logits
    if isinstance(draft_logits, tuple):
        logits = (draft_logits[0].view(1, 1, -1), draft_logits[1].view(1, 1, -1))
    else:
        logits = draft_logits.view(1, 1, -1)
    first = expand(logits, zero, config, temperature)
    weights = _draw(first.probe_law)
    finals: list[NDArray[np.int64]] = []
    known: dict[bytes, int] = {}
    branches = []
    for rank, weight in enumerate(weights if weights is not None else [ONE]):
        if weight == 0:
            continue
        forced = None if weights is None else first.support[..., rank]
        children = expand(logits, zero, config, temperature, forced_probe=forced)
        in_order = OrderedChildren.of(children.role[0], children.valid[0], config.rule)
        nodes = list_nodes(children.token[0], children.support[0], children.probe_law[0], in_order)
        node, last = laws_of(target_logits.unsqueeze(0), nodes, temperature)
        tests = _tests(node, children.token[0, 0], children.valid[0, 0])
        key = b"".join(part.numpy().tobytes() for part in (last.mass, last.rest, last.scale))
        if any(count == ONE for _, count, _ in tests) and finals:
            final = 0  # a test that cannot fail: the last draw is never made
        elif key in known:
            final = known[key]
        else:
            final = known[key] = len(finals)
            finals.append(np.array(final_counts(last, target_logits, temperature)))
        branches.append(Branch(weight, tuple((token, count) for token, count, _ in tests), final))
    return node_law(branches, finals)


class _Round:
    """One run of the torch path with uniforms that lead where `choose` says."""

    def __init__(
        self,
        target_logits: LogitsAt,
        draft_logits: LogitsAt,
        config: SpeculationConfig,
        sampling: SamplingConfig,
        choose: Choose,
    ) -> None:
        self._target_logits = target_logits
        self._draft_logits = draft_logits
        self._config = config
        self._sampling = sampling
        self._choose = choose
        shape = (1, config.depth, config.top_k)
        self._uniforms = RoundUniforms(
            probe=torch.zeros(shape, dtype=torch.float64),
            accept=torch.zeros((*shape, config.top_k), dtype=torch.float64),
            final=torch.zeros(1, dtype=torch.float64),
        )
        self._paths: list[Path | None] = [()]
        self._layer = 0

    # `grow` asks for the logits of a layer, then reads that layer's uniforms: in between, the
    # drafter's side chooses the probes and writes uniforms that draw them.

    @property
    def token_ids(self) -> None:
        """Draft and target share a vocabulary."""
        return None

    def root(self) -> Tensor:
        logits = self._draft_logits(()).unsqueeze(0)
        self._choose_probes(logits.unsqueeze(1))
        return logits

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        paths: list[Path | None] = []
        for index, last, is_node in zip(
            parent[0].tolist(), token[0].tolist(), valid[0].tolist(), strict=True
        ):
            before = self._paths[index] if is_node else None
            paths.append(None if before is None else (*before, last))
        self._paths = paths
        rows = [self._draft_logits(() if path is None else path) for path in paths]
        logits = torch.stack(rows).unsqueeze(0)
        self._choose_probes(logits)
        return logits

    def _process(self, logits: Tensor) -> Process | None:
        """The request's processors after an empty text."""
        return Processors.start(self._sampling, [()], [0], logits.shape[-1]).process()

    def run(self) -> Path:
        tree = grow(self, self._uniforms, self._config, self._sampling.temperature)
        paths = _node_paths(tree)
        logits = torch.stack([self._target_logits(path) for path in paths]).unsqueeze(0)
        temperature, process = self._sampling.temperature, self._process(logits)
        laws = tree_laws(tree, logits, self._config.rule, temperature, process=process)
        chosen = self._walk(tree, laws, logits)
        done = verify(tree, logits, self._uniforms, self._config.rule, temperature, process=process)
        emitted = tuple(token for token in done.emitted[0].tolist() if token >= 0)
        if emitted != chosen:
            raise BackendError(
                f"verification emitted {emitted} for uniforms that were chosen to emit {chosen}"
            )
        return emitted

    def _choose_probes(self, logits: Tensor) -> None:
        zero = torch.zeros(logits.shape[:2], dtype=torch.float64)
        laws = expand(logits, zero, self._config, self._sampling.temperature).probe_law
        running = laws.cumsum(-1)[0].numpy()
        for rank, path in enumerate(self._paths):
            positive = laws[0, rank].numpy() > 0
            if path is None or not positive.any():
                continue
            counts = draw_counts(running[rank], positive).tolist()
            self._uniforms.probe[0, self._layer, rank] = self._choose_uniform(counts)[1]
        self._layer += 1

    def _choose_uniform(self, counts: list[int]) -> tuple[int, float]:
        """An item, chosen with its exact probability, and the smallest uniform that draws it."""
        item = self._choose.categorical([Fraction(count, ONE) for count in counts])
        return item, sum(counts[:item]) / ONE

    def _walk(self, tree: Tree, laws: TreeLaws, logits: Tensor) -> Path:
        """Choose every accept test and the last token; returns what will be emitted."""
        node = 0
        path: Path = ()
        for layer in range(self._config.depth):
            slots = tree.child[0, node]
            token = torch.nn.functional.pad(tree.token, (1, 0))[0, slots]
            rank = int(tree.rank_in_layer[0, node - 1]) if node else 0
            accepted = None
            for last, count, slot in _tests(_entry(laws.law, node), token, slots > 0):
                is_accepted = self._choose.bernoulli(Fraction(count, ONE))
                uniform = 0.0 if is_accepted else LARGEST_UNIFORM
                self._uniforms.accept[0, layer, rank, slot] = uniform
                if is_accepted:
                    accepted = (last, int(slots[slot]))
                    break
            if accepted is None:
                break
            path, node = (*path, accepted[0]), accepted[1]
        values, temperature = logits[0, node], self._sampling.temperature
        process = self._process(logits)
        if process is not None:
            row = torch.zeros(1, dtype=torch.int64)
            values = process(wide_enough(values[None]), row, node_paths(tree)[:, node])[0]
        counts = final_counts(_entry(laws.residual, node), values, temperature)
        if counts is None:
            raise BackendError(f"the law after {path} has no mass; required: a target law")
        last, uniform = self._choose_uniform(counts.tolist())
        self._uniforms.final[0] = uniform
        return (*path, last)


def _entry(laws: Entry, node: int) -> Entry:
    """One node's row of a batch of laws."""
    return replace(
        laws, **{part.name: getattr(laws, part.name)[node : node + 1] for part in fields(laws)}
    )


def _draw(law: Tensor) -> list[int] | None:
    """Counts of the inverse draw from one row of masses; None where there is no mass."""
    positive = (law > 0).reshape(-1).numpy()
    if not positive.any():
        return None
    counts: list[int] = draw_counts(law.cumsum(-1).reshape(-1).numpy(), positive).tolist()
    return counts


def _tests(law: NodeLaw, token: Tensor, valid: Tensor) -> list[tuple[int, int, int]]:
    """(token, accept count, slot) of the children of one node, in the order of the tests."""
    order = law.order[0].tolist()
    counts = accept_counts(law.acceptance[0].numpy()).tolist()
    return [
        (int(token[slot]), count, slot)
        for slot, count in zip(order, counts, strict=True)
        if valid[slot]
    ]


def _node_paths(tree: Tree) -> list[Path]:
    """Path of each node, the root first; padding gets the root's."""
    paths: list[Path] = [()]
    for token, parent, is_node in zip(
        tree.token[0].tolist(), tree.parent[0].tolist(), tree.valid[0].tolist(), strict=True
    ):
        paths.append((*paths[parent], token) if is_node else ())
    return paths
