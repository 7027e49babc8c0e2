"""Output paths are tried before the work and without a trace."""

import os
from pathlib import Path

import pytest

from rheocheck.cli import main
from rheocheck.cli.outputs import check_outputs
from rheocheck.errors import InputError


def test_a_new_file_is_allowed_and_not_left_behind(tmp_path: Path) -> None:
    check_outputs([tmp_path / "new.json", None])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text("old")
    before = path.stat()
    check_outputs([path])
    assert (path.read_text(), path.stat().st_mtime_ns) == ("old", before.st_mtime_ns)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/new.json", "does not exist"),
        (".", "it is a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_written_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        check_outputs([tmp_path / name])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions bind no one here")
def test_permissions_are_tried_and_not_assumed(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    (locked / "old.json").write_text("")
    (locked / "old.json").chmod(0o400)
    locked.chmod(0o500)
    for name in ("new.json", "old.json"):
        with pytest.raises(InputError, match="Permission denied"):
            check_outputs([locked / name])
    locked.chmod(0o700)


def test_what_the_system_refuses_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or read-only disk, also where the tests run as root."""

    def refused(*arguments: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("rheocheck.cli.outputs.os.open", refused)
    with pytest.raises(InputError, match=r"cannot write .*: Read-only file system"):
        check_outputs([tmp_path / "new.json"])


def test_a_link_to_nowhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "new.json")
    check_outputs([tmp_path / "link"])
    (tmp_path / "lost").symlink_to(tmp_path / "none" / "new.json")
    with pytest.raises(InputError, match="does not exist"):
        check_outputs([tmp_path / "lost"])


def test_devices_are_not_opened_and_may_be_named_twice() -> None:
    check_outputs([Path(os.devnull), Path(os.devnull)])


def test_one_file_is_not_used_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(InputError, match="was given twice"):
        check_outputs([path, tmp_path / "." / "a.json"])
    with pytest.raises(InputError, match="was given twice"):
        check_outputs([path], [path])


@pytest.mark.parametrize(
    "words",
    [
        ("certify", "--json", "x.json", "--resume", "x.json"),
        ("check-certificate", "x.json", "--json", "x.json"),
        ("audit", "--json", "x.json", "--html", "x.json"),
        ("bounds", "node", "x.json", "--json", "x.json"),
    ],
)
def test_every_command_refuses_one_file_for_two_uses(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main(words)
    assert done.value.code == 2
    assert "x.json was given twice" in capsys.readouterr().err
