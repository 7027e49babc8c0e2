"""The pair under audit, loaded once a process."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from rheocheck.audit.settings import AuditSettings
from rheocheck.errors import InputError
from rheocheck.models import registry
from rheocheck.models.registry import Pair


@dataclass(frozen=True, slots=True)
class PairSource:
    """Where a pair comes from; hashable and small, so that it can be sent to a worker.

    Attributes:
      model: Name in the registry.
      target: Folder of the target, or None for the registry's.
      draft: Folder of the draft head, or None for the registry's.
      device: Where it computes.
    """

    model: str
    target: Path | None
    draft: Path | None
    device: str

    @classmethod
    def of(cls, settings: AuditSettings) -> "PairSource":
        """The source that the settings name."""
        return cls(settings.model, settings.target, settings.draft, settings.device)


# One pair: an audit has no second, and two large ones may not fit.
@lru_cache(maxsize=1)
def load_pair(source: PairSource) -> Pair:
    """Load a pair, once a process.

    Args:
      source: What to load.

    Returns:
      The pair; its target has passed the start-up check.

    Raises:
      RheocheckError: Unknown name, a device that torch cannot use, missing or damaged weights, a
        target that runs trees wrongly.
    """
    _check_device(source.device)
    return registry.load_pair(
        source.model, target=source.target, draft=source.draft, device=source.device
    )


def _check_device(device: str) -> None:
    """Raise InputError unless torch can hold a number there."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        # Some of torch's messages go on for pages; their first sentence says what is wrong.
        reason = str(error).splitlines()[0]
        raise InputError(f"device = {device!r}: torch cannot use it ({reason})") from None
