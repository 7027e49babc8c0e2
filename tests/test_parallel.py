"""Work over processes keeps its order, whatever is asked for."""

import os

import pytest

from rheocheck.errors import InputError
from rheocheck.parallel import in_order, num_processes


@pytest.mark.parametrize("jobs", [0, -1])
def test_fewer_than_one_process_is_refused(jobs: int) -> None:
    with pytest.raises(InputError, match=f"jobs is {jobs}; required: at least 1"):
        num_processes(jobs)
    with pytest.raises(InputError, match="required: at least 1"):
        next(in_order(abs, [(1,)], jobs))


def test_never_more_processes_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    assert [num_processes(jobs) for jobs in (1, 2, 3, 4, 1000)] == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_the_rest_may_be_left(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    tasks = [(-number,) for number in range(50)]
    assert list(in_order(abs, tasks, jobs)) == list(range(50))
    some = in_order(abs, tasks, jobs)
    assert [next(some) for _ in range(3)] == [0, 1, 2]
    some.close()
    assert list(some) == []


def _pid(_task: int) -> int:
    return os.getpid()


def test_leaving_early_does_not_kill_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joblib's thread that serves killed workers fails now and then."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    before = set(in_order(_pid, ((task,) for task in range(40)), 2))
    some = in_order(_pid, ((task,) for task in range(10**6)), 2)
    next(some)
    some.close()
    assert set(in_order(_pid, ((task,) for task in range(40)), 2)) & before


def _fails_at(task: int) -> int:
    if task == 3:
        raise InputError("the third")
    return task


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_task_raises_comes_in_its_place(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    results = in_order(_fails_at, ((task,) for task in range(40)), jobs)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError) as caught:
        next(results)
    assert str(caught.value) == "the third"
    assert list(results) == []
