"""Standard output that may be closed by its reader, as in `rheocheck certify | head -1`."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class _Tolerant:
    """A stream that drops what its reader no longer wants.

    The reader's leaving is no result: the run goes on, writes its files and exits with the code of
    its verdict. Everything else is the stream's own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop if nobody reads."""
        try:
            return self._stream.write(text)
        except OSError as error:
            _silence(self._stream, error)
            return len(text)

    def flush(self) -> None:
        """Flush, or drop if nobody reads."""
        try:
            self._stream.flush()
        except OSError as error:
            _silence(self._stream, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _silence(stream: TextIO, error: OSError) -> None:
    """Send the rest, and what is still buffered, nowhere.

    Raises:
      OSError: `error`, if it is not that the reader left.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, stream.fileno())
    finally:
        os.close(sink)
    if not isinstance(error, BrokenPipeError):
        raise error


@contextmanager
def tolerant_streams() -> Iterator[None]:
    """Let the block outlive the readers of standard output and standard error."""
    before = sys.stdout, sys.stderr
    for stream in before:
        # What the terminal's encoding lacks is shown by its code; it changes no verdict.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Either is None where the process was started without it.
    if sys.stdout is not None:
        sys.stdout = cast(TextIO, _Tolerant(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, _Tolerant(sys.stderr))
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before
