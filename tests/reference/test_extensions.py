"""Several probes, entropy-adaptive top children, merged probes: exact, by two enumerators."""

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from rheocheck.bounds import node_acceptance, optimal_acceptance
from rheocheck.config import RULES, SpeculationConfig
from rheocheck.errors import BudgetExceededError, ConfigError
from rheocheck.reference import lossless_defect, round_law, verification
from rheocheck.reference.expansion import Expansion, Role, children, expand, next_probe_law
from rheocheck.reference.laws import Law

Model = Callable[[tuple[int, ...]], Any]
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


def random_law(rng: random.Random, vocab: int) -> Law:
    weights = [rng.choice([0, 1, 1, 2, 3, 5]) for _ in range(vocab)]
    if not any(weights):
        weights[rng.randrange(vocab)] = 1
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def random_model(rng: random.Random, vocab: int) -> Model:
    table: dict[tuple[int, ...], Law] = {}
    return lambda path: table.setdefault(path, random_law(rng, vocab))


def pair(ranking: Model, draft: Model) -> Model:
    return lambda path: (ranking(path), draft(path))


def random_instance(rng: random.Random, **extension: Any) -> tuple[Model, Model, SpeculationConfig]:
    vocab = rng.choice([3, 4, 5])
    top_k = rng.choice([2, 3, 4])
    config = SpeculationConfig(
        top_k=top_k,
        num_top=rng.choice(range(top_k)),
        budget=rng.choice([1, 2, 3, 4, 5, 7]),
        depth=rng.choice([1, 2]),
        support_size=rng.choice([2, 3, 128, 128]),
        rule=rng.choice(RULES),
        **extension,
    )
    target, draft = random_model(rng, vocab), random_model(rng, vocab)
    if rng.random() < 0.4:
        draft = pair(random_model(rng, vocab), draft)
    return target, draft, config


@pytest.mark.parametrize(
    "extension",
    [
        {"num_probes": 2},
        {"num_probes": 3},
        {"top_thresholds": (0.3, 0.45, 0.9)},
        {"merged": True},
        {"num_probes": 2, "top_thresholds": (0.4,)},
        {"merged": True, "top_thresholds": (0.4, 0.6)},
    ],
)
def test_extensions_are_lossless_by_both_enumerators(extension: dict[str, Any]) -> None:
    rng = random.Random(str(extension))
    agreed = 0
    for _ in range(40):
        target, draft, config = random_instance(rng, **extension)
        law = round_law(target, draft, config)
        assert lossless_defect(law, target) == 0, config
        try:
            eager = round_law(target, draft, config, method="eager", max_paths=3000)
        except BudgetExceededError:
            continue
        assert dict(law.emissions) == dict(eager.emissions), config
        assert law.expected_accepted == eager.expected_accepted
        agreed += 1
    assert agreed >= 20


def test_a_second_probe_verified_with_the_first_ones_law_is_lossy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = verification.vocab_probe_law

    def forgetful(expansion: Expansion | None, vocab: int, taken: Any = ()) -> Law:
        return original(expansion, vocab)

    monkeypatch.setattr(verification, "vocab_probe_law", forgetful)
    config = SpeculationConfig(top_k=2, num_top=0, budget=2, depth=1, num_probes=2)
    target, draft = (tuple(Fraction(w, 8) for w in ws) for ws in ((3, 3, 1, 1), (1, 2, 2, 3)))
    law = round_law(lambda _: target, lambda _: draft, config, method="eager")
    assert lossless_defect(law, lambda _: target) > 0


def test_two_probes_by_hand() -> None:
    """Uniform draft on three tokens, target on the first only: it is found with both draws."""
    config = SpeculationConfig(top_k=2, num_top=0, budget=2, depth=1, num_probes=2)
    sure = (Fraction(1), Fraction(0), Fraction(0))
    law = round_law(lambda _: sure, lambda _: (Fraction(1, 3),) * 3, config)
    assert law.expected_accepted == Fraction(2, 3)


def test_children_of_two_probes() -> None:
    law = tuple(Fraction(weight, 10) for weight in (4, 3, 2, 1))
    found = expand(law, law, SpeculationConfig(top_k=4, num_top=1, num_probes=2))
    assert next_probe_law(found.probe_law, [0]) == (Fraction(0), Fraction(2, 3), Fraction(1, 3))
    siblings = children(found, 2, 0)
    assert [child.token for child in siblings] == [0, 3, 1, 2]
    assert [child.role for child in siblings] == [Role.TOP, Role.PROBE, Role.PROBE, Role.FILLER]
    assert [child.slot for child in siblings] == [0, 1, 2, 3]


def test_top_children_grow_with_the_collision_probability() -> None:
    config = SpeculationConfig(top_k=4, num_top=0, top_thresholds=(0.375, 0.75))
    flat = (QUARTER,) * 4
    middling = (HALF, QUARTER, QUARTER, Fraction(0))  # 3/8 exactly
    sure = (Fraction(1), Fraction(0), Fraction(0), Fraction(0))
    counts = [expand(law, law, config).num_top for law in (flat, middling, sure)]
    assert counts == [0, 1, 1]  # the last one has a support of one token only


def test_a_merged_probe_reaches_the_optimum_where_all_children_survive() -> None:
    rng = random.Random(7)
    better = 0
    for _ in range(60):
        target, draft = random_law(rng, 6), random_law(rng, 6)
        config = SpeculationConfig(top_k=4, num_top=1, budget=4, depth=1, merged=True)
        law = round_law(lambda _, p=target: p, lambda _, q=draft: q, config)  # type: ignore[misc]
        best = optimal_acceptance(target, draft, top_k=4, num_top=1).value
        assert law.expected_accepted == best
        better += best > node_acceptance(target, draft, top_k=4, num_top=1, rule="rheo")
    assert better > 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_probes": 0}, "num_probes = 0"),
        ({"top_thresholds": (0.5, 0.25)}, "ascending"),
        ({"top_thresholds": (0.0,)}, "top_thresholds.0 = 0.0"),
        ({"top_thresholds": (float("nan"),)}, "top_thresholds.0 = nan"),
        ({"merged": True, "num_probes": 2}, "num_probes = 2 with merged"),
    ],
)
def test_bad_extensions_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SpeculationConfig(**values)


def test_settings_survive_json() -> None:
    config = SpeculationConfig(top_thresholds=(0.25, 0.5), num_probes=2)
    assert SpeculationConfig(**config.model_dump(mode="json")) == config
