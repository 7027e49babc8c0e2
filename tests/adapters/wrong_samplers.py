"""Samplers that are lossy, each by one public fault, and correct ones that were accused of it.

A fault is one line away from the right rule; the right rule is in rheocheck.adapters.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.adapters.rules import ONE, Law, acceptance, excess, ranked, without
from rheocheck.adapters.shared_coin import inverse_cdf
from rheocheck.adapters.single_draft import SingleDraft, draft_chain
from rheocheck.adapters.uniforms import draw_uniform
from rheocheck.protocols import Choose, LawFunction, Noting, Path


def one_coin_for_two_positions(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """A chain of two whose accept tests share one uniform: the first marginal stays exact."""
    drafted = draft_chain(draft, 2, choose)
    coin = draw_uniform(choose, "accept coin")
    for position, token in enumerate(drafted):
        path = drafted[:position]
        if not coin < acceptance(target(path)[token], draft(path)[token]):
            residual = excess(target(path), draft(path))
            # The coin's second use may reject where this row never would.
            return (*path, choose.categorical(residual or target(path)))
    return (*drafted, choose.categorical(target(drafted)))


def emission_from_the_row_after_the_rejected_draft(
    target: LawFunction, draft: LawFunction, choose: Choose
) -> Path:
    """Sampler match that notices a rejection one row late: the row holds the rejected draft."""
    drafted = choose.categorical(draft(()))
    drawn = choose.categorical(target(()))
    return (drawn, choose.categorical(target((drafted,))))


def coin_reused_for_the_residual(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """The uniform that rejected the draft also draws the residual token."""
    (token,) = draft_chain(draft, 1, choose)
    coin = draw_uniform(choose, "coin")
    if coin < acceptance(target(())[token], draft(())[token]):
        return (token,)
    residual = excess(target(()), draft(()))
    assert residual is not None
    return (inverse_cdf(residual, coin),)


def target_draw_per_sibling(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Sampler match on two siblings with a fresh target draw for each of them."""
    siblings = [choose.categorical(draft(())) for _ in range(2)]
    drawn = 0
    for sibling in siblings:
        drawn = choose.categorical(target(()))
        if drawn == sibling:
            break
    return (drawn,)


def redraw_after_mismatch(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Sampler match that draws once more instead of emitting the compared draw."""
    token = choose.categorical(draft(()))
    if choose.categorical(target(())) == token:
        return (token,)
    return (choose.categorical(target(())),)


def residual_is_the_target(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    (token,) = draft_chain(draft, 1, choose)
    if choose.bernoulli(acceptance(target(())[token], draft(())[token])):
        return (token,)
    return (choose.categorical(target(())),)


def residual_only_strikes_the_token(
    target: LawFunction, draft: LawFunction, choose: Choose
) -> Path:
    (token,) = draft_chain(draft, 1, choose)
    if choose.bernoulli(acceptance(target(())[token], draft(())[token])):
        return (token,)
    return (choose.categorical(without(target(()), token) or target(())),)


def top_token_tested_with_a_soft_draft(
    target: LawFunction, draft: LawFunction, choose: Choose
) -> Path:
    token = ranked(draft(()))[0]
    if choose.bernoulli(acceptance(target(())[token], draft(())[token])):
        return (token,)
    return (choose.categorical(excess(target(()), draft(())) or target(())),)


def accepted_if_matched_or_tested(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Accept when an independent target draw agrees, or when the ratio test passes."""
    (token,) = draft_chain(draft, 1, choose)
    matched = choose.categorical(target(())) == token
    if matched or choose.bernoulli(acceptance(target(())[token], draft(())[token])):
        return (token,)
    return (choose.categorical(excess(target(()), draft(())) or target(())),)


def first_draft_is_not_verified(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    (token,) = draft_chain(draft, 1, choose)
    return (token, choose.categorical(target((token,))))


def typical_acceptance(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Accept every drafted token of target mass at least 1/4; lossy by design."""
    (token,) = draft_chain(draft, 1, choose)
    if target(())[token] >= Fraction(1, 4):
        return (token,)
    return (choose.categorical(target(())),)


def draft_truncated_after_the_draw(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Drawn from the draft's top two, tested with the whole draft."""
    kept = ranked(draft(()))[:2]
    total = sum(draft(())[token] for token in kept)
    token = kept[choose.categorical([draft(())[token] / total for token in kept])]
    if choose.bernoulli(acceptance(target(())[token], draft(())[token])):
        return (token,)
    return (choose.categorical(excess(target(()), draft(())) or target(())),)


def bonus_is_the_most_likely_token(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    drafted = SingleDraft(1)(target, draft, choose)
    return drafted if len(drafted) == 1 else (drafted[0], ranked(target(drafted[:1]))[0])


def tried_sibling_is_forgotten(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Top-two as point masses, but the rejected one stays in the residual."""
    residual: Law = tuple(target(()))
    for token in ranked(draft(()))[:2]:
        if choose.bernoulli(residual[token]):
            return (token,)
    return (choose.categorical(residual),)


def survival_depends_on_identity(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """A drawn child that is pruned when a sibling of the same score has the smaller token id."""
    weights = draft(())
    first = ranked(weights)[0]
    tail = without(weights, first)
    if tail is None:
        return (choose.categorical(target(())),)
    drawn = choose.categorical(tail)
    # Room for one child: by token id at a tie of scores, which identity then decides.
    survives = drawn < first
    if isinstance(choose, Noting):
        choose.note("survives", ("child of the root", drawn, survives))
    if not survives:
        if choose.bernoulli(target(())[first]):
            return (first,)
        return (choose.categorical(without(target(()), first) or target(())),)
    if choose.bernoulli(acceptance(target(())[drawn], tail[drawn])):
        return (drawn,)
    return (choose.categorical(excess(target(()), tail) or target(())),)


@dataclass(frozen=True)
class StaleState:
    """The first row of round two is the root row of round one, kept in the state."""

    num_rounds: int = 2
    carries_state: bool = True

    def __call__(
        self, target: LawFunction, draft: LawFunction, choose: Choose, state: Any
    ) -> tuple[Path, Any]:
        first_row = target(()) if state is None else state

        def cached(path: Path) -> Any:
            return first_row if path == () else target(path)

        return SingleDraft(1)(cached, draft, choose), first_row


@dataclass(frozen=True)
class FreshState:
    """The same with the state brought up to date: right."""

    num_rounds: int = 2
    carries_state: bool = True

    def __call__(
        self, target: LawFunction, draft: LawFunction, choose: Choose, state: Any
    ) -> tuple[Path, Any]:
        return SingleDraft(1)(target, draft, choose), target(())


LOSSY = {
    function.__name__: function
    for function in (
        one_coin_for_two_positions,
        emission_from_the_row_after_the_rejected_draft,
        coin_reused_for_the_residual,
        target_draw_per_sibling,
        redraw_after_mismatch,
        residual_is_the_target,
        residual_only_strikes_the_token,
        top_token_tested_with_a_soft_draft,
        accepted_if_matched_or_tested,
        first_draft_is_not_verified,
        typical_acceptance,
        draft_truncated_after_the_draw,
        bonus_is_the_most_likely_token,
        tried_sibling_is_forgotten,
        survival_depends_on_identity,
    )
}


# Controls: reported as bugs, but lossless ------------------------------------------------------


def one_hot_test_of_a_sampled_token(
    target: LawFunction, draft: LawFunction, choose: Choose
) -> Path:
    """C2: accept with the target's own mass although the token was drawn from a soft draft."""
    path: Path = ()
    for token in draft_chain(draft, 2, choose):
        law = target(path)
        if not choose.bernoulli(law[token]):
            residual = without(law, token)
            assert residual is not None
            return (*path, choose.categorical(residual))
        path = (*path, token)
    return (*path, choose.categorical(target(path)))


def truncated_and_cold_draft(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """C4: drafts from the squared top two, and verifies with that very law."""

    def used(path: Path) -> Law:
        kept = ranked(draft(path))[:2]
        squared = [mass**2 if token in kept else 0 * mass for token, mass in enumerate(draft(path))]
        return tuple(mass / sum(squared) for mass in squared)

    return SingleDraft(2)(target, used, choose)


def residual_in_place(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """C5: one list is overwritten from draft to residual; the names mislead, the law is right."""
    probs = list(target(()))
    for _ in range(2):
        proposed = draft(())
        token = choose.categorical(proposed)
        if choose.bernoulli(min(ONE, probs[token] / proposed[token])):
            return (token,)
        for index, mass in enumerate(proposed):
            probs[index] = max(probs[index] - mass, 0 * mass)
        total = sum(probs)
        for index in range(len(probs)):
            probs[index] /= total
    return (choose.categorical(probs),)


def other_use_of_randomness(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """C8: draws and discards, and tests with 1 - u: same law, other consumption."""
    (token,) = draft_chain(draft, 1, choose)
    draw_uniform(choose, "discarded")
    coin = draw_uniform(choose, "coin")
    if 1 - coin <= acceptance(target(())[token], draft(())[token]):
        return (token,)
    residual = excess(target(()), draft(()))
    assert residual is not None
    return (inverse_cdf(residual, draw_uniform(choose, "final")),)


CONTROLS = {
    function.__name__: function
    for function in (
        one_hot_test_of_a_sampled_token,
        truncated_and_cold_draft,
        residual_in_place,
        other_use_of_randomness,
    )
}
