"""What the tree path's rounding does to laws and to greedy decoding, measured without sampling.

The laws that verification read come from one batched pass over a tree and a compacted cache; the
laws of the same texts come again from plain causal passes. In float32 the two agree to a few 1e-6.
A mask row, a position, a cache slot or a logit row that is wrong shows as a deviation far above.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from rheocheck.config import SamplingConfig
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.gpu.generation import Generation
from rheocheck.gpu.processors import Processors
from rheocheck.gpu.target import TargetModel

Adjust: TypeAlias = Callable[[Tensor, Sequence[int], Sequence[int]], Tensor]
"""[tokens, vocab] logits before each token of an output, prompt, output -> adjusted logits."""


@dataclass(slots=True)
class EmissionLog:
    """An observer of `generate` that keeps the target logits each emitted token was verified with.

    Attributes:
      prompts: By request, the text before its first round.
      emitted: By request, all emitted tokens, uncut.
      logits: By request, one [tokens, vocab] tensor a round: raw logits at the nodes after which
        its emitted tokens stand.
    """

    prompts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    emitted: dict[int, list[int]] = field(default_factory=dict)
    logits: dict[int, list[Tensor]] = field(default_factory=dict)

    def __call__(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        nodes, verification = trace.emission_nodes(), trace.verification
        for row, request in enumerate(trace.request.tolist()):
            count = int(verification.num_accepted[row]) + 1
            self.prompts.setdefault(request, trace.text[row])
            tokens = verification.emitted[row, :count].tolist()
            self.emitted.setdefault(request, []).extend(tokens)
            kept = trace.target_logits[row, nodes[row, :count]].clone()
            self.logits.setdefault(request, []).append(kept)


def verify_row_deviation(
    target: TargetModel, log: EmissionLog, sampling: SamplingConfig, batch_size: int = 32
) -> dict[int, Tensor]:
    """Total variation between the law a token was verified with and the plainly computed one.

    Args:
      target: The model that decoded.
      log: Filled by `generate`.
      sampling: The settings that made the laws.
      batch_size: Texts a pass.

    Returns:
      By request, [emitted tokens] float64 in [0, 1], uncut rounds.
    """
    requests = list(log.prompts)
    plain = target.plain_logits(
        [[*log.prompts[request], *log.emitted[request][:-1]] for request in requests],
        [len(log.prompts[request]) - 1 for request in requests],
        batch_size,
    )
    found = {}
    for request, logits in zip(requests, plain, strict=True):
        prompt, emitted = log.prompts[request], log.emitted[request][:-1]
        verified = text_laws(torch.cat(log.logits[request]), prompt, emitted, sampling)
        plain_laws = text_laws(logits, prompt, emitted, sampling)
        found[request] = (verified - plain_laws).abs().sum(-1) / 2
    return found


def text_laws(
    logits: Tensor, prompt: Sequence[int], output: Sequence[int], sampling: SamplingConfig
) -> Tensor:
    """Laws after every prefix of one output.

    Args:
      logits: [output + 1, vocab] raw logits after the prompt and after each token of the output.
      prompt: Token ids.
      output: Token ids.
      sampling: Processors.

    Returns:
      [output + 1, vocab] float64 laws.
    """
    count = len(output) + 1
    processors = Processors.start(
        sampling, [prompt], [len(prompt)], logits.shape[-1], logits.device
    )
    # Prefixes as paths from one root, the end of the prompt.
    path = torch.tensor(output, dtype=torch.int64, device=logits.device).expand(count, -1)
    place = torch.arange(count, device=logits.device)
    path = torch.where(place[: count - 1] < place[:, None], path, -1)
    return processors.laws(logits, torch.zeros_like(place), path)


@dataclass(frozen=True, slots=True)
class GreedyDifference:
    """A place where a text is not the target's greedy continuation.

    Attributes:
      request: Which generation.
      index: Of the token among the emitted ones.
      emitted: The token that was emitted.
      best: The token with the largest plainly computed logit.
      margin: The logit of `best` over that of `emitted`.
      noise: The largest margin that rounding explains there.
    """

    request: int
    index: int
    emitted: int
    best: int
    margin: float
    noise: float


@dataclass(frozen=True, slots=True)
class GreedyReport:
    """How far generations at temperature 0 are the target's greedy continuations.

    Attributes:
      num_tokens: Tokens examined.
      num_close: Places whose two largest logits are so close that rounding may exchange them.
      explained: Differences at such places.
      unexplained: All other differences; right decoding has none.
    """

    num_tokens: int
    num_close: int
    explained: tuple[GreedyDifference, ...]
    unexplained: tuple[GreedyDifference, ...]


def check_greedy(
    target: TargetModel,
    prompts: Sequence[Sequence[int]],
    generations: Sequence[Generation],
    batch_size: int = 32,
    adjust: Adjust | None = None,
    gain: float = 1.0,
) -> GreedyReport:
    """Compare generations at temperature 0 with plain greedy decoding, token by token.

    Each token is compared with the argmax of plain logits after the text before it. By induction a
    text without differences *is* the greedy continuation; one that departs at a tie is still
    examined to its end, which a comparison of two finished texts could not do.

    Two computations of one logit differ by at most noise = `logit_noise` times the largest |logit|.
    The order of two logits is kept by both unless their margin is at most twice that, once for each
    of the two.

    Args:
      target: The model.
      prompts: Token ids.
      generations: Of the prompts, in their order.
      batch_size: Texts a pass.
      adjust: Bias, penalties and bans; None leaves the logits as they are.
      gain: The most by which `adjust` stretches the difference of two logits of one token.
    """
    plain = target.plain_logits(
        [[*prompt, *made.tokens[:-1]] for prompt, made in zip(prompts, generations, strict=True)],
        [len(prompt) - 1 for prompt in prompts],
        batch_size,
    )
    num_tokens = num_close = 0
    explained: list[GreedyDifference] = []
    unexplained: list[GreedyDifference] = []
    for prompt, made, logits in zip(prompts, generations, plain, strict=True):
        wide = logits.double()
        noise = 2 * gain * target.logit_noise() * wide.abs().amax(-1)
        if adjust is not None:
            wide = adjust(wide, prompt, made.tokens)
        largest = wide.topk(min(2, wide.shape[-1]), dim=-1).values
        num_tokens += len(made.tokens)
        num_close += int((largest[:, 0] - largest[:, -1] <= noise).sum())
        best = wide.argmax(-1)
        emitted = torch.tensor(made.tokens, device=wide.device)
        for index in (best != emitted).nonzero()[:, 0].tolist():
            token, other = made.tokens[index], int(best[index])
            margin = float(wide[index, other] - wide[index, token])
            difference = GreedyDifference(
                made.request, index, token, other, margin, float(noise[index])
            )
            (explained if margin <= noise[index] else unexplained).append(difference)
    return GreedyReport(num_tokens, num_close, tuple(explained), tuple(unexplained))
