"""Hugging Face's `_speculative_sampling`, unmodified, as a sampler under test.

The function comes from the installed transformers and runs under the recorder: its uniforms fork at
its own comparisons, its multinomial over its own weights. Nothing of it is copied.

Source: transformers, generation/utils.py; its rule is that of Leviathan et al., arXiv:2211.17192.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.adapters.law_tensors import TOLERANCES, Arithmetic, check_arithmetic, log_laws
from rheocheck.adapters.recorder import recording
from rheocheck.adapters.rules import check_positive
from rheocheck.adapters.single_draft import draft_chain
from rheocheck.errors import InputError
from rheocheck.protocols import Choose, LawFunction, Path


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """A chain drawn from the draft, verified by `_speculative_sampling`.

    Attributes:
      length: Drafted tokens, at least 1.
      arithmetic: "exact" feeds it rationals, so that the law is that of the algorithm; "float64"
        and "float32" feed it tensors of floats, so that the law is that of the arithmetic.
      ensemble_weight: Its option `assistant_ensemble_weight`, where it has one: below 1 it is lossy
        by design (arXiv:2604.07622). None leaves it out.
    """

    length: int = 2
    arithmetic: Arithmetic = "exact"
    ensemble_weight: float | None = None

    def __post_init__(self) -> None:
        """Check the length and the arithmetic."""
        check_positive(self.length, "length")
        check_arithmetic(self.arithmetic)

    @property
    def tolerance(self) -> Fraction:
        """Largest total variation that counts as rounding."""
        return TOLERANCES[self.arithmetic]

    def smaller(self) -> Iterator["HuggingFace"]:
        """Shorter chains."""
        lengths = range(1, self.length)
        return (HuggingFace(length, self.arithmetic, self.ensemble_weight) for length in lengths)

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        import torch

        drafted = draft_chain(draft, self.length, choose)
        paths = [drafted[:position] for position in range(self.length + 1)]
        # Asked for before recording starts, in case a law is made with a generator of its own.
        proposed = [draft(path) for path in paths[:-1]]
        wanted = [target(path) for path in paths]
        function = _speculative_sampling()
        options: dict[str, Any] = {}
        if "is_done_candidate" in inspect.signature(function).parameters:
            options["is_done_candidate"] = False
        if self.ensemble_weight is not None:
            options["assistant_ensemble_weight"] = self.ensemble_weight
        with recording(choose) as recorder:
            tokens, _ = function(
                torch.tensor([drafted]),
                log_laws(proposed, self.arithmetic, recorder)[None],
                self.length,
                log_laws(wanted, self.arithmetic, recorder)[None],
                **options,
            )
        return tuple(tokens[0].tolist())


@functools.cache
def _speculative_sampling() -> Callable[..., Any]:
    try:
        from transformers.generation import utils
    except ImportError as error:
        raise InputError(
            f"the Hugging Face adapter needs transformers and torch ({error}); required: "
            f"pip install rheocheck[torch]"
        ) from error
    function: Callable[..., Any] = utils._speculative_sampling
    return function


sampler = HuggingFace()
