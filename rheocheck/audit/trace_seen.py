"""What all batches of a trace together showed."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.drawn_tokens import Drawn
from rheocheck.audit.localise import Localiser
from rheocheck.audit.token_pilot import pilot_faults
from rheocheck.audit.token_power import PilotFault
from rheocheck.audit.token_statistics import Statistic, statistics
from rheocheck.audit.token_witness import WitnessSets
from rheocheck.audit.trace_alignment import Alignment
from rheocheck.audit.trace_facts import Facts
from rheocheck.audit.trace_numerics import DistanceSums
from rheocheck.errors import TraceError
from rheocheck.stats.scores import NO_SCORES, ScoreSums, rate_sums
from rheocheck.traces.reader import Batch
from rheocheck.traces.trees import BONUS, RESIDUAL, ROLES

# Where settings do not say what a node's children are, these ranks stand for their roles.
DEFAULT_NUM_TOP, DEFAULT_TOP_K = 1, 10


@dataclass(slots=True)
class Seen:
    """What all batches together showed.

    Attributes:
      seed: Of the randomised PIT.
      tokens: Emitted tokens.
      records: Rounds.
      violations: By kind; kinds that could not be looked at are absent.
      tests: The statistics.
      sets: For the witness of a rejection.
      accept: Sums of 1{a child was accepted} at nodes whose role laws are known.
      pilot: Named faults on some contexts of the first batch.
      pits: PIT values of surviving probes.
      roles: Observed roles, and their laws at each token.
      distances: Of the verifier's laws to plain decoding's.
      localiser: For the section of the report.
    """

    seed: int
    tokens: int = 0
    records: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    tests: list[Statistic] | None = None
    sets: WitnessSets = field(default_factory=WitnessSets)
    accept: ScoreSums = NO_SCORES
    pilot: tuple[PilotFault, ...] | None = None
    pits: list[NDArray[np.float64]] = field(default_factory=list)
    role_counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(ROLES)))
    role_laws: list[NDArray[np.float64]] = field(default_factory=list)
    partial: int = 0
    num_tests: int = 0
    num_rounded: int = 0
    num_nodes: int = 0
    node_distance: float = 0.0
    distances: DistanceSums = field(default_factory=DistanceSums)
    has_draft: bool = True
    localiser: Localiser = field(default_factory=Localiser)
    alignment: Alignment = field(default_factory=Alignment)
    finals: list[NDArray[np.float64]] = field(default_factory=list)
    places: list[NDArray[np.int64]] = field(default_factory=list)

    def observe(
        self, batch: Batch, facts: Facts, run: str, settings: dict[str, Any] | None = None
    ) -> None:
        """Take in a batch; `settings` are those of its run."""
        laws, drawn = batch.laws, drawn_tokens(self.seed, batch, settings or {})
        self.tokens += len(batch.token)
        self.records += len(batch.request)
        self.has_draft = self.has_draft and laws.draft is not None
        if self.tests is None:
            self.tests = statistics(True)
        # A statistic of the draft counts only where every shard has the draft's laws.
        self.tests = [test for test in self.tests if self.has_draft or not test.needs_draft]
        for test in self.tests:
            test.observe(drawn)
        self.sets.observe(drawn)
        if self.pilot is None and len(batch.token):
            self.pilot = pilot_faults(drawn) if laws.ids is None else ()
        for kind, violated in facts.violated.items():
            self.violations[kind] += int(violated.sum())
        if facts.role_law is not None and facts.emitted_role is not None:
            whole = facts.whole
            assert whole is not None
            self.role_counts += np.bincount(facts.emitted_role[whole], minlength=len(ROLES))
            self.role_laws.append(facts.role_law[whole])
            self.partial += int((~whole).sum())
            has_children = whole & (facts.emitted_role != BONUS)
            rate = facts.role_law[has_children, :RESIDUAL].sum(axis=1).clip(0.0, 1.0)
            self.accept += rate_sums(rate, facts.emitted_role[has_children] < RESIDUAL)
        if batch.trees is not None and batch.trees.probes is not None:
            probes = batch.trees.probes
            uniform = np.random.default_rng([self.seed, 1, batch.first_record]).random(
                len(probes.mass)
            )
            self.pits.append(np.clip(probes.below + uniform * probes.mass, 0.0, 1.0))
        if facts.distances is not None:
            self.distances.observe(facts.distances, facts.numerics_limit)
        self.num_tests += facts.num_tests
        self.num_rounded += facts.num_rounded
        self.num_nodes += facts.num_nodes
        self.node_distance = max(self.node_distance, facts.node_distance)
        self.localiser.observe(batch, facts, run)
        self.alignment.observe(batch)
        self.places.append(
            np.stack([np.full(len(batch.request), batch.run), batch.request, batch.round])
        )
        final = batch.arrays.get("final_uniform")
        if final is not None:
            number = batch.first_record + np.arange(len(final))
            self.finals.append(np.stack([number.astype(np.float64), final.astype(np.float64)]))

    def check_places(self) -> None:
        """Refuse rounds that are there twice: a copy is no independent draw.

        Raises:
          TraceError: Two records with one run, request and round; it names both.
        """
        if not self.places:
            return
        place = np.concatenate(self.places, axis=1)
        # Stable: of equal places the earlier record comes first.
        order = np.lexsort(place[::-1])
        same = (np.diff(place[:, order], axis=1) == 0).all(axis=0)
        if same.any():
            later = order[1:][same]
            at = int(later.argmin())
            record, earlier = int(later[at]), int(order[:-1][same][at])
            _, request, round_index = (int(value) for value in place[:, record])
            raise TraceError(
                f"record {record}: request {request}, round {round_index} is there already, in"
                f" record {earlier}; number the requests of a run apart"
            )


def drawn_tokens(seed: int, batch: Batch, settings: dict[str, Any]) -> Drawn:
    """A batch's emitted tokens as the statistics take them.

    The PIT's uniforms are keyed by the seed and the number of the batch's first record.
    """
    num_top = settings.get("num_top", DEFAULT_NUM_TOP)
    top_k = settings.get("top_k", DEFAULT_TOP_K)
    record = batch.record
    return Drawn(
        laws=batch.laws,
        uniform=np.random.default_rng([seed, batch.first_record]).random(len(batch.token)),
        place=np.stack(
            [
                np.full(len(record), batch.run),
                batch.request[record],
                batch.round[record],
                batch.step,
            ],
            axis=1,
        ),
        num_top=num_top if _is_count(num_top) else DEFAULT_NUM_TOP,
        num_candidates=top_k if _is_count(top_k) else DEFAULT_TOP_K,
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
