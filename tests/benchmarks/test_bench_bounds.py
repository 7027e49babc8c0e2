"""The bounds benchmark measures what it says; its figures are not asserted, its numbers are."""

from tests.benchmarks.bench_bounds import OUTSIDE, accuracy, least_time, table


def test_outside_figures_are_reproduced_to_their_digits() -> None:
    rows = table()
    assert all(row["met"] for row in rows)
    assert sum("printed" in row for row in rows) == sum(map(len, OUTSIDE.values())) == 47


def test_a_wrong_digit_would_be_seen() -> None:
    key = (10, 2)
    honest = OUTSIDE[key]
    OUTSIDE[key] = (".7918139584", *honest[1:])
    try:
        assert not all(row["met"] for row in table())
    finally:
        OUTSIDE[key] = honest


def test_a_small_run_of_the_accuracy_part_meets_its_requirements() -> None:
    assert all(row["met"] for row in accuracy(15, 8))


def test_the_least_time_is_of_the_call() -> None:
    calls: list[int] = []
    assert least_time(lambda: calls.append(0), 3) >= 0
    assert len(calls) == 3
