"""How often verification accepts, against the exact probability of it at the nodes it visits.

Given the tree, whether any child of a visited node is accepted is one event of known probability,
however the round came there. A rate that is off shows that the accept tests are not those of the
rule, which need not make the output wrong: another rule may be lossless too. But what other stages
certify is the rule, so such a run is not certified by them.
"""

import numpy as np
from numpy.typing import NDArray

from rheocheck.config import Rule
from rheocheck.gpu import row_mass, verification
from rheocheck.gpu.all_nodes import node_paths
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.stats.scores import NO_SCORES, ScoreSums, rate_sums


def accept_rates(trace: RoundTrace, rule: Rule, temperature: float) -> NDArray[np.float64]:
    """[batch, depth + 1] chance that a child is accepted at each node where verification stood.

    Given the tree; 0 at nodes without children and beyond the last. It is one less the probability
    that all accept tests of the node reject, by the laws that verification itself makes.

    Args:
      trace: One round of a batch.
      rule: Of verification.
      temperature: Of the requests.
    """
    nodes = trace.emission_nodes()
    row, step = (nodes >= 0).nonzero(as_tuple=True)
    node = nodes[row, step]
    at = row * trace.tree.child.shape[1] + node
    children = verification.children_of(trace.tree, rule).nodes_at(at)
    process = trace.processors.process()
    read = row_mass.read_rows(
        trace.target_logits.flatten(0, 1), row * trace.target_logits.shape[1] + node,
        children.listed, temperature, process=process, row=row,
        path=None if process is None else node_paths(trace.tree)[row, node],
    )  # fmt: skip
    law, _ = verification.law_of_rows(read, children)
    rates = np.zeros(tuple(nodes.shape))
    none = (1.0 - law.acceptance).prod(1)
    rates[row.cpu().numpy(), step.cpu().numpy()] = (1.0 - none).clamp(0.0, 1.0).cpu().numpy()
    return rates


def accept_sums(rate: NDArray[np.float64], accepted: NDArray[np.bool_]) -> ScoreSums:
    """Sums of 1{a child was accepted} over the nodes where one could be, or was.

    Args:
      rate: [nodes] probability of it given the tree.
      accepted: [nodes] whether it happened.
    """
    looked = (rate > 0) | accepted
    return rate_sums(rate[looked], accepted[looked]) if looked.any() else NO_SCORES
