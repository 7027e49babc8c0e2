"""Equal uniforms: one draw used twice, or chance?

Uniforms of b bits repeat by chance: n of them have n(n-1)/2 pairs, each equal with probability
2^-b. That is 5e-9 for 10,000 draws of 53 bits, 1e-4 for a million, and certain for 24 bits.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

# A lattice holds most values by accident only if it is the next coarser one, which holds half.
_MOST = 0.75
_FULL_BITS = 53
# Level at which equal uniforms of a whole run are no chance.
SHARED_LEVEL = 1e-7


def lattice_bits(values: NDArray[np.floating], share: float = _MOST) -> int:
    """The least b so that `share` of the values in [0, 1] are multiples of 2^-b; at most 53."""
    numbers = np.asarray(values, dtype=np.float64)
    for bits in range(_FULL_BITS):
        scaled = np.ldexp(numbers, bits)
        if (scaled == np.floor(scaled)).mean() >= share:
            return bits
    return _FULL_BITS


def repeats_p_value(
    values: NDArray[np.floating], repeated: NDArray[np.floating], pairs: float
) -> float:
    """Whether so many equal pairs of uniforms can be chance.

    The number of equal pairs is nearly Poisson. How fine the uniforms are is read off them; values
    that repeat and are coarse themselves (0, 0.5) prove nothing.

    Args:
      values: [n] all uniforms, in [0, 1].
      repeated: The value of each equal pair.
      pairs: Pairs that were compared.

    Returns:
      P(at least so many equal pairs); 1 where none is equal.
    """
    if not len(repeated):
        return 1.0
    bits = min(lattice_bits(values), lattice_bits(repeated, 1.0))
    return float(stats.poisson.sf(len(repeated) - 1, pairs * 2.0**-bits))
