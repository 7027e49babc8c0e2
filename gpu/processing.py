"""From logits to the target law: temperature, top-k, top-p and min-p as Hugging Face apply them.

The verifier, plain sampling and every audit read the law that is made here.
"""

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from rheocheck.config import SamplingConfig
from rheocheck.errors import InputError

# Terms that are summed at a time: few enough that no sum is split over threads.
_SUM_BLOCK = 256


def target_law(
    logits: Float[Tensor, "*axes vocab"], sampling: SamplingConfig, *, check: bool = True
) -> Float64[Tensor, "*axes vocab"]:
    """Law of the next token under temperature and filters: the settings that need no text.

    Args:
      logits: [..., vocab] raw target logits of any float dtype; minus infinity is probability 0.
      sampling: As `filter_logits` reads it. Bias, bans and penalties are
        `rheocheck.gpu.processors`'s and refused here.
      check: Refuse bad logits, which waits for the device. Unchecked, a row with NaN, +inf or no
        finite entry gets a law of zeros.

    Returns:
      [..., vocab] float64 probabilities that sum to 1.

    Raises:
      InputError: A row with NaN, +inf, or no finite entry; the message names it. A setting that
        this function would ignore.
    """
    if sampling.adjusts:
        raise InputError(
            "target_law knows temperature and filters only; penalties, logit_bias and "
            "banned_tokens need rheocheck.gpu.processors"
        )
    if check:
        check_logits(logits, "target logits")
    return law_of(filter_logits(logits.double(), sampling))


def law_of(values: Float64[Tensor, "*axes vocab"]) -> Float64[Tensor, "*axes vocab"]:
    """[..., vocab] law of processed logits; zeros in rows from which none can be made."""
    usable = _is_usable(values).unsqueeze(-1)
    return torch.where(usable, softmax(torch.where(usable, values, 0.0)), 0.0)


def filter_logits(
    values: Float64[Tensor, "*axes vocab"], sampling: SamplingConfig
) -> Float64[Tensor, "*axes vocab"]:
    """Temperature, then top-k, top-p and min-p, in this order.

    Args:
      values: [..., vocab] float64 logits.
      sampling: Temperature 0 keeps the largest logit alone, ties to the lowest token id, whatever
        the filters.

    Returns:
      [..., vocab] (values - max) / temperature on tokens that are kept, minus infinity elsewhere.
      Tokens that tie with the k-th largest are all kept; top_p drops the least probable tokens as
      long as what is dropped totals at most 1 - top_p, among equal ones the lower token ids first,
      and never the most probable one; min_p drops what is less than min_p times as probable as the
      most probable token. A row with NaN, +inf or no finite entry becomes NaN.
    """
    if sampling.temperature == 0:
        # argmax returns the first of equal entries.
        kept = torch.full_like(values, -torch.inf).scatter(-1, values.argmax(-1, keepdim=True), 0.0)
        return torch.where(_is_usable(values).unsqueeze(-1), kept, torch.nan)
    # Shifted before it is divided, so that a small temperature cannot overflow.
    values = (values - values.amax(-1, keepdim=True)) / sampling.temperature
    values = _keep_top_k(values, sampling.top_k_filter)
    return _keep_min_p(_keep_top_p(values, sampling.top_p), sampling.min_p)


def keep_filtered(
    logits: Float[Tensor, "*axes vocab"], sampling: SamplingConfig
) -> Float[Tensor, "*axes vocab"]:
    """Logits with minus infinity where the filters of a request leave no mass.

    Args:
      logits: [..., vocab] target logits, bias, penalties and bans applied.
      sampling: temperature, top_k_filter, top_p and min_p.

    Returns:
      [..., vocab] logits whose law at the request's temperature is `target_law`; minus infinity
      everywhere in a row from which no law can be made.
    """
    kept = filter_logits(logits.double(), sampling) > -torch.inf
    return torch.where(kept, logits, -torch.inf)


def softmax(values: Float64[Tensor, "*axes vocab"]) -> Float64[Tensor, "*axes vocab"]:
    """exp(x - max) / sum in float64, rows with at least one finite entry.

    Args:
      values: [..., vocab] logits; minus infinity gives exactly 0.

    Returns:
      [..., vocab] probabilities in [0, 1]; a row with one finite entry gets exactly 1 there.
    """
    weight = (values - values.amax(-1, keepdim=True)).exp()
    return weight / _row_sum(weight)


def _row_sum(weight: Tensor) -> Tensor:
    """[..., 1] sums of rows, in blocks: the long sum of a single row would be split over threads,
    and a row's last digits would depend on the number of rows."""
    vocab = weight.shape[-1]
    if vocab <= _SUM_BLOCK:
        return weight.sum(-1, keepdim=True)
    blocks = torch.nn.functional.pad(weight, (0, -vocab % _SUM_BLOCK))
    shape = (*blocks.shape[:-1], blocks.shape[-1] // _SUM_BLOCK, _SUM_BLOCK)
    return blocks.view(shape).sum(-1).sum(-1, keepdim=True)


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


def _keep_min_p(values: Tensor, min_p: float) -> Tensor:
    """Minus infinity on tokens less than min_p times as probable as the most probable one."""
    if min_p == 0:
        return values
    law = softmax(values)
    return torch.where(law < min_p * law.amax(-1, keepdim=True), -torch.inf, values)
