"""Every published rule gets the verdict that theory gives, with its exact total variation."""

import random
from fractions import Fraction
from typing import Any

import pytest

from rheocheck.adapters import (
    block,
    eagle_rule,
    kseq,
    sampler_match,
    scheme,
    sequoia,
    shared_coin,
    single_draft,
    specinfer,
)
from rheocheck.adapters.block import BlockVerification
from rheocheck.adapters.eagle_rule import EagleRule
from rheocheck.adapters.kseq import KSeq, kseq_residual
from rheocheck.adapters.rounds import Rounds
from rheocheck.adapters.sampler_match import SamplerMatch
from rheocheck.adapters.scheme import Scheme
from rheocheck.adapters.sequoia import WithoutReplacement
from rheocheck.adapters.shared_coin import SharedCoin
from rheocheck.adapters.single_draft import SingleDraft
from rheocheck.adapters.specinfer import MultiRound
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.certificate import Verdict
from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.protocols import Path, Sampler
from rheocheck.reference import round_law
from tests.adapters.standard_laws import DRAFT, EXACT, FIVE, TARGET, distances, draft, target

NINE_TENTHS, THIRD = Fraction(9, 10), Fraction(1, 3)

LOSSLESS: list[Sampler] = [
    SingleDraft(1),
    SingleDraft(3),
    MultiRound(2, 1),
    MultiRound(3, 1),
    MultiRound(2, 2),
    WithoutReplacement(2, 1),
    WithoutReplacement(3, 1),
    WithoutReplacement(2, 2),
    KSeq(1, 1),
    KSeq(3, 1),
    KSeq(2, 2),
    BlockVerification(1),
    BlockVerification(3),
    SharedCoin((0, 1), 2),
    SharedCoin((2, 0, 1)),
    SamplerMatch(1, 3),
    SamplerMatch(2, 1),
    EagleRule((0, 1), 2),
    EagleRule((0, 0, 1), 2),
    EagleRule((0, 1), 1, sampled=True),
    Scheme(),
    # One coin, one position: only from length 2 on are the residuals of the block different.
    BlockVerification(1, "token"),
]

LOSSY: list[tuple[Any, Fraction, Fraction]] = [
    (SharedCoin((0, 0)), THIRD, THIRD),
    (SharedCoin((1, 0, 1)), Fraction(1, 6), Fraction(1, 6)),
    (SharedCoin((0, 1), threshold_single=Fraction(1, 4)), 2 * THIRD, 2 * THIRD),
    (SharedCoin((0, 1), threshold_acc=NINE_TENTHS), Fraction(5, 54), Fraction(5, 54)),
    (SharedCoin((0, 1), 2, threshold_acc=NINE_TENTHS), Fraction(5, 54), Fraction(475, 2916)),
    # The first token's law is exact: only the joint law shows these.
    (BlockVerification(2, "token"), Fraction(0), Fraction(1, 120)),
    (BlockVerification(3, "token"), Fraction(0), Fraction(1, 96)),
    (KSeq(2, 1, "single"), Fraction(5, 72), Fraction(5, 72)),
    (KSeq(3, 1, "single"), Fraction(8, 81), Fraction(8, 81)),
]


@pytest.mark.parametrize("sampler", LOSSLESS, ids=str)
def test_a_lossless_rule_has_total_variation_zero(sampler: Sampler) -> None:
    assert distances(sampler) == EXACT


@pytest.mark.parametrize(("sampler", "first", "joint"), LOSSY, ids=lambda value: str(value))
def test_a_lossy_rule_has_its_exact_total_variation(
    sampler: Sampler, first: Fraction, joint: Fraction
) -> None:
    assert distances(sampler) == (first, joint)


@pytest.mark.parametrize(
    "module",
    [
        single_draft,
        specinfer,
        sequoia,
        kseq,
        block,
        shared_coin,
        sampler_match,
        eagle_rule,
        scheme,
    ],
    ids=lambda module: module.__name__.rsplit(".")[-1],
)
def test_the_shipped_sampler_of_each_rule_is_certified(module: Any) -> None:
    stage = sampler_stage(module.sampler, module.__name__, quick=True, max_vocab=3)
    assert stage.verdict is Verdict.CERTIFIED
    assert stage.statistic == 0


FOUND_QUICKLY = [case[0] for case in LOSSY if case[0] != BlockVerification(3, "token")]


@pytest.mark.parametrize("sampler", FOUND_QUICKLY, ids=str)
def test_a_lossy_rule_is_found_on_the_family(sampler: Sampler) -> None:
    stage = sampler_stage(sampler, "lossy", max_vocab=3)
    assert stage.verdict is Verdict.LOSSY
    assert stage.details["counterexample"]["total_variation"] != "0"


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (SharedCoin((1, 0, 2)), Fraction(0)),
        (SharedCoin((1, 0, 1)), Fraction(3, 10)),
        (SharedCoin((3, 3)), Fraction(1, 10)),
        (SharedCoin((1, 0), threshold_single=Fraction(3, 10)), Fraction(7, 10)),
        (SharedCoin((1, 0, 2), threshold_acc=NINE_TENTHS), Fraction(17, 180)),
    ],
    ids=str,
)
def test_the_shared_coin_has_the_figures_measured_elsewhere(
    sampler: Sampler, expected: Fraction
) -> None:
    def five(path: Path) -> tuple[Fraction, ...]:
        return FIVE

    assert distances(sampler, five, five)[0] == expected


def test_the_reference_scheme_has_the_law_of_its_two_enumerators() -> None:
    config = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2)
    emitted = round_law(target, draft, config).emissions
    assert distances(Scheme(config)) == EXACT
    assert max(map(len, emitted)) == 3


def test_rounds_are_joined_with_the_history_of_the_earlier_ones() -> None:
    stage = sampler_stage(Rounds(SingleDraft(1), 3), "three rounds", quick=True, max_vocab=2)
    assert stage.verdict is Verdict.CERTIFIED
    assert stage.details["num_rounds"] == 3
    lossy = sampler_stage(Rounds(SharedCoin((0, 0)), 2), "two", quick=True, max_vocab=2)
    assert lossy.verdict is Verdict.LOSSY
    # The simplest failing case needs one round only.
    assert "num_rounds=1" in lossy.details["counterexample"]["sampler"]


@pytest.mark.parametrize("seed", range(3))
def test_kseq_accepts_smaller_scales_that_leave_a_residual(seed: int) -> None:
    generator = random.Random(seed)
    weights = [generator.randint(1, 5) for _ in range(3)]
    law = tuple(Fraction(weight, sum(weights)) for weight in weights)
    # With equal laws every candidate passes at scale 1, and a rejection cannot happen.
    with pytest.raises(InputError, match="never all rejected"):
        kseq_residual(law, law, 2, Fraction(1))
    assert kseq_residual(law, law, 2, Fraction(2)) == law


def test_a_kseq_scale_that_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match=r"scale is 1: the residual of token 1 is"):
        kseq_residual(TARGET, DRAFT, 3, Fraction(1))


@pytest.mark.parametrize("sampler", [*LOSSLESS, *(case[0] for case in LOSSY)], ids=str)
def test_smaller_samplers_are_of_the_same_kind(sampler: Any) -> None:
    smaller = list(sampler.smaller())
    assert sampler not in smaller
    assert all(type(other) is type(sampler) for other in smaller)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SingleDraft(0), "length is 0; required: an int, at least 1"),
        (lambda: MultiRound(0, 1), "width is 0"),
        (lambda: MultiRound(1, True), "depth is True"),
        (lambda: WithoutReplacement(1, 0), "depth is 0"),
        (lambda: KSeq(1, 1, "other"), "residual is 'other'"),  # type: ignore[arg-type]
        (lambda: BlockVerification(2, "other"), "residual is 'other'"),  # type: ignore[arg-type]
        (lambda: SharedCoin(threshold_acc=Fraction(0)), "threshold_acc is 0"),
        (lambda: SharedCoin(threshold_single=Fraction(2)), "threshold_single is 2"),
        (lambda: EagleRule(depth=0), "depth is 0"),
        (lambda: SamplerMatch(0), "width is 0"),
        (lambda: Rounds(SingleDraft(), 0), "num_rounds is 0"),
    ],
)
def test_sizes_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
