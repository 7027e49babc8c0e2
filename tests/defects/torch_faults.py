"""Faults of the torch path, planted one at a time; each must turn the audit's stages LOSSY."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rheocheck.config import SpeculationConfig
from rheocheck.gpu import expansion, final_draw, layers, node_law, tree, verification
from rheocheck.gpu.expansion import Expansion, Logits, Role, expand
from rheocheck.gpu.node_law import NodeLaw, node_acceptance
from rheocheck.gpu.top_tokens import rank_support

Plant = Callable[[pytest.MonkeyPatch], None]


def accept_at_equality(patch: pytest.MonkeyPatch) -> None:
    """`<=` for `<` in the accept test: a uniform of 0 accepts what has no mass."""
    patch.setattr(verification, "accept_tests", lambda uniform, acceptance: uniform <= acceptance)


def draw_at_equality(patch: pytest.MonkeyPatch) -> None:
    """`>=` for `>` in the inverse CDF: a uniform of 0 draws a leading token without mass."""

    def faulty(mass: Tensor, uniform: Tensor) -> Tensor:
        running = mass.cumsum(-1)
        hit = running >= (uniform * running[..., -1]).unsqueeze(-1)
        return hit.long().argmax(-1)

    patch.setattr(final_draw, "inverse_cdf", faulty)


def low_precision_sum(patch: pytest.MonkeyPatch) -> None:
    """A running sum in bfloat16, compared with the bare uniform."""

    def faulty(mass: Tensor, uniform: Tensor) -> Tensor:
        below = mass.bfloat16().cumsum(-1).double() <= uniform.unsqueeze(-1)
        return below.sum(-1).clamp_max(mass.shape[-1] - 1)

    patch.setattr(final_draw, "inverse_cdf", faulty)


def ties_by_token_id(patch: pytest.MonkeyPatch) -> None:
    """Equal scores ordered by token, by an offset of the score that other nodes cannot bridge."""

    def change(done: Expansion) -> Expansion:
        offset = 2 * layers.SCORE_GRID * done.token
        return replace(done, log_factor=done.log_factor - offset)

    _patch_expand(patch, change)


def unstable_topk(patch: pytest.MonkeyPatch) -> None:
    """The best nodes by `topk`, which orders equal scores as it likes."""
    patch.setattr(layers, "best_first", lambda score: score.topk(score.shape[1], dim=1).indices)


def support_by_topk(patch: pytest.MonkeyPatch) -> None:
    """The support by `topk` alone: any of the tokens that tie at the cut."""

    def faulty(logits: Tensor, support_size: int) -> tuple[Tensor, Tensor]:
        clean = torch.nan_to_num(logits, nan=-torch.inf, neginf=-torch.inf)
        # The last of equal tokens, which topk may return just as well as the first.
        best = clean.flip(-1).double().sort(dim=-1, descending=True, stable=True)
        size = min(support_size, logits.shape[-1])
        return logits.shape[-1] - 1 - best.indices[..., :size], best.values[..., :size]

    patch.setattr(expansion, "rank_support", faulty)


def temperature_ignored_in_ratio(patch: pytest.MonkeyPatch) -> None:
    """The probe is drawn at the request's temperature and verified at temperature 1."""
    _patch_probe_law(patch, lambda logits, uniform, config: expand(logits, uniform, config, 1.0))


def untruncated_ratio(patch: pytest.MonkeyPatch) -> None:
    """The probe is drawn from the truncated law and verified with the untruncated one."""

    def faulty(
        logits: Logits, uniform: Tensor, config: Any, temperature: float, **more: Any
    ) -> Any:
        done = expand(logits, uniform, config, temperature, **more)
        vocab = (logits[0] if isinstance(logits, tuple) else logits).shape[-1]
        whole = config.model_copy(update={"support_size": vocab})
        law = expand(logits, uniform, whole, temperature, **more).probe_law
        return replace(done, probe_law=law[..., : done.probe_law.shape[-1]])

    patch.setattr(tree, "expand", faulty)


def draft_law_for_probe_law(patch: pytest.MonkeyPatch) -> None:
    """The ratio divides by the draft law of the whole support instead of the tail's own law."""

    def whole(logits: Logits, uniform: Tensor, config: SpeculationConfig) -> Expansion:
        no_top = config.model_copy(update={"num_top": 0})
        return expand(logits, uniform, no_top, 1.0)

    _patch_probe_law(patch, whole)


def probe_scored_by_itself(patch: pytest.MonkeyPatch) -> None:
    """The probe's score factor is its own ranking probability instead of the proxy."""

    def faulty(
        logits: Logits, uniform: Tensor, config: Any, temperature: float, **more: Any
    ) -> Any:
        done = expand(logits, uniform, config, temperature, **more)
        ranking = logits[0] if isinstance(logits, tuple) else logits
        log_law = expansion.log_normalise(rank_support(ranking, config.support_size)[1])
        own = log_law.gather(-1, done.probe_rank.clamp_min(0).unsqueeze(-1))
        is_probe = (done.role == Role.PROBE) & done.valid
        return replace(done, log_factor=torch.where(is_probe, own, done.log_factor))

    patch.setattr(tree, "expand", faulty)


def residual_is_target(patch: pytest.MonkeyPatch) -> None:
    """After all rejections the final token is drawn from the target again."""

    def faulty(mass: Tensor, *others: Any) -> NodeLaw:
        law = node_acceptance(mass, *others)
        return replace(law, residual=mass, scale=torch.ones_like(law.scale))

    patch.setattr(node_law, "node_acceptance", faulty)


def fillers_before_probe(patch: pytest.MonkeyPatch) -> None:
    """The probe is tested after the fillers, which were chosen knowing it."""

    def faulty(child_valid: Tensor, is_probe: Tensor, *, probe_first: bool) -> Tensor:
        slot = torch.arange(child_valid.shape[1])
        place = torch.where(child_valid, slot, slot + 100)
        return torch.where(is_probe, 99, place).argsort(dim=1)

    patch.setattr(node_law, "_test_order", faulty)


def draws_shared(patch: pytest.MonkeyPatch) -> None:
    """The accept tests of a node's children read one uniform for all of them."""
    original = verification.verify

    def faulty(drafted: Any, logits: Tensor, uniforms: Any, *others: Any, **options: Any) -> Any:
        shared = uniforms.accept[..., :1].expand_as(uniforms.accept)
        return original(drafted, logits, replace(uniforms, accept=shared), *others, **options)

    patch.setattr(verification, "verify", faulty)


FAULTS: tuple[Plant, ...] = (
    accept_at_equality,
    draw_at_equality,
    low_precision_sum,
    ties_by_token_id,
    unstable_topk,
    support_by_topk,
    temperature_ignored_in_ratio,
    untruncated_ratio,
    draft_law_for_probe_law,
    probe_scored_by_itself,
    residual_is_target,
    fillers_before_probe,
    draws_shared,
)


def _patch_expand(patch: pytest.MonkeyPatch, change: Callable[[Expansion], Expansion]) -> None:
    """Change what every expansion of a tree returns."""
    patch.setattr(tree, "expand", lambda *args, **more: change(expand(*args, **more)))


def _patch_probe_law(patch: pytest.MonkeyPatch, other: Callable[..., Expansion]) -> None:
    """Draw as before, but hand the probe law of another expansion to verification."""

    def faulty(
        logits: Logits, uniform: Tensor, config: Any, temperature: float, **more: Any
    ) -> Any:
        done = expand(logits, uniform, config, temperature, **more)
        return replace(done, probe_law=other(logits, uniform, config).probe_law)

    patch.setattr(tree, "expand", faulty)
