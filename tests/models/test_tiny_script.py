"""The training script from end to end, far too short to learn anything."""

import argparse
import os
from pathlib import Path

import pytest
import torch

from rheocheck.models import tiny_recipe as recipe
from rheocheck.models import train_tiny
from rheocheck.models.corpus import Document
from rheocheck.models.train_tiny import main, reload_head, reload_target

os.environ["HF_HUB_OFFLINE"] = "1"
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda".split()


def make_corpus(folder: Path) -> Path:
    """Two files on each side of the split, with prose enough for all prompts."""
    folder.mkdir()
    names = [f"{index}.txt" for index in range(200)]
    held_out = [name for name in names if Document(name, b"").held_out][:2]
    training = [name for name in names if not Document(name, b"").held_out][:2]
    for name in held_out + training:
        lines = []
        for index in range(1000):
            chosen = [WORDS[index // 11**place % 11] for place in range(3)]
            lines.append(" ".join([*chosen, *WORDS, name.removesuffix(".txt") + " end of it"]))
        (folder / name).write_text("\n".join(lines))
    return folder


def test_the_script_makes_a_pair_that_loads_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    corpus = make_corpus(tmp_path / "corpus")
    arguments = ["--corpus", str(corpus), "--out", str(out), "--windows", "16"]
    main([*arguments, "--target-steps", "1", "--head-steps", "1"])
    head = reload_head(out, reload_target(out))
    assert head.config.draft_vocab_size == recipe.DRAFT_VOCAB
    assert head.config.aux_layers == (2, 4, 5)
    assert head.fc.weight.dtype == torch.float32
    assert len((out / "prompts.jsonl").read_text().splitlines()) == 4800
    card = (out / "MODEL_CARD.md").read_text()
    assert "| target | 1 | 8 x 256 |" in card
    weights = (out / "draft" / "model.safetensors").read_bytes()

    capsys.readouterr()
    main(arguments)
    assert "head: resumed at step 1" in capsys.readouterr().out
    assert (out / "draft" / "model.safetensors").read_bytes() == weights


def test_minutes_become_steps_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At half a second a step, 10 minutes are 744 + 456 steps; a resume keeps the first plan."""
    monkeypatch.setattr(train_tiny, "seconds_each", lambda loss: 0.5)
    training, kept = torch.arange(300).numpy() % 257, torch.arange(160)
    for minutes in (10.0, 20.0):
        options = argparse.Namespace(
            out=tmp_path, seed=3, minutes=minutes, target_steps=1, head_steps=1
        )
        target, head = train_tiny.plan_stages(options, training, kept)
        assert (target.steps, head.steps) == (744, 456)
        assert target.seed == head.seed == 3


def test_windows_come_in_sixteens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--corpus", str(tmp_path), "--out", str(tmp_path), "--windows", "20"])
    assert "--windows 20: must be a multiple of 16" in capsys.readouterr().err
