"""Reading an EAGLE-3 config.json: every switch resolved for its own format, nothing guessed.

Two formats are known. "eagle": the official heads and SpecForge's (flat fields of a Llama config).
"speculators": a nested `transformer_layer_config`. One field means two things: `norm_output` says
in the first whether the final norm stands before lm_head (default true), in the second whether the
final norm's output is fed back as the next feature (default false).
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from rheocheck.errors import InputError, WeightsError
from rheocheck.gpu.eagle3 import HeadConfig, default_aux_layers
from rheocheck.gpu.rope import RopeScaling

# Which hidden state the number X of a config names: the stream entering layer X (Hugging Face's
# hidden_states[X]) or the one leaving it (hidden_states[X + 1]).
AuxConvention: TypeAlias = Literal["input", "output"]
AUX_FIELD = "eagle_aux_hidden_state_layer_ids"


def parse_config(
    raw: Mapping[str, Any],
    *,
    source: str,
    vocab_size: int,
    target_hidden_size: int,
    num_target_layers: int,
    aux_convention: AuxConvention | None = None,
) -> HeadConfig:
    """Turn a config into a `HeadConfig` that fits a target.

    `num_hidden_layers` is not read: published heads carry the target's number there.

    Args:
      raw: The parsed JSON object.
      source: Its path, for messages.
      vocab_size: The target's vocabulary.
      target_hidden_size: The target's width.
      num_target_layers: The target's number of layers.
      aux_convention: What explicit layer numbers mean. None: "input" for speculators' files; an
        "eagle" file with explicit numbers is then refused, as both readings are in circulation.

    Returns:
      The head's configuration.

    Raises:
      WeightsError: A field is missing, of the wrong kind, or contradicts the target.
      InputError: aux_convention is needed and missing, or unknown.
    """
    speculators = "speculators_model_type" in raw
    if speculators and raw["speculators_model_type"] != "eagle3":
        raise WeightsError(
            f"{source}: speculators_model_type = {raw['speculators_model_type']!r}: "
            f"only 'eagle3' heads can be read"
        )
    layer = raw.get("transformer_layer_config", {}) if speculators else raw
    if not isinstance(layer, Mapping):
        raise WeightsError(f"{source}: transformer_layer_config = {layer!r} is not an object")
    nested = raw.get("eagle_config")
    extra = {**(nested if isinstance(nested, Mapping) else {}), **raw}
    hidden = count(layer, "hidden_size", source)
    heads = count(layer, "num_attention_heads", source)
    kv_heads = count(layer, "num_key_value_heads", source, default=heads)
    if layer.get("head_dim") is None and hidden % heads:
        raise WeightsError(
            f"{source}: hidden_size = {hidden} is no multiple of num_attention_heads = {heads}, "
            f"and head_dim is not given"
        )
    head_dim = count(layer, "head_dim", source, default=hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise WeightsError(
            f"{source}: {heads} attention heads on {kv_heads} key-value heads of width {head_dim}: "
            f"the first must be a multiple of the second, and the width even"
        )
    activation = layer.get("hidden_act", "silu")
    if activation != "silu":
        raise WeightsError(f"{source}: hidden_act = {activation!r}: only 'silu' is implemented")
    check_target_fit(raw, layer, source, hidden, vocab_size, target_hidden_size)
    norm_before_fc, fc_norm = flag(extra, "norm_before_fc", source), flag(extra, "fc_norm", source)
    if norm_before_fc and fc_norm:
        raise WeightsError(f"{source}: norm_before_fc and fc_norm are both true; they exclude")
    norm_output = flag(extra, "norm_output", source, default=not speculators)
    return HeadConfig(
        vocab_size=vocab_size,
        draft_vocab_size=count(raw, "draft_vocab_size", source, default=vocab_size),
        hidden_size=hidden,
        target_hidden_size=target_hidden_size,
        intermediate_size=count(layer, "intermediate_size", source),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        aux_layers=aux_layers(extra, source, speculators, num_target_layers, aux_convention),
        rms_norm_eps=real(layer, "rms_norm_eps", source, default=1e-6),
        rope_theta=rope_theta(layer, source),
        rope_scaling=rope_scaling(layer, source),
        norm_before_residual=flag(extra, "norm_before_residual", source),
        norm_before_fc=norm_before_fc,
        fc_norm=fc_norm,
        norm_before_lm_head=speculators or norm_output,
        feed_back_normed=speculators and norm_output,
    )


def check_target_fit(
    raw: Mapping[str, Any],
    layer: Mapping[str, Any],
    source: str,
    hidden_size: int,
    vocab_size: int,
    target_hidden_size: int,
) -> None:
    """Refuse a head whose config names another vocabulary or width than the target has."""
    named = count(layer, "vocab_size", source, default=vocab_size)
    if named != vocab_size:
        raise WeightsError(
            f"{source}: the head's vocab_size is {named}, the target's {vocab_size}: "
            f"head and target do not belong together"
        )
    width = count(raw, "target_hidden_size", source, default=hidden_size)
    if width != target_hidden_size:
        raise WeightsError(
            f"{source}: the head reads target features of width {width}, the target's hidden size "
            f"is {target_hidden_size}: head and target do not belong together"
        )


def aux_layers(
    raw: Mapping[str, Any],
    source: str,
    speculators: bool,
    num_target_layers: int,
    convention: AuxConvention | None,
) -> tuple[int, int, int]:
    """The three fused hidden states, as Hugging Face indices in increasing order."""
    if convention not in (None, "input", "output"):
        raise InputError(f"aux_convention = {convention!r}: must be 'input', 'output' or None")
    ids = raw.get(AUX_FIELD)
    if ids is None:
        chosen = list(default_aux_layers(num_target_layers))
        origin = f"the default for a target of {num_target_layers} layers"
    else:
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise WeightsError(f"{source}: {AUX_FIELD} = {ids!r}: must be a list of integers")
        if convention is None and not speculators:
            raise InputError(
                f"{source}: {AUX_FIELD} = {ids} can mean the inputs or the outputs of these "
                f"layers; say aux_convention='input' (EAGLE, vLLM) or 'output' (SpecForge, "
                f"Model-Optimizer)"
            )
        shift = 1 if convention == "output" else 0
        chosen = [i + shift for i in ids]
        origin = f"{AUX_FIELD} = {ids}"
    # hidden_states[num_target_layers] is excluded: there Hugging Face applies the final norm.
    outside = [i for i in chosen if not 0 <= i < num_target_layers]
    if len(chosen) != 3 or len(set(chosen)) != 3 or outside:
        raise WeightsError(
            f"{source}: the head would fuse hidden states {chosen} ({origin}); it needs three "
            f"distinct ones between 0 and {num_target_layers - 1}"
        )
    low, middle, high = sorted(chosen)
    return low, middle, high


def rope_theta(layer: Mapping[str, Any], source: str) -> float:
    """The head's own base, wherever its transformers version wrote it; 10,000 if nowhere."""
    parameters = layer.get("rope_parameters") or {}
    if layer.get("rope_theta") is None and "rope_theta" in parameters:
        return real(parameters, "rope_theta", source, default=10_000.0)
    return real(layer, "rope_theta", source, default=10_000.0)


def rope_scaling(layer: Mapping[str, Any], source: str) -> RopeScaling:
    """The head's own scaling; an unknown kind is refused, as ignoring it would go unnoticed."""
    given = layer.get("rope_scaling") or layer.get("rope_parameters") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return RopeScaling()
    if kind == "linear":
        return RopeScaling("linear", real(given, "factor", source))
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            real(given, "factor", source),
            real(given, "low_freq_factor", source),
            real(given, "high_freq_factor", source),
            count(given, "original_max_position_embeddings", source),
        )
    raise WeightsError(
        f"{source}: rope scaling of type {kind!r}: only 'default', 'linear' and 'llama3' are known"
    )


def count(raw: Mapping[str, Any], name: str, source: str, default: int | None = None) -> int:
    """A positive integer field; a missing or null one takes the default."""
    value = raw.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise WeightsError(f"{source}: {name} = {value!r}: must be a positive integer")
    return value


def real(raw: Mapping[str, Any], name: str, source: str, default: float | None = None) -> float:
    """A positive number field; a missing or null one takes the default."""
    value: Any = raw.get(name)
    if value is None and default is not None:
        return default
    number = float(value) if type(value) in (int, float) else 0.0
    if not 0 < number < float("inf"):
        raise WeightsError(f"{source}: {name} = {value!r}: must be a positive number")
    return number


def flag(raw: Mapping[str, Any], name: str, source: str, default: bool = False) -> bool:
    """A boolean field; a missing or null one takes the default."""
    value = raw.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise WeightsError(f"{source}: {name} = {value!r}: must be true or false")
    return value
