"""Train the embedded tiny pair: a byte-level Llama target and its EAGLE-3 head.

    apt-get download python3.11-doc && dpkg-deb -x python3.11-doc_*.deb docs
    python -m rheocheck.models.train_tiny \
        --corpus docs/usr/share/doc/python3.11/html/_sources --out out/tiny

Runs on one core; an interrupted run resumes from OUT/work. Writes target/, draft/, MODEL_CARD.md
and prompts.jsonl below OUT. All figures of the card are measured on the weights as stored, after
their rounding to half precision.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from rheocheck.gpu.eagle3 import Eagle3Head
from rheocheck.gpu.eagle3_loading import load_head
from rheocheck.models import tiny_recipe as recipe
from rheocheck.models.corpus import Corpus, as_tokens, draw_prompts, read_corpus, write_prompts
from rheocheck.models.draw_prompts import NUM_PROMPTS
from rheocheck.models.model_card import Training, render_card
from rheocheck.models.stages import Stage, train

EVALUATION_WINDOWS = 1024
# Of the minutes asked for; the rest goes to the head.
TARGET_SHARE = 0.62


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run everything."""
    parser = argparse.ArgumentParser(
        prog="python -m rheocheck.models.train_tiny",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    target_steps, head_steps = recipe.TARGET_STAGE.steps, recipe.HEAD_STAGE.steps
    parser.add_argument("--corpus", type=Path, required=True, help="folder of text files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--target-steps", type=int, default=target_steps, help="default %(default)s"
    )
    parser.add_argument("--head-steps", type=int, default=head_steps, help="default %(default)s")
    parser.add_argument("--minutes", type=float, help="set both step counts by the clock instead")
    parser.add_argument("--windows", type=int, default=EVALUATION_WINDOWS, help="evaluated")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches")
    parser.add_argument("--threads", type=int, default=1, help="of torch, default %(default)s")
    options = parser.parse_args(arguments)
    if options.windows < 16 or options.windows % 16:
        parser.error(f"--windows {options.windows}: must be a multiple of 16")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(options.threads)
    train_pair(options, lambda line: print(line, flush=True))


def train_pair(options: argparse.Namespace, log: Callable[[str], None]) -> None:
    """Everything from the corpus to the card.

    Args:
      options: The command line's.
      log: Receives a line now and then.
    """
    out, seed = options.out, options.seed
    corpus = read_corpus(options.corpus)
    training = as_tokens(corpus.training)
    write_prompts(draw_prompts(corpus.held_out, NUM_PROMPTS), out / "prompts.jsonl")
    token_ids = recipe.frequent_tokens(training, recipe.DRAFT_VOCAB)
    target_stage, head_stage = plan_stages(options, training, token_ids)
    work = out / "work"

    target = recipe.build_target(seed)
    target_seconds = train(
        target_stage, target, training, lambda w: recipe.next_token_loss(target, w), work, log
    )
    export(out / "target", recipe.TARGET_CONFIG, dict(target.state_dict()))
    # The head learns from the target as stored, which is the one it will draft for.
    stored = reload_target(out)
    head = recipe.build_head(embedding_of(stored), token_ids, seed + 1)
    head_seconds = train(
        head_stage, head, training, lambda w: recipe.head_loss(stored, head, w), work, log
    )
    own = {name: t for name, t in head.state_dict().items() if name != "embed_tokens.weight"}
    export(out / "draft", recipe.DRAFT_CONFIG, own)

    facts = Training(
        corpus=corpus_facts(corpus, training, token_ids),
        target_stage=target_stage,
        head_stage=head_stage,
        target_seconds=target_seconds,
        head_seconds=head_seconds,
    )
    write_card(out, corpus, facts, options.windows, log)


def plan_stages(
    options: argparse.Namespace, training: NDArray[np.int64], token_ids: Tensor
) -> tuple[Stage, Stage]:
    """The two stages. Minutes become steps by measured step times; a resume keeps the plan."""
    path = options.out / "work" / "plan.json"
    if path.exists():
        steps = json.loads(path.read_text(encoding="utf-8"))
    else:
        steps = {"target": options.target_steps, "head": options.head_steps}
        if options.minutes is not None:
            seconds = 60 * options.minutes
            target = recipe.build_target(options.seed)
            head = recipe.build_head(embedding_of(target), token_ids, options.seed)
            window = recipe.TARGET_STAGE.windows(training, 0)
            each = seconds_each(lambda: recipe.next_token_loss(target, window))
            steps["target"] = max(1, int(seconds * TARGET_SHARE / each))
            each = seconds_each(lambda: recipe.head_loss(target, head, window))
            steps["head"] = max(1, int(seconds * (1 - TARGET_SHARE) / each))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(steps), encoding="utf-8")
    return (
        replace(recipe.TARGET_STAGE, steps=steps["target"], seed=options.seed),
        replace(recipe.HEAD_STAGE, steps=steps["head"], seed=options.seed),
    )


def seconds_each(loss: Callable[[], Tensor], repeats: int = 5) -> float:
    """Seconds of one forward and backward pass, the first of them not counted."""
    loss().backward()  # type: ignore[no-untyped-call]
    start = time.monotonic()
    for _ in range(repeats):
        loss().backward()  # type: ignore[no-untyped-call]
    return (time.monotonic() - start) / repeats


def export(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write config.json and model.safetensors; floating tensors are rounded to half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {
        name: (value.half() if value.is_floating_point() else value).contiguous()
        for name, value in tensors.items()
    }
    weights = folder / "model.safetensors"
    save_file(stored, weights, metadata={"format": "pt"})
    # safetensors leaves its files readable by their owner alone, which a package must not.
    weights.chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def reload_target(out: Path) -> nn.Module:
    """The target as a user gets it: from its files, in float32, frozen."""
    from transformers import LlamaForCausalLM

    # The dtype comes from config.json: the argument's name depends on the version.
    model: Any = LlamaForCausalLM.from_pretrained(out / "target")
    frozen: nn.Module = model.eval().requires_grad_(False)
    return frozen


def embedding_of(target: nn.Module) -> Tensor:
    """[vocab, hidden] the target's input embedding."""
    return target.get_parameter("model.embed_tokens.weight").detach()


def reload_head(out: Path, target: nn.Module) -> Eagle3Head:
    """The head as a user gets it: from its files, in float32."""
    embedding = embedding_of(target)
    return load_head(out / "draft", embedding=embedding, num_target_layers=recipe.NUM_LAYERS)


def corpus_facts(
    corpus: Corpus, training: NDArray[np.int64], token_ids: Tensor
) -> dict[str, float]:
    """Counts for the card."""
    return {
        "training_files": len(corpus.training),
        "held_out_files": len(corpus.held_out),
        "training_bytes": sum(len(d.text) for d in corpus.training),
        "held_out_bytes": sum(len(d.text) for d in corpus.held_out),
        "draft_share": float(np.isin(training, token_ids.numpy()).mean()),
    }


def write_card(
    out: Path, corpus: Corpus, facts: Training, windows: int, log: Callable[[str], None]
) -> None:
    """Measure the stored pair on held-out text and write its card."""
    target = reload_target(out)
    head = reload_head(out, target)
    figures = recipe.evaluate(target, head, as_tokens(corpus.held_out), windows)
    log(f"held out: {figures}")
    sizes = {
        "target": sum(p.numel() for p in target.parameters()),
        "draft": sum(p.numel() for n, p in head.named_parameters() if "embed" not in n),
    }
    card = render_card(out, facts, figures, sizes)
    (out / "MODEL_CARD.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
