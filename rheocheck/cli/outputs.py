"""Where a command writes: refused before the work if it cannot be written."""

import os
from collections.abc import Iterable
from pathlib import Path

from rheocheck.errors import InputError


def check_outputs(paths: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Refuse output paths that cannot be written, and two uses of one file.

    Args:
      paths: Where files will be written; None is skipped. What is there is not changed, and what
        is not there is not left there.
      inputs: Files that the command reads and must not write over.

    Raises:
      InputError: A folder that does not exist or may not be written to, a path that is a folder, a
        file that may not be written, or one path given twice.
    """
    used = {os.path.realpath(path) for path in inputs if path is not None}
    for path in paths:
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in used and place != os.devnull:
            raise InputError(f"{path} was given twice; required: a file of its own to write")
        used.add(place)
        _check_writable(path, Path(place))


def _check_writable(path: Path, place: Path) -> None:
    """Open the file for writing as the command will, without a trace.

    Args:
      path: As it was given, for messages.
      place: The same with links followed.
    """
    try:
        if not place.parent.is_dir():
            raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
        if place.is_dir():
            raise InputError(f"cannot write {path}: it is a folder")
        if not place.exists():
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            place.unlink()
        elif place.is_file():
            place.open("ab").close()
        elif not os.access(place, os.W_OK):  # a device or a pipe: opening it may wait
            raise InputError(f"cannot write {path}: permission denied")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
