"""Static trees of random drafts: exact laws, against the target and against the adapters' rules."""

import functools
import itertools
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from rheocheck.adapters.kseq import kseq_residual
from rheocheck.adapters.sequoia import WithoutReplacement
from rheocheck.adapters.specinfer import MultiRound
from rheocheck.config import STATIC_RULES, StaticConfig, StaticRule
from rheocheck.errors import ConfigError
from rheocheck.reference import OracleDraws, exact_law, lossless_defect
from rheocheck.reference.static_round import kseq_scale, sample_static_round

SHAPES = ((), (1,), (2,), (3,), (1, 2), (2, 1), (1, 1))
Model = Callable[[tuple[int, ...]], Any]


def random_law(rng: random.Random, vocab: int) -> tuple[Fraction, ...]:
    weights = [rng.choice([0, 1, 1, 2, 3, 5]) for _ in range(vocab)]
    if not any(weights):
        weights[rng.randrange(vocab)] = 1
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def random_model(rng: random.Random, vocab: int) -> Model:
    table: dict[tuple[int, ...], tuple[Fraction, ...]] = {}
    return lambda path: table.setdefault(path, random_law(rng, vocab))


def pair(ranking: Model, draft: Model) -> Model:
    return lambda path: (ranking(path), draft(path))


def law_of(target: Model, draft: Model, config: StaticConfig) -> dict[Any, Fraction]:
    return exact_law(
        lambda choose: sample_static_round(target, draft, config, OracleDraws(choose)).emission
    )


@pytest.mark.parametrize("rule", STATIC_RULES)
def test_every_rule_is_lossless_on_random_laws(rule: StaticRule) -> None:
    rng = random.Random(3)
    for _ in range(60):
        vocab = rng.choice([1, 2, 3])
        target, draft, ranking = (random_model(rng, vocab) for _ in range(3))
        model: Model = draft
        if rng.random() < 0.4:
            model = pair(ranking, draft)
        config = StaticConfig(
            branching=rng.choice(SHAPES), rule=rule, support_size=rng.choice([1, 2, 128])
        )
        assert lossless_defect(law_of(target, model, config), target) == 0


@pytest.mark.parametrize(("rule", "other"), [("specinfer", MultiRound), ("sequoia", None)])
def test_laws_equal_those_of_the_adapters(rule: StaticRule, other: Any) -> None:
    rng = random.Random(4)
    compared = 0
    for _ in range(40):
        vocab, width, depth = rng.choice([2, 3]), rng.choice([1, 2]), rng.choice([1, 2])
        target, draft = random_model(rng, vocab), random_model(rng, vocab)
        paths = itertools.chain(*(itertools.product(range(vocab), repeat=n) for n in range(depth)))
        # Where a support is used up the adapter drafts other tokens and the scheme none.
        if other is None and any(sum(map(bool, draft(path))) < width for path in paths):
            continue
        sampler = (other or WithoutReplacement)(width, depth)
        config = StaticConfig(branching=(width,) * depth, rule=rule)
        expected = exact_law(functools.partial(sampler, target, draft))
        assert law_of(target, draft, config) == expected
        compared += 1
    assert compared >= 10


def test_the_single_chain_is_the_same_under_every_rule() -> None:
    rng = random.Random(5)
    target, draft = random_model(rng, 3), random_model(rng, 3)
    laws = [
        law_of(target, draft, StaticConfig(branching=(1, 1), rule=rule)) for rule in STATIC_RULES
    ]
    assert laws[0] == laws[1] == laws[2]


def test_the_scale_is_the_smallest_lossless_one_on_its_grid() -> None:
    rng = random.Random(6)
    smaller_fails = 0
    for _ in range(50):
        target, draft = random_law(rng, 4), random_law(rng, 4)
        count = rng.choice([1, 2, 3, 5])
        scale = kseq_scale(target, draft, count)
        assert 1 <= scale <= count
        if scale > 1:
            kseq_residual(target, draft, count, scale)
            kept = [min(q, p / (scale - Fraction(1, 64))) for p, q in zip(target, draft)]  # noqa: B905
            one = sum(kept)
            assert 1 - (1 - one) ** count > (scale - Fraction(1, 64)) * one
            smaller_fails += 1
    assert smaller_fails > 10


def test_too_small_a_scale_is_lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate above can fail: with scale 1 the residual would be negative."""
    monkeypatch.setattr("rheocheck.reference.static_round.kseq_scale", lambda *_: Fraction(1))
    target = (Fraction(3, 4), Fraction(1, 4))
    with pytest.raises(Exception, match="refused"):
        law_of(
            lambda _: target,
            lambda _: (Fraction(1, 2),) * 2,
            StaticConfig(branching=(3,), rule="kseq"),
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"branching": (2, 0)}, "branching.1 = 0"),
        ({"branching": (64, 64)}, "4161 nodes"),
        ({"rule": "rheo"}, "rule = 'rheo'"),
        ({"support_size": 0}, "support_size = 0"),
    ],
)
def test_bad_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StaticConfig(**values)
