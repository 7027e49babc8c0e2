"""Laws as the logits that torch code expects: exact logarithms, or floats."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rheocheck.errors import InputError

if TYPE_CHECKING:
    from rheocheck.adapters.recorder import Recorder

Arithmetic: TypeAlias = Literal["exact", "float64", "float32"]
# Of a softmax, a ratio, a residual and a sum over a handful of tokens: some dozens of roundings of
# relative size 2^-53 or 2^-24, none of them on a probability above 1.
TOLERANCES: dict[str, Fraction] = {
    "exact": Fraction(0),
    "float64": Fraction(1, 10**13),
    "float32": Fraction(1, 10**5),
}


def log_laws(
    laws: Sequence[Sequence[Fraction]], arithmetic: Arithmetic, recorder: "Recorder"
) -> Any:
    """Logits whose softmax is the law.

    Args:
      laws: [row][vocab] probabilities.
      arithmetic: "exact" or a floating dtype.
      recorder: Where races over the result fork.

    Returns:
      [row, vocab] tensor of logarithms: of exact objects, or rounded to the dtype.
    """
    import torch

    from rheocheck.adapters.noise import LogMass
    from rheocheck.adapters.object_tensor import object_tensor

    if arithmetic == "exact":
        cells = [LogMass(Fraction(mass)) for law in laws for mass in law]
        return object_tensor(cells, (len(laws), len(laws[0])), torch.float64, recorder)
    dtype = getattr(torch, arithmetic)
    # The logarithm is rounded once, whatever the dtype: it is taken in float64.
    masses = torch.tensor([[float(mass) for mass in law] for law in laws], dtype=torch.float64)
    return masses.log().to(dtype)


def check_arithmetic(value: object) -> None:
    """Refuse an arithmetic that is not offered.

    Raises:
      InputError: It is not one of TOLERANCES.
    """
    if value not in TOLERANCES:
        raise InputError(f"arithmetic is {value!r}; required: one of {', '.join(TOLERANCES)}")
