"""The start-up check of a target: a tree of three nodes against its paths, one at a time.

It catches what would otherwise be a wrong law with plausible text: a mask that is misread or
ignored, positions by index instead of depth, rejected nodes that stay in the cache.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rheocheck.errors import BackendError

if TYPE_CHECKING:
    from rheocheck.gpu.target import TargetModel

# Root; two siblings under it; a child of the second. The sibling stands between root and child, so
# that keeping the second branch means moving slots, and index and depth differ at the last node.
DEPTH = (0, 1, 1, 2)
VISIBLE = (
    (True, False, False, False),
    (True, True, False, False),
    (True, False, True, False),
    (True, False, True, True),
)
# Row 0 accepts the second sibling and its child, row 1 the first sibling.
KEPT = ((0, 2, 3), (0, 1, -1))
PROMPT_LENGTHS = (3, 6)


def check_tree_attention(target: "TargetModel") -> float:
    """Compare tree passes with ordinary ones, before and after a commit with rejected nodes.

    Args:
      target: The wrapped model. Two prompts of different length share the batch.

    Returns:
      The largest deviation of a logit, relative to the largest |logit|.

    Raises:
      BackendError: The deviation is above the noise of the model's dtype or not a number.
    """
    deviations, noise = tree_deviations(target), target.logit_noise()
    for compared, deviation in deviations.items():
        # Not `>`, which is false for NaN.
        if not deviation <= noise:
            raise BackendError(
                f"the target runs trees wrongly: logits {compared} differ from those of its "
                f"paths, one at a time, by {deviation:.3g} of the largest logit, "
                f"where {target.hf.dtype} rounding explains at most {noise:.3g} (attention "
                f"{target.hf.config._attn_implementation!r}); the tree mask, positions or cache "
                "are not honoured, so no law computed from it can be trusted"
            )
    return max(deviations.values())


def tree_deviations(target: "TargetModel") -> dict[str, float]:
    """The deviations that the check looks at, by what was compared; plainest fault first."""
    tokens = [1 + index * 37 for index in range(max(PROMPT_LENGTHS) + 4)]
    *words, first, second, child, following = (token % target.vocab_size for token in tokens)
    prompts = [words[:length] for length in PROMPT_LENGTHS]
    ends = [[second, child], [first]]

    device, batch = target.device, len(prompts)
    width = max(PROMPT_LENGTHS) - 1
    cached = [[*prompt[:-1], *[0] * (width - len(prompt) + 1)] for prompt in prompts]
    length = torch.tensor(PROMPT_LENGTHS, device=device) - 1
    state, _ = target.prefill(torch.tensor(cached, device=device), length)
    token = torch.tensor([[prompt[-1], first, second, child] for prompt in prompts], device=device)
    depth = torch.tensor([DEPTH] * batch, device=device)
    visible = torch.tensor([VISIBLE] * batch, device=device)
    output = target.tree_forward(state, token, depth, visible)
    state = target.commit(state, output, torch.tensor(KEPT, device=device))
    alone = torch.ones(batch, 1, 1, dtype=torch.bool, device=device)
    next_token = torch.full((batch, 1), following, device=device)
    next_output = target.tree_forward(state, next_token, torch.zeros_like(next_token), alone)

    in_tree, in_paths, after, after_paths = [], [], [], []
    for row, prompt in enumerate(prompts):
        branches = target.plain_logits(
            [[*prompt, first], [*prompt, second, child]], [len(prompt) - 1] * 2
        )
        in_tree.append(output.logits[row])
        in_paths += [branches[0], branches[1][1:]]
        after.append(next_output.logits[row])
        after_paths.append(target.plain_logits([[*prompt, *ends[row], following]])[0][-1:])
    return {
        "of a tree of three nodes": relative_deviation(torch.cat(in_tree), torch.cat(in_paths)),
        "after a commit that rejects a sibling": relative_deviation(
            torch.cat(after), torch.cat(after_paths)
        ),
    }


def relative_deviation(logits: Tensor, others: Tensor) -> float:
    """Largest difference over the largest |logit|; NaN if anything is NaN, 0 if all is zero."""
    difference = (logits.double() - others.double()).abs().max()
    scale = others.double().abs().max()
    return float(difference / scale) if scale != 0 else float(difference)
