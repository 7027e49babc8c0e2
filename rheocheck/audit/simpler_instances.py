"""Instances one step simpler than a given one, for the search of a small counterexample."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from rheocheck.audit.sampler_family import LawTable, SamplerInstance, denominator, laws_up_to
from rheocheck.protocols import Path, Sampler, Shrinkable
from rheocheck.reference import Law

# A simpler law is looked for among those of at most this denominator.
_LARGEST_DENOMINATOR = 6


def simpler_pairs(
    sampler: Sampler, instance: SamplerInstance
) -> Iterator[tuple[Sampler, SamplerInstance]]:
    """Every pair one step simpler than (sampler, instance), the largest steps first."""
    if isinstance(sampler, Shrinkable):
        for smaller in sampler.smaller():
            yield smaller, instance
    for step in (_one_draft, _fewer_tokens, _fewer_rows, _simpler_laws):
        for simpler in step(instance):
            yield sampler, simpler


def _one_draft(instance: SamplerInstance) -> Iterator[SamplerInstance]:
    """The draft as one law, where it is a pair."""
    if instance.ranking is not None:
        yield SamplerInstance(instance.group, instance.target, instance.draft)


def _fewer_tokens(instance: SamplerInstance) -> Iterator[SamplerInstance]:
    """Strike a token out of every law, or merge it into another one."""
    if instance.vocab == 1:
        return
    for token in reversed(range(instance.vocab)):
        for other in range(instance.vocab):
            into = None if other == token else other
            fewer = {
                name: _without_token(table, token, into) for name, table in instance.tables.items()
            }
            yield SamplerInstance(instance.group, **fewer)


def _without_token(table: LawTable, token: int, into: int | None) -> LawTable:
    rows = {}
    for context, law in table.rows.items():
        if token in context:
            continue
        masses = list(law)
        struck = masses[token]
        if into is not None:
            masses[into] += struck
        del masses[token]
        total = sum(masses, Fraction(0))
        if total == 0:
            masses, total = [Fraction(1)] * len(masses), Fraction(len(masses))
        renamed = tuple(other - (other > token) for other in context)
        rows[renamed] = tuple(mass / total for mass in masses)
    return LawTable(rows)


def _fewer_rows(instance: SamplerInstance) -> Iterator[SamplerInstance]:
    """Drop all rows but the first of a table, or one of them."""
    for name, table in instance.tables.items():
        if len(table.rows) == 1:
            continue
        yield _with(instance, name, {(): table.rows[()]})
        for context in sorted(table.rows, key=len, reverse=True):
            if context:
                kept = {key: law for key, law in table.rows.items() if key != context}
                yield _with(instance, name, kept)


def _simpler_laws(instance: SamplerInstance) -> Iterator[SamplerInstance]:
    """Replace a row by each simpler law, the simplest first."""
    for name, table in instance.tables.items():
        for context, law in table.rows.items():
            for simpler in _laws_below(law):
                yield _with(instance, name, {**table.rows, context: simpler})


def _laws_below(law: Law) -> Iterable[Law]:
    """Laws of a smaller denominator, or of the same one that come before it in a fixed order."""
    largest = min(denominator(law), _LARGEST_DENOMINATOR)
    for simpler in laws_up_to(len(law), largest):
        if simpler == law:
            return
        yield simpler


def _with(instance: SamplerInstance, name: str, rows: dict[Path, Law]) -> SamplerInstance:
    return SamplerInstance(instance.group, **{**instance.tables, name: LawTable(rows)})
