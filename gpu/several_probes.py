"""Acceptance at nodes that may have several probes: the tests one after the other.

Torch twin of `rheocheck.reference.verification` for `num_probes` above 1. Each probe is tested
against the law it was drawn from, the first one's without the probes before it, and a rejection
takes that law off the residual.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for the single probe; Jeon et al. (2024),
arXiv:2402.14160, for recursive rejection without replacement.
"""

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from rheocheck.gpu.masses import excess, probe_ratio, ratio


def tests_in_order(
    mass: Float64[Tensor, "rows listed"],
    rest: Float64[Tensor, " rows"],
    probe_law: Float64[Tensor, "rows listed"],
    place: Int64[Tensor, "rows children"],
    valid: Bool[Tensor, "rows children"],
    is_probe: Bool[Tensor, "rows children"],
) -> tuple[Float64[Tensor, "rows children"], Float64[Tensor, "rows listed"]]:
    """Accept-test probabilities of children in the order of their tests.

    Args:
      mass: [rows, listed] target law on the listed tokens.
      rest: [rows] target mass of all other tokens.
      probe_law: [rows, listed] law of the first probe.
      place: [rows, children] column of each child's token, in the order of the tests.
      valid: [rows, children] True where there is a child.
      is_probe: [rows, children] True where the child is tested as one drawn from its law; probes
        come in the order in which they were drawn.

    Returns:
      acceptance: [rows, children] probability of accepting the child once all earlier ones were
        rejected; 0 for absent ones.
      kept: [rows, listed] masses left once all were rejected, not normalised; other tokens keep
        theirs.
    """
    kept, law = mass, probe_law
    # Nothing was rejected yet: the law itself, not its rounded sum.
    left = torch.ones_like(rest).unsqueeze(1)
    acceptance = []
    for test in range(place.shape[1]):
        at, here = place[:, test : test + 1], valid[:, test : test + 1]
        drawn = is_probe[:, test : test + 1] & here
        # A probe whose law has no mass left was its first open token for sure.
        total = law.sum(1, keepdim=True)
        own = torch.zeros_like(law).scatter(1, at, 1.0)
        own_law = torch.where(total > 0, law / torch.where(total > 0, total, 1.0), own)
        child, scaled = kept.gather(1, at), left * own_law
        drafted = scaled.gather(1, at)
        test_of = torch.where(drawn, probe_ratio(child, drafted), ratio(child, left))
        acceptance.append(torch.where(here, test_of, 0.0))
        without = kept.scatter(1, at, 0.0)
        after = torch.where(drawn, excess(kept, scaled), without)
        kept = torch.where(here, after, kept)
        left = torch.where(here, kept.sum(1, keepdim=True) + rest.unsqueeze(1), left)
        law = torch.where(drawn, law.scatter(1, at, 0.0), law)
    return torch.cat(acceptance, dim=1) if acceptance else mass[:, :0], kept
