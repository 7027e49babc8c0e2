"""The sampler stage: verdicts, bounds, several rounds, end points."""

import dataclasses
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheocheck.adapters.block import BlockVerification
from rheocheck.adapters.shared_coin import SharedCoin
from rheocheck.adapters.single_draft import SingleDraft
from rheocheck.adapters.specinfer import MultiRound
from rheocheck.adapters.uniforms import draw_uniform
from rheocheck.audit import sampler_check
from rheocheck.audit.counterexample import counterexample_lines
from rheocheck.audit.sampler_check import check_instance
from rheocheck.audit.sampler_family import (
    PAIR_GROUP,
    LawTable,
    SamplerInstance,
    instance_size,
    laws_up_to,
    sampler_family,
)
from rheocheck.audit.sampler_run import Limits
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.certificate import EXIT_CODES, Verdict
from rheocheck.errors import InputError, ProgramError
from rheocheck.protocols import Choose, LawFunction, Path
from rheocheck.reference import worst_violation

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
FAIR = LawTable({(): (HALF, HALF)})
SURE = LawTable({(): (Fraction(1), Fraction(0))})


def plain(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """Target sampling."""
    return (choose.categorical(target(())),)


def greedy(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """The most likely token: right at point masses only."""
    law = target(())
    return (max(range(len(law)), key=law.__getitem__),)


def stage_of(sampler: Any, **options: Any) -> Any:
    return sampler_stage(sampler, "tests:sampler", **{"quick": True, "max_vocab": 2, **options})


def test_the_family_starts_small_and_holds_what_it_says() -> None:
    instances = sampler_family()
    sizes = [instance_size(instance) for instance in instances]
    assert sizes == sorted(sizes)
    assert {instance.vocab for instance in instances} == {2, 3, 4}
    rows = [row for i in instances for row in (*i.target.rows.values(), *i.draft.rows.values())]
    assert all(sum(row) == 1 for row in rows)
    pairs = [(i.target.rows[()], i.draft.rows[()]) for i in instances]
    assert any(all(t * d == 0 for t, d in zip(*pair, strict=True)) for pair in pairs)
    assert any(max(target) == 1 for target, _ in pairs)
    assert any(len(i.target.rows) > 1 for i in instances)
    assert len(sampler_family(quick=True)) < len(instances)
    assert all(i.vocab == 2 for i in sampler_family(max_vocab=2))
    assert sampler_family(seed=1) != instances


def test_all_laws_up_to_a_denominator_are_listed_once() -> None:
    assert laws_up_to(2, 2) == [
        (Fraction(0), Fraction(1)),
        (Fraction(1), Fraction(0)),
        (HALF, HALF),
    ]
    assert len(laws_up_to(3, 4)) == len(set(laws_up_to(3, 4)))


def test_a_law_table_answers_with_the_longest_suffix_it_knows() -> None:
    table = LawTable(
        {(): (HALF, HALF), (0,): (THIRD, 1 - THIRD), (1, 0): (Fraction(1), Fraction(0))}
    )
    assert table(()) == table((1,)) == table((0, 1)) == (HALF, HALF)
    assert table((0,)) == table((0, 0)) == (THIRD, 1 - THIRD)
    assert table((0, 1, 0)) == (Fraction(1), Fraction(0))


def test_a_lossless_sampler_is_certified_with_a_bounded_claim() -> None:
    stage = stage_of(plain)
    assert stage.verdict is Verdict.CERTIFIED
    assert (stage.statistic, stage.threshold) == (0.0, 0.0)
    assert (
        stage.sample_size
        == stage.details["num_instances"]
        == len(sampler_family(quick=True, max_vocab=2))
    )
    assert "total variation 0 from the target's" in stage.claim
    assert "Nothing is claimed about other laws" in stage.claim
    assert (
        stage.replay == "rheocheck certify --sampler tests:sampler --seed 0 --quick --max-vocab 2"
    )


def test_a_lossy_sampler_is_lossy_with_a_witness_and_no_claim() -> None:
    stage = stage_of(greedy)
    assert stage.verdict is Verdict.LOSSY
    assert stage.claim is None
    assert stage.details["worst_total_variation"] == "1/2"
    assert stage.details["witness"]["got"] == "1"


def test_the_joint_law_is_checked_and_not_only_the_first_token() -> None:
    def repeats(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        token = choose.categorical(target(()))
        return (token, token)

    stage = stage_of(repeats)
    assert stage.verdict is Verdict.LOSSY
    assert stage.details["counterexample"]["first_token_total_variation"] == "0"


def test_one_instance_has_the_exact_figures() -> None:
    instance = SamplerInstance("by hand", FAIR, SURE)
    finding = check_instance(SharedCoin((0, 0)), instance, Limits(), float("inf"))
    assert finding.violation is not None
    assert (finding.violation.path, finding.violation.token) == ((), 0)
    assert (finding.violation.got, finding.violation.wanted) == (Fraction(1), HALF)
    assert finding.total_variation == HALF


def test_too_many_paths_are_inconclusive_and_say_what_was_covered() -> None:
    stage = stage_of(MultiRound(3, 2), limits=Limits(max_paths=40))
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert EXIT_CODES[stage.verdict] == 3
    assert stage.claim is None
    assert "more than 40 paths" in stage.details["stopped"]
    assert 0 < stage.sample_size < stage.details["num_instances"]
    assert "Nothing is certified" in stage.details["summary"]
    assert sum(row["checked"] for row in stage.details["covered"]) == stage.sample_size


def test_too_many_seconds_are_inconclusive() -> None:
    def slow(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        time.sleep(0.02)
        return plain(target, draft, choose)

    stage = stage_of(slow, limits=Limits(max_seconds=0.1))
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert "0.1 seconds" in stage.details["stopped"]


def test_an_interruption_keeps_what_was_covered() -> None:
    calls = 0

    def interrupted(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise KeyboardInterrupt
        return plain(target, draft, choose)

    stage = stage_of(interrupted)
    assert stage.verdict is Verdict.INCONCLUSIVE
    assert "interrupted" in stage.details["stopped"]


def test_part_of_a_law_can_prove_a_defect() -> None:
    def never_zero(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Gives token 1 first, then branches without end in sight."""
        if choose.bernoulli(Fraction(9, 10)):
            return (1,)
        return (sum(choose.categorical((HALF, HALF)) for _ in range(12)) % 2,)

    stage = stage_of(never_zero, limits=Limits(max_paths=30))
    assert stage.verdict is Verdict.LOSSY
    assert stage.details["num_paths"] < 1_000


def test_part_of_a_law_does_not_accuse_a_lossless_sampler() -> None:
    instance = SamplerInstance("by hand", FAIR, FAIR)
    for max_paths in range(1, 12):
        limits = Limits(max_paths=max_paths)
        finding = check_instance(MultiRound(2, 2), instance, limits, float("inf"))
        assert finding.violation is None


def test_a_tolerance_separates_rounding_from_defects() -> None:
    def rounded(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        cumulated, uniform = 0.0, draw_uniform(choose)
        law = target(())
        for token, mass in enumerate(law):
            cumulated += float(mass)
            if uniform < cumulated:
                return (token,)
        return (len(law) - 1,)

    assert stage_of(rounded, max_vocab=3).verdict is Verdict.LOSSY
    stage = stage_of(rounded, max_vocab=3, tolerance=Fraction(1, 10**15))
    assert stage.verdict is Verdict.CERTIFIED
    assert 0 < stage.statistic < 1e-15
    assert "at most 1e-15 (rounding)" in stage.claim


def test_a_sampler_may_carry_its_tolerance() -> None:
    class Tolerant:
        tolerance = Fraction(1, 1000)

        def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
            if choose.bernoulli(Fraction(1, 2000)):
                return greedy(target, draft, choose)
            return plain(target, draft, choose)

    assert stage_of(Tolerant()).verdict is Verdict.CERTIFIED
    assert stage_of(Tolerant(), tolerance=Fraction(0)).verdict is Verdict.LOSSY


@pytest.mark.parametrize("inclusive", [True, False])
def test_zero_probability_at_a_uniform_of_zero_is_a_finding_apart(inclusive: bool) -> None:
    def point_mass(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        law, uniform = target(()), draw_uniform(choose)
        accepted = uniform <= law[0] if inclusive else uniform < law[0]
        if accepted:
            return (0,)
        return (1,)

    stage = stage_of(point_mass)
    assert stage.verdict is Verdict.CERTIFIED
    findings = stage.details["endpoint_findings"]
    assert bool(findings) == inclusive
    assert ("end points" in stage.details["summary"]) == inclusive
    if inclusive:
        assert findings[0] == {
            "finding": "accepts zero probability at u = 0",
            "path": [],
            "token": 0,
            "probability": str(Fraction(1, 2**53)),
            "target": ["0", "1"],
        }


def test_code_that_fails_at_an_end_point_is_a_finding_apart() -> None:
    def fails_at_zero(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        uniform = draw_uniform(choose)
        if uniform <= 0:
            raise ValueError("u = 0")
        return (0,) if uniform < target(())[0] else (1,)

    stage = stage_of(fails_at_zero)
    assert stage.verdict is Verdict.CERTIFIED
    assert "raised ValueError: u = 0" in stage.details["endpoint_findings"][0]["error"]


def test_a_sampler_that_cannot_run_here_says_so_itself() -> None:
    def missing(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        raise InputError("needs a package that is not here")

    with pytest.raises(InputError, match=r"^needs a package that is not here$"):
        stage_of(missing)


def test_duplicate_siblings_are_named() -> None:
    causes = stage_of(SharedCoin((0, 0))).details["counterexample"]["causes"]
    assert causes[0].startswith("duplicate siblings: the node (")


def test_progress_is_told_once_an_instance() -> None:
    told: list[tuple[str, int, int]] = []
    stage = stage_of(plain, progress=lambda *step: told.append(step))
    assert told[-1] == ("sampler", stage.sample_size, stage.sample_size)


def test_results_depend_on_the_seed_only_through_the_laws() -> None:
    first, again = stage_of(SingleDraft(), seed=5), stage_of(SingleDraft(), seed=5)
    assert first.details == again.details
    assert "seed 5" in first.claim


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1; required: at least 0"),
        ({"max_vocab": 5}, "max_vocab is 5; required: one of"),
        ({"limits": Limits(max_paths=0)}, "max_paths is 0; required: above 0"),
        ({"limits": Limits(max_seconds=0)}, "max_seconds is 0"),
        ({"tolerance": Fraction(1, 999)}, "a larger distance is a defect"),
        ({"tolerance": 0.5}, "tolerance is 0.5; required: an exact rational"),
    ],
)
def test_arguments_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stage_of(plain, **options)


def test_a_check_that_only_looks_at_the_first_token_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The joint comparison has teeth: without it a joint fault passes, and a control is silent."""
    real = worst_violation

    def first_only(law: Any, target: Any) -> Any:
        cut: dict[Path, Fraction] = {}
        for emission, mass in law.items():
            cut[emission[:1]] = cut.get(emission[:1], Fraction(0)) + mass
        return real(cut, target)

    lossy = BlockVerification(2, "token")
    assert sampler_stage(lossy, "block", quick=True, max_vocab=3).verdict is Verdict.LOSSY
    assert sampler_stage(lossy, "block", max_vocab=3).verdict is Verdict.LOSSY
    monkeypatch.setattr(sampler_check, "worst_violation", first_only)
    blind = sampler_stage(lossy, "block", max_vocab=3)
    assert blind.verdict is Verdict.INCONCLUSIVE
    assert not all(control["fired"] for control in blind.details["controls"])


@given(weights=st.lists(st.integers(0, 4), min_size=2, max_size=3).filter(any), data=st.data())
@settings(max_examples=25, deadline=None)
def test_target_sampling_is_lossless_and_shared_duplicates_are_not(
    weights: list[int], data: st.DataObject
) -> None:
    law = tuple(Fraction(weight, sum(weights)) for weight in weights)
    proposed = tuple(data.draw(st.permutations(law)))
    instance = SamplerInstance("drawn", LawTable({(): law}), LawTable({(): proposed}))
    limits = dataclasses.replace(Limits(), max_paths=1_000)
    assert check_instance(SingleDraft(2), instance, limits, float("inf")).violation is None
    doubled = check_instance(SharedCoin((0, 0)), instance, limits, float("inf")).violation
    first = max(range(len(proposed)), key=lambda token: (proposed[token], -token))
    assert (doubled is None) == (law[first] in (0, 1))


def by_the_pair(
    target: LawFunction, draft: LawFunction, choose: Choose, tested_with: int = 1
) -> Path:
    """Ratio test of a token of the tempered draft; the ranking decides nothing."""
    given: Any = draft(())
    laws = given if isinstance(given, tuple) and isinstance(given[0], tuple) else (given, given)
    token = choose.categorical(laws[1])
    wanted, proposed = target(()), laws[tested_with]
    if choose.bernoulli(min(Fraction(1), wanted[token] / proposed[token])):
        return (token,)
    excess = [max(t - d, Fraction(0)) for t, d in zip(wanted, proposed, strict=True)]
    total = sum(excess, Fraction(0))
    return (choose.categorical([mass / total for mass in excess]),)


def by_the_ranking(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    """The fault: q where qT is meant. No draft of one law shows it."""
    return by_the_pair(target, draft, choose, tested_with=0)


def test_pairs_of_draft_laws_go_to_samplers_that_declare_them() -> None:
    right, wrong = _declaring(by_the_pair), _declaring(by_the_ranking)
    stage = stage_of(right, max_vocab=4)
    assert stage.verdict is Verdict.CERTIFIED
    assert stage.details["draft_pairs"]
    assert "as a pair (ranking, tempered draft)" in stage.claim
    assert any(row["group"] == PAIR_GROUP for row in stage.details["covered"])
    found = stage_of(wrong, max_vocab=4)
    assert found.verdict is Verdict.LOSSY
    counterexample = found.details["counterexample"]
    assert "the ranking law is used for the draft" in " ".join(counterexample["causes"])
    assert {"path", "target", "ranking", "draft"} == set(counterexample["laws"][0])
    shown = " ".join(counterexample_lines(counterexample))
    assert "ranking (" in shown and ", draft (" in shown


def test_without_the_declaration_every_draft_is_one_law() -> None:
    stage = stage_of(by_the_ranking, max_vocab=4)
    assert stage.verdict is Verdict.CERTIFIED
    assert not stage.details["draft_pairs"]
    assert "pair (" not in stage.claim


def test_a_declaration_that_is_no_bool_is_refused() -> None:
    with pytest.raises(ProgramError, match="draft_pairs is 1; required: a bool"):
        stage_of(_declaring(by_the_pair, 1))


def test_pairs_have_the_draft_within_the_rankings_support() -> None:
    pairs = [i for i in sampler_family(pairs=True) if i.ranking is not None]
    assert {i.group for i in pairs} == {PAIR_GROUP}
    orders = set()
    for instance in pairs:
        given: Any = instance.given_draft(())
        ranking, draft = given
        assert sum(ranking) == sum(draft) == 1
        assert all(q > 0 for q in ranking)
        orders.add(
            max(range(len(draft)), key=ranking.__getitem__)
            == max(range(len(draft)), key=draft.__getitem__)
        )
    assert orders == {True, False}
    assert not any(i.ranking for i in sampler_family())


def _declaring(function: Any, value: Any = True) -> Any:
    """The sampler with its declaration, as a function of its own."""

    def sampler(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        result: Path = function(target, draft, choose)
        return result

    sampler.draft_pairs = value  # type: ignore[attr-defined]
    return sampler
