"""`rheocheck bounds dominance`: what holds of the published claim, and what does not."""

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from rheocheck.bounds.dominance import NodeWitness, check_no_fillers, search_node
from rheocheck.bounds.dominance_trees import TreeWitness, search_tree
from rheocheck.bounds.families import DEFAULT_FAMILIES
from rheocheck.bounds.laws import Array
from rheocheck.bounds.merged_counterexamples import COUNTEREXAMPLES, Counterexample
from rheocheck.bounds.merged_study import merged_study
from rheocheck.bounds.sweep import EQUAL, NodeSweep, combine, node_sweep
from rheocheck.bounds.tree_sweep import tree_frequency
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import SpeculationConfig

NO_FILLER_SHAPES = ((3, 1), (4, 0), (4, 1), (4, 2), (5, 3))
FILLER_SHAPES = ((3, 3, 1), (4, 3, 1), (5, 4, 1), (5, 4, 2))
TREE_SHAPES = ((2, 2), (3, 1), (3, 2), (4, 1))
TREE_FAMILIES = (DEFAULT_FAMILIES[1], DEFAULT_FAMILIES[5])


def no_filler_stage(max_denominator: int, replay: str) -> StageResult:
    """The part of the claim that is true, with its proof and an exhaustive check."""
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for vocab, num_top in NO_FILLER_SHAPES:
        found = check_no_fillers(vocab, num_top, max_denominator)
        rows.append({
            "vocab": vocab, "num_top": num_top, "num_pairs": found.num_pairs,
            "holds": found.holds, "largest_gap": found.largest_gap,
        })  # fmt: skip
    holds = all(row["holds"] for row in rows)
    pairs = sum(row["num_pairs"] for row in rows)
    return StageResult(
        name="no fillers",
        verdict=Verdict.CERTIFIED if holds else Verdict.LOSSY,
        claim="At one node without fillers (top_k = num_top + 1), for any laws, 0 <= rheo - rrsw "
        "<= t (1 - t) <= 1/4, t the target mass off the top; and without top tokens the two rules "
        "accept alike, for any top_k."
        if holds
        else None,
        statistic=max(row["largest_gap"] for row in rows),
        threshold=0.25,
        sample_size=pairs,
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": f"proved (see rheocheck.bounds.dominance); checked on all {pairs:,} pairs "
            f"of laws with a common denominator up to {max_denominator}",
            "rows": rows,
        },
    )


def filler_stage(max_denominator: int, replay: str) -> StageResult:
    """Smallest nodes with fillers at which recursive rejection accepts more often."""
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for vocab, top_k, num_top in FILLER_SHAPES:
        found = search_node(vocab, top_k, num_top, max_denominator)
        row: dict[str, Any] = {"vocab": vocab, "top_k": top_k, "num_top": num_top,
                               "num_pairs": found.num_pairs,
                               "denominator": found.denominator}  # fmt: skip
        rows.append(row | {"witness": _node_witness(found.witness)})
    witnesses = [row["witness"] for row in rows if row["witness"]]
    first = witnesses[0] if witnesses else None
    return StageResult(
        name="one node with fillers",
        verdict=Verdict.CERTIFIED if first else Verdict.NO_EVIDENCE,
        claim=f"Neither rule dominates at a node with fillers: with target "
        f"({', '.join(first['target'])}) and draft ({', '.join(first['draft'])}), top_k = "
        f"{first['top_k']} and num_top = {first['num_top']}, rrsw accepts with probability "
        f"{first['acceptance']['rrsw']} and rheo with {first['acceptance']['rheo']}. No pair of "
        f"laws with a smaller common denominator does this, nor any on three tokens."
        if first
        else None,
        sample_size=sum(row["num_pairs"] for row in rows),
        replay=replay,
        seconds=time.perf_counter() - started,
        details={"summary": f"{len(witnesses)} smallest instances", "rows": rows},
    )


def tree_stage(max_denominator: int, replay: str) -> StageResult:
    """Smallest trees under a budget, without fillers, in which rrsw has the larger E[tau]."""
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for vocab, levels in TREE_SHAPES:
        found = search_tree(vocab, levels, max_denominator)
        row: dict[str, Any] = {"vocab": vocab, "budget": levels + 2, "depth": levels + 1,
                               "num_pairs": found.num_pairs,
                               "denominator": found.denominator}  # fmt: skip
        rows.append(row | {"witness": _tree_witness(found.witness)})
    witnesses = [row["witness"] for row in rows if row["witness"]]
    first = witnesses[0] if witnesses else None
    return StageResult(
        name="trees without fillers",
        verdict=Verdict.CERTIFIED if first else Verdict.NO_EVIDENCE,
        claim=f"In a tree under a budget neither rule dominates even without fillers: with the "
        f"laws in the report (top_k = 2, num_top = 1, budget {first['budget']}, depth "
        f"{first['depth']}) E[tau] is {first['expected_accepted']['rrsw']} under rrsw and "
        f"{first['expected_accepted']['rheo']} under rheo; the token that ends a round is not "
        f"counted."
        if first
        else None,
        sample_size=sum(row["num_pairs"] for row in rows),
        replay=replay,
        seconds=time.perf_counter() - started,
        details={"summary": f"{len(witnesses)} smallest instances", "rows": rows},
    )


def merged_stage(num_instances: int, seed: int, replay: str) -> StageResult:
    """Merged-law verification in pruned trees: where it is lossless, and exact counterexamples."""
    started = time.perf_counter()
    study = merged_study(num_instances, seed)
    lossless = not any(study.worst_defect.values())
    return StageResult(
        name="merged law in pruned trees",
        verdict=Verdict.CERTIFIED if lossless else Verdict.LOSSY,
        claim="Merged-law verification is lossless in a pruned tree at nodes for which it was "
        "decided when they were expanded, all their children then surviving whatever is drawn "
        "later; deciding it from the finished tree is lossy, and so is deciding it from all other "
        "probes at the node with the other draws kept."
        if lossless
        else None,
        statistic=float(max(study.worst_defect.values())),
        threshold=0.0,
        sample_size=study.num_instances,
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": f"proved (see rheocheck.bounds.merged); defect 0 on {study.num_instances} "
            f"enumerated instances, {study.num_mixed} of them pruned trees that merge at some "
            f"nodes only. E[tau]: probe first {study.mean_accepted['never']:.4f}, merged where "
            f"foreseen {study.mean_accepted['foreseen']:.4f} (higher in {study.num_gaining}), "
            f"probe drawn from the merged law {study.mean_accepted['drafted']:.4f}: the optimum "
            f"at a node is not one for the tree below it",
            "num_merged": study.num_merged,
            "num_mixed": study.num_mixed,
            "num_gaining": study.num_gaining,
            "mean_accepted": study.mean_accepted,
            "worst_defect": {name: str(value) for name, value in study.worst_defect.items()},
            "counterexamples": [_counterexample(found) for found in COUNTEREXAMPLES],
        },
    )


def frequency_stage(
    nodes_per_cell: int, num_models: int, seed: int, jobs: int, replay: str
) -> StageResult:
    """How often and by how much each rule wins over families of random laws."""
    started = time.perf_counter()
    sweep = NodeSweep(nodes_per_cell=nodes_per_cell, seed=seed)
    cells = node_sweep(sweep, jobs)
    with_fillers = [row for row in cells if 1 <= row["num_top"] < row["top_k"] - 1]
    rows = combine(with_fillers, ("family",))
    config = SpeculationConfig(top_k=2, num_top=1, budget=4, depth=3)
    trees = []
    for family in TREE_FAMILIES:
        found = tree_frequency(family, config, 4, num_models, seed)
        trees.append({"family": family.name, **{name: getattr(found, name) for name in (
            "num_models", "rheo_wins", "rrsw_wins", "equal", "largest_rheo_lead",
            "largest_rrsw_lead", "mean_lead",
        )}})  # fmt: skip
    nodes = sum(row["num_nodes"] for row in rows)
    wins = float(np.average([row["rrsw_wins"] for row in rows],
                            weights=[row["num_nodes"] for row in rows]))  # fmt: skip
    return StageResult(
        name="frequency",
        verdict=Verdict.NO_EVIDENCE,
        statistic=wins,
        sample_size=nodes,
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": f"random nodes with top tokens and fillers: rrsw accepts more often at "
            f"{100 * wins:.2f} % of {nodes:,}; trees without fillers (top_k 2, budget 4, depth 3), "
            f"every draw enumerated: {', '.join(_share(row) for row in trees)}",
            "rows": rows,
            "trees": trees,
        },
    )


def real_frequency_stage(values: Mapping[str, Array], model: str, replay: str) -> StageResult:
    """How often and by how much each rule wins at nodes of a real pair's trees.

    Args:
      values: [node] arrays of `rheocheck.bounds.real.RealRun`.
      model: Name of the pair.
      replay: The command line.
    """
    lead = values["rheo"] - values["rrsw"]
    gap = np.maximum(values["merged"] - values["rheo"], 0)
    row: dict[str, Any] = {
        "family": model,
        "num_nodes": len(lead),
        "rheo_wins": float((lead > EQUAL).mean()),
        "rrsw_wins": float((lead < -EQUAL).mean()),
        "equal": float((np.abs(lead) <= EQUAL).mean()),
        "rheo_is_optimal": float((gap <= EQUAL).mean()),
        "largest_rheo_lead": float(np.maximum(lead, 0).max()),
        "largest_rrsw_lead": float(np.maximum(-lead, 0).max()),
        "mean_gap_rheo": float(gap.mean()),
        "mean_gap_rrsw": float(np.maximum(values["merged"] - values["rrsw"], 0).mean()),
        "all_children_survived": float(values["complete"].mean()),
    }
    return StageResult(
        name="frequency on real laws",
        verdict=Verdict.NO_EVIDENCE,
        statistic=row["rrsw_wins"],
        sample_size=len(lead),
        replay=replay,
        details={
            "summary": f"{model}, expanded nodes of drafted trees, as if all children survived: "
            f"rrsw accepts more often at {100 * row['rrsw_wins']:.2f} % of {len(lead):,}; all "
            f"children did survive at {100 * row['all_children_survived']:.1f} %",
            "rows": [row],
        },
    )


def _share(row: Mapping[str, Any]) -> str:
    return (
        f"{100 * row['rrsw_wins']:.1f} % of {row['num_models']} models of {row['family']} favour "
        f"rrsw, by {row['largest_rrsw_lead']:.2g} at most"
    )


def _texts(law: Sequence[Fraction]) -> list[str]:
    return [str(mass) for mass in law]


def _node_witness(witness: NodeWitness | None) -> dict[str, Any] | None:
    if witness is None:
        return None
    return {
        "target": _texts(witness.target),
        "draft": _texts(witness.draft),
        "top_k": witness.top_k,
        "num_top": witness.num_top,
        "acceptance": {rule: str(value) for rule, value in witness.acceptance.items()},
    }


def _tree_witness(witness: TreeWitness | None) -> dict[str, Any] | None:
    if witness is None:
        return None
    return {
        "budget": witness.config.budget,
        "depth": witness.config.depth,
        # The form that `rheocheck bounds tree` reads.
        "model": {
            name: {",".join(map(str, path)): _texts(law) for path, law in laws.items()}
            | {"*": ["1"] + ["0"] * (len(laws[()]) - 1)}
            for name, laws in (("target", witness.target), ("draft", witness.draft))
        },
        "expected_accepted": {
            rule: str(value) for rule, value in witness.expected_accepted.items()
        },
    }


def _counterexample(found: Counterexample) -> dict[str, Any]:
    violation = found.violation()
    assert violation is not None, "a listed counterexample is lossy"
    return {
        "condition": found.condition,
        "config": found.config.model_dump(exclude={"rule"}),
        "everywhere": found.everywhere,
        "target": {",".join(map(str, path)): list(law) for path, law in found.target.items()},
        "draft": {",".join(map(str, path)): list(law) for path, law in found.draft.items()},
        "path": list(violation.path),
        "token": violation.token,
        "got": str(violation.got),
        "wanted": str(violation.wanted),
        "lossless_where_foreseen": found.violation("foreseen") is None,
    }
