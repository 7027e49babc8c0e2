"""Public faults are found with their exact figure and cause; public controls never accused."""

from fractions import Fraction

import pytest

from rheocheck.adapters.recorder import recording
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.certificate import Verdict
from rheocheck.protocols import Choose, LawFunction, Path
from tests.adapters.standard_laws import EXACT, distances
from tests.adapters.wrong_samplers import CONTROLS, LOSSY, FreshState, StaleState

# Total variation of the first token and of the joint law on the standard laws, and words of the
# cause that the counterexample must name.
EXPECTED: dict[str, tuple[Fraction, Fraction, str]] = {
    "one_coin_for_two_positions": (Fraction(0), Fraction(5, 36), "shared coin"),
    "emission_from_the_row_after_the_rejected_draft": (
        Fraction(0), Fraction(29, 144), "rejected draft's row",
    ),
    "coin_reused_for_the_residual": (Fraction(1, 15), Fraction(1, 15), "shared coin"),
    "target_draw_per_sibling": (Fraction(29, 216), Fraction(29, 216), "target draw is thrown away"),
    "redraw_after_mismatch": (Fraction(29, 216), Fraction(29, 216), "target draw is thrown away"),
    "residual_is_the_target": (Fraction(5, 36), Fraction(5, 36), "residual is the whole target"),
    "residual_only_strikes_the_token": (
        Fraction(1, 48), Fraction(1, 48), "residual does not subtract the draft",
    ),
    "top_token_tested_with_a_soft_draft": (Fraction(1, 9), Fraction(1, 9), "not drawn is tested"),
    "accepted_if_matched_or_tested": (
        Fraction(5, 36), Fraction(5, 36), "target draw is thrown away",
    ),
    "first_draft_is_not_verified": (Fraction(5, 12), Fraction(5, 12), "probability 0 is emitted"),
    "typical_acceptance": (Fraction(4, 9), Fraction(4, 9), "without a random test"),
    "draft_truncated_after_the_draw": (Fraction(5, 66), Fraction(5, 66), "drawn from is not the"),
    "bonus_is_the_most_likely_token": (Fraction(0), Fraction(7, 24), "target draw is thrown away"),
    "tried_sibling_is_forgotten": (Fraction(1, 9), Fraction(1, 9), "residual is the whole target"),
    "survival_depends_on_identity": (
        Fraction(1, 6), Fraction(1, 6), "survival depends on identity",
    ),
}  # fmt: skip
JOINT_ONLY = [name for name, (first, _, _) in EXPECTED.items() if first == 0]


def test_every_fault_has_an_expected_figure() -> None:
    assert set(EXPECTED) == set(LOSSY)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_has_its_exact_total_variation(name: str) -> None:
    assert distances(LOSSY[name]) == EXPECTED[name][:2]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_is_found_and_its_cause_named(name: str) -> None:
    stage = sampler_stage(LOSSY[name], name, quick=True, max_vocab=3)
    assert stage.verdict is Verdict.LOSSY
    found = stage.details["counterexample"]
    assert EXPECTED[name][2] in " ".join(found["causes"])
    assert found["minimal"]


@pytest.mark.parametrize("name", JOINT_ONLY)
def test_a_joint_fault_leaves_the_first_token_exact_and_is_said_to(name: str) -> None:
    stage = sampler_stage(LOSSY[name], name, quick=True, max_vocab=3)
    found = stage.details["counterexample"]
    assert found["first_token_total_variation"] == "0"
    assert "the first token's law is exact; only the joint law is wrong" in found["causes"]


def test_stale_state_in_round_two_is_found_and_fresh_state_is_not_accused() -> None:
    stale = sampler_stage(StaleState(), "stale", quick=True, max_vocab=2)  # type: ignore[arg-type]
    assert stale.verdict is Verdict.LOSSY
    found = stale.details["counterexample"]
    assert "stale row" in " ".join(found["causes"])
    assert found["first_token_total_variation"] == "0"
    fresh = sampler_stage(FreshState(), "fresh", quick=True, max_vocab=2)  # type: ignore[arg-type]
    assert fresh.verdict is Verdict.CERTIFIED


def test_stale_state_cannot_be_seen_in_one_round() -> None:
    one = sampler_stage(StaleState(num_rounds=1), "one", quick=True)  # type: ignore[arg-type]
    assert one.verdict is Verdict.CERTIFIED


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_never_accused(name: str) -> None:
    assert distances(CONTROLS[name]) == EXACT
    stage = sampler_stage(CONTROLS[name], name, quick=True)
    assert stage.verdict is Verdict.CERTIFIED
    assert stage.details["endpoint_findings"] == []


def test_the_exponential_race_is_a_draw_and_not_a_maximum() -> None:
    torch = pytest.importorskip("torch")

    def raced(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """C6: argmax(probabilities / exponential noise) in single precision."""
        law = torch.tensor([float(mass) for mass in target(())], dtype=torch.float64)
        with recording(choose):
            return (int(law.div(torch.empty_like(law).exponential_(1)).argmax()),)

    tolerance = Fraction(1, 10**15)
    stage = sampler_stage(raced, "raced", quick=True, max_vocab=3, tolerance=tolerance)
    assert stage.verdict is Verdict.CERTIFIED


def test_a_greedy_target_gives_one_emission_whatever_the_draws() -> None:
    def point(path: Path) -> tuple[Fraction, ...]:
        """C7: at temperature 0 the law is a point mass, so seeds change nothing."""
        return (Fraction(0), Fraction(1), Fraction(0))

    for sampler in CONTROLS.values():
        assert distances(sampler, point) == EXACT
