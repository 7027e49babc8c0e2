"""Named faults tried out on some of a run's own contexts."""

from dataclasses import replace

import numpy as np

from rheocheck.audit.drawn_tokens import Drawn
from rheocheck.audit.laws import total_variation
from rheocheck.audit.token_power import NAMED_TV, PilotFault
from rheocheck.audit.token_statistics import statistics
from rheocheck.stats.sizing import faults_of_size
from rheocheck.traces.laws import Laws

# Contexts on which named faults are tried out, and entries of their laws at most.
PILOT_CONTEXTS = 64
PILOT_ENTRIES = 2**22


def pilot_faults(
    drawn: Drawn, distance: float = NAMED_TV, contexts: int = PILOT_CONTEXTS
) -> tuple[PilotFault, ...]:
    """Named faults on some contexts, evenly spread over the tokens.

    Args:
      drawn: Emitted tokens with complete laws; without a draft no fault of the draft is tried.
      distance: Their total variation, in (0, 1).
      contexts: At most so many are taken, fewer where the laws are large.

    Returns:
      What every statistic would see of each fault. One that cannot get that far here is left out.
    """
    count = len(drawn.uniform)
    kept = max(1, min(contexts, PILOT_ENTRIES // drawn.laws.target.shape[1], count))
    rows = np.linspace(0, count - 1, kept).round().astype(np.int64)
    laws = drawn.laws
    target = laws.null[rows]
    draft = np.zeros_like(target) if laws.draft is None else laws.draft[rows]
    pilot = replace(
        drawn,
        laws=Laws(None, target, draft, None, None, laws.column[rows], laws.rest[rows]),
        uniform=drawn.uniform[rows],
        place=drawn.place[rows],
    )
    found = []
    for name, fault in faults_of_size(target, draft, distance):
        seen = {
            test.name: test.power_of(pilot, fault) for test in statistics(laws.draft is not None)
        }
        powers = {key: power for key, power in seen.items() if power is not None}
        reached = float(total_variation(target, fault).mean())
        found.append(PilotFault(name, reached, powers))
    return tuple(found)
