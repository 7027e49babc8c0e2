"""`rheocheck bounds tree`: E[tau] of every rule, on given, random or real models."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rheocheck.bounds.files import json_number
from rheocheck.bounds.growth import DraftModel
from rheocheck.bounds.laws import Number
from rheocheck.bounds.real import RealRun
from rheocheck.bounds.tally import Estimate, Tally, estimate, estimates
from rheocheck.bounds.tree import TargetModel, expected_by_rule
from rheocheck.bounds.tree_sweep import TreeSweep, tree_sweep
from rheocheck.certificate import StageResult, Verdict
from rheocheck.config import RULES, SpeculationConfig
from rheocheck.reference import round_law

NOT_COUNTED = "the residual or bonus token that ends a round is not counted"
TOP_K = "Top-K"


def exact_tree_stage(
    target: TargetModel, draft: DraftModel, config: SpeculationConfig, replay: str
) -> StageResult:
    """E[tau] of every rule and of the plain Top-K tree on one model, every draw enumerated.

    Args:
      target: path -> target law.
      draft: path -> draft law, or a 2-tuple (ranking, tempered draft).
      config: The scheme.
      replay: The command line.

    Returns:
      For exact laws CERTIFIED if the reference's enumeration gives the same fractions, else
      INCONCLUSIVE; float laws give NO_EVIDENCE.
    """
    started = time.perf_counter()
    values: dict[str, Number] = {
        str(rule): value for rule, value in expected_by_rule(target, draft, config).items()
    }
    plain = SpeculationConfig(**{**config.model_dump(), "num_top": config.top_k, "rule": "onehot"})
    values[TOP_K] = expected_by_rule(target, draft, plain, ("onehot",))["onehot"]
    exact = not any(isinstance(value, float) for value in values.values())
    agree = exact and _reference_agrees(target, draft, config, plain, values)
    verdict = Verdict.CERTIFIED if agree else Verdict.INCONCLUSIVE if exact else Verdict.NO_EVIDENCE
    rows = [{"scheme": name, "expected_accepted": json_number(v)} for name, v in values.items()]
    return StageResult(
        name="tree",
        verdict=verdict,
        claim=f"E[tau] of each rule on this model is the fraction printed; {NOT_COUNTED}."
        if agree
        else None,
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": f"every draw enumerated{_agreement(exact, agree)}; {NOT_COUNTED}",
            "rows": rows,
        },
    )


def random_tree_stage(sweep: TreeSweep, jobs: int, replay: str) -> StageResult:
    """E[tau] with errors over random models, one cell and its Top-K counterpart.

    Args:
      sweep: Of the cells to compare.
      jobs: Processes.
      replay: The command line.
    """
    started = time.perf_counter()
    rows = tree_sweep(sweep, jobs)
    return StageResult(
        name="tree",
        verdict=Verdict.NO_EVIDENCE,
        sample_size=sweep.models_per_cell,
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": f"{sweep.models_per_cell} random models, verification integrated exactly "
            f"over one tree each; {NOT_COUNTED}",
            "rows": rows,
        },
    )


def real_tree_stage(
    runs: Mapping[str, RealRun], config: SpeculationConfig, model: str, replay: str
) -> StageResult:
    """E[tau] of every rule on a real pair, with intervals over prompts.

    Args:
      runs: "rheo" for the dual-identity run and "Top-K" for the plain one; the latter may be
        missing.
      config: The scheme of the dual-identity run.
      model: Name of the pair.
      replay: The command line.

    Returns:
      NO_EVIDENCE: nothing here is a claim. `details` has "rows" (E[tau], acceptance by depth and
      role, probe survival), "leads" (paired differences on the same trees) and "variance" (of
      counting accepted tokens over that of integrating, the same rounds).
    """
    main = runs["rheo"]
    rows = [_real_row(rule, units, config.depth) for rule, units in main.tallies.items()]
    if TOP_K in runs:
        rows.append(_real_row(TOP_K, runs[TOP_K].tallies["onehot"], config.depth))
    units = main.tallies[config.rule]
    counted = estimate(units, "counted", "rounds")
    integrated = estimate(units, "accepted", "rounds")
    leads = {
        f"rheo - {other}": _shown(_lead(main.tallies["rheo"], main.tallies[other]))
        for other in main.tallies
        if other != "rheo"
    }
    rounds = int(sum(unit.get("rounds", 0) for unit in units))
    return StageResult(
        name="tree",
        verdict=Verdict.NO_EVIDENCE,
        sample_size=len(units),
        replay=replay,
        details={
            "summary": f"{model}: {rounds:,} rounds of {len(units):,} prompts, verification "
            f"integrated exactly over each drawn tree; intervals of 95 % over prompts; "
            f"{NOT_COUNTED}",
            "rows": rows,
            "leads": leads,
            "counted": _shown(counted),
            "variance": _variance_ratios(main, counted, integrated),
        },
    )


def _reference_agrees(
    target: Any, draft: Any, config: SpeculationConfig, plain: SpeculationConfig, values: Any
) -> bool:
    schemes = {
        rule: SpeculationConfig(**{**config.model_dump(), "rule": rule}) for rule in RULES
    } | {TOP_K: plain}
    return all(
        round_law(target, draft, scheme).expected_accepted == values[name]
        for name, scheme in schemes.items()
    )


def _agreement(exact: bool, agree: bool) -> str:
    if not exact:
        return " in floating point"
    return "; two enumerators agree" if agree else "; TWO ENUMERATORS DISAGREE"


def _real_row(scheme: str, units: Sequence[Tally], depth: int) -> dict[str, Any]:
    found = {name: _shown(value) for name, value in estimates(units, depth).items()}
    return {"scheme": scheme, **found}


def _lead(first: Sequence[Tally], second: Sequence[Tally]) -> Estimate:
    """Difference of E[tau], paired: both rules saw the same rounds."""
    paired: list[Tally] = [
        {"lead": a.get("accepted", 0.0) - b.get("accepted", 0.0), "rounds": a.get("rounds", 0.0)}
        for a, b in zip(first, second, strict=True)
    ]
    return estimate(paired, "lead", "rounds")


def _variance_ratios(run: RealRun, counted: Estimate, integrated: Estimate) -> dict[str, Any]:
    """Variance of counting over that of integrating: of E[tau], and of rheo's lead over rrsw.

    The lead by counting needs a second, independent run, hence twice the variance of one.
    """
    ratios: dict[str, Any] = {"expected_accepted": None, "lead": None}
    if counted.standard_error and integrated.standard_error:
        ratios["expected_accepted"] = (counted.standard_error / integrated.standard_error) ** 2
        if "rrsw" in run.tallies:
            lead = _lead(run.tallies["rheo"], run.tallies["rrsw"])
            if lead.standard_error:
                ratios["lead"] = 2 * (counted.standard_error / lead.standard_error) ** 2
    return ratios


def _shown(found: Estimate) -> dict[str, Any]:
    return {
        "value": found.value,
        "standard_error": found.standard_error,
        "low": found.low,
        "high": found.high,
    }
