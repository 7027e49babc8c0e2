"""Counterexamples are small, exact, and say what they are."""

import json
import time
from fractions import Fraction
from typing import Any

import pytest

from rheocheck.adapters.scheme import Scheme
from rheocheck.adapters.shared_coin import SharedCoin
from rheocheck.audit.counterexample import (
    Counterexample,
    counterexample_json,
    counterexample_lines,
    smallest_failing,
)
from rheocheck.audit.sampler_family import LawTable, SamplerInstance, instance_size, sampler_family
from rheocheck.audit.sampler_run import Limits
from rheocheck.audit.sampler_stage import sampler_stage
from rheocheck.certificate import Verdict
from rheocheck.config import SpeculationConfig
from rheocheck.protocols import Choose, LawFunction, Path
from rheocheck.reference import lossless_defect
from tests.adapters.wrong_samplers import LOSSY

HALF = Fraction(1, 2)
LIMITS = Limits(max_paths=2_000)


def largest_instance() -> SamplerInstance:
    """The family's largest: four tokens, laws that look at the last two."""
    return sampler_family(quick=True)[-1]


def smallest(sampler: Any, instance: SamplerInstance | None = None) -> Counterexample:
    found = smallest_failing(sampler, instance or largest_instance(), LIMITS, time.monotonic() + 30)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "vocab", "denominators"),
    [
        ("residual_is_the_target", 2, 2),
        ("redraw_after_mismatch", 2, 2),
        ("one_coin_for_two_positions", 2, 2),
        ("bonus_is_the_most_likely_token", 2, 2),
        ("residual_only_strikes_the_token", 3, 2),
    ],
)
def test_a_fault_on_a_large_instance_shrinks_to_a_small_one(
    name: str, vocab: int, denominators: int
) -> None:
    found = smallest(LOSSY[name])
    assert found.minimal
    assert found.instance.vocab == vocab
    assert instance_size(found.instance) < instance_size(largest_instance())
    laws = [*found.instance.target.rows.values(), *found.instance.draft.rows.values()]
    assert max(mass.denominator for law in laws for mass in law) <= denominators
    assert len(found.instance.target.rows) == len(found.instance.draft.rows) == 1


def test_what_is_printed_is_what_was_computed() -> None:
    found = smallest(LOSSY["residual_is_the_target"])
    assert found.violation.defect == lossless_defect(found.emissions, found.instance.target)
    assert found.violation.defect > 0
    assert sum(found.emissions.values()) == 1
    assert found.path is not None
    product = Fraction(1)
    for choice in found.path.choices:
        product *= choice.weights[choice.taken]
    assert product == found.path.probability


def test_the_sampler_itself_is_made_smaller() -> None:
    found = smallest(SharedCoin((1, 0, 1), depth=2))
    assert isinstance(found.sampler, SharedCoin)
    assert found.sampler.depth == 1
    assert len(found.sampler.slots) == 2


def test_a_scheme_is_made_smaller_in_every_number() -> None:
    big = SpeculationConfig(top_k=3, num_top=1, budget=4, depth=3)

    class Broken(Scheme):
        """The scheme with its last token replaced by the likeliest one."""

        def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
            emission = Scheme.__call__(self, target, draft, choose)
            law = target(emission[:-1])
            return (*emission[:-1], max(range(len(law)), key=law.__getitem__))

        def smaller(self) -> Any:
            return (Broken(scheme.config) for scheme in Scheme.smaller(self))

    instance = SamplerInstance(
        "by hand", LawTable({(): (HALF, HALF)}), LawTable({(): (HALF, HALF)})
    )
    found = smallest(Broken(big), instance)
    assert isinstance(found.sampler, Broken)
    config = found.sampler.config
    assert (config.top_k, config.budget, config.depth) == (1, 1, 1)


def test_a_tie_rule_that_looks_at_the_token_makes_survival_depend_on_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme = Scheme(SpeculationConfig(top_k=3, num_top=1, budget=2, depth=1))
    family = {"quick": True, "max_vocab": 4}
    assert sampler_stage(scheme, "scheme", **family).verdict is Verdict.CERTIFIED  # type: ignore[arg-type]
    monkeypatch.setattr(
        "rheocheck.reference.tree.order_key", lambda scored: (-scored[0], scored[1].token)
    )
    stage = sampler_stage(scheme, "scheme", **family)  # type: ignore[arg-type]
    assert stage.verdict is Verdict.LOSSY
    found = stage.details["counterexample"]
    assert "survival depends on identity" in " ".join(found["causes"])
    assert any("on the drafted tree (" in line for line in counterexample_lines(found))


def test_a_search_without_time_says_that_it_was_stopped() -> None:
    found = smallest_failing(
        LOSSY["residual_is_the_target"], largest_instance(), LIMITS, time.monotonic()
    )
    assert found is not None
    assert not found.minimal
    assert "search stopped by its time" in counterexample_lines(counterexample_json(found))[0]


def test_an_instance_above_the_limits_has_no_counterexample() -> None:
    fault = LOSSY["residual_is_the_target"]
    assert smallest_failing(fault, largest_instance(), Limits(max_paths=2), 0.0) is None


def test_a_counterexample_reads_as_one() -> None:
    found = counterexample_json(smallest(LOSSY["residual_is_the_target"]))
    assert json.loads(json.dumps(found)) == found
    assert counterexample_lines(found) == [
        "Smallest counterexample found (2 tokens; no single simplification fails): "
        "residual_is_the_target",
        "  everywhere: target (1/2, 1/2), draft (0, 1)",
        "  after the empty path, token 0:",
        "    got    1/4, the probability that the emission extends (0)",
        "    wanted 1/2, the probability that it goes beyond the empty path times the target's of "
        "token 0 there",
        "  total variation of the joint law 1/4, of the first token alone 1/4",
        "  one run that emits (0): categorical(0, 1) -> 1; bernoulli(1/2) -> False; "
        "categorical(1/2, 1/2) -> 0",
        "  cause: the residual is the whole target: after a rejection (chance 1/2) the token after "
        "the empty path is drawn from (1/2, 1/2), as if nothing had been tried",
    ]


def test_laws_that_differ_by_path_are_listed_and_cut() -> None:
    def shifted(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        first = choose.categorical(target(()))
        second = choose.categorical(target((first,)))
        return (first, second, choose.categorical(target((first, 0))))

    found = counterexample_json(smallest(shifted))
    assert any(line.startswith("  after (") for line in counterexample_lines(found))
    found["laws"] = [{"path": [n], "target": [str(n)], "draft": ["1"]} for n in range(12)]
    assert "  and after 2 more paths (see --json)" in counterexample_lines(found)


def test_an_unrecognised_cause_is_not_invented() -> None:
    def skewed(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        squared = [mass**2 for mass in target(())]
        return (choose.categorical([mass / sum(squared) for mass in squared]),)

    found = counterexample_json(smallest(skewed))
    assert found["causes"] == []
    assert counterexample_lines(found)[-1].startswith("  cause: not told")
