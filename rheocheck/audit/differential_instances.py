"""Random small instances for the differential stage: batches for torch, rows for the exact twin.

A row's laws are a few tables of integer weights and a rule that walks from table to table along a
path, so that both twins read the same law at every path without ever listing the paths. Integer
weights give exact laws, and their logarithms are the logits; a temperature of 1 / n is the n-th
power of the weights.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rheocheck.config import RULES, SpeculationConfig
from rheocheck.gpu.expansion import Logits
from rheocheck.gpu.randomness import RoundUniforms

ROWS_PER_BATCH = 32
# Tables a row. A prime, so that the step from table to table along a path permutes them; large
# enough that reading the law of a wrong path shows in six of seven cases.
NUM_TABLES = 7
LARGEST_UNIFORM = 1 - 2.0**-53

Weights: TypeAlias = NDArray[np.int64]
Family: TypeAlias = Literal["small", "large"]
# Largest vocabularies of a batch and how often each is taken.
_VOCABULARIES: dict[Family, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "small": (
        (1, 2, 3, 4, 5, 6, 8, 12, 16, 32),
        (0.02, 0.05, 0.1, 0.15, 0.15, 0.15, 0.13, 0.1, 0.1, 0.05),
    ),
    "large": ((64, 512), (0.5, 0.5)),
}


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Instances that share a scheme and a temperature, padded to one vocabulary.

    Attributes:
      config: The scheme.
      power: The temperature is 1 / power; 0 stands for temperature 0.
      vocab: [rows] tokens of each row's vocabulary; weights are 0 beyond it.
      token_ids: [draft vocab] target ids of the draft's own smaller vocabulary, increasing, outside
        which both draft laws are 0; None where the vocabularies agree.
      ranking: [rows, tables, vocab] integer weights of the ranking law.
      draft: [rows, tables, vocab] weights of the law that is drawn from, before the temperature;
        the same array unless the ranking is a law of its own.
      target: [rows, tables, vocab] weights of the target law, before the temperature.
      step: [rows, 2] table after `token` in table i: (step 0 * i + token + step 1) mod NUM_TABLES.
      probe: [rows, depth, top_k] uniforms.
      accept: [rows, depth, top_k, top_k] uniforms.
      final: [rows] uniforms.
    """

    config: SpeculationConfig
    power: int
    vocab: NDArray[np.int64]
    token_ids: NDArray[np.int64] | None
    ranking: Weights
    draft: Weights
    target: Weights
    step: NDArray[np.int64]
    probe: NDArray[np.float64]
    accept: NDArray[np.float64]
    final: NDArray[np.float64]

    @property
    def temperature(self) -> float:
        """Temperature of the request."""
        return 1 / self.power if self.power else 0.0

    def uniforms(self) -> RoundUniforms:
        """The uniforms as the torch twin takes them."""
        arrays = (self.probe, self.accept, self.final)
        return RoundUniforms(*(torch.from_numpy(array) for array in arrays))


def make_batch(seed: int, family: Family, number: int) -> Batch:
    """Make the batch `number` of a run; it depends on nothing but the arguments.

    Args:
      seed: Of the run, >= 0.
      family: "small": vocabularies up to 32; "large": up to 512, with a smaller support.
      number: >= 0.

    Returns:
      ROWS_PER_BATCH rows.
    """
    rng = np.random.default_rng([seed, ("small", "large").index(family), number])
    sizes, shares = _VOCABULARIES[family]
    largest = int(rng.choice(sizes, p=shares))
    vocab = rng.integers(max(1, largest // 4), largest + 1, size=ROWS_PER_BATCH)
    config = _random_config(rng, largest, family)
    power = int(rng.choice([0, 1, 2, 3], p=[0.1, 0.3, 0.3, 0.3]))
    drafted = np.ones(largest, dtype=bool)
    if rng.random() < 0.25:  # a draft vocabulary of its own; token 0 is in every row's
        drafted[1:] = rng.random(largest - 1) < 0.6
    ranking = _random_weights(rng, vocab, drafted)
    is_pair = power > 0 and rng.random() < 0.3
    draft = _random_weights(rng, vocab, drafted) if is_pair else ranking
    target = _random_weights(rng, vocab, np.ones(largest, dtype=bool))
    # Target = draft is where the residual vanishes, and rows near it are where it nearly does.
    same = rng.random((ROWS_PER_BATCH, NUM_TABLES, 1)) < 0.15
    target = np.where(same, draft, target)
    depth, top_k = config.depth, config.top_k
    return Batch(
        config=config,
        power=power,
        vocab=vocab,
        token_ids=None if drafted.all() else drafted.nonzero()[0],
        ranking=ranking,
        draft=draft,
        target=target,
        step=rng.integers(1, NUM_TABLES, size=(ROWS_PER_BATCH, 2)),
        probe=_random_uniforms(rng, (ROWS_PER_BATCH, depth, top_k)),
        accept=_random_uniforms(rng, (ROWS_PER_BATCH, depth, top_k, top_k)),
        final=_random_uniforms(rng, (ROWS_PER_BATCH,)),
    )


class TableDrafter:
    """The torch side's draft model: logits from the tables, by the table each path has reached."""

    def __init__(self, batch: Batch) -> None:
        """Read the tables of `batch`; the root of every row is table 0."""
        laws = [batch.ranking] if batch.draft is batch.ranking else [batch.ranking, batch.draft]
        self._token_ids = None
        if batch.token_ids is not None:
            laws = [law[..., batch.token_ids] for law in laws]
            self._token_ids = torch.from_numpy(batch.token_ids)
        self._logits = [_log(law) for law in laws]
        self._step = torch.from_numpy(batch.step)
        self._table = torch.zeros(len(batch.vocab), 1, dtype=torch.int64)

    @property
    def token_ids(self) -> Tensor | None:
        """[draft vocab] target ids, or None where the vocabularies agree."""
        return self._token_ids

    def root(self) -> Logits:
        """[rows, draft vocab] logits of the roots, or a pair of them."""
        self._table = torch.zeros_like(self._table[:, :1])
        return self._read(lambda values: values[:, 0])

    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Logits:
        """[rows, top_k, draft vocab] logits of a frontier, or a pair; NaN on its padding."""
        self._table = next_table(self._step, self._table.gather(1, parent), token)
        row = torch.arange(len(token)).unsqueeze(1)
        # Padding is poisoned, so that a decision that reads it cannot go unnoticed.
        poison = torch.where(valid, 0.0, torch.nan).unsqueeze(-1)
        return self._read(lambda values: values[row, self._table] + poison)

    def _read(self, take: Any) -> Logits:
        taken = [take(values) for values in self._logits]
        return (taken[0], taken[1]) if len(taken) == 2 else taken[0]


def next_table(step: Tensor, table: Tensor, token: Tensor) -> Tensor:
    """[rows, nodes] table that each node's path reaches, from its parent's table and its token."""
    return (step[:, :1] * table + token + step[:, 1:]) % NUM_TABLES


def target_logits(batch: Batch) -> Tensor:
    """[rows, tables, vocab] float64 logits of the target before the temperature."""
    return _log(batch.target)


@dataclass(slots=True)
class ExactRow:
    """The exact side's models of one row: callables from a path to a law of Fractions."""

    batch: Batch
    row: int
    _laws: dict[tuple[str, int, int], tuple[Fraction, ...]] = field(default_factory=dict)

    def target(self, path: tuple[int, ...]) -> tuple[Fraction, ...]:
        """[vocab] target law after `path`, at the request's temperature."""
        return self._law("target", self._table(path), self.batch.power)

    def draft(self, path: tuple[int, ...]) -> Any:
        """[vocab] draft law after `path`, or the pair (ranking, tempered draft)."""
        table = self._table(path)
        ranking = self._law("ranking", table, 1)
        if self.batch.draft is self.batch.ranking and self.batch.power == 1:
            return ranking
        return ranking, self._law("draft", table, self.batch.power)

    def _table(self, path: tuple[int, ...]) -> int:
        factor, shift = (int(part) for part in self.batch.step[self.row])
        table = 0
        for token in path:
            table = (factor * table + token + shift) % NUM_TABLES
        return table

    def _law(self, name: str, table: int, power: int) -> tuple[Fraction, ...]:
        if (name, table, power) not in self._laws:
            weights = getattr(self.batch, name)[self.row, table, : self.batch.vocab[self.row]]
            masses = [int(weight) ** power for weight in weights]
            if power == 0:  # the limit: the heaviest token, the first of several
                masses = [int(token == weights.argmax()) for token in range(len(weights))]
            total = sum(masses)
            self._laws[name, table, power] = tuple(Fraction(mass, total) for mass in masses)
        return self._laws[name, table, power]


def _random_config(rng: np.random.Generator, vocab: int, family: Family) -> SpeculationConfig:
    """A scheme small enough for exact replay, edges included."""
    top_k = int(rng.choice([1, 2, 3, 4, 6], p=[0.1, 0.3, 0.3, 0.2, 0.1]))
    num_top = int(rng.choice([0, 1, 2, top_k], p=[0.3, 0.4, 0.2, 0.1]))
    if family == "large":
        support_size = int(rng.integers(8, vocab // 2))
    elif rng.random() < 0.5:
        support_size = vocab
    else:
        support_size = int(rng.integers(1, vocab + 1))
    return SpeculationConfig(
        top_k=top_k,
        num_top=num_top,
        budget=int(rng.choice([0, 1, 2, 3, 4, 5, 8, 12, 100], p=[0.04, *[0.12] * 8])),
        depth=int(rng.choice([0, 1, 2, 3, 4], p=[0.03, 0.25, 0.35, 0.27, 0.1])),
        support_size=support_size,
        rule=RULES[int(rng.choice(len(RULES), p=[0.4, 0.4, 0.2]))],
    )


def _random_weights(
    rng: np.random.Generator, vocab: NDArray[np.int64], allowed: NDArray[np.bool_]
) -> Weights:
    """[rows, tables, width] integer weights on allowed tokens of each row's vocabulary, not all 0.

    Token 0 must be allowed.
    """
    width = len(allowed)
    shape = (len(vocab), NUM_TABLES, width)
    inside = np.broadcast_to((np.arange(width) < vocab[:, None, None]) & allowed, shape)
    # Dyadic laws (16 balls in `vocab` cells): ties, zeros, and probabilities that floats hold.
    cells = rng.integers(0, vocab[:, None, None], size=(len(vocab), NUM_TABLES, 16))
    dyadic = (cells[..., None] == np.arange(width)).sum(-2)
    peaked = np.where(rng.random(shape) < 1.5 / width, 2**40, rng.integers(0, 4, size=shape))
    styles = [
        dyadic,
        rng.integers(0, 4, size=shape),
        rng.integers(1, 1000, size=shape),
        np.ones(shape, dtype=np.int64),
        peaked,
        (rng.random(shape) < 0.3) * rng.integers(1, 100, size=shape),
        1000 // np.arange(1, width + 1) * np.ones(shape, dtype=np.int64),
    ]
    chosen = rng.choice(len(styles), size=shape[:2], p=[0.25, 0.25, 0.2, 0.05, 0.05, 0.1, 0.1])
    weights = np.where(inside, np.choose(chosen[..., None], styles), 0)
    # A table without weight becomes a point mass.
    empty = weights.sum(-1) == 0
    lone = rng.integers(0, vocab[:, None], size=shape[:2])
    lone = np.where(allowed[lone], lone, 0)
    weights[empty] += np.eye(width, dtype=np.int64)[lone[empty]]
    return weights.astype(np.int64)


def _random_uniforms(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Uniforms of 53 bits, a quarter of them at 0, at the largest below 1, or at sixteenths."""
    values = rng.random(shape)
    edge = rng.random(shape)
    values = np.where(edge < 0.24, rng.integers(0, 16, size=shape) / 16, values)
    values = np.where(edge < 0.16, LARGEST_UNIFORM, values)
    return np.where(edge < 0.08, 0.0, values)


def _log(weights: Weights) -> Tensor:
    """float64 logits; minus infinity for weight 0."""
    return torch.from_numpy(weights).double().log()
