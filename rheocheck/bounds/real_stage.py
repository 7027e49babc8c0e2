"""`rheocheck bounds node --model`: the depth-1 comparison on a real pair's laws."""

import time

from rheocheck.bounds.families import Family
from rheocheck.bounds.real import RootLaws
from rheocheck.bounds.real_sweep import depth_one_comparison
from rheocheck.bounds.sweep import Cell
from rheocheck.certificate import StageResult, Verdict


def comparison_stage(
    roots: RootLaws,
    top_k: int,
    num_top: int,
    support_size: int,
    temperature: float,
    model: str,
    replay: str,
) -> StageResult:
    """Every scheme on the same laws, all children surviving, with intervals over prompts.

    Args:
      roots: Laws at the roots of rounds, decoded at `temperature`.
      top_k: Children.
      num_top: Top children.
      support_size: Tokens that the draft keeps.
      temperature: Of the probes.
      model: Name of the pair.
      replay: The command line.

    Returns:
      NO_EVIDENCE: it estimates, and claims nothing. `details` has "rows".
    """
    started = time.perf_counter()
    cell = Cell(Family("zipf"), top_k, num_top, support_size, temperature)
    rows = depth_one_comparison(roots, cell)
    return StageResult(
        name="node",
        verdict=Verdict.NO_EVIDENCE,
        sample_size=len(set(roots.prompt.tolist())),
        replay=replay,
        seconds=time.perf_counter() - started,
        details={
            "summary": f"{model}: accept-test probability, which is membership here, at the roots "
            f"of {len(roots.prompt):,} rounds, K = {top_k}, m = {num_top}, N = {support_size}, "
            f"temperature {temperature:g}; 95 % intervals over prompts",
            "rows": rows,
        },
    )
