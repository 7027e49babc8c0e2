"""Stopping a command and going on: what is done is kept, and the way on is printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from rheocheck.audit.resume import Journal
from rheocheck.certificate import EXIT_CODES, Verdict
from rheocheck.errors import InputError
from rheocheck.text import shell_word

DEFAULT_FILE = "rheocheck-{command}-{run}.resume"


@contextmanager
def resuming(run: dict[str, Any], path: Path | None, words: list[str]) -> Iterator[Journal]:
    """A journal for the block; an interrupt leaves it on disk and says how to go on.

    Args:
      run: What determines the results; `run["command"]` is the command's name.
      path: File given by --resume; None keeps what is done in memory and writes it to a file in the
        current folder only if the block is interrupted. The file's name has a digest of `run` in
        it, so that another run's file is never written over; units that an earlier interrupt of
        the same run left there are kept.
      words: The command line without --resume, to be shown with it.

    Yields:
      The journal.

    Raises:
      typer.Exit: The block was interrupted: code 3, since nothing is concluded.
      InputError: The file is no journal of this run, or its folder does not exist.
    """
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    with Journal(run, path) as journal:
        try:
            yield journal
        except KeyboardInterrupt:
            sys.stderr.write(_farewell(journal, run, path, words))
            raise typer.Exit(EXIT_CODES[Verdict.INCONCLUSIVE]) from None


def _farewell(journal: Journal, run: dict[str, Any], path: Path | None, words: list[str]) -> str:
    if len(journal) == 0:
        return "rheocheck: interrupted before anything was done\n"
    if path is None:
        path = Path(DEFAULT_FILE.format(command=run["command"], run=journal.run_digest[:8]))
        try:
            journal.save_with(path)
        except (OSError, InputError) as error:
            return f"rheocheck: interrupted; what is done cannot be kept in {path}: {error}\n"
    return (
        f"rheocheck: interrupted; {len(journal)} parts are done and kept in {path}. Go on with: "
        f"{' '.join(map(shell_word, [*words, '--resume', str(path)]))}\n"
    )
