"""Softmax of floats in integer arithmetic, to far more digits than any float type has.

This is the ideal that a rounded softmax is measured against. Logits are dyadic rationals, so only
the exponential is approximate; its error is bounded, and far below what is measured.
"""

from typing import Any

import numpy as np

from rheocheck.errors import InputError
from rheocheck.reference.float_law import DyadicLaw, Floats

_GUARD = 8
# Remainders are below 2^-8 after the table, so the terms of the series fall by more than 2^8 each.
_TABLE_BITS = 8


def softmax_weights(logits: Floats, bits: int = 96) -> DyadicLaw:
    """Weights exp(logit - largest) as integers over 2^bits.

    Args:
      logits: [vocab] of any float type up to float64; minus infinity is mass 0.
      bits: Precision; each integer differs from the true value by less than 4.

    Returns:
      [vocab] weights, not normalised, which `exact_distance` does not need.

    Raises:
      InputError: NaN or plus infinity, or no finite logit.
    """
    wide = np.asarray(logits, dtype=np.float64)
    bad = np.flatnonzero(np.isnan(wide) | (wide == np.inf))
    if bad.size:
        raise InputError(f"logit[{int(bad[0])}] is {wide[bad[0]]}; required: finite, or -inf")
    finite = np.isfinite(wide)
    if not finite.any():
        raise InputError("no finite logit was given; required: one at least")
    places = bits + _GUARD
    one = 1 << places
    fixed = _fixed_point(np.where(finite, wide, 0.0), places)
    below = fixed - max(fixed[finite])
    log2 = _log2(places)
    halvings, rest = below // log2, below % log2
    table = _table(places)
    index = rest >> (places - _TABLE_BITS)
    small = rest - (index << (places - _TABLE_BITS))
    series: Any = np.full(small.shape, one, dtype=object)
    for term in range(2 + places // _TABLE_BITS, 0, -1):
        series = one + (small * series >> places) // term
    leading = np.array([table[place] for place in index], dtype=object)
    # Beyond 2 * places halvings nothing is left; the cap keeps shifts small.
    shift = np.array([min(-count, 2 * places) for count in halvings], dtype=object) + _GUARD
    weights = (leading * series >> places) >> shift
    return DyadicLaw([int(w) if ok else 0 for w, ok in zip(weights, finite, strict=True)], bits)


def _fixed_point(values: Floats, places: int) -> Any:
    """Object array of floor(value * 2^places)."""
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64).tolist()
    shifts = (exponent.astype(np.int64) - 53 + places).tolist()
    return np.array(
        [
            mass << shift if shift >= 0 else mass >> min(-shift, 2000)
            for mass, shift in zip(mantissa, shifts, strict=True)
        ],
        dtype=object,
    )


def _log2(places: int) -> int:
    """ln 2 over 2^places, by ln 2 = 18 atanh(1/26) - 2 atanh(1/4801) + 8 atanh(1/8749)."""
    extra = places + 16
    terms = ((18, 26), (-2, 4801), (8, 8749))
    return sum(factor * _inverse_atanh(base, extra) for factor, base in terms) >> 16


def _inverse_atanh(base: int, places: int) -> int:
    """atanh(1 / base) over 2^places."""
    power = (1 << places) // base
    total, odd = 0, 1
    while power:
        total += power // odd
        power //= base * base
        odd += 2
    return total


def _table(places: int) -> list[int]:
    """exp(i / 256) over 2^places for 0 <= i < 256, by repeated multiplication with guard bits."""
    extra = places + 32
    one = 1 << extra
    step, term, count = one, one, 1
    while term:
        term = (term >> _TABLE_BITS) // count
        step += term
        count += 1
    values = [one]
    for _ in range((1 << _TABLE_BITS) - 1):
        values.append(values[-1] * step >> extra)
    return [value >> 32 for value in values]
