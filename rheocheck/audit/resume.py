"""A journal of finished units, so that a run that was stopped can go on.

One line of JSON a unit, appended when the unit is done: whatever stops the run, at most the last
line is torn, and a torn line is left out. The first line says which run the units belong to; units
of another run, or of other source code, are refused. Values are what stages make of them: a stage
that goes on gives the same result, bit for bit, as one that was never stopped.
"""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import rheocheck.audit
import rheocheck.reference
from rheocheck.errors import InputError

FORMAT = "rheocheck-resume/1"
_SOURCES = (
    (rheocheck.reference, "*.py"),
    (rheocheck.audit, "exact*.py"),
    (rheocheck.audit, "universal*.py"),
    (rheocheck.audit, "digests.py"),
    (rheocheck.audit, "sampler*.py"),
)


class Journal:
    """Finished units of one run, in memory and, if it has a path, in a file.

    A file that exists is read and appended to; one that does not is made when the first unit is
    recorded. Use it as a context manager, or call `close`.
    """

    def __init__(self, run: dict[str, Any], path: Path | None = None) -> None:
        """Open a journal.

        Args:
          run: JSON values that determine every result: command, seed, bounds...
          path: File to go on with or to start; None keeps the units in memory.

        Raises:
          InputError: The file is no journal, belongs to another run, or cannot be read.
        """
        self._run = {**run, "code": code_digest()}
        self._units: dict[tuple[str, str], Any] = {}
        self._path = path
        self._file: TextIO | None = None
        if path is not None and path.exists():
            self._read(path)

    @property
    def path(self) -> Path | None:
        """The journal's file."""
        return self._path

    def __len__(self) -> int:
        """Number of finished units."""
        return len(self._units)

    def get(self, stage: str, unit: str) -> Any:
        """What was recorded for a unit of a stage; None if it is not finished."""
        return self._units.get((stage, unit))

    def record(self, stage: str, unit: str, value: Any) -> None:
        """Keep a finished unit, and write it out at once if there is a file.

        Args:
          stage: The stage.
          unit: Name of the unit within the stage.
          value: A JSON value other than null.
        """
        if self._path is not None and self._file is None:
            self._file = self._open(self._path)
        self._units[stage, unit] = value
        if self._file is not None:
            self._file.write(_line([stage, unit, value]))
            self._file.flush()

    def save(self, path: Path) -> None:
        """Write all units to another file, over what is there.

        Args:
          path: The file.
        """
        lines = [_line([*key, value]) for key, value in self._units.items()]
        header = _line({"format": FORMAT, "run": self._run})
        # Under another name first, so that a second stop here loses nothing.
        fresh = path.with_name(path.name + ".part")
        fresh.write_text(header + "".join(lines), encoding="utf-8")
        fresh.replace(path)

    def save_with(self, path: Path) -> None:
        """Write all units to a file, beside those of the same run that it has already.

        Args:
          path: The file.

        Raises:
          InputError: There is another file of that name; it is left alone.
          OSError: It cannot be written.
        """
        if path.exists():
            own = dict(self._units)
            self._read(path)
            self._units |= own
        self.save(path)

    @property
    def run_digest(self) -> str:
        """Digest of what determines the results, in hexadecimal."""
        return hashlib.sha256(_line(self._run).encode()).hexdigest()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        """Enter a block that closes the journal."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, whatever happened."""
        self.close()

    def _open(self, path: Path) -> TextIO:
        # All of it again, not only an append: a torn last line must not stay in the middle.
        try:
            self.save(path)
            return path.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {path}: {error}") from None
        header = _parsed(lines[0]) if lines else None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise InputError(
                f"{path} is no journal of a stopped run; required: a file that --resume or an "
                f"interrupted run wrote"
            )
        self._check_run(path, header.get("run"))
        for number, line in enumerate(lines[1:], start=2):
            entry = _parsed(line)
            if entry is None and number == len(lines):
                return  # torn by whatever stopped the run
            match entry:
                case [str(stage), str(unit), value] if value is not None:
                    self._units[stage, unit] = value
                case _:
                    raise InputError(
                        f"{path}, line {number} is no finished unit; the file is damaged"
                    )

    def _check_run(self, path: Path, found: object) -> None:
        wanted = self._run
        if not isinstance(found, dict):
            raise InputError(f"{path} does not say which run it belongs to")
        for name in sorted({*wanted, *found}):
            if wanted.get(name) != found.get(name):
                raise InputError(
                    f"{path} belongs to another run: its {name} is {found.get(name)!r}, this run's "
                    f"is {wanted.get(name)!r}; required: the same run, or a new file"
                )


def code_digest() -> str:
    """Digest of the source that the certificate's stages consist of."""
    digest = hashlib.sha256()
    for package, pattern in _SOURCES:
        for file in sorted(Path(package.__path__[0]).glob(pattern)):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
