"""Processors of target logits whose penalties see the text before each node, many nodes at once.

A node's text is its request's history and the drafted tokens from the round's root to the node
itself. `Processors` holds what the history comes to, counts over the vocabulary; the path is
scattered on top of it for every row, so that siblings and cousins each get the law that plain
decoding would have after their own text.

Source: the repetition penalty is Keskar et al. (2019), arXiv:1909.05858, section 4.1, as Hugging
Face transformers extends it to negative logits; presence and frequency penalties are OpenAI's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from rheocheck.config import SamplingConfig
from rheocheck.errors import InputError
from rheocheck.gpu.all_nodes import node_paths
from rheocheck.gpu.processing import check_logits, filter_logits, keep_filtered, law_of
from rheocheck.gpu.row_mass import Process
from rheocheck.gpu.tree import Tree


class CustomProcessor(Protocol):
    """A processor of the caller's own; it runs after bias and penalties, before bans."""

    def __call__(self, logits: Tensor, text: Tensor, length: Tensor) -> Tensor:
        """Change logits by the text before them.

        Args:
          logits: [rows, vocab] float64. Not to be changed in place.
          text: [rows, longest] int64 prompt and output, then the path to the node; -1 after it.
          length: [rows] int64 tokens of each text.

        Returns:
          [rows, vocab] logits, which for each row may depend on that row alone.
        """


Texts: TypeAlias = Sequence[Sequence[int]]


@dataclass(slots=True, eq=False)
class Processors:
    """All processors of a batch of requests, with the history that they need.

    Attributes:
      sampling: The requests' settings.
      in_prompt: [batch, vocab] bool, tokens of each prompt; no columns where no penalty is set.
      output_count: [batch, vocab] int32 occurrences in the output so far; the same.
      custom: A processor of the caller's own, or None.
      texts: Each request's text so far; read for `custom` alone.
      biased: [biased] int64 tokens with a logit bias.
      bias: [biased] float64 what is added to them.
      banned: [banned] int64 tokens that are never emitted.
    """

    sampling: SamplingConfig
    in_prompt: Tensor
    output_count: Tensor
    custom: CustomProcessor | None
    texts: list[list[int]]
    biased: Tensor
    bias: Tensor
    banned: Tensor

    @classmethod
    def start(
        cls,
        sampling: SamplingConfig,
        texts: Texts,
        prompt_lengths: Sequence[int],
        vocab: int,
        device: torch.device | str = "cpu",
        custom: CustomProcessor | None = None,
    ) -> "Processors":
        """Take in the text of every request.

        Args:
          sampling: Settings.
          texts: Prompt and output of each request.
          prompt_lengths: Leading tokens of each text that are its prompt.
          vocab: Logits a row.
          device: Where the logits will be.
          custom: A processor of the caller's own.

        Raises:
          ConfigError: Settings that do not fit the vocabulary.
        """
        sampling.check_vocabulary(vocab)
        kept = [list(text) for text in texts]
        width = vocab if sampling.sees_history else 0
        in_prompt = torch.zeros(len(kept), width, dtype=torch.int32)
        # Made once: copies from the host wait for the device and cannot be captured in a graph.
        token, bias = zip(*sampling.logit_bias, strict=True) if sampling.logit_bias else ((), ())
        biased = torch.tensor(token, dtype=torch.int64, device=device)
        added = torch.tensor(bias, dtype=torch.float64, device=device)
        banned = torch.tensor(sampling.banned_tokens, dtype=torch.int64, device=device)
        made = cls(
            sampling, in_prompt, in_prompt.clone(), custom, kept, biased, added, banned
        )  # fmt: skip
        if sampling.sees_history:
            prompts = [text[:length] for text, length in zip(kept, prompt_lengths, strict=True)]
            outputs = [text[length:] for text, length in zip(kept, prompt_lengths, strict=True)]
            made.in_prompt = _add_counts(in_prompt, _padded(prompts))
            made.output_count = _add_counts(made.output_count, _padded(outputs)).to(device)
        made.in_prompt = (made.in_prompt > 0).to(device)
        made.output_count = made.output_count.to(device)
        return made

    def advance(self, emitted: Int64[Tensor, "batch length"]) -> None:
        """Take in a round's emission. `emitted`: [batch, length] token ids; -1 pads."""
        if self.sampling.sees_history:
            self.output_count = _add_counts(self.output_count, emitted)
        if self.custom is not None:
            for text, new in zip(self.texts, emitted.tolist(), strict=True):
                text += [token for token in new if token >= 0]

    def keep_rows(self, rows: Int64[Tensor, " kept"]) -> None:
        """Go on with some requests only. `rows`: [kept] batch indices."""
        self.in_prompt, self.output_count = self.in_prompt[rows], self.output_count[rows]
        if self.custom is not None:
            self.texts = [self.texts[row] for row in rows.tolist()]

    def process(self) -> Process | None:
        """All processors but the temperature, as verification takes them; None if there are none.

        Returns:
          (logits [rows, vocab], row [rows], path [rows, depth]) -> [rows, vocab] logits whose law
          at the request's temperature is the target law; minus infinity everywhere in a row from
          which no law can be made.
        """
        sampling = self.sampling
        adjusts = self.custom is not None or sampling.adjusts
        cuts = sampling.temperature > 0 and sampling.cuts
        if not adjusts and not cuts:
            return None

        def processed(logits: Tensor, row: Tensor, path: Tensor) -> Tensor:
            values = self.adjust(logits, row, path) if adjusts else logits
            return keep_filtered(values, sampling) if cuts else values

        return processed

    def snapshot(self) -> "Processors":
        """The same in their present state, whatever `advance` does to these later."""
        return replace(self, texts=[text.copy() for text in self.texts] if self.custom else [])

    def adjust(
        self,
        logits: Float[Tensor, "rows vocab"],
        row: Int64[Tensor, " rows"],
        path: Int64[Tensor, "rows depth"],
    ) -> Float64[Tensor, "rows vocab"]:
        """Logit bias, penalties, the caller's own processor, bans.

        Work is one pass over the logits and a scatter of the path.

        Args:
          logits: [rows, vocab] raw.
          row: [rows] int64 request of each, as a row of the batch.
          path: [rows, depth] int64 drafted tokens from the root's child to the node; -1 pads.

        Returns:
          [rows, vocab] float64 logits at temperature 1. Minus infinity stays minus infinity.

        Raises:
          InputError: `custom` returned another shape.
        """
        sampling = self.sampling
        values = logits.double()
        if sampling.logit_bias:
            added = self.bias.expand(*values.shape[:-1], -1)
            values = values.index_add(-1, self.biased, added)
        if sampling.sees_history:
            count = _add_counts(self.output_count[row], path)
            values = penalise(values, self.in_prompt[row], count, sampling)
        if self.custom is not None:
            values = self.custom(values, *_node_texts(self.texts, row, path)).double()
            if values.shape != logits.shape:
                raise InputError(
                    f"the custom processor returned shape {tuple(values.shape)}; required: "
                    f"{tuple(logits.shape)}, that of the logits it was given"
                )
        if sampling.banned_tokens:
            # NaN or +inf at a banned token is still a broken row, which is to be refused.
            broken = values.isnan() | (values == torch.inf)
            values = torch.where(broken, values, values.index_fill(-1, self.banned, -torch.inf))
        return values

    def laws(
        self,
        logits: Float[Tensor, "*axes vocab"],
        row: Int64[Tensor, "*axes"],
        path: Int64[Tensor, "*axes depth"],
        *,
        check: bool = True,
    ) -> Float64[Tensor, "*axes vocab"]:
        """Laws of processed logits; the axes before the last are rows of `__call__`.

        Args:
          logits: [..., vocab] raw.
          row: [...] int64 request of each.
          path: [..., depth] int64 drafted tokens, -1 pads.
          check: Refuse bad rows, which waits for the device.

        Returns:
          [..., vocab] float64 probabilities; a bad row that was not refused is all zeros.

        Raises:
          InputError: A row with NaN, +inf, or no finite entry, before or after processing.
        """
        if check:
            check_logits(logits, "target logits")
        # Not -1 for the rows: it is ambiguous where another axis is empty.
        values = self.adjust(
            logits.reshape(row.numel(), logits.shape[-1]),
            row.reshape(row.numel()),
            path.reshape(row.numel(), path.shape[-1]),
        ).reshape(logits.shape)
        if check:
            check_logits(values, "target logits after bias, penalties and bans")
        return law_of(filter_logits(values, self.sampling))


def penalise(
    values: Float[Tensor, "rows vocab"],
    in_prompt: Tensor,
    output_count: Tensor,
    sampling: SamplingConfig,
) -> Float[Tensor, "rows vocab"]:
    """Repetition, then frequency and presence penalties.

    Args:
      values: [rows, vocab] logits.
      in_prompt: [rows, vocab] bool, the token occurs in the prompt.
      output_count: [rows, vocab] int, its occurrences after the prompt, the path included.
      sampling: The penalties.

    Returns:
      [rows, vocab] logits; a penalty leaves minus infinity as it is.
    """
    in_output = output_count > 0
    if sampling.repetition_penalty != 1:
        factor = sampling.repetition_penalty
        scaled = torch.where(values < 0, values * factor, values / factor)
        values = torch.where(in_prompt | in_output, scaled, values)
    if sampling.frequency_penalty != 0:
        # A number times an int32 tensor would be rounded to float32.
        values = values - sampling.frequency_penalty * output_count.to(values.dtype)
    if sampling.presence_penalty != 0:
        values = values - sampling.presence_penalty * in_output.to(values.dtype)
    return values


def node_laws(
    logits: Float[Tensor, "batch nodes vocab"],
    tree: Tree,
    processors: Processors,
    *,
    check: bool = True,
) -> Float64[Tensor, "batch nodes vocab"]:
    """Target laws at the root and the first survivors of each tree; see `Processors.laws`.

    Args:
      logits: [batch, nodes, vocab] raw target logits; node 0 is the root.
      tree: The drafted trees, of at least nodes - 1 survivors or padding.
      processors: Of the batch, in the state before the round.
      check: Refuse bad rows, which waits for the device.

    Returns:
      [batch, nodes, vocab] float64 probabilities.

    Raises:
      InputError: See there.
    """
    batch, nodes = logits.shape[:2]
    row = torch.arange(batch, device=logits.device)[:, None].expand(batch, nodes)
    return processors.laws(logits, row, node_paths(tree)[:, :nodes], check=check)


def _add_counts(count: Tensor, token: Tensor) -> Tensor:
    """[rows, vocab] counts with those of [rows, length] tokens added; -1 adds nothing."""
    return count.scatter_add(1, token.clamp_min(0).to(count.device), (token >= 0).to(count))


def _padded(texts: Texts) -> Tensor:
    """[rows, longest] the texts, -1 after them."""
    width = max(map(len, texts), default=0)
    rows = [[*text, *[-1] * (width - len(text))] for text in texts]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(texts), width)


def _node_texts(texts: Texts, row: Tensor, path: Tensor) -> tuple[Tensor, Tensor]:
    """[rows, longest] history and path of each row, -1 after them, and [rows] their lengths."""
    history = _padded(texts).to(row.device)[row]
    known, drafted = (history >= 0).sum(1), (path >= 0).sum(1)
    text = torch.nn.functional.pad(history, (0, path.shape[1] + 1), value=-1)
    place = torch.arange(path.shape[1], device=path.device) + known[:, None]
    # Padding goes to a last column that is cut off again.
    place = torch.where(path >= 0, place, text.shape[1] - 1)
    return text.scatter(1, place, path)[:, :-1], known + drafted
