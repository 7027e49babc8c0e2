"""Acceptance on a real pair of models: verification integrated exactly, given each drawn tree.

The pair decodes as it would in use; every round's tree and target laws are taken from the decoding
loop's trace. For each tree E[tau | tree] of every rule follows from closed forms, so the only noise
left is that of contexts and trees. Counting accepted tokens adds the noise of every accept test.

The rules are compared on the trees and contexts that one of them met. That favours none: all are
lossless, so texts have the same law; only where rounds begin depends on the rule that decoded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rheocheck.bounds.families import softmax
from rheocheck.bounds.growth import DraftTree, Expansion
from rheocheck.bounds.laws import Array, NodeLaws, Tokens
from rheocheck.bounds.node import NODE_RULES, NodeLayout, layout_acceptance
from rheocheck.bounds.tally import Tally, add, tally_tree
from rheocheck.bounds.tree import tree_acceptance
from rheocheck.config import RULES, Rule, SamplingConfig, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference import Role

if TYPE_CHECKING:
    from rheocheck.gpu.decoding import RoundTrace
    from rheocheck.models.registry import Pair


@dataclass(frozen=True, slots=True)
class RootLaws:
    """Laws at the roots of rounds, lumped: columns are the draft's first tokens in rank order.

    No rule tells tokens off the draft's support apart, so their target mass is one last column, to
    which the draft gives nothing.

    Attributes:
      target: [context, rank + 1] target law at the request's temperature; the last column is the
        rest of the vocabulary.
      ranking: [context, rank + 1] draft law at temperature 1, sums to 1; the last column is 0.
      prompt: [context] index of the prompt.
    """

    target: Array
    ranking: Array
    prompt: Tokens


@dataclass(slots=True)
class RealRun:
    """What decoding one set of prompts gave.

    Attributes:
      tallies: Rule -> one tally a prompt, see `tally_tree`. The rule that decoded also has
        "counted", the accepted tokens that were counted instead of integrated.
      node_values: Name -> [node] acceptance at every expanded surviving node as if all its children
        survived: NODE_RULES ("merged" is the optimum), "topk", and "t", the target mass off the
        top; "overlap", the sum of min(target, probe_law); "complete", whether all its children did
        survive; "layer" and "prompt", where the node is.
      roots: Laws at the roots of all rounds.
    """

    tallies: dict[Rule, list[Tally]]
    node_values: dict[str, Array]
    roots: RootLaws


def decode_and_integrate(
    pair: "Pair",
    prompts: Sequence[Sequence[int]],
    config: SpeculationConfig,
    sampling: SamplingConfig,
    max_rounds: int = 8,
    support_kept: int = 128,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> RealRun:
    """Decode prompts and integrate verification over every tree.

    Args:
      pair: Target and draft head.
      prompts: Token ids of each.
      config: The scheme; its rule decodes, every rule is evaluated.
      sampling: Temperature, filters and seed.
      max_rounds: Rounds a prompt.
      support_kept: Columns of the root laws.
      batch_size: Prompts decoded together.
      progress: Called with (prompts done, prompts in all).

    Returns:
      Tallies, node values and root laws.

    Raises:
      InputError: No prompt, or what `generate` refuses.
    """
    from rheocheck.gpu.decoding import generate

    if not prompts:
        raise InputError("prompts is empty; required: at least one prompt")
    rules: tuple[Rule, ...] = ("onehot",) if config.num_top >= config.top_k else RULES
    collector = _Collector(config, rules, len(prompts), support_kept)
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        generate(
            pair.target, pair.new_drafter, batch, config, sampling, eos=pair.eos,
            requests=range(start, start + len(batch)), max_rounds=max_rounds,
            batch_size=batch_size, observer=collector.observe,
        )  # fmt: skip
        if progress is not None:
            progress(start + len(batch), len(prompts))
    return collector.finish()


def tree_of_row(trace: "RoundTrace", row: int, config: SpeculationConfig) -> DraftTree:
    """One row of a batch of trees, in this package's form; the draft's score factors are left out.

    Args:
      trace: A round of the decoding loop.
      row: Row of the batch.
      config: The scheme that grew the tree.
    """
    tree = trace.tree
    size = int(tree.valid[row].sum())
    fields = (tree.token, tree.parent, tree.layer, tree.slot, tree.role)
    token, parent, layer, slot, role = (values[row, :size].tolist() for values in fields)
    supports = tree.support[row, : size + 1].cpu().numpy()
    laws = tree.probe_law[row, : size + 1].cpu().numpy()
    expansions = [
        _expansion(support[support >= 0], law[support >= 0], config)
        for support, law in zip(supports, laws, strict=True)
    ]
    return DraftTree(token, parent, layer, slot, [Role(value) for value in role], expansions, 1.0)


@dataclass(slots=True)
class _Collector:
    """Listens to the decoding loop."""

    config: SpeculationConfig
    rules: tuple[Rule, ...]
    num_prompts: int
    support_kept: int
    tallies: dict[Rule, list[Tally]] = field(init=False)
    nodes: list[dict[str, Array]] = field(init=False, default_factory=list)
    roots: list[RootLaws] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.tallies = {rule: [{} for _ in range(self.num_prompts)] for rule in self.rules}

    def observe(self, trace: "RoundTrace") -> None:
        """Take in one round of a batch."""
        requests = trace.request.tolist()
        laws = trace.target_laws().cpu().numpy()
        counted = trace.verification.num_accepted.tolist()
        for row, prompt in enumerate(requests):
            tree = tree_of_row(trace, row, self.config)
            for rule in self.rules:
                tally = tally_tree(tree, tree_acceptance(tree, laws[row], rule))
                if rule == self.config.rule:
                    tally["counted"] = float(counted[row])
                add(self.tallies[rule][prompt], tally)
            self.nodes.append(self._node_values(tree, laws[row], prompt))
        self.roots.append(self._root_laws(trace, laws[:, 0], np.array(requests)))

    def finish(self) -> RealRun:
        """Everything taken in so far."""
        names = self.nodes[0]
        nodes = {name: np.concatenate([found[name] for found in self.nodes]) for name in names}
        roots = RootLaws(
            np.concatenate([found.target for found in self.roots]),
            np.concatenate([found.ranking for found in self.roots]),
            np.concatenate([found.prompt for found in self.roots]),
        )
        return RealRun(self.tallies, nodes, roots)

    def _node_values(self, tree: DraftTree, laws: Array, prompt: int) -> dict[str, Array]:
        kept = [n for n, expansion in enumerate(tree.expansions) if expansion is not None]
        expansions = [expansion for expansion in tree.expansions if expansion is not None]
        width = max((len(expansion.tokens) for expansion in expansions), default=1)
        tokens = np.zeros((len(kept), width), dtype=np.intp)
        probe_law, inside = np.zeros(tokens.shape), np.zeros(tokens.shape, dtype=bool)
        for row, expansion in enumerate(expansions):
            count = len(expansion.tokens)
            tokens[row, :count], inside[row, :count] = expansion.tokens, True
            if len(expansion.probe_law):
                probe_law[row, expansion.num_top : count] = expansion.probe_law
        target = laws[kept]
        on_support = np.where(inside, np.take_along_axis(target, tokens, axis=-1), 0)
        num_top = min(self.config.num_top, self.config.top_k)
        layout = NodeLayout(tokens, inside, on_support, probe_law, self.config.top_k, num_top)
        given = NodeLaws(target, target, target)  # only the target's total is read
        values: dict[str, Array] = {
            rule: np.asarray(layout_acceptance(given, layout, rule)) for rule in NODE_RULES
        }
        values["topk"] = on_support[:, : self.config.top_k].sum(axis=-1)
        values["t"] = 1 - on_support[:, :num_top].sum(axis=-1)
        values["overlap"] = np.minimum(on_support, probe_law).sum(axis=-1)
        below = tree.children()
        values["complete"] = np.array(
            [len(below[n]) == e.num_children for n, e in zip(kept, expansions, strict=True)]
        )
        values["layer"] = np.array([0 if n == 0 else tree.layer[n - 1] for n in kept])
        values["prompt"] = np.full(len(kept), prompt)
        return values

    def _root_laws(self, trace: "RoundTrace", target: Array, prompt: Tokens) -> RootLaws:
        logits: Any = trace.drafter.root()
        logits = logits[0] if isinstance(logits, tuple) else logits
        masses = softmax(logits.double().cpu().numpy())
        order = np.argsort(-masses, axis=-1, kind="stable")[:, : self.support_kept]
        ranking = np.take_along_axis(masses, order, axis=-1)
        ids = trace.drafter.token_ids
        tokens = order if ids is None else ids.cpu().numpy()[order]
        on_support = np.take_along_axis(target, tokens, axis=-1)
        rest = np.maximum(1 - on_support.sum(axis=-1, keepdims=True), 0)
        ranking = ranking / ranking.sum(axis=-1, keepdims=True)
        return RootLaws(
            np.concatenate([on_support, rest], axis=-1),
            np.concatenate([ranking, np.zeros_like(rest)], axis=-1),
            prompt,
        )


def _expansion(support: Array, law: Array, config: SpeculationConfig) -> Expansion | None:
    if not len(support):
        return None
    num_children = min(config.top_k, len(support))
    num_top = min(config.num_top, num_children)
    tail = law[num_top:] if num_top < num_children else law[:0]
    return Expansion(support.tolist(), (), num_top, num_children, None, tail.tolist())
