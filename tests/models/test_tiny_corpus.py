import hashlib
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rheocheck.audit
from rheocheck.errors import InputError
from rheocheck.models.corpus import (
    Document,
    as_tokens,
    draw_prompts,
    read_corpus,
    write_prompts,
)
from rheocheck.models.draw_prompts import NUM_PROMPTS
from rheocheck.models.draw_prompts import main as draw_prompts_script
from rheocheck.models.tiny_pair import END_OF_TEXT, ByteTokenizer

PROSE = "The quick brown fox jumps over the lazy dog and then walks home to have some supper"
PINNED = [
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG AND",
    "BROWN FOX JUMPS OVER THE LAZY DOG AND THEN",
]


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


def by_enumeration(texts: list[str]) -> list[str]:
    """Prompts of all qualifying pairs, each once for each pair, by the population's definition."""
    found = []
    for text in texts:
        ends = [end for end in range(1, len(text) + 1) if end == len(text) or text[end].isspace()]
        ends = [end for end in ends if not text[end - 1].isspace()]
        for begin in range(len(text)):
            if text[begin].isspace() or (begin and not text[begin - 1].isspace()):
                continue
            for length in range(24, 81):
                if begin + length <= len(text):
                    last = max((end for end in ends if end <= begin + length), default=0)
                    if last - begin >= 24:
                        found.append(text[begin:last])
    return found


# The last text has one prompt, which 57 pairs give.
UNEVEN = [PROSE + "\n\n  .. code::  x", "too short", "x" * 24 + " " + "y" * 100]


def largest_gap(found: Counter[str], population: Counter[str]) -> float:
    shares = {text: pairs / population.total() for text, pairs in population.items()}
    return max(abs(found[text] / found.total() - share) for text, share in shares.items())


def test_draws_are_uniform_on_the_population() -> None:
    """Level 1e-9 by Hoeffding and a union over the prompts; 20,000 draws."""
    population = Counter(by_enumeration(UNEVEN))
    found = Counter(draw_prompts([Document(t[:3], t.encode()) for t in UNEVEN], 20_000))
    assert set(found) == set(population)
    slack = math.sqrt(math.log(2 * len(population) / 1e-9) / (2 * found.total()))
    assert largest_gap(found, population) < slack < 0.03
    # Planted: uniform on the different texts instead of the pairs.
    assert largest_gap(Counter(dict.fromkeys(population, 1)), population) > 0.03


@given(texts=st.lists(st.text(alphabet="abcd \n\u00e9", max_size=120), max_size=3))
def test_a_prompt_is_a_piece_of_whole_words(texts: list[str]) -> None:
    documents = [Document(str(number), text.encode()) for number, text in enumerate(texts)]
    population = set(by_enumeration(texts))
    if not population:
        with pytest.raises(InputError, match="none of which begins a piece"):
            draw_prompts(documents, 1)
        return
    assert set(draw_prompts(documents, 20)) <= population


def test_fewer_prompts_are_the_first_of_more_and_draws_never_change() -> None:
    documents = [Document("a", PROSE.encode()), Document("b", PROSE.upper().encode())]
    prompts = draw_prompts(documents, 40)
    assert prompts[:6] == draw_prompts(documents, 6)
    assert prompts != draw_prompts(documents, 40, key="another")
    assert draw_prompts(documents, 0) == []
    assert prompts[:2] == PINNED


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert "\ufffd" in draw_prompts([Document("a", b"\xff" * 30)], 1)[0]


def test_the_script_draws_from_the_held_out_files_alone(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text(f"file{number} " * 12)
    out = tmp_path / "out" / "prompts.jsonl"
    draw_prompts_script(["--corpus", str(tmp_path), "--out", str(out), "--count", "50"])
    lines = [json.loads(line)["prompt"] for line in out.read_text().splitlines()]
    assert len(lines) == 50
    names = {word.removeprefix("file") + ".txt" for line in lines for word in line.split()}
    assert names and all(Document(name, b"").held_out for name in names)


def test_the_script_refuses_a_count_of_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        draw_prompts_script(["--corpus", str(tmp_path), "--out", "x", "--count", "0"])
    assert "--count 0: must be at least 1" in capsys.readouterr().err


def test_prompts_are_written_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "data" / "prompts.jsonl"
    write_prompts(['say "hi"', "b"], path)
    assert path.read_text() == '{"prompt": "say \\"hi\\""}\n{"prompt": "b"}\n'


def test_the_committed_prompts_are_those_of_their_page() -> None:
    folder = Path(rheocheck.audit.__file__).parent / "data"
    content = (folder / "prompts.jsonl").read_bytes()
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(content).hexdigest() in page
    prompts = [json.loads(line)["prompt"] for line in content.decode().splitlines()]
    assert len(prompts) == NUM_PROMPTS
    assert f"{len(set(prompts)):,} of the {len(prompts):,}" in page
    for prompt in prompts:
        assert 24 <= len(prompt) <= 80
        assert prompt == prompt.strip()
