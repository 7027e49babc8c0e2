"""Calibration: every statistic is in the list, small null runs behave, wrong ones are caught."""

import importlib
import inspect
import pkgutil
import sys
from typing import Any

import numpy as np
import pytest

import rheocheck.stats
from rheocheck.stats.pit import draft_target_order, randomised_pit, target_order
from rheocheck.stats.scores import above_target, draft_score, score_sums, score_terms, surprisal
from tests.benchmarks.calibration import judge, kinds, null_p_values
from tests.benchmarks.calibration_cases import (
    FAMILIES,
    NO_STATISTICS,
    NOT_STATISTICS,
    ManyContexts,
)
from tests.benchmarks.context_tables import tabulated
from tests.benchmarks.contexts import synthetic_contexts

# Level of each comparison here; there are some 50.
LEVEL = 1e-9


def public_functions() -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(rheocheck.stats.__path__):
        if module.name in NO_STATISTICS:
            continue
        loaded = importlib.import_module(f"rheocheck.stats.{module.name}")
        for name, value in vars(loaded).items():
            own = getattr(value, "__module__", None) == loaded.__name__
            if own and inspect.isfunction(value) and not name.startswith("_"):
                found.add(f"{module.name}.{name}")
    return found


def exercised() -> set[str]:
    return {
        name for family in FAMILIES for case in family.cases.values() for name in case.functions
    }


def test_every_public_function_is_calibrated_or_excused() -> None:
    """A new statistic without null runs fails here."""
    assert public_functions() - exercised() - set(NOT_STATISTICS) == set()
    assert exercised() <= public_functions()
    assert not exercised() & set(NOT_STATISTICS)


def test_a_statistic_that_is_not_listed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import rheocheck.stats.pit as module

    def fresh() -> float:
        return 0.5

    fresh.__module__ = module.__name__
    monkeypatch.setattr(module, "fresh", fresh, raising=False)
    assert "pit.fresh" in public_functions() - exercised() - set(NOT_STATISTICS)


def test_small_null_runs_reject_no_more_than_they_may() -> None:
    """100 runs; the whole size is the nightly run's."""
    expected = kinds()
    families = [family for family in FAMILIES if family is not ManyContexts]
    for name, values in null_p_values(100, 7, families).items():
        row = judge(name, expected[name], values, LEVEL)
        assert row.sound is not False, row


class FewContexts(ManyContexts):
    """Eight contexts of 2,000 tokens."""

    DRAWS_EACH = 130
    contexts = tabulated(*synthetic_contexts(8, 2000, 20))


def test_null_runs_on_contexts_reject_no_more_than_they_may() -> None:
    """100 runs; level 1e-9 each."""
    expected = kinds()
    for name, values in null_p_values(100, 8, [FewContexts]).items():
        row = judge(name, expected[name], values, LEVEL)
        assert row.sound is not False, row


@pytest.mark.nightly
def test_ten_thousand_null_runs() -> None:
    expected = kinds()
    for name, values in null_p_values(10_000, 2026).items():
        assert judge(name, expected[name], values).sound is not False, name


def test_p_values_that_reject_too_often_are_caught() -> None:
    """Half of a p-value, as from a one-sided test called two-sided: twice the rejections."""
    uniform = np.random.default_rng(1).random(10_000)
    assert judge("sound", "exact", uniform).sound
    assert judge("halved", "conservative", uniform / 2).sound is False
    assert judge("halved", "limit", uniform / 2).sound is False


def test_p_values_that_reject_too_seldom_are_caught_where_they_claim_to_be_exact() -> None:
    doubled = np.minimum(1.0, 2 * np.random.default_rng(1).random(10_000))
    assert judge("doubled", "exact", doubled).sound is False
    assert judge("doubled", "conservative", doubled).sound
    assert judge("doubled", "description", doubled).sound is None


def test_tables_equal_the_shipped_functions() -> None:
    found = tabulated(*synthetic_contexts(5, 400, 1))
    rng = np.random.default_rng(2)
    rows = np.repeat(np.arange(5), 30)
    token = found.draw(rows, rng)
    law, draft = found.target[rows], found.draft[rows]
    uniform = np.random.default_rng(3).random(len(rows))
    for before, order in (
        (found.before_ratio, draft_target_order(law, draft)),
        (found.before_rank, target_order(law)),
    ):
        values = found.pit(before, rows, token, np.random.default_rng(3))
        assert values == pytest.approx(randomised_pit(law, token, uniform, order), abs=1e-12)
    family = ManyContexts()
    family.__dict__.update(contexts=found, rows=rows)
    for name, score in (
        ("surprisal", surprisal(law)),
        ("draft score", draft_score(law, draft)),
        ("above target", above_target(law, draft)),
    ):
        fast, whole = family.terms(name, token), score_terms(law, score, token)
        assert fast.deviation == pytest.approx(whole.deviation, abs=1e-12)
        assert fast.variance == pytest.approx(whole.variance)
        assert fast.cumulant == pytest.approx(whole.cumulant)
        assert fast.total().z == pytest.approx(score_sums(law, score, token).z)
    # The bucket by hand: the rank under the target, ties by token id.
    starts = np.array([1, 2, 3, 6, 21, 101])
    for context in range(5):
        by_rank = sorted(range(400), key=lambda one: (-found.target[context, one], one))
        ranks = {one: place for place, one in enumerate(by_rank, start=1)}
        for one in range(400):
            assert found.bucket[context, one] == (starts <= ranks[one]).sum() - 1
        shares = np.bincount(found.bucket[context], found.target[context], minlength=6)
        assert found.bucket_laws()[context] == pytest.approx(shares)


def test_every_function_that_is_listed_runs() -> None:
    """A label that no null run enters would say more than is done."""

    class Fresh(ManyContexts):
        DRAWS_EACH = 20

    entered: set[str] = set()

    def watch(frame: Any, event: str, argument: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith("rheocheck.stats."):
            entered.add(f"{module.removeprefix('rheocheck.stats.')}.{frame.f_code.co_name}")

    families = [family for family in FAMILIES if family is not ManyContexts]
    sys.setprofile(watch)
    try:
        setattr(Fresh, "contexts", tabulated(*synthetic_contexts(6, 300, 20)))  # noqa: B010
        null_p_values(1, 7, [*families, Fresh])
    finally:
        sys.setprofile(None)
    assert exercised() - entered == set()


def test_draws_follow_the_laws() -> None:
    """One context of 50 tokens, 20,000 draws; Pearson at level 1e-9."""
    from rheocheck.stats.multinomial import pearson

    found = tabulated(*synthetic_contexts(1, 50, 1))
    token = found.draw(np.zeros(20_000, np.int64), np.random.default_rng(4))
    counts = np.bincount(token, minlength=50)
    assert pearson(counts, found.target[0], np.random.default_rng(5)).p_value > LEVEL
