"""Forward passes and cache layers of a transformers model, whatever the installed version.

This file and `hf_loading` hold all that depends on the version, tested with 4.57 and 5.24; nothing
else in the package imports transformers to run a model. What differs here is the name of the cache
argument and how a cache layer is made.

A tree of drafted tokens needs attention that a causal mask cannot express. Transformers passes a
4D attention mask through to eager and sdpa attention as it is; the only form that both read alike
is an additive one in the model's own dtype (a boolean mask is silently misread by eager attention).
Flash attention takes no 4D mask, flex attention aborts on one, a sliding window is replaced by one,
and a recurrent state cannot hold a tree at all: such models are refused.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from rheocheck.errors import BackendError, InputError

# One pair a layer: both [batch, kv_heads, slots, head_dim], keys already rotated to positions.
LayerKeyValues: TypeAlias = tuple[tuple[Tensor, Tensor], ...]

ATTENTION_KERNELS = ("eager", "sdpa")


class ForwardOutput(NamedTuple):
    """What one forward pass returns.

    Attributes:
      logits: [batch, kept, vocab] of the query tokens that were asked for, model dtype.
      features: [batch, query, 3 * hidden] the fused layers' inputs side by side, lowest first.
      key_values: The past's slots followed by the query tokens'.
    """

    logits: Tensor
    features: Tensor
    key_values: LayerKeyValues


@dataclass(frozen=True, slots=True)
class HfModel:
    """A causal language model of transformers, checked to be one that a tree can be run through.

    Attributes:
      model: The model, in evaluation mode.
      fused_layers: Three hidden states for the draft head, increasing, as indices into
        `hidden_states` (0 = embeddings, i = the residual stream entering layer i, before any norm).
      cache_argument: What the installed version calls the cache in `forward`.
    """

    model: nn.Module
    fused_layers: tuple[int, ...]
    cache_argument: str

    @property
    def config(self) -> Any:
        """The model's configuration object."""
        return self.model.config

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights, mask and logits."""
        return next(self.model.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where inputs must be."""
        return next(self.model.parameters()).device


def wrap(model: nn.Module, fused_layers: Sequence[int] | None = None) -> HfModel:
    """Check a model and note how the installed version wants to be called.

    Args:
      model: A causal language model of transformers.
      fused_layers: Indices into `hidden_states`; None takes EAGLE-3's 2, L // 2, L - 3.

    Raises:
      BackendError: Attention other than eager or sdpa, a sliding window, layers that are not plain
        attention.
      InputError: The fused layers are not three distinct inputs of layers.
    """
    config: Any = model.config
    refuse_unfit_attention(config)
    layers = fused_layer_indices(config.num_hidden_layers, fused_layers)
    parameters = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in parameters else "past_key_values"
    return HfModel(model.eval(), layers, name)


def fused_layer_indices(num_layers: int, given: Sequence[int] | None = None) -> tuple[int, ...]:
    """The three hidden states that the draft head fuses, increasing.

    Args:
      num_layers: Layers of the target.
      given: Explicit indices, or None for EAGLE-3's choice.

    Raises:
      InputError: Fewer or more than three distinct indices, or one outside [0, num_layers).
    """
    chosen = tuple(default_layers(num_layers) if given is None else given)
    distinct = tuple(sorted(set(chosen)))
    if len(distinct) != 3:
        origin = "EAGLE-3's choice 2, L // 2, L - 3 gives" if given is None else "given were"
        raise InputError(
            f"a head fuses three distinct target layers, but with {num_layers} layers {origin} "
            f"{list(chosen)}; use a target of 7 or more layers or name three layers"
        )
    for place, index in enumerate(distinct):
        # The last entry of hidden_states is the output of the final norm, no layer's input.
        if not 0 <= index < num_layers:
            raise InputError(
                f"fused layer {index} (number {place} of {list(distinct)}) is outside "
                f"[0, {num_layers}): a fused layer is the input of one of the target's layers"
            )
    return distinct


def default_layers(num_layers: int) -> tuple[int, ...]:
    """EAGLE-3's choice as it acts: indices that are no layer's drop out, equal ones stay equal."""
    choice = (2, num_layers // 2, num_layers - 3)
    return tuple(index for index in choice if 0 <= index < num_layers)


def refuse_unfit_attention(config: Any) -> None:
    """Raise BackendError unless every layer is full attention run by eager or sdpa."""
    kernel = getattr(config, "_attn_implementation", None)
    if kernel not in ATTENTION_KERNELS:
        raise BackendError(
            f"the target's attention is {kernel!r}; a tree mask is only read rightly by "
            f"{' or '.join(ATTENTION_KERNELS)}: load the model with attn_implementation='sdpa'"
        )
    kinds = getattr(config, "layer_types", None) or ()
    for index, kind in enumerate(kinds):
        if kind != "full_attention":
            raise BackendError(
                f"layer {index} of the target is {kind!r}: a tree mask replaces a sliding window, "
                "and a recurrent state holds no tree; every layer must be 'full_attention'"
            )
    windowed = getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None)
    if not kinds and windowed and window is not None:
        raise BackendError(
            f"the target has a sliding window of {window} tokens, which a tree mask would replace; "
            "only targets with full attention can be audited"
        )


def forward(
    hf: HfModel,
    token: Tensor,
    position: Tensor,
    mask: Tensor,
    past: LayerKeyValues,
    num_logits: int = 0,
) -> ForwardOutput:
    """Run query tokens that see exactly what the mask shows them.

    Args:
      hf: The model.
      token: [batch, query] token ids.
      position: [batch, query] rotary positions.
      mask: [batch, 1, query, past + query] added to the scores, in the model's dtype.
      past: Keys and values of the slots that the mask's first columns stand for; () for none.
      num_logits: Logits of only the last so many query tokens; 0 for all of them.

    Returns:
      Logits, features, and the keys and values of past and query. `past` is left as it was.
    """
    cache = make_cache(past)
    arguments: dict[str, Any] = {
        hf.cache_argument: cache,
        "input_ids": token,
        "attention_mask": mask,
        "position_ids": position,
        "logits_to_keep": num_logits,
        "use_cache": True,
        "output_hidden_states": True,
    }
    output = hf.model(**arguments)
    features = torch.cat([output.hidden_states[index] for index in hf.fused_layers], dim=-1)
    return ForwardOutput(output.logits, features, read_cache(cache))


def plain_forward(hf: HfModel, token: Tensor, kept: Tensor) -> Tensor:
    """Run whole sequences the ordinary way: no mask, no positions, no cache of ours.

    Args:
      hf: The model.
      token: [batch, length] token ids. Causal attention never looks right, so rows may be padded
        there with any token.
      kept: [kept] int64 positions whose logits are wanted.

    Returns:
      [batch, kept, vocab] logits.
    """
    output = hf.model(input_ids=token, use_cache=False, logits_to_keep=kept)
    return output.logits  # type: ignore[no-any-return]


def plain_step(
    hf: HfModel,
    token: Tensor,
    position: Tensor,
    seen: Tensor,
    cache: Any,
    num_logits: int = 1,
) -> Tensor:
    """One pass of ordinary cached decoding of left-padded rows, as transformers' `generate` does.

    Args:
      hf: The model.
      token: [batch, query] new token ids.
      position: [batch, query] positions, counted without padding.
      seen: [batch, slots] int64, 1 at real tokens of the cache and the query, 0 at padding.
      cache: From `make_cache(())`, changed in place.
      num_logits: Logits of the last so many query tokens, at least 1.

    Returns:
      [batch, num_logits, vocab] logits.
    """
    arguments: dict[str, Any] = {
        hf.cache_argument: cache,
        "input_ids": token,
        "attention_mask": seen,
        "position_ids": position,
        "logits_to_keep": num_logits,
        "use_cache": True,
    }
    return hf.model(**arguments).logits[:, -num_logits:]  # type: ignore[no-any-return]


def make_cache(past: LayerKeyValues) -> Any:
    """A DynamicCache that holds `past`, without copying it."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache()
    for keys, values in past:
        layer: Any = DynamicLayer()  # type: ignore[no-untyped-call]
        # What the layer's lazy initialisation sets, whose own arguments differ between versions.
        layer.keys, layer.values, layer.is_initialized = keys, values, True
        layer.dtype, layer.device = keys.dtype, keys.device
        cache.layers.append(layer)
    return cache


def read_cache(cache: Any) -> LayerKeyValues:
    """Keys and values of every layer."""
    return tuple((layer.keys, layer.values) for layer in cache.layers)
