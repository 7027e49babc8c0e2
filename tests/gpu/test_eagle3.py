from typing import Any

import pytest
import torch

from rheocheck.gpu.eagle3 import Eagle3Head, default_aux_layers
from tests.gpu.random_heads import KEPT, TARGET_HIDDEN, VOCAB, PathByPath, head_config, random_head

SWITCHES: list[dict[str, Any]] = [
    {},
    {"norm_before_residual": True},
    {"norm_before_fc": True},
    {"fc_norm": True},
    {"norm_before_lm_head": False},
    {"feed_back_normed": True},
    {"rope_theta": 7.0},
    {"num_kv_heads": 4},
    {"num_kv_heads": 1, "norm_before_residual": True, "fc_norm": True, "feed_back_normed": True},
]
# float64 throughout; the random weights make attention sharp, which stretches 1e-16 by some
# thousands.
TOLERANCE = 1e-9


def chain_logits(head: Eagle3Head, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """[length, draft_vocab] of one causal pass over verified pairs, then one own link."""
    length = tokens.shape[1]
    future = torch.full((1, length, length), torch.finfo(torch.float32).min).triu(1)
    position = torch.arange(length)[None]
    output = head(tokens, head.fuse(features), position, future, head.empty_key_values(1))
    own = head(
        tokens[:, :1],
        head.feedback(output.hidden[:, -1:]),
        torch.tensor([[length]]),
        torch.zeros(1, 1, length + 1),
        output.key_values,
    )
    return head.logits(torch.cat((output.hidden, own.hidden), dim=1))[0]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_a_chain_is_what_one_token_at_a_time_gives(switches: dict[str, Any]) -> None:
    head = random_head(head_config(**switches))
    tokens = torch.tensor([[3, 12, 0, 7, 3]])
    features = torch.randn(1, 5, 3 * TARGET_HIDDEN, dtype=torch.float64)
    path = PathByPath(head)
    expected = [path.feed_verified(f, int(t)) for f, t in zip(features[0], tokens[0], strict=True)]
    expected.append(path.feed_drafted(3))
    logits = chain_logits(head, tokens, features)
    torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("switches", SWITCHES[1:], ids=str)
def test_every_switch_changes_the_logits(switches: dict[str, Any]) -> None:
    """The comparison above would not see a switch that does nothing."""
    plain, switched = random_head(head_config()), random_head(head_config(**switches))
    names = plain.state_dict().keys() & switched.state_dict().keys()
    shared = {n: t for n, t in plain.state_dict().items() if n in names}
    if "num_kv_heads" not in switches:
        switched.load_state_dict(shared, strict=False)
    tokens = torch.tensor([[3, 12, 0, 7, 3]])
    features = torch.randn(1, 5, 3 * TARGET_HIDDEN, dtype=torch.float64)
    gap = chain_logits(plain, tokens, features) - chain_logits(switched, tokens, features)
    assert gap.abs().max() > 1e-2


def test_the_embedding_stands_before_the_feature() -> None:
    """With the halves of the projections exchanged, nothing fits the reference any more."""
    head = random_head()
    tokens, features = torch.tensor([[3, 12]]), torch.randn(1, 2, 3 * TARGET_HIDDEN).double()
    path = PathByPath(head)
    expected = [path.feed_verified(f, int(t)) for f, t in zip(features[0], tokens[0], strict=True)]
    for projection in (head.midlayer.self_attn.k_proj, head.midlayer.self_attn.v_proj):
        projection.weight.copy_(projection.weight.roll(head.config.hidden_size, dims=1))
    assert (chain_logits(head, tokens, features)[:2] - torch.stack(expected)).abs().max() > 0.1


def test_token_ids_are_index_plus_offset() -> None:
    assert random_head().token_ids.tolist() == list(KEPT)


def test_equal_vocabularies_map_by_identity() -> None:
    head = Eagle3Head(head_config(draft_vocab_size=VOCAB))
    assert head.token_ids.tolist() == list(range(VOCAB))


def test_state_dict_has_the_published_names() -> None:
    assert sorted(Eagle3Head(head_config()).state_dict()) == sorted(
        [
            "d2t",
            "t2d",
            "embed_tokens.weight",
            "fc.weight",
            "lm_head.weight",
            "norm.weight",
            *(
                f"midlayer.{name}.weight"
                for name in (
                    "hidden_norm",
                    "input_layernorm",
                    "post_attention_layernorm",
                    "mlp.down_proj",
                    "mlp.gate_proj",
                    "mlp.up_proj",
                    "self_attn.k_proj",
                    "self_attn.o_proj",
                    "self_attn.q_proj",
                    "self_attn.v_proj",
                )
            ),
        ]
    )


def test_default_fused_layers_of_a_32_layer_target() -> None:
    assert default_aux_layers(32) == (2, 16, 29)


def test_half_precision_does_not_round_positions() -> None:
    """At position 4,000 a half-precision frequency would be off by whole radians."""
    head, narrow = random_head().float(), random_head().bfloat16()
    wide = Eagle3Head(head.config)
    wide.load_state_dict({n: t.float() for n, t in narrow.state_dict().items()})
    embedding, feature = torch.randn(2, 1, 3, 12).bfloat16()
    position = torch.tensor([[4000, 4001, 4002]])
    _, narrow_query, _, _ = narrow.midlayer.project(embedding, feature, position)
    _, wide_query, _, _ = wide.midlayer.project(embedding.float(), feature.float(), position)
    # Two roundings to 8 bits of sums of 24 products.
    assert (narrow_query.float() - wide_query).abs().max() < 0.05 * wide_query.abs().max()
