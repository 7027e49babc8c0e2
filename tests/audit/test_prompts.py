"""Prompt files: what is read, and what is refused with its line."""

from pathlib import Path

import pytest

from rheocheck.audit.prompts import read_prompts
from rheocheck.errors import InputError


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_the_committed_file_has_at_least_500_prompts() -> None:
    prompts = read_prompts(None, 10_000)
    assert len(prompts) >= 500
    assert all(prompt.text.strip() for prompt in prompts)


def test_text_is_one_prompt_a_line_and_the_last_line_break_is_no_prompt(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\ntwo words\r\n")
    assert [(p.line, p.text) for p in read_prompts(path, 9)] == [(1, "one"), (2, "two words")]


def test_json_lines_are_strings_or_objects(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '"one"\n{"prompt": "two"}\n{"text": "three", "id": 3}\n')
    assert [p.text for p in read_prompts(path, 9)] == ["one", "two", "three"]


def test_only_the_first_prompts_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '"one"\nnot json\n')
    assert len(read_prompts(path, 1)) == 1


def test_a_file_with_fewer_prompts_than_required_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\ntwo\n")
    assert len(read_prompts(path, 2, all_of_them=True)) == 2
    with pytest.raises(InputError, match=r"a.txt has 2 prompts, 3 were asked for"):
        read_prompts(path, 3, all_of_them=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "is empty: at least one prompt is required"),
        ("a.txt", "\n", "is empty"),
        ("a.txt", "one\n\ntwo\n", "line 2: the prompt is empty"),
        ("a.txt", "one\n   \ntwo\n", "line 2: the prompt is empty"),
        ("a.jsonl", '"one"\n""\n"two"\n', "line 2: the prompt is empty"),
        ("a.jsonl", "oops\n", "line 1: 'oops' is no JSON"),
        ("a.jsonl", '{"question": "x"}\n', "line 1: .*must be a JSON string or an object"),
        ("a.jsonl", "3\n", "line 1: '3' must be"),
    ],
)
def test_bad_files_are_refused_with_their_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_prompts(write(tmp_path, name, content), 9)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt: No such file"):
        read_prompts(tmp_path / "nowhere.txt", 9)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"ok\n\xff\xfe\n")
    with pytest.raises(InputError, match="byte 3 is no UTF-8"):
        read_prompts(path, 9)
