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
      inputs: Files that the command reads and must not write over, and folders of such files.

    Raises:
      InputError: A folder that does not exist or may not be written to, a path that is a folder, a
        file that may not be written, one path given twice, or a path within a folder that is
        read.
    """
    read = [Path(os.path.realpath(path)) for path in inputs if path is not None]
    used = {str(path) for path in read}
    for path in paths:
        if path is None:
            continue
        if str(path) == "-":
            raise InputError("- is no file to write; for standard output give /dev/stdout")
        place = os.path.realpath(path)
        for source in read:
            if source.is_dir() and source in Path(place).parents:
                raise InputError(f"{path} lies in {source}, which is read; write elsewhere")
            if source.is_file() and os.path.exists(place) and os.path.samefile(source, place):
                raise InputError(f"{path} is {source}, which is read; write elsewhere")
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
