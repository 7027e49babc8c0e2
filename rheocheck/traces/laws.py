"""Laws of a trace's tokens in one form: a row of columns for each emitted token.

Where the target's laws are dense the columns are the vocabulary. Where they are sparse they are the
listed tokens in the order of their ids, and a last column for all others together: what is a test
of all tokens then is a test of the listed ones and the rest, which is a valid test of less.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.traces.shards import Piece

# A law in float16 is off by 2**-11 relative in every entry; others are float32 or better.
# Vanished masses of a whole law in F16, 3e-8 a token, then stay below 1.3e-4.
LARGEST_HALF_VOCAB = 4096
SUM_TOLERANCE = {2: 2e-3, 4: 1e-5, 8: 1e-5}
# Closer to 1 than this a law stands as it is: scaling would change its last digits.
EXACT_SUM = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """Laws at the emitted tokens of a piece.

    Attributes:
      ids: [emitted, columns] token of each column; -1 on padding and on the column of the rest.
        None: the columns are the vocabulary.
      target: [emitted, columns] law that verification used, rows sum to 1.
      draft: [emitted, columns] the draft's law; zero rows where nothing was drafted. None: absent.
      plain: [emitted, columns] the target's law by plain decoding. None: absent.
      probe: [emitted, columns] law that verification took the node's probe to be drawn from; zero
        rows where there is none. None: absent.
      column: [emitted] column of the emitted token.
      rest: [emitted] target mass outside the listed tokens; 0 where the law is complete.
    """

    ids: NDArray[np.int64] | None
    target: NDArray[np.float64]
    draft: NDArray[np.float64] | None
    plain: NDArray[np.float64] | None
    probe: NDArray[np.float64] | None
    column: NDArray[np.int64]
    rest: NDArray[np.float64]

    @property
    def null(self) -> NDArray[np.float64]:
        """[emitted, columns] law that emitted tokens are tested against: plain if it is there."""
        return self.target if self.plain is None else self.plain

    def column_of(self, token: NDArray[np.int64]) -> NDArray[np.int64]:
        """[emitted, k] columns of [emitted, k] tokens; -1 for -1 and for tokens not listed."""
        if self.ids is None:
            return token
        match = self.ids[:, None, :] == np.where(token < 0, -2, token)[:, :, None]
        return np.where(match.any(-1), match.argmax(-1), -1)


def read_laws(piece: Piece) -> Laws:
    """Check the laws of a piece and bring them to one form.

    Raises:
      TraceError: A token outside the vocabulary, a law with NaN or a negative entry, one that does
        not sum to 1, one that lists a token twice; the message names record and token.
    """
    arrays = piece.arrays
    token = arrays["token"]
    _check_ids(token, np.arange(len(token)), "token", piece)
    dense_draft = "draft_law" in arrays or "draft_logits" in arrays
    if "target_size" in arrays and not (dense_draft and not arrays["target_rest"].any()):
        return _sparse(piece)
    target = _dense("target", piece)
    shape = (len(token), piece.vocab)
    if target is None:
        target = _spread("target", shape, piece)
    draft = _dense("draft", piece)
    if draft is None and "draft_size" in arrays:
        draft = _spread("draft", shape, piece)
    probe = _spread("probe", shape, piece) if "probe_mass" in arrays else None
    plain = _spread("plain", shape, piece) if "plain_mass" in arrays else _dense("plain", piece)
    return Laws(None, target, draft, plain, probe, token, np.zeros(len(token)))


def _sparse(piece: Piece) -> Laws:
    arrays, token = piece.arrays, piece.arrays["token"]
    row, ids, _, rest = _entries("target", piece)
    table = _table(row, ids, rest, piece)
    plain = None
    if "plain_mass" in arrays:
        plain = _listed_at("plain", table, piece)
    draft = _draft_at(table, piece)
    probe = _listed_at("probe", table, piece) if "probe_mass" in arrays else None
    target = _listed_at("target", table, piece)
    laws = Laws(table, target, draft, plain, probe, np.zeros(len(token), dtype=np.int64), rest)
    found = laws.column_of(token[:, None])[:, 0]
    return replace(laws, column=np.where(found < 0, table.shape[1] - 1, found))


def _table(
    row: NDArray[np.int64], ids: NDArray[np.int64], rest: NDArray[np.float64], piece: Piece
) -> NDArray[np.int64]:
    """[emitted, columns] the target's listed tokens by id, then padding and the rest's column.

    Where the target's law is complete the draft's listed tokens have columns too, of mass 0: a
    tail's order needs them, and nothing is unknown about them.
    """
    key = row * piece.vocab + ids
    if "draft_size" in piece.arrays:
        size = piece.arrays["draft_size"]
        draft_row = np.repeat(np.arange(len(size)), size)
        _check_ids(piece.arrays["draft_id"], draft_row, "draft_id", piece)
        complete = rest[draft_row] == 0
        more = draft_row * piece.vocab + piece.arrays["draft_id"]
        key = np.union1d(key, more[complete])
    row, ids = key // piece.vocab, key % piece.vocab
    size = np.bincount(row, minlength=len(rest))
    place = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
    table = np.full((len(rest), int(size.max(initial=0)) + 1), -1, dtype=np.int64)
    table[row, place] = ids
    return table


def _spread(name: str, shape: tuple[int, ...], piece: Piece) -> NDArray[np.float64]:
    """[emitted, vocab] laws from their entries."""
    row, ids, mass, rest = _entries(name, piece)
    if rest.any():
        raise piece.token_error(
            f"{name}_rest: must be 0 where the target law is dense", int(np.flatnonzero(rest)[0])
        )
    law = np.zeros(shape)
    law[row, ids] = mass
    return law


def _draft_at(table: NDArray[np.int64], piece: Piece) -> NDArray[np.float64] | None:
    """The draft's law on a table of columns; what it gives other tokens is in the last one."""
    dense = _dense("draft", piece)
    if dense is None:
        return _listed_at("draft", table, piece) if "draft_size" in piece.arrays else None
    draft = np.where(table >= 0, np.take_along_axis(dense, table.clip(0), axis=1), 0.0)
    draft[:, -1] = np.maximum(dense.sum(axis=1) - draft.sum(axis=1), 0.0)
    return draft


def _listed_at(name: str, table: NDArray[np.int64], piece: Piece) -> NDArray[np.float64]:
    """Sparse laws on a table of columns; what they give other tokens is in the last one."""
    law = np.zeros(table.shape)
    row, ids, mass, rest = _entries(name, piece)
    # Both sides are sorted by (row, id), so one search finds every listed token.
    listed_row, listed_place = (table >= 0).nonzero()
    key = np.append(listed_row * piece.vocab + table[listed_row, listed_place], -1)
    wanted = row * piece.vocab + ids
    at = np.searchsorted(key[:-1], wanted)
    known = key[at] == wanted
    law[listed_row[at[known]], listed_place[at[known]]] = mass[known]
    law[:, -1] = rest
    np.add.at(law[:, -1], row[~known], mass[~known])
    return law


def _dense(name: str, piece: Piece) -> NDArray[np.float64] | None:
    """[emitted, vocab] laws given whole, as probabilities or as logits; None where they are not."""
    logits = piece.arrays.get(f"{name}_logits")
    if logits is not None:
        return _softmax(np.asarray(logits, dtype=np.float64), f"{name}_logits", piece)
    given = piece.arrays.get(f"{name}_law")
    if given is None:
        return None
    if given.dtype.itemsize == 2 and name != "draft" and piece.vocab > LARGEST_HALF_VOCAB:
        raise piece.token_error(
            f"{name}_law is F16 over {piece.vocab:,} tokens: masses below 6e-8 vanish, together too"
            f" much beyond {LARGEST_HALF_VOCAB:,} tokens; write F32, or {name}_logits",
            0,
        )
    law = np.asarray(given, dtype=np.float64)
    # The comparison is False for NaN too.
    bad = ~((law >= 0) & (law <= 2))
    if bad.any():
        row, column = (int(found[0]) for found in bad.nonzero())
        raise piece.token_error(
            f"{name}_law at token id {column} = {law[row, column]}: must be a probability", row
        )
    return _scaled(law, law.sum(axis=1), f"{name}_law", given.dtype.itemsize, piece)


def _softmax(logits: NDArray[np.float64], name: str, piece: Piece) -> NDArray[np.float64]:
    # The maximum is NaN if any entry is, +inf if any is, -inf if all are.
    largest = logits.max(axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(largest[:, 0]))
    if bad.size:
        row = int(bad[0])
        fault = "NaN" if np.isnan(largest[row, 0]) else f"{largest[row, 0]} as its largest entry"
        raise piece.token_error(
            f"{name}: has {fault}; entries must be finite or -inf, at least one finite", row
        )
    weight = np.exp(logits - largest)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), dtype=np.float64)


def _entries(
    name: str, piece: Piece
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Row, token id and mass of each sparse entry, by (row, id), and each row's rest."""
    arrays = piece.arrays
    side = {"plain": "target", "probe": "draft"}.get(name, name)
    size, ids, given = arrays[f"{side}_size"], arrays[f"{side}_id"], arrays[f"{name}_mass"]
    row = np.repeat(np.arange(len(size)), size)
    _check_ids(ids, row, f"{side}_id", piece)
    mass = np.asarray(given, dtype=np.float64)
    bad = np.flatnonzero(~((mass >= 0) & (mass <= 2)))
    if bad.size:
        raise piece.token_error(
            f"{name}_mass of token id {ids[bad[0]]} = {mass[bad[0]]}: must be a probability",
            int(row[bad[0]]),
        )
    rest = np.asarray(arrays.get(f"{name}_rest", np.zeros(len(size))), dtype=np.float64)
    bad = np.flatnonzero(~((rest >= 0) & (rest <= 2)))
    if bad.size:
        raise piece.token_error(f"{name}_rest = {rest[bad[0]]}: must be a probability", int(bad[0]))
    total = np.bincount(row, mass, minlength=len(size)) + rest
    # The probe's law stands as verification had it: one that does not sum to 1 is a finding.
    factor = np.ones(len(size))
    if name != "probe":
        factor = _factor(total, f"{name} law", given.dtype.itemsize, piece, side == "draft")
    order = np.lexsort((ids, row))
    ids = ids[order]
    twice = np.flatnonzero((row[1:] == row[:-1]) & (ids[1:] == ids[:-1]))
    if twice.size:
        raise piece.token_error(f"{side}_id {ids[twice[0]]}: is listed twice", int(row[twice[0]]))
    return row, ids, mass[order] * factor[row], rest * factor


def _scaled(
    law: NDArray[np.float64], total: NDArray[np.float64], name: str, itemsize: int, piece: Piece
) -> NDArray[np.float64]:
    factor = _factor(total, name, itemsize, piece, name.startswith("draft"))
    return law if (factor == 1).all() else law * factor[:, None]


def _factor(
    total: NDArray[np.float64], name: str, itemsize: int, piece: Piece, may_be_zero: bool
) -> NDArray[np.float64]:
    """[emitted] what to multiply by, so that rows sum to 1; a draft's zero rows stay zero."""
    tolerance = SUM_TOLERANCE[itemsize]
    wrong = np.abs(total - 1.0) > tolerance
    if may_be_zero:
        wrong &= total != 0
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise piece.token_error(
            f"{name} sums to {total[row]:.9g}: must sum to 1 within {tolerance:g}"
            + (", or be all zero where nothing was drafted" if may_be_zero else ""),
            row,
        )
    exact = (np.abs(total - 1.0) <= EXACT_SUM) | (total == 0)
    return np.where(exact, 1.0, 1.0 / np.where(total == 0, 1.0, total))


def _check_ids(ids: NDArray[Any], row: NDArray[np.int64], name: str, piece: Piece) -> None:
    bad = np.flatnonzero((ids < 0) | (ids >= piece.vocab))
    if bad.size:
        raise piece.token_error(
            f"{name} = {ids[bad[0]]}: outside the vocabulary of {piece.vocab}", int(row[bad[0]])
        )
