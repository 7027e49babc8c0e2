"""Where in decoding a fault sits: role, depth, rank, round, request and token set.

Two kinds of evidence. A violation is exact: so many steps of a category were looked at and so many
are wrong. A deviation is statistical: counts, or scores, of a category against what its laws say,
with their exact variance. Roles are compared with their probabilities given the tree, which exact
verification gives; the other categories are fixed before the token is drawn, so that looking at one
of them by itself is legitimate. What must not be conditioned on is acceptance.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rheocheck.audit.token_cells import RANK_NAMES, rank_buckets
from rheocheck.audit.trace_facts import NUMERICS, Facts, role_name
from rheocheck.stats.scores import draft_score, surprisal
from rheocheck.traces.reader import Batch
from rheocheck.traces.trees import ROLES

DEPTH_IS = "accepted tokens before it in its round"
# A normal approximation needs counts; categories that expect fewer are not judged.
SMALLEST_EXPECTED = 5.0
SHOWN = 12
LARGEST_TOKEN_SET = 16
# Of a dimension so many categories are kept apart, in the order in which they come; a trace can
# have millions of requests.
LARGEST_CATEGORIES = 4096
# Of a dimension so many categories with violations are shown.
LARGEST_SHOWN_CATEGORIES = 6

# Of a category: tokens, deviation, variance, observed, expected. The last two are 0 for scores.
Sums = NDArray[np.float64]


@dataclass(slots=True)
class Localiser:
    """Facts of all batches, by category; parts of a run can be merged.

    Attributes:
      looked: (kind, dimension, category) -> steps that were looked at.
      wrong: The same -> violations.
      sums: (statistic, dimension, category) -> `Sums`.
      token: [2, 2, vocab] by half of the records: observed, expected counts of each token.
      first: By kind, the first violation.
      kept: (table, statistic or kind, dimension) -> categories that are kept apart.
      origin: (kind, run, request) -> (round, depth, role, node) of its earliest violation; node is
        -1 without trees. What comes later in a request may be a consequence.
    """

    looked: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    wrong: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    sums: dict[tuple[str, str, str], Sums] = field(default_factory=dict)
    token: NDArray[np.float64] | None = None
    first: dict[str, dict[str, Any]] = field(default_factory=dict)
    kept: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    origin: dict[tuple[str, str, int], tuple[int, int, str, int]] = field(default_factory=dict)

    def observe(self, batch: Batch, facts: Facts, run: str) -> None:
        """Take in a batch with its facts; `run` names its run."""
        request = batch.request[batch.record]
        labels = {
            "run": np.full(len(request), run, dtype=object),
            "depth": batch.step,
            "round": batch.round[batch.record],
            "request": request,
        }
        for kind, violated in facts.violated.items():
            roles = np.array([role_name(role) for role in facts.role[kind]], dtype=object)
            for dimension, values in {"role": roles, **labels}.items():
                looked = dimension != "role" or kind == NUMERICS
                self._count(kind, dimension, values if looked else None, values[violated])
            if violated.any() and kind not in self.first:
                self.first[kind] = _witness(batch, facts, kind, int(violated.argmax()))
            for row in np.flatnonzero(violated).tolist():
                node = -1 if batch.trees is None else int(batch.trees.node[row])
                place = int(labels["round"][row]), int(batch.step[row]), str(roles[row]), node
                key = kind, run, int(request[row])
                self.origin[key] = min(place, self.origin.get(key, place))
        self._deviations(batch, facts, labels)

    def merge(self, other: "Localiser", first_record: int = 0) -> None:
        """Add the facts of a later part of the run, whose records start at `first_record`."""
        self.looked.update(other.looked)
        self.wrong.update(other.wrong)
        for key, sums in other.sums.items():
            self.sums[key] = self.sums.get(key, np.zeros(5)) + sums
        if other.token is not None:
            self.token = other.token if self.token is None else self.token + other.token
        for origin, place in other.origin.items():
            self.origin[origin] = min(place, self.origin.get(origin, place))
        for kind, witness in other.first.items():
            moved = {**witness, "record": first_record + witness["record"]}
            self.first.setdefault(kind, moved)

    def summary(self, replay: str | None) -> dict[str, Any]:
        """The section of the report, JSON values only.

        Args:
          replay: Shell line that audits the trace; the first violation's record is added to it.
            None: no trace was saved.

        Returns:
          Violations and deviations, largest first, the token set, the first violation and its
          replay.
        """
        deviations = self._judged()
        kind = next(iter(self.first), None)
        first = None if kind is None else {"what": kind, **self.first[kind]}
        line = None if replay is None else replay_of(replay, first)
        return {
            "depth_is": DEPTH_IS,
            "violations": self._violations(),
            "origins": self._origins(),
            "origins_are": "earliest violation of each request: later ones may be consequences",
            "deviations": deviations[:SHOWN],
            "multiplicity": (
                f"{len(deviations)} categories compared; adjusted p is Bonferroni over them, by "
                "the normal approximation: it says where to look, the stages judge"
            ),
            "token_set": self._token_set(),
            "first": first,
            "replay": line,
        }

    def _count(self, kind: str, dimension: str, looked: Any, wrong: Any) -> None:
        for name, values in (("looked", looked), ("wrong", wrong)):
            counter = self.looked if name == "looked" else self.wrong
            for value, count in Counter([] if values is None else values.tolist()).items():
                key = kind, dimension, str(value)
                if key in counter or self._has_room(name, key):
                    counter[key] += count

    def _has_room(self, table: str, key: tuple[str, str, str]) -> bool:
        """Whether one more category of this dimension is kept; it is counted if so."""
        place = table, key[0], key[1]
        has_room = self.kept[place] < LARGEST_CATEGORIES
        self.kept[place] += has_room
        return has_room

    def _deviations(self, batch: Batch, facts: Facts, labels: dict[str, Any]) -> None:
        laws = batch.laws
        scores = {"surprisal": surprisal(laws.null)}
        if laws.draft is not None:
            scores["draft score"] = draft_score(laws.null, laws.draft)
        rows = np.arange(len(batch.token))
        for name, score in scores.items():
            inside = laws.null[rows, laws.column] > 0
            mean = (laws.null * score).sum(axis=1)
            variance = (laws.null * (score - mean[:, None]) ** 2).sum(axis=1)
            deviation = np.where(inside, score[rows, laws.column] - mean, 0.0)
            table = np.stack([np.ones(len(rows)), deviation, variance, 0 * mean, 0 * mean], axis=1)
            for dimension, values in labels.items():
                self._add(name, dimension, values, table)
        bucket, law = rank_buckets(laws)
        self._add_counts("rank", RANK_NAMES, bucket, law)
        if facts.role_law is not None and facts.emitted_role is not None:
            whole = facts.whole
            assert whole is not None
            self._add_counts("role", ROLES, facts.emitted_role[whole], facts.role_law[whole])
        self._add_tokens(batch)

    def _add(self, name: str, dimension: str, values: Any, table: NDArray[np.float64]) -> None:
        """Sum rows by their label."""
        found, inverse = np.unique(values.astype(str), return_inverse=True)
        sums = np.zeros((len(found), table.shape[1]))
        np.add.at(sums, inverse, table)
        for label, row in zip(found.tolist(), sums, strict=True):
            key = (name, dimension, str(label))
            if key in self.sums or self._has_room("sums", key):
                self.sums[key] = self.sums.get(key, np.zeros(5)) + row

    def _add_counts(
        self,
        dimension: str,
        names: tuple[str, ...],
        found: NDArray[np.int64],
        law: NDArray[np.float64],
    ) -> None:
        for index, name in enumerate(names):
            mass = law[:, index]
            observed = float((found == index).sum())
            expected, variance = float(mass.sum()), float((mass * (1 - mass)).clip(0).sum())
            row = np.array([len(found), observed - expected, variance, observed, expected])
            key = ("count", dimension, name)
            self.sums[key] = self.sums.get(key, np.zeros(5)) + row

    def _add_tokens(self, batch: Batch) -> None:
        if self.token is None:
            self.token = np.zeros((2, 2, batch.vocab))
        laws, half = batch.laws, (batch.first_record + batch.record) % 2
        for side in (0, 1):
            rows = np.flatnonzero(half == side)
            is_listed = laws.column < laws.null.shape[1] - (laws.ids is not None)
            listed = rows[is_listed[rows]]
            self.token[side, 0] += np.bincount(batch.token[listed], minlength=batch.vocab)
            if laws.ids is None:
                self.token[side, 1] += laws.null[rows].sum(axis=0)
            else:
                ids = laws.ids[rows]
                there = ids >= 0
                self.token[side, 1] += np.bincount(
                    ids[there], laws.null[rows][there], minlength=batch.vocab
                )

    def _violations(self) -> list[dict[str, Any]]:
        """Categories with violations: by kind, then dimension, most violations first."""
        order = {"role": 0, "depth": 1, "round": 2, "run": 3, "request": 4}
        found = [
            {
                "what": kind,
                "dimension": dimension,
                "category": category,
                "violations": count,
                "examined": self.looked.get((kind, dimension, category)),
            }
            for (kind, dimension, category), count in self.wrong.items()
        ]
        found.sort(
            key=lambda item: (
                item["what"], order[str(item["dimension"])], -int(item["violations"] or 0)
            )
        )  # fmt: skip
        kept: list[dict[str, Any]] = []
        for item in found:
            same = [
                k for k in kept if (k["what"], k["dimension"]) == (item["what"], item["dimension"])
            ]
            if len(same) < LARGEST_SHOWN_CATEGORIES:
                kept.append(item)
        return kept

    def _origins(self) -> list[dict[str, Any]]:
        """By kind, role, depth and node: requests whose first violation is there, most first."""
        counted: Counter[tuple[str, str, int, int]] = Counter()
        rounds: dict[tuple[str, str, int, int], int] = {}
        for (kind, _, _), (round_index, depth, role, node) in self.origin.items():
            key = kind, role, depth, node
            counted[key] += 1
            rounds[key] = min(round_index, rounds.get(key, round_index))
        return [
            {
                "what": kind, "role": role, "depth": depth, "node": node,
                "earliest_round": rounds[kind, role, depth, node], "requests": count,
            }
            for (kind, role, depth, node), count in counted.most_common(SHOWN)
        ]  # fmt: skip

    def _judged(self) -> list[dict[str, Any]]:
        """Every category with enough counts, by the size of its z value."""
        judged = []
        for (name, dimension, category), sums in self.sums.items():
            total, deviation, variance, observed, expected = (float(value) for value in sums)
            is_count = name == "count"
            enough = max(observed, expected) if is_count else total
            if enough < SMALLEST_EXPECTED:
                continue
            # Something that cannot happen and did has no z; an exact violation shows it.
            if variance <= 1e-9:
                continue
            judged.append(
                {
                    "statistic": name,
                    "dimension": dimension,
                    "category": category,
                    "tokens": int(total),
                    "observed": observed if is_count else None,
                    "expected": expected if is_count else None,
                    "z": deviation / variance**0.5,
                }
            )
        judged.sort(key=lambda item: -abs(float(item["z"])))
        for item in judged:
            p = 2.0 * float(stats.norm.sf(abs(float(item["z"]))))
            item["adjusted_p"] = min(1.0, p * len(judged))
        return judged

    def _token_set(self) -> dict[str, Any] | None:
        """Tokens emitted too often in one half of the records, measured on the other half."""
        if self.token is None:
            return None
        (observed, expected), (other, other_expected) = self.token
        excess = (observed - expected) / np.sqrt(np.maximum(expected, 1.0))
        chosen = np.argsort(-excess, kind="stable")[:LARGEST_TOKEN_SET]
        chosen = chosen[excess[chosen] > 2.0]
        if not len(chosen):
            return None
        count, mean = float(other[chosen].sum()), float(other_expected[chosen].sum())
        total = float(other_expected.sum())
        return {
            "tokens": [int(token) for token in chosen],
            "observed": count,
            "expected": mean,
            "tokens_in_half": total,
            # A sum of independent indicators has at most its mean as variance.
            "z": (count - mean) / max(mean, 1.0) ** 0.5,
            "found": "on the even records, largest excess first; measured on the odd ones, with a "
            "variance that errs upwards",
        }


def replay_of(replay: str, witness: dict[str, Any] | None) -> str:
    """The line that shows a witness: of its record, unless it takes two of them to see it."""
    if witness is None or "other_record" in witness:
        return replay
    return f"{replay} --record {witness['record']}"


def _witness(batch: Batch, facts: Facts, kind: str, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        **batch.place(row),
        "role": role_name(int(facts.role[kind][row])),
        "token": int(batch.token[row]),
    }
    found["depth"] = found.pop("step")
    if kind in facts.wanted:
        found["wanted"] = facts.wanted[kind][row].item()
    if kind in facts.got:
        found["got"] = facts.got[kind][row].item()
    return found
