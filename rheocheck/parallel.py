"""Work spread over processes, with results in the order of the work."""

import signal
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
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
      One result a task. Closing the iterator leaves the rest undone, once the few tasks that
      are under way have ended; an interrupt does not wait for them.

    Raises:
      InputError: `jobs` is below 1.
      Exception: What a task raised.
    """
    workers = num_processes(jobs)
    if workers == 1:
        yield from (function(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    left = False

    def wanted() -> Iterator[Any]:
        for task in tasks:
            if left:
                return
            yield delayed(_call)(function, *task)

    parallel: Any = Parallel(n_jobs=workers, return_as="generator")
    results = parallel(wanted())
    try:
        # No `yield from`: it would close `results` itself, before the drain below.
        for result in results:
            if isinstance(result, _Failure):
                raise result.error
            yield result
    except KeyboardInterrupt:
        with warnings.catch_warnings():
            # Joblib warns of tasks that are left undone, which is what an interrupt asks for.
            warnings.filterwarnings("ignore", ".*tasks have been successfully executed")
            warnings.filterwarnings("ignore", ".*tasks which were still being processed")
            results.close()
        raise
    finally:
        # Joblib's own way to leave early kills the workers, and its thread that serves them then
        # fails now and then on a task that was queued a moment ago. So what is under way ends.
        left = True
        for _ in results:
            pass


@dataclass(frozen=True, slots=True)
class _Failure:
    """What a task raised, as a result, so that the workers go on."""

    error: Exception


def _call(function: Callable[..., Result], *task: Any) -> Result | _Failure:
    """Run one task in a worker, which leaves Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return function(*task)
    except Exception as error:
        error.add_note("in a worker:\n" + "".join(traceback.format_tb(error.__traceback__)))
        return _Failure(error)
