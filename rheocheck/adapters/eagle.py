"""EAGLE's `evaluate_posterior`, unmodified, as a sampler under test.

The function is taken from the package `eagle` if that can be imported, or given by the caller; its
coins are Python's `random.random` and the last token is drawn with torch.multinomial as EAGLE's
decoding loop does. Nothing of it is copied; `eagle_rule` is the same rule written anew.

Source: SafeAILab/EAGLE, eagle/model/utils.py (Li et al., arXiv:2406.16858 and arXiv:2503.01840).
"""

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rheocheck.adapters.eagle_rule import EagleRule
from rheocheck.adapters.law_tensors import TOLERANCES, Arithmetic, check_arithmetic, log_laws
from rheocheck.adapters.recorder import recording
from rheocheck.errors import InputError
from rheocheck.protocols import Choose, LawFunction, Path


@dataclass(frozen=True, slots=True)
class Eagle:
    """A candidate table verified by `evaluate_posterior` at temperature 1.

    Attributes:
      table: What makes the candidate table.
      arithmetic: As in the Hugging Face adapter.
      function: The verifier; None imports eagle.model.utils.evaluate_posterior.
    """

    table: EagleRule = EagleRule()  # noqa: RUF009
    arithmetic: Arithmetic = "exact"
    function: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Check the arithmetic."""
        check_arithmetic(self.arithmetic)

    @property
    def tolerance(self) -> Fraction:
        """Largest total variation that counts as rounding."""
        return TOLERANCES[self.arithmetic]

    def smaller(self) -> Iterator["Eagle"]:
        """Smaller tables."""
        return (Eagle(table, self.arithmetic, self.function) for table in self.table.smaller())

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        import torch

        rows = self.table.rows(draft, choose)
        verify = self.function or _evaluate_posterior()
        # Column 0 is the root: any token, the same in every row.
        candidates = torch.tensor([(0, *row) for row in rows])
        # Asked for before recording starts, in case a law is made with a generator of its own.
        laws = [target(path) for path in _row_paths(rows)]
        with recording(choose) as recorder:
            logits = log_laws(laws, self.arithmetic, recorder)
            logits = logits.reshape(len(rows), candidates.shape[1], -1)
            best, num_accepted, last_law = verify(logits, candidates, _no_processor)
            last = torch.multinomial(last_law, 1)
        accepted = candidates[int(best), 1 : 1 + int(num_accepted)]
        return (*accepted.tolist(), int(last))


def _row_paths(rows: Sequence[Path]) -> list[Path]:
    """Path of each cell of the table, row by row; a padded cell repeats the leaf's."""
    paths = []
    for row in rows:
        tokens = tuple(token for token in row if token != -1)
        paths += [tokens[:column] for column in range(len(row) + 1)]
    return paths


def _no_processor(input_ids: Any, logits: Any) -> Any:
    return logits


@functools.cache
def _evaluate_posterior() -> Callable[..., Any]:
    try:
        utils = importlib.import_module("eagle.model.utils")
    except ImportError as error:
        raise InputError(
            f"EAGLE's verifier cannot be imported ({error}); required: a checkout of "
            f"SafeAILab/EAGLE on PYTHONPATH, or Eagle(function=...)"
        ) from error
    function: Callable[..., Any] = utils.evaluate_posterior
    return function


sampler = Eagle()
