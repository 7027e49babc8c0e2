"""A draft model for tests that keeps whole paths: slow, and hard to get wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from rheocheck.config import SpeculationConfig
from rheocheck.gpu.randomness import RoundUniforms, round_uniforms

Path = tuple[int, ...]
LogitsAt = Callable[[int, Path], list[float]]


class PathDrafter:
    """Logits from a function of (row, path); padding gets NaN.

    Attributes:
      calls: Number of calls of `root` and `extend`.
    """

    def __init__(self, logits_at: LogitsAt, batch: int, token_ids: Tensor | None = None) -> None:
        self._logits_at = logits_at
        self._paths: list[list[Path]] = [[()] for _ in range(batch)]
        self._token_ids = token_ids
        self.calls = 0

    @property
    def token_ids(self) -> Tensor | None:
        return self._token_ids

    def root(self) -> Tensor:
        self.calls += 1
        return self._read(torch.ones(len(self._paths), 1, dtype=torch.bool)).squeeze(1)

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        self.calls += 1
        assert bool((token[~valid] == -1).all())
        self._paths = [
            [(*paths[above], new) for above, new in zip(above_row, new_row, strict=True)]
            for paths, above_row, new_row in zip(
                self._paths, parent.tolist(), token.tolist(), strict=True
            )
        ]
        return self._read(valid)

    def _read(self, valid: Tensor) -> Tensor:
        rows = [
            [
                self._logits_at(row, path) if ok else []
                for path, ok in zip(paths, valid[row].tolist(), strict=True)
            ]
            for row, paths in enumerate(self._paths)
        ]
        width = max(len(logits) for paths in rows for logits in paths)
        padded = [[logits or [float("nan")] * width for logits in paths] for paths in rows]
        return torch.tensor(padded, dtype=torch.float64)


def random_logits(seed: int, vocab: int, *, levels: int = 0) -> LogitsAt:
    """Logits that depend on row and path only; with `levels` few values, so that all tie."""

    def logits_at(row: int, path: Path) -> list[float]:
        generator = torch.Generator().manual_seed(hash((seed, row, path)) % 2**63)
        if levels:
            return torch.randint(0, levels, (vocab,), generator=generator).double().tolist()
        return (2 * torch.randn(vocab, generator=generator)).double().tolist()

    return logits_at


def draws(config: SpeculationConfig, batch: int, seed: int = 0) -> RoundUniforms:
    """Uniforms of `batch` rows."""
    return round_uniforms(seed, torch.arange(batch), torch.zeros(batch, dtype=torch.int64), config)
