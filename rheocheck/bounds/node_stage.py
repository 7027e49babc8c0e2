"""`rheocheck bounds node`: every rule and every optimum at given or random nodes."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from rheocheck.bounds.families import Family, tempered
from rheocheck.bounds.files import Node, json_number
from rheocheck.bounds.laws import Number, read_node
from rheocheck.bounds.node import NODE_RULES, node_acceptance
from rheocheck.bounds.optimal import (
    MOST_WITHOUT_REPLACEMENT,
    OptimalAcceptance,
    optimal_acceptance,
    optimal_independent,
    optimal_without_replacement,
)
from rheocheck.bounds.rules import DRAFT_RULES, DraftRule, rule_acceptance
from rheocheck.certificate import StageResult, Verdict

# Steps of the recursion without replacement that are affordable: about a second.
MOST_STEPS = 10**7
CANDIDATES: dict[str, str] = {
    "rheo": "dual", "rrsw": "dual", "onehot": "dual", "merged": "dual", "single": "one draw",
    "specinfer": "independent", "kseq": "independent", "naive": "independent",
    "nss": "independent", "sequoia": "distinct", "spechub": "first + one", "greedy": "first + one",
    "topk": "first",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Counts of one node.

    Attributes:
      top_k: Children of the dual-identity node.
      num_top: Top children.
      support_size: Tokens that the draft keeps, for every rule.
      num_drafts: Candidates of the other rules; None takes top_k.
    """

    top_k: int = 10
    num_top: int = 1
    support_size: int = 128
    num_drafts: int | None = None

    @property
    def drafts(self) -> int:
        """Candidates of the rules without dual identity."""
        return self.top_k if self.num_drafts is None else self.num_drafts


def compare_rules(node: Node, settings: NodeSettings) -> list[dict[str, Any]]:
    """One row a rule: both acceptances, the optimum of its candidates, the gap.

    Args:
      node: Target and draft.
      settings: Counts.

    Returns:
      Rows with "rule", "candidates", "accept_test", "membership", "optimum", "gap" (numbers as
      `json_number` makes them; None where not computed) and "note" saying why not.

    Raises:
      ConfigError: A setting out of range.
      LawError: Laws that are none.
    """
    target, draft = node
    counts = (settings.top_k, settings.num_top, settings.support_size)
    best = optimal_acceptance(target, draft, *counts).value
    rows = []
    for rule in NODE_RULES:
        value = node_acceptance(target, draft, *counts, rule)
        rows.append(_row(rule, value, value, best))
    optima = _draft_optima(node, settings)
    for draft_rule in DRAFT_RULES:
        reason = _refusal(draft_rule, node, settings)
        if reason is not None:
            rows.append(_row(draft_rule, None, None, None, reason))
            continue
        drafts = 1 if draft_rule == "single" else settings.drafts
        found = rule_acceptance(target, draft, drafts, draft_rule, settings.support_size)
        optimum = optima.get(CANDIDATES[draft_rule])
        if optimum is None and CANDIDATES[draft_rule] != "distinct":
            optimum = found.membership  # its coupling is the optimal one
        rows.append(_row(draft_rule, found.accept_test, found.membership, optimum))
    return rows


def node_stage(nodes: Sequence[Node], settings: NodeSettings, replay: str) -> StageResult:
    """Compare all rules at given nodes and certify the optimum of each.

    Args:
      nodes: Target and draft of each node.
      settings: Counts.
      replay: The command line.

    Returns:
      CERTIFIED where, at every node, the exact plan and the dual set agree. `details` has "rows"
      (of the first node, or means over nodes), "certificates" and, for several nodes, "nodes".
    """
    started = time.perf_counter()
    tables = [compare_rules(node, settings) for node in nodes]
    proofs = [_certificate(node, settings) for node in nodes]
    tight = all(proof["tight"] for proof in proofs)
    rows = (
        tables[0] if len(tables) == 1 else [_mean_row(rows) for rows in zip(*tables, strict=True)]
    )
    count = "one node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
    details: dict[str, Any] = {
        "summary": f"{count}; top_k = {settings.top_k}, num_top = {settings.num_top}, "
        f"support_size = {settings.support_size}, {settings.drafts} drafts for the other rules",
        "rows": rows,
        "certificates": proofs,
    }
    if len(tables) > 1:
        details["nodes"] = tables
    return StageResult(
        name="node",
        verdict=Verdict.CERTIFIED if tight else Verdict.INCONCLUSIVE,
        claim="No lossless verifier of these dual-identity candidates accepts more often than the "
        "optimum printed: at every node a plan attains it and a dual set bounds it, both checked "
        "in rational arithmetic."
        if tight
        else None,
        statistic=max(proof["width"] for proof in proofs),
        sample_size=len(nodes),
        threshold=0.0,
        replay=replay,
        seconds=time.perf_counter() - started,
        details=details,
    )


def random_nodes(
    family: Family,
    num_nodes: int,
    vocab: tuple[int, int],
    seed: int,
    draft_temperature: float = 1.0,
    target_temperature: float = 1.0,
) -> list[Node]:
    """Random nodes as `node_stage` takes them, float laws.

    Args:
      family: Of the laws.
      num_nodes: How many.
      vocab: Smallest and largest number of tokens.
      seed: Of the laws.
      draft_temperature: Of the law that probes are drawn from; the ranking law stays at 1.
      target_temperature: Of the target.
    """
    generator = np.random.default_rng(seed)
    sizes = generator.integers(vocab[0], vocab[1], num_nodes, endpoint=True)
    targets, drafts = family.draw(generator, sizes, vocab[1])
    nodes: list[Node] = []
    for size, target, draft in zip(sizes, targets, drafts, strict=True):
        drawn = tempered(draft[:size], draft_temperature)
        nodes.append((tempered(target[:size], target_temperature), (draft[:size], drawn)))
    return nodes


def _draft_optima(node: Node, settings: NodeSettings) -> dict[str, Number]:
    """Optimum of each law of candidates without dual identity, where one is known."""
    target, draft = node
    optima = {
        "one draw": optimal_independent(target, draft, 1, settings.support_size),
        "independent": optimal_independent(target, draft, settings.drafts, settings.support_size),
    }
    if settings.drafts <= MOST_WITHOUT_REPLACEMENT:
        optima["distinct"] = optimal_without_replacement(
            target, draft, settings.drafts, settings.support_size
        )
    return {name: found.value for name, found in optima.items()}


def _refusal(rule: DraftRule, node: Node, settings: NodeSettings) -> str | None:
    """Why a rule is not computed at this node; None if it is."""
    if rule == "spechub" and settings.drafts != 2:
        return "defined for two drafts"
    if rule == "sequoia":
        support = min(settings.support_size, len(node[0]))
        steps = math.pow(support, settings.drafts - 1)
        if steps > MOST_STEPS:
            return f"recursion of {steps:.1g} steps; computed up to {MOST_STEPS:.0e}"
    return None


def _row(
    rule: str,
    accept_test: Number | None,
    membership: Number | None,
    optimum: Number | None,
    note: str | None = None,
) -> dict[str, Any]:
    gap = None if membership is None or optimum is None else optimum - membership
    # Sums of 128k floats can leave an optimum a few 1e-16 below what attains it.
    gap = max(gap, 0.0) if isinstance(gap, float) else gap
    numbers = {"accept_test": accept_test, "membership": membership, "optimum": optimum, "gap": gap}
    shown = {name: None if n is None else json_number(n) for name, n in numbers.items()}
    return {"rule": rule, "candidates": CANDIDATES[rule], **shown, "note": note}


def _mean_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over nodes; None where a node has no number."""
    mean = dict(rows[0])
    for name in ("accept_test", "membership", "optimum", "gap"):
        cells = [row[name] for row in rows]
        known = None not in cells
        mean[name] = {"value": float(np.mean([c["value"] for c in cells]))} if known else None
    mean["note"] = next((row["note"] for row in rows if row["note"]), None)
    return mean


def _certificate(node: Node, settings: NodeSettings) -> dict[str, Any]:
    """The closed form's proof, for JSON: bounds, dual set, and the plan as a list of edges."""
    counts = (settings.top_k, settings.num_top, settings.support_size)
    found: OptimalAcceptance = optimal_acceptance(*node, *counts)
    proof = found.certificate()
    owners, tokens = proof.set_law.owners.tolist(), proof.set_law.tokens.tolist()
    exact = read_node(*node).exact

    def shown(mass: Any) -> str | float:
        return str(Fraction(mass)) if exact else float(mass)

    return {
        "value": json_number(found.value),
        "lower": shown(proof.lower),
        "upper": shown(proof.upper),
        "width": float(proof.upper - proof.lower),
        "tight": proof.tight,
        "dual_set": sorted(found.dual_set),
        "sets": [[list(members), shown(mass)] for members, mass in proof.set_law],
        "flow": [
            [owner, token, shown(mass)]
            for owner, token, mass in zip(owners, tokens, proof.plan.flow, strict=True)
            if mass
        ],
    }
