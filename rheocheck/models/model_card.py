"""The tiny pair's model card: every figure comes from the run that made the files."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

from rheocheck.models.stages import Stage
from rheocheck.models.tiny_recipe import (
    DRAFT_VOCAB,
    TEST_TIME_DECAY,
    TEST_TIME_STEPS,
    Figures,
)


@dataclass(frozen=True, slots=True)
class Training:
    """How the pair was trained.

    Attributes:
      corpus: Counts of files and bytes on both sides of the split, and the share of training tokens
        that can be drafted.
      target_stage: Of the target.
      head_stage: Of the head.
      target_seconds: Spent in the target's stage.
      head_seconds: Spent in the head's.
    """

    corpus: dict[str, float]
    target_stage: Stage
    head_stage: Stage
    target_seconds: float
    head_seconds: float


def render_card(out: Path, training: Training, figures: Figures, sizes: dict[str, int]) -> str:
    """The card as Markdown.

    Args:
      out: Holds target/ and draft/, whose files are listed with sizes and digests.
      training: How the pair was made.
      figures: Measured on held-out text.
      sizes: Parameters of "target" and "draft".
    """
    corpus = training.corpus
    num_files = corpus["training_files"] + corpus["held_out_files"]
    total = corpus["training_bytes"] + corpus["held_out_bytes"]
    held_out = 100 * corpus["held_out_bytes"] / total
    steps = "\n".join(
        f"| {step} | {same:.3f} | {overlap:.3f} |"
        for step, (same, overlap) in enumerate(zip(figures.agreement, figures.overlap, strict=True))
    )
    files = "\n".join(
        f"| {path.relative_to(out).as_posix()} | {path.stat().st_size:,} | "
        f"{hashlib.sha256(path.read_bytes()).hexdigest()} |"
        for path in sorted([*(out / "target").iterdir(), *(out / "draft").iterdir()])
    )
    return f"""# The tiny pair

A byte-level Llama target and an EAGLE-3 draft head for it, small enough to ship inside rheocheck
and to audit on a laptop. A test subject, not a useful language model: it has learned the spelling
and the markup of Python's documentation and little else.

This card is written by `rheocheck.models.train_tiny`; its figures are measured on the stored files.

## The models

* Target: `LlamaForCausalLM`, {sizes["target"]:,} parameters, 8 layers, hidden size 128, 4 heads on
  2 key-value heads, 257 tokens: the 256 bytes, and 256 = end of text.
* Head: EAGLE-3 (arXiv:2503.01840), {sizes["draft"]:,} parameters beside the target's embedding,
  which it shares. It fuses hidden states 2, 4 and 5 and drafts the {DRAFT_VOCAB} most frequent
  tokens, which make up {100 * corpus["draft_share"]:.4f} % of the training text.
* The files hold float16. The models are defined as their float32 images: load them as float32.

## Data

The reStructuredText sources of Python 3.11's documentation, Debian package `python3.11-doc`
({num_files:.0f} files, {total:,} bytes). Copyright Python Software Foundation; Python Software
Foundation License Version 2 (see NOTICE). Whole files are held out by a hash of their name:
{corpus["held_out_files"]} files, {corpus["held_out_bytes"]:,} bytes, {held_out:.1f} %. Evaluation
and the audit's prompts use these alone: each prompt is an independent draw from a population of
pieces of these files, which `rheocheck/audit/data/README.md` defines.

## Recipe

| stage | steps | batch | peak learning rate | weight decay | clip | wall time |
| --- | --- | --- | --- | --- | --- | --- |
{stage_row(training.target_stage, training.target_seconds)}
{stage_row(training.head_stage, training.head_seconds)}

AdamW, betas 0.9 and 0.95, {training.target_stage.warmup} steps of warm-up, then linear decay to
zero, float32, seed {training.target_stage.seed}. Wall times are this run's, with whatever else its
machine was doing. The head is trained with EAGLE-3's training-time test, {TEST_TIME_STEPS} steps
deep, step s weighted {TEST_TIME_DECAY}^s: soft cross-entropy to the stored target's law on the
draft vocabulary. Its embedding stays the target's.

    apt-get download python3.11-doc && dpkg-deb -x python3.11-doc_*.deb docs
    python -m rheocheck.models.train_tiny \\
        --corpus docs/usr/share/doc/python3.11/html/_sources --out out/tiny \\
        --target-steps {training.target_stage.steps} --head-steps {training.head_stage.steps} \\
        --seed {training.target_stage.seed}

Another machine or build of torch gives other last bits, and so other weights of the same quality.

## Held-out measurements

Target: {figures.nats:.4f} nats a byte, {figures.nats / math.log(2):.4f} bits a byte, over
{figures.tokens:,} predicted tokens in windows of {training.target_stage.length}.

Head, teacher-forced as in training. Agreement: the head's most probable token is the target's.
Overlap: mean of sum min(target, draft) at temperature 1, the acceptance of one drafted token.

| test-time step | agreement | overlap |
| --- | --- | --- |
{steps}

## Files

| file | bytes | SHA-256 |
| --- | --- | --- |
{files}
"""


def stage_row(stage: Stage, seconds: float) -> str:
    """One line of the recipe's table."""
    return (
        f"| {stage.name} | {stage.steps} | {stage.batch} x {stage.length} | "
        f"{stage.learning_rate} | {stage.weight_decay} | {stage.clip} | {seconds / 60:.1f} min |"
    )
