"""Plain decoding, one token a step: the yardstick that speculation is measured against."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from rheocheck.config import SamplingConfig
from rheocheck.gpu import hf_adapter
from rheocheck.gpu.generation import Generation, Row, start_rows
from rheocheck.gpu.processors import CustomProcessor, Processors
from rheocheck.gpu.randomness import Purpose, inverse_cdf, uniforms
from rheocheck.gpu.target import TargetModel


@torch.no_grad()
def generate_plain(
    target: TargetModel,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    *,
    eos: Collection[int] = (),
    requests: Sequence[int] | None = None,
    batch_size: int = 32,
    processor: CustomProcessor | None = None,
) -> list[Generation]:
    """Decode one token at a time by the model's own causal attention and cache: the yardstick.

    No tree, mask or cache surgery of ours takes part. Step t of a request reads the uniform that
    ends round t of `generate`, so speculation with budget 0 draws the same tokens.

    Args:
      target: The model.
      prompts: Token ids, each at least one.
      sampling: Temperature (0 is greedy), processors, length limit and seed.
      eos: Tokens that end a row.
      requests: The number that keys each row's uniforms; None numbers the prompts.
      batch_size: Rows decoded together, padded on their left.
      processor: A processor of your own, which sees the text before each token.

    Returns:
      One generation a prompt, without rounds.

    Raises:
      InputError: As `generate`.
    """
    sampling.check_vocabulary(target.vocab_size)
    target.check_prompts(prompts, sampling.max_new_tokens - 1)
    rows = start_rows(prompts, requests)
    by_length = sorted(rows, key=lambda row: row.prompt_length)
    for begin in range(0, len(rows), batch_size):
        chosen = by_length[begin : begin + batch_size]
        processors = Processors.start(
            sampling, [row.text for row in chosen], [row.prompt_length for row in chosen],
            target.vocab_size, target.device, processor,
        )  # fmt: skip
        _decode_plainly(target, chosen, processors, frozenset(eos))
    return [row.finish() for row in rows]


@torch.no_grad()
def cached_logits(
    target: TargetModel,
    sequences: Sequence[Sequence[int]],
    starts: Sequence[int],
    batch_size: int = 32,
    piece: int | None = 1,
) -> list[Tensor]:
    """Logits of finished sequences by plain cached decoding that is made to say them.

    The text before a sequence's start is one pass; what follows is fed from there in pieces, each
    of which sees the model's own cache. Piece 1 is what plain decoding does. The values are those
    of `TargetModel.plain_logits` but for rounding, whose order follows the shape of each pass.

    Args:
      target: The model.
      sequences: Token ids, each at least one.
      starts: The first position wanted of each sequence, a position it has.
      batch_size: Rows a pass, padded on their left so that their starts stand side by side.
      piece: Tokens a pass after the start, at least 1; None = all of them.

    Returns:
      For each sequence [length - start, vocab]: row i holds the logits after token start + i.
    """
    found: list[Tensor] = []
    for begin in range(0, len(sequences), batch_size):
        chunk = sequences[begin : begin + batch_size]
        heads = [start + 1 for start in starts[begin : begin + batch_size]]
        tails = [len(text) - head for text, head in zip(chunk, heads, strict=True)]
        width, longest = max(heads), max(tails)
        left = torch.tensor([width - head for head in heads], device=target.device)[:, None]
        # Padding on the right stands after its row's tokens, where causal attention never looks.
        token = torch.tensor(
            [
                [0] * (width - head) + list(text) + [0] * (longest - tail)
                for text, head, tail in zip(chunk, heads, tails, strict=True)
            ],
            device=target.device,
        )
        slot = torch.arange(width + longest, device=target.device)
        seen, position = (slot >= left).long(), (slot - left).clamp_min(0)
        cache = hf_adapter.make_cache(())
        step = piece or max(1, longest)
        ends = [width, *range(width + step, width + longest, step)]
        ends += [width + longest] if longest else []
        parts, done = [], 0
        for end in ends:
            wanted = 1 if done == 0 else end - done
            parts.append(
                hf_adapter.plain_step(
                    target.hf, token[:, done:end], position[:, done:end], seen[:, :end], cache,
                    wanted,
                )
            )  # fmt: skip
            done = end
        logits = torch.cat(parts, dim=1)
        found += [row[: tail + 1] for row, tail in zip(logits, tails, strict=True)]
    return found


def _decode_plainly(
    target: TargetModel, rows: list[Row], processors: Processors, eos: frozenset[int]
) -> None:
    """Decode rows until all have ended; one that has goes on unseen."""
    sampling = processors.sampling
    device = target.device
    width = max(row.prompt_length for row in rows)
    padding = [width - row.prompt_length for row in rows]
    token = torch.tensor(
        [[0] * left + row.text for left, row in zip(padding, rows, strict=True)], device=device
    )
    left = torch.tensor(padding, device=device)[:, None]
    seen = (torch.arange(width, device=device) >= left).long()
    position = (torch.arange(width, device=device) - left).clamp_min(0)
    request = torch.tensor([row.request for row in rows], device=device)
    place = torch.arange(len(rows), device=device)
    drafted = torch.empty(len(rows), 0, dtype=torch.int64, device=device)
    cache = hf_adapter.make_cache(())
    for step in range(sampling.max_new_tokens):
        logits = hf_adapter.plain_step(target.hf, token, position, seen, cache)[:, -1]
        draw = uniforms(
            sampling.seed, request, torch.full_like(request, step), 0 * request, Purpose.FINAL
        )
        drawn = inverse_cdf(processors.laws(logits, place, drafted), draw)
        processors.advance(drawn[:, None])
        for row, emitted in zip(rows, drawn.tolist(), strict=True):
            if row.stop is None:
                row.emit([emitted], sampling.max_new_tokens, eos)
        if all(row.stop is not None for row in rows):
            return
        token, position = drawn[:, None], position[:, -1:] + 1
        seen = torch.nn.functional.pad(seen, (0, 1), value=1)
