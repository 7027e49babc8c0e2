import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck.errors import InputError
from rheocheck.models.corpus import (
    Document,
    as_tokens,
    cut_prompt,
    extract_prompts,
    read_corpus,
    write_prompts,
)
from rheocheck.models.tiny_pair import END_OF_TEXT, ByteTokenizer

PROSE = "The quick brown fox jumps over the lazy dog and then walks home to have some supper"


@given(text=st.text())
def test_decoding_undoes_encoding(text: str) -> None:
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    assert all(0 <= token < 256 for token in tokens)
    assert tokenizer.decode(tokens) == text
    assert tokenizer.decode([*tokens, tokenizer.eos_id]) == text


def test_half_a_character_decodes_to_the_replacement_sign() -> None:
    assert ByteTokenizer().decode([104, 0xC3]) == "h�"


def test_documents_are_closed_by_the_end_of_text() -> None:
    documents = [Document("a", b"hi"), Document("b", b""), Document("c", b"\xff")]
    expected = [104, 105, END_OF_TEXT, END_OF_TEXT, 255, END_OF_TEXT]
    assert as_tokens(documents).tolist() == expected


def fill(folder: Path, files: int) -> Path:
    for index in range(files):
        path = folder / f"part{index % 3}" / f"{index}.rst.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"text {index}")
    return folder


def test_whole_files_are_split_by_name_alone(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = fill(tmp_path / "one", 300), fill(tmp_path / "two", 300)
    (second / "part0" / "0.rst.txt").write_text("other text")
    (second / "image.png").write_bytes(b"no text")
    split, again = read_corpus(first), read_corpus(second)
    assert [d.name for d in split.held_out] == [d.name for d in again.held_out]
    assert len(split.training) + len(split.held_out) == 300
    # 300 files at 26/256 each: 30 on average, standard deviation 5.
    assert 10 <= len(split.held_out) <= 55


def test_a_corpus_with_an_empty_side_is_refused(tmp_path: Path) -> None:
    message = "0 text files split into 0 for training and 0 held out; both sides need"
    with pytest.raises(InputError, match=message):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   " + PROSE,  # indented
        ".. function:: " + PROSE,
        "====================================",
        PROSE + " naïve",
        PROSE.replace(" ", "\t"),
        "The a = f(b, c)[d]; e = {g: h}; i += (j, k) != [l]",  # code
        "Too short a line",
        "Averyveryverylongwordthatfillsthewholelinewithoutanyspaceanywherewithinitatallsotospeak",
    ],
)
def test_lines_that_are_no_prose_give_no_prompt(line: str) -> None:
    assert cut_prompt(line) is None


@given(line=st.text(alphabet="abcdefghij ", max_size=120))
def test_a_prompt_is_a_beginning_of_its_line_cut_at_a_word(line: str) -> None:
    prompt = cut_prompt(line)
    if prompt is not None:
        assert 24 <= len(prompt) <= 80
        assert line.startswith(prompt + " ")
        assert prompt == prompt.strip()


def test_prompts_are_distinct_and_never_change() -> None:
    text = "\n".join(f"{PROSE[:40]} {word} and then again some more" for word in PROSE.split())
    documents = [Document("a", text.encode()), Document("b", text.encode())]
    prompts = extract_prompts(documents, 6)
    assert len(set(prompts)) == 6
    assert prompts == extract_prompts(documents, 6)


def test_too_few_lines_are_refused() -> None:
    with pytest.raises(InputError, match="5 prompts asked for, but only 1 lines qualify"):
        extract_prompts([Document("a", PROSE.encode())], 5)


def test_prompts_are_written_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "data" / "prompts.jsonl"
    write_prompts(['say "hi"', "b"], path)
    assert path.read_text() == '{"prompt": "say \\"hi\\""}\n{"prompt": "b"}\n'


def test_the_committed_prompts_are_many_short_and_distinct() -> None:
    import rheocheck.audit

    path = Path(rheocheck.audit.__file__).parent / "data" / "prompts.jsonl"
    prompts = [json.loads(line)["prompt"] for line in path.read_text().splitlines()]
    assert len(prompts) >= 600
    assert len(set(prompts)) == len(prompts)
    for prompt in prompts:
        assert 24 <= len(prompt.encode()) <= 80
        assert prompt.isascii()
        assert prompt.isprintable()
        assert prompt == prompt.strip()
