"""Each planted fault has an exactly non-zero defect; the sampler as it is has none."""

from collections.abc import Iterator
from fractions import Fraction

import pytest

from rheocheck import SpeculationConfig, exact_law
from rheocheck.reference import (
    OracleDraws,
    lossless_defect,
    round_law,
    sample_round,
    total_variation,
)
from rheocheck.reference.laws import Draft, Target
from tests.defects.reference_faults import FAULTS
from tests.strategies import constant, law_of

TARGET = law_of(1, 2, 3, 4)
DRAFT = law_of(4, 3, 2, 1)
# Small schemes on laws by hand. Which fault shows on which is in EXPECTED.
CASES: dict[str, tuple[Target, Draft, SpeculationConfig]] = {
    "top, probe and filler, one cut": (
        constant(TARGET),
        constant(DRAFT),
        SpeculationConfig(top_k=3, num_top=1, budget=2, depth=1),
    ),
    "two layers": (
        constant(law_of(1, 2, 3)),
        constant(law_of(3, 2, 2)),
        SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2),
    ),
    "all children kept": (
        constant(TARGET),
        constant(DRAFT),
        SpeculationConfig(top_k=3, num_top=1, budget=3, depth=1),
    ),
    "truncated": (
        constant(TARGET),
        constant(DRAFT),
        SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1, support_size=3),
    ),
    "all tied, one kept": (
        constant(law_of(1, 2, 3)),
        constant(law_of(1, 1, 1)),
        SpeculationConfig(top_k=2, num_top=0, budget=1, depth=1),
    ),
    "tempered": (
        constant(TARGET),
        lambda path: (DRAFT, law_of(16, 9, 4, 1)),
        SpeculationConfig(top_k=2, num_top=0, budget=2, depth=1),
    ),
}
# Exact defects; the cases left out stay lossless under that fault. By hand, for two of them:
# scored by its own probability, probe 1 (1/2) survives, probes 2 and 3 do not, so token 2 is
# emitted with 1/2 * 3/10 for 3/10; tied by token id, token 0 survives as probe (1/3) or else as
# filler, so token 1 is emitted with 2/3 * 1/3 for 1/3.
EXPECTED: dict[str, dict[str, str]] = {
    "probe_scored_by_its_own_probability": {"top, probe and filler, one cut": "3/20"},
    "probe_scored_by_its_conditional_probability": {"top, probe and filler, one cut": "1/10"},
    "ties_broken_by_token_id": {"all tied, one kept": "1/9"},
    "fillers_verified_before_the_probe": {
        "all children kept": "43/276",
        "tempered": "7552/70125",
    },
    "residual_is_the_target": {
        "top, probe and filler, one cut": "1/10",
        "two layers": "5/36",
        "all children kept": "1/10",
        "truncated": "1/5",
        "all tied, one kept": "1/12",
        "tempered": "23/150",
    },
    "ranking_law_used_for_the_probe_law": {
        "top, probe and filler, one cut": "2/15",
        "two layers": "1/6",
        "all children kept": "2/15",
        "truncated": "214/1075",
        "tempered": "1/24",
    },
    "verified_with_the_untruncated_law": {"truncated": "3/25"},
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One planted fault."""
    name: str = request.param
    FAULTS[name](monkeypatch)
    yield name


def defects() -> dict[str, Fraction]:
    """Defect of the eager law of every case."""
    return {
        name: lossless_defect(round_law(target, draft, config, "eager"), target)
        for name, (target, draft, config) in CASES.items()
    }


def test_without_a_fault_every_case_is_lossless() -> None:
    assert defects() == dict.fromkeys(CASES, 0)


def test_each_fault_has_its_exact_defect(fault: str) -> None:
    found = {name: str(defect) for name, defect in defects().items() if defect}
    assert found == EXPECTED[fault]
    assert found


def test_the_choice_oracle_alone_finds_each_fault(fault: str) -> None:
    """The same verdict from `exact_law` on the round as one program."""
    name = next(iter(EXPECTED[fault]))
    target, draft, config = CASES[name]
    law = exact_law(
        lambda choose: sample_round(target, draft, config, OracleDraws(choose)).emission
    )
    assert str(lossless_defect(law, target)) == EXPECTED[fault][name]
    assert total_variation(law, target, config.depth + 1) > 0


def test_the_enumerators_disagree_on_each_fault(fault: str) -> None:
    name = next(iter(EXPECTED[fault]))
    target, draft, config = CASES[name]
    classes = round_law(target, draft, config)
    assert lossless_defect(classes, target) == 0
    assert classes.emissions != round_law(target, draft, config, "eager").emissions


def test_truncation_of_the_target_loses_the_mass_outside_the_support() -> None:
    """Cutting the target down to the draft's support: TV is exactly the mass cut off."""
    config = SpeculationConfig(top_k=2, num_top=1, budget=2, depth=1, support_size=3)
    cut = law_of(*(weight if DRAFT[token] > min(DRAFT) else 0
                   for token, weight in enumerate((1, 2, 3, 4))))  # fmt: skip
    law = round_law(constant(cut), constant(DRAFT), config)
    assert total_variation(law, constant(TARGET), 1) == TARGET[3]
