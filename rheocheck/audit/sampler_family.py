"""Target and draft laws that a sampler under test is given, the smallest instances first."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TypeAlias

from rheocheck.reference import Law, Path

VOCABS = (2, 3, 4)
CONSTANT_GROUP = "constant laws, every pair of small denominators"
EDGE_GROUP = "point masses, disjoint supports, ties, zeros"
HISTORY_GROUP = "laws that look at the last tokens"
PAIR_GROUP = "pairs of draft laws: ranking and tempered draft"
GROUPS = (CONSTANT_GROUP, EDGE_GROUP, HISTORY_GROUP, PAIR_GROUP)
Rows: TypeAlias = Mapping[Path, Law]


@dataclass(frozen=True, slots=True)
class LawTable:
    """Laws by context: the row of a path is that of its longest suffix that has one.

    Attributes:
      rows: Law of each context; the empty context is always there.
    """

    rows: Rows

    def __call__(self, path: Path) -> Law:
        """[vocab] law after `path`."""
        for start in range(len(path) + 1):
            law = self.rows.get(path[start:])
            if law is not None:
                return law
        raise AssertionError("a table has a row for the empty context")

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self.rows[()])


@dataclass(frozen=True, slots=True)
class SamplerInstance:
    """One pair of laws.

    Attributes:
      group: What the laws have in common: one of GROUPS.
      target: Target law by path.
      draft: Draft law by path, the one that tokens are drawn from.
      ranking: Ranking law by path, where the draft is given as a pair; None where it is one law.
    """

    group: str
    target: LawTable
    draft: LawTable
    ranking: LawTable | None = None

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return self.target.vocab

    @property
    def tables(self) -> dict[str, LawTable]:
        """The tables by their names."""
        named = {"target": self.target, "ranking": self.ranking, "draft": self.draft}
        return {name: table for name, table in named.items() if table is not None}

    def given_draft(self, path: Path) -> Law | tuple[Law, Law]:
        """What the sampler gets from its draft: a law, or (ranking, tempered draft)."""
        law = self.draft(path)
        return law if self.ranking is None else (self.ranking(path), law)

    def laws_text(self, path: Path) -> str:
        """All laws at a path, for people."""
        shown = [f"the {name} {law_text(table(path))}" for name, table in self.tables.items()]
        return f"{', '.join(shown[:-1])} and {shown[-1]}"


def path_text(path: Iterable[int]) -> str:
    """A path as people read it."""
    tokens = list(path)
    return f"({', '.join(map(str, tokens))})" if tokens else "the empty path"


def law_text(law: Iterable[Fraction | str]) -> str:
    """A law as people read it."""
    return f"({', '.join(map(str, law))})"


def denominator(law: Law) -> int:
    """Least common denominator of a law."""
    return lcm(*(mass.denominator for mass in law))


def instance_size(instance: SamplerInstance) -> tuple[int, ...]:
    """Order of instances: fewest tokens, fewest rows, smallest denominators, fewest zeros last."""
    laws = [law for table in instance.tables.values() for law in table.rows.values()]
    denominators = [denominator(law) for law in laws]
    support = sum(mass > 0 for law in laws for mass in law)
    return (instance.vocab, len(laws), max(denominators), sum(denominators), support)


def laws_up_to(vocab: int, largest: int) -> list[Law]:
    """Every law on `vocab` tokens of denominator at most `largest`, by denominator."""
    found: dict[Law, None] = {}
    for total in range(1, largest + 1):
        for cuts in itertools.combinations_with_replacement(range(total + 1), vocab - 1):
            edges = (0, *cuts, total)
            found[tuple(Fraction(b - a, total) for a, b in itertools.pairwise(edges))] = None
    return sorted(found, key=lambda law: (denominator(law), sum(mass > 0 for mass in law)))


def sampler_family(
    quick: bool = False, seed: int = 0, max_vocab: int = VOCABS[-1], pairs: bool = False
) -> list[SamplerInstance]:
    """The instances a sampler is checked on.

    Args:
      quick: About a third of them.
      seed: Changes the laws that look at the last tokens.
      max_vocab: Largest vocabulary, 2 to 4.
      pairs: Drafts given as (ranking, tempered draft) too, for a sampler that takes them.

    Returns:
      The instances by size: smallest first.
    """
    made = itertools.chain(_constant(quick), _edges(quick), _histories(quick, seed))
    if pairs:
        made = itertools.chain(made, _pairs(quick, seed))
    distinct: dict[str, SamplerInstance] = {}
    for instance in made:
        if instance.vocab <= max_vocab:
            distinct.setdefault(repr(instance.tables), instance)
    return sorted(distinct.values(), key=instance_size)


def family_text(quick: bool, seed: int, max_vocab: int, pairs: bool = False) -> str:
    """What the family is, for a claim."""
    largest = 2 if quick else 4
    constant = f"every pair of constant laws of denominator up to {largest} on 2 tokens"
    if max_vocab > 2 and not quick:
        constant += " and up to 2 on 3 tokens"
    tokens = "2 tokens" if max_vocab == 2 else f"2 to {max_vocab} tokens"
    return (
        f"{constant}; point masses, disjoint supports, ties and zeros on {tokens}; laws on "
        f"{tokens} that look at the last one or two tokens, zeros common, seed {seed}"
        + ("; drafts given as one law and as a pair (ranking, tempered draft)" if pairs else "")
    )


def _constant(quick: bool) -> Iterator[SamplerInstance]:
    ranges = ((2, 2),) if quick else ((2, 4), (3, 2))
    for vocab, largest in ranges:
        for target, draft in itertools.product(laws_up_to(vocab, largest), repeat=2):
            yield _pair(CONSTANT_GROUP, target, draft)


def _edges(quick: bool) -> Iterator[SamplerInstance]:
    for vocab in VOCABS:
        uniform = _law([1] * vocab)
        first, last = _law([1] + [0] * (vocab - 1)), _law([0] * (vocab - 1) + [1])
        skew = _law([2 ** (vocab - 1 - token) for token in range(vocab)])
        tilted = skew[::-1]
        pairs = [(skew, tilted), (uniform, last), (first, last), (skew, uniform), (first, skew)]
        pairs.append((uniform, skew))  # a token-wise residual of the block test shows here only
        head = _law([1, 1] + [0] * (vocab - 2))
        if vocab > 2:
            gapped = _law([1] + [0] * (vocab - 2) + [2])
            pairs += [(head, gapped), (gapped, uniform), (uniform, head)]
        if vocab > 3:
            tail = _law([0, 0, 1, 2])
            pairs += [(head, tail), (_law([0, 3, 2, 1]), _law([4, 0, 1, 1]))]
        if not quick:
            pairs += [(skew, skew), (last, uniform), (tilted, first)]
        for target, draft in pairs:
            yield _pair(EDGE_GROUP, target, draft)


def _histories(quick: bool, seed: int) -> Iterator[SamplerInstance]:
    counts = {2: 8, 3: 4, 4: 2} if quick else {2: 24, 3: 10, 4: 4}
    for vocab, count in counts.items():
        for number in range(count):
            generator = random.Random(f"{seed}/{vocab}/{number}")
            # Zeros cut paths off, so every other instance has none.
            least = number % 2
            memory = 1 + (number // 2) % 2
            yield SamplerInstance(
                HISTORY_GROUP,
                LawTable(_random_rows(generator, vocab, memory, least)),
                LawTable(_random_rows(generator, vocab, memory, least)),
            )


def _pairs(quick: bool, seed: int) -> Iterator[SamplerInstance]:
    """Rankings of full support, in another order than the draft, tied with it, or equal to it."""
    few = laws_up_to(2, 2)
    for target, draft in itertools.product(few, repeat=2):
        for ranking in (_law([1, 2]), _law([2, 1]), _law([1, 1])):
            yield _pair(PAIR_GROUP, target, draft, ranking)
    for vocab in VOCABS[1:]:
        uniform, last = _law([1] * vocab), _law([0] * (vocab - 1) + [1])
        skew = _law([2 ** (vocab - 1 - token) for token in range(vocab)])
        head, tilted = _law([1, 1] + [0] * (vocab - 2)), skew[::-1]
        for target, ranking, draft in (
            (uniform, skew, tilted), (skew, tilted, uniform), (tilted, skew, last),
            (head, uniform, skew), (skew, skew, head), (last, tilted, skew),
        ):  # fmt: skip
            yield _pair(PAIR_GROUP, target, draft, ranking)
    counts = {2: 4, 3: 3, 4: 1} if quick else {2: 12, 3: 6, 4: 3}
    for vocab, count in counts.items():
        for number in range(count):
            generator = random.Random(f"pair/{seed}/{vocab}/{number}")
            least = number % 2
            yield SamplerInstance(
                PAIR_GROUP,
                LawTable(_random_rows(generator, vocab, 1, least)),
                LawTable(_random_rows(generator, vocab, 1, least)),
                LawTable(_random_rows(generator, vocab, 1, 1)),
            )


def _random_rows(generator: random.Random, vocab: int, memory: int, least: int) -> dict[Path, Law]:
    contexts = (
        context
        for length in range(memory + 1)
        for context in itertools.product(range(vocab), repeat=length)
    )
    rows = {}
    for context in contexts:
        weights = [generator.randint(least, 3) for _ in range(vocab)]
        if not any(weights):
            weights[generator.randrange(vocab)] = 1
        rows[context] = _law(weights)
    return rows


def _pair(group: str, target: Law, draft: Law, ranking: Law | None = None) -> SamplerInstance:
    table = None if ranking is None else LawTable({(): ranking})
    return SamplerInstance(group, LawTable({(): target}), LawTable({(): draft}), table)


def _law(weights: Iterable[int]) -> Law:
    listed = list(weights)
    total = sum(listed)
    return tuple(Fraction(weight, total) for weight in listed)
