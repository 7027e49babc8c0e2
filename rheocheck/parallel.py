"""Work spread over processes, with results in the order of the work."""

import signal
import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from rheocheck.errors import InputError

Result = TypeVar("Result")


def num_processes(jobs: int) -> int:
    """How many processes serve a request for `jobs`: never more than the machine has cores.

    Args:
      jobs: As it was asked for.

    Returns:
      `jobs`, or the number of cores this process may use if that is less.

    Raises:
      InputError: `jobs` is below 1.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; required: at least 1")
    if jobs == 1:
        return 1
    from joblib import cpu_count

    return min(jobs, int(cpu_count()))


def in_order(
    function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Generator[Result]:
    """Results of `function(*task)` in the order of the tasks, whatever the number of processes.

    Args:
      function: A pure function of its arguments, picklable by cloudpickle.
      tasks: Its arguments.
      jobs: Processes, see `num_processes`; 1 runs here, each task when its result is asked for.

    Yields:
      One result a task. Closing the iterator leaves the rest undone.

    Raises:
      InputError: `jobs` is below 1.
    """
    workers = num_processes(jobs)
    if workers == 1:
        yield from (function(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    parallel: Any = Parallel(n_jobs=workers, return_as="generator")
    results = parallel(delayed(_call)(function, *task) for task in tasks)
    try:
        # No `yield from`: it would close `results` itself, before the filter below.
        for result in results:  # noqa: UP028
            yield result
    finally:
        with warnings.catch_warnings():
            # Joblib warns of tasks that are left undone, which is what closing asks for.
            warnings.filterwarnings("ignore", ".*tasks have been successfully executed")
            warnings.filterwarnings("ignore", ".*tasks which were still being processed")
            results.close()


def _call(function: Callable[..., Result], *task: Any) -> Result:
    """Run one task in a worker, which leaves Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return function(*task)
