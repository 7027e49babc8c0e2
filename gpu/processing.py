"""From raw target logits to the target law: temperature, top-k, top-p as Hugging Face apply them.

The verifier, plain sampling and every audit read the law that is made here.
"""

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from rheocheck.config import SamplingConfig
from rheocheck.errors import InputError


def target_law(
    logits: Float[Tensor, "*axes vocab"], sampling: SamplingConfig, *, check: bool = True
) -> Float64[Tensor, "*axes vocab"]:
    """Law of the next token under a request's settings.

    Args:
      logits: [..., vocab] raw target logits of any float dtype; minus infinity is probability 0.
      sampling: temperature, then top_k_filter, then top_p, in this order. Temperature 0 gives the
        point mass on the largest logit, ties to the lowest token id, whatever the filters.
      check: Refuse bad logits, which waits for the device. Unchecked, a row with NaN, +inf or no
        finite entry gets a law of zeros.

    Returns:
      [..., vocab] float64 probabilities that sum to 1. Tokens that tie with the k-th largest are
      all kept; top_p drops the least probable tokens as long as what is dropped totals at most
      1 - top_p, among equal ones the lower token ids first, and never the most probable one.

    Raises:
      InputError: A row with NaN, +inf, or no finite entry; the message names it.
    """
    if check:
        check_logits(logits, "target logits")
    values = logits.double()
    usable = _is_usable(logits).unsqueeze(-1)
    values = torch.where(usable, values, 0.0)
    if sampling.temperature == 0:
        # argmax returns the first of equal entries.
        law = torch.zeros_like(values).scatter(-1, values.argmax(-1, keepdim=True), 1.0)
    else:
        # Shifted before it is divided, so that a small temperature cannot overflow.
        values = (values - values.amax(-1, keepdim=True)) / sampling.temperature
        values = _keep_top_k(values, sampling.top_k_filter)
        law = softmax(_keep_top_p(values, sampling.top_p))
    return torch.where(usable, law, 0.0)


def keep_filtered(
    logits: Float[Tensor, "*axes vocab"], sampling: SamplingConfig
) -> Float[Tensor, "*axes vocab"]:
    """Logits with minus infinity where the filters of a request leave no mass.

    Args:
      logits: [..., vocab] raw target logits.
      sampling: temperature, top_k_filter and top_p.

    Returns:
      [..., vocab] logits whose law at the request's temperature is `target_law`; minus infinity
      everywhere in a row from which no law can be made.
    """
    law = target_law(logits, sampling, check=False)
    return torch.where(law > 0, logits, -torch.inf)


def softmax(values: Float64[Tensor, "*axes vocab"]) -> Float64[Tensor, "*axes vocab"]:
    """exp(x - max) / sum in float64, rows with at least one finite entry.

    Args:
      values: [..., vocab] logits; minus infinity gives exactly 0.

    Returns:
      [..., vocab] probabilities in [0, 1]; a row with one finite entry gets exactly 1 there.
    """
    weight = (values - values.amax(-1, keepdim=True)).exp()
    return weight / weight.sum(-1, keepdim=True)


def check_logits(
    logits: Float[Tensor, "*axes vocab"],
    name: str,
    valid: Bool[Tensor, "*axes"] | None = None,
) -> None:
    """Refuse rows from which no law can be made.

    Args:
      logits: [..., vocab] of any float dtype.
      name: What they are, for the message.
      valid: [...] False on rows that do not count; None: all count.

    Raises:
      InputError: No vocabulary, or a row with NaN, +inf, or without a finite entry; the message
        names the first such row and its fault.
    """
    if logits.shape[-1] == 0:
        raise InputError(f"{name}: the vocabulary is empty, at least one token is required")
    bad = ~_is_usable(logits)
    if valid is not None:
        bad = bad & valid
    if not bool(bad.any()):
        return
    row = tuple(bad.nonzero()[0].tolist())
    values = logits[row]
    if bool(values.isnan().any()):
        fault = f"NaN at token {int(values.isnan().nonzero()[0])}"
    elif bool((values == torch.inf).any()):
        fault = f"+inf at token {int((values == torch.inf).nonzero()[0])}"
    else:
        fault = "-inf at every token"
    where = f"row {row[0]}" if len(row) == 1 else f"row {row[0]}, position {row[1:]}"
    raise InputError(
        f"{name}: {where if row else 'the row'} has {fault}; every logit must be finite or -inf, "
        "and at least one finite"
    )


def _is_usable(logits: Tensor) -> Tensor:
    """[...] True where a row has no NaN, no +inf and a finite entry."""
    # The maximum of a row is NaN if any entry is, +inf if any is, -inf if all are.
    return logits.amax(-1).isfinite()


def _keep_top_k(values: Tensor, num_kept: int) -> Tensor:
    """Minus infinity below the num_kept-th largest value; 0 keeps all."""
    if num_kept == 0 or num_kept >= values.shape[-1]:
        return values
    cut = values.topk(num_kept, dim=-1).values[..., -1:]
    return torch.where(values < cut, -torch.inf, values)


def _keep_top_p(values: Tensor, top_p: float) -> Tensor:
    """Minus infinity on the least probable tokens whose running sum stays at or below 1 - top_p."""
    if top_p >= 1:
        return values
    ascending, order = values.sort(dim=-1, descending=False, stable=True)
    dropped = softmax(ascending).cumsum(-1) <= 1 - top_p
    dropped[..., -1] = False
    return torch.where(torch.zeros_like(dropped).scatter(-1, order, dropped), -torch.inf, values)
