"""What the entry point makes of exceptions: no failure may look like the verdict LOSSY."""

from typing import Any

import pytest

from rheocheck import cli


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (PermissionError(13, "Permission denied", "a.json"), 2, "could not be read or written"),
        (ZeroDivisionError("division by zero"), 3, "nothing was concluded"),
    ],
    ids=["file", "defect"],
)
def test_an_exception_never_exits_with_the_code_of_lossy(
    error: Exception,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(args: Any = None) -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["certify"])
    assert exit_info.value.code == code
    assert text in " ".join(capsys.readouterr().err.split())
