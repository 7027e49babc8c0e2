"""Differences and ratios of masses that are equal up to rounding."""

import torch
from torch import Tensor

# A target mass and a scaled probe mass that differ by less than this factor count as equal: the
# probe is accepted for sure and leaves no residual there. Each is the exp of a shifted logit over
# a sum; with a shifted logit up to 60 (beyond it the mass is below 1e-26) its argument is off by up
# to 60 * 2**-53, the sum by less, so two roundings of one number differ by up to 2**-45.9. Without
# this rule a uniform of 1 - 2**-53 would lead into a residual made of rounding errors only. It
# moves the law of the emitted token by at most 2**-44, or 6e-14, in total variation.
# Sums of float32 weights need no more: the two laws can be equal everywhere only where the target
# has no mass outside the list, and then its sum there is exactly 0 and the rest is float64.
_EQUAL_WITHIN = 2.0**-44


def excess(mass: Tensor, drafted: Tensor) -> Tensor:
    """max(0, mass - drafted), and 0 where the two are equal up to rounding."""
    difference = mass - drafted
    return torch.where(difference > _EQUAL_WITHIN * mass, difference, 0.0)


def probe_ratio(mass: Tensor, drafted: Tensor) -> Tensor:
    """min(1, mass / drafted) of a token drawn from a law; 1 where they are equal up to rounding.

    0 where the token has no mass.
    """
    has_mass = (mass > 0).to(mass.dtype)
    is_less = drafted - mass > _EQUAL_WITHIN * drafted
    return torch.where(is_less, ratio(mass, drafted), has_mass)


def ratio(mass: Tensor, total: Tensor) -> Tensor:
    """min(1, mass / total); without a total 1 where there is mass and 0 where there is none."""
    # Of masses >= 0 only 0 / 0 is NaN, and a quotient by 0 is infinite.
    return (mass / total).nan_to_num(nan=0.0).clamp_max(1.0)
