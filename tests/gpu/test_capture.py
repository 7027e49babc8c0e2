"""A round as a CUDA graph needs it: nothing reads a value, nothing is copied from the host.

Run on meta tensors, so that the code takes an accelerator's way: they have no values, and a mode
looks at every operation. Whether a graph replays to the same bits, only a GPU can show.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rheocheck.bench.random_laws import RandomLaws
from rheocheck.config import RULES, Rule, SamplingConfig, SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.gpu import eagle3, layers, rope
from rheocheck.gpu.all_nodes import follow, tree_laws
from rheocheck.gpu.drafting import EagleDrafter
from rheocheck.gpu.graphs import CapturedRound
from rheocheck.gpu.processors import Processors
from rheocheck.gpu.randomness import round_uniforms
from rheocheck.gpu.tree import grow
from rheocheck.gpu.verification import Verification, verify

aten = torch.ops.aten
READS = (
    aten.nonzero, aten.masked_select, aten._local_scalar_dense, aten.lift_fresh, aten.item,
    aten.unique_dim, aten._unique2, aten.is_nonzero, aten.equal,
)  # fmt: skip
CONFIG = SpeculationConfig(top_k=3, num_top=1, budget=12, depth=3, support_size=16)
SAMPLING = SamplingConfig(
    temperature=0.7, top_k_filter=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2,
    presence_penalty=0.1, frequency_penalty=0.1, logit_bias=((3, 1.0), (5, -2.0)),
    banned_tokens=(7, 9),
)  # fmt: skip


class NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations that wait for a device, have shapes made of values, or copy to it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func.overloadpacket in READS:
            raise AssertionError(f"{func} in the hot path")
        if func is aten.index.Tensor or func is aten.index_put_.default:
            masks = [index for index in args[1] if index is not None]
            if any(index.dtype in (torch.bool, torch.uint8) for index in masks):
                raise AssertionError(f"{func} by a mask in the hot path")
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        done = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(done) if isinstance(leaf, Tensor)]
        # Single numbers on the host go to a kernel as arguments.
        if any(not tensor.is_meta and tensor.dim() for tensor in [*given, *made]):
            raise AssertionError(f"{func} on the host in the hot path")
        return done


class NoConstants(TorchFunctionMode):
    """Refuses tensors made of Python numbers, which travel to the device; meta hides them above."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy):
            raise AssertionError(f"{func} in the hot path")
        return func(*args, **(kwargs or {}))


def one_round(
    rule: Rule = "rheo",
    sampling: SamplingConfig | None = None,
    change: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> Verification:
    laws = RandomLaws(2, 300, 0, device="meta")
    process = None
    if sampling is not None:
        process = Processors.start(sampling, [[1, 2], [3, 4]], [1, 2], 300, "meta").process()
    request = torch.zeros(2, dtype=torch.int64, device="meta")
    with NoWaiting(), NoConstants():  # type: ignore[no-untyped-call]
        draws = round_uniforms(0, request, request, CONFIG, check=False)
        tree = grow(laws, draws, CONFIG, 0.7, check=False)
        logits = change(laws.target_logits(tree))
        every = tree_laws(tree, logits, rule, 0.7, process=process)
        follow(tree, every, logits, draws, 0.7, process=process)
        return verify(tree, logits, draws, rule, 0.7, process=process)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", [None, SAMPLING])
def test_a_round_waits_for_nothing(rule: Rule, sampling: SamplingConfig | None) -> None:
    done = one_round(rule, sampling)
    assert all(getattr(done, part.name).is_meta for part in fields(done))


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: logits * torch.tensor([1.0], device="meta"),
        lambda logits: logits + torch.ones(300).to("meta"),
        lambda logits: logits * logits.max().item(),
        lambda logits: logits + logits[logits > 0].sum(),
        lambda logits: logits + logits.masked_select(logits > 0).sum(),
        lambda logits: logits + (logits > 0).nonzero().sum(),
    ],
)
def test_what_breaks_a_capture_would_be_seen(change: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(AssertionError, match="in the hot path"):
        one_round(change=change)


def test_a_read_in_growth_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = layers.best_first
    monkeypatch.setattr(layers, "best_first", lambda score: original(score * score.sum().item()))
    with pytest.raises(AssertionError, match="in the hot path"):
        one_round()


def head_round() -> None:
    head = eagle3.Eagle3Head(
        eagle3.HeadConfig(
            vocab_size=60, draft_vocab_size=40, hidden_size=16, target_hidden_size=16,
            intermediate_size=24, num_heads=4, num_kv_heads=2, head_dim=4, aux_layers=(1, 2, 3),
        )
    ).to("meta")  # fmt: skip
    drafter = EagleDrafter(head, 2)
    request = torch.zeros(2, dtype=torch.int64, device="meta")
    with NoWaiting(), NoConstants():  # type: ignore[no-untyped-call]
        draws = round_uniforms(0, request, request, CONFIG, check=False)
        grow(drafter, draws, CONFIG, 0.7, check=False)


def test_drafting_with_a_head_waits_for_nothing() -> None:
    head_round()


def test_frequencies_made_on_the_host_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rope.rope_frequencies
    monkeypatch.setattr(
        eagle3, "rope_frequencies", lambda *given: original(*given[:-1]).to(given[-1])
    )
    with pytest.raises(AssertionError, match="in the hot path"):
        head_round()


def test_a_graph_needs_a_cuda_device() -> None:
    with pytest.raises(InputError, match=r"input 0 is on cpu; .* CUDA device"):
        CapturedRound(lambda *given: given, [torch.zeros(2)])
    with pytest.raises(InputError, match="at least one tensor"):
        CapturedRound(lambda: 0, [])
