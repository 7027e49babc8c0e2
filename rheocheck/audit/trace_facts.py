"""What a batch of rounds shows by itself: exact violations, and the facts that localise them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rheocheck.audit.law_distance import LawDistances
from rheocheck.audit.trace_drafts import (
    DRAW_LAW,
    IMPOSSIBLE,
    NOT_BEST,
    PROBE_LAW,
    draft_violations,
)
from rheocheck.audit.trace_node_law import node_distances
from rheocheck.audit.trace_numerics import trace_distances, trace_limit
from rheocheck.audit.trace_repeats import REPEAT_LEVEL, repeated_records
from rheocheck.audit.trace_rule import Tests, draft_tails, node_tests, probe_laws, role_law
from rheocheck.config import RULES, Rule
from rheocheck.errors import TraceError
from rheocheck.traces.reader import Batch
from rheocheck.traces.trees import PROBE, RESIDUAL, ROLES, TOP

OFF_SUPPORT = "emitted a token of probability 0"
DECIDED = "the recorded laws and uniforms decide otherwise"
MISDRAWN = "the probe is not the one that its uniform draws"
NUMERICS = "the verifier's law is not the target's by plain decoding: too far apart for rounding"
NODE_LAW = "the exact law after the node is not the target's"
REPEATED = "one uniform stands for two draws of a round"
SHARED = "one uniform ends two rounds"
KINDS = (
    OFF_SUPPORT,
    DECIDED,
    IMPOSSIBLE,
    NOT_BEST,
    PROBE_LAW,
    DRAW_LAW,
    MISDRAWN,
    NODE_LAW,
    NUMERICS,
    REPEATED,
)

# How far a decision may be from its threshold and still be the rounding of the trace's dtype.
ROUNDING = {8: 1e-9, 4: 1e-5, 2: 2e-3}
# Relative rounding of one mass of that many bytes.
MASS_ROUNDING = {8: 2.0**-50, 4: 2.0**-22, 2: 2.0**-9}
# Target mass outside the listed tokens that no decision can turn on.
NEGLIGIBLE_REST = 1e-6
# Smaller masses are 0 in float16.
HALF_UNDERFLOW = 2.0**-25


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a run's settings say about verification.

    Attributes:
      rule: Of verification.
      num_top: Deterministic children of a node.
      top_k: Most children of a node, or None where the settings do not say.
    """

    rule: Rule
    num_top: int
    top_k: int | None = None


@dataclass(slots=True, eq=False)
class Facts:
    """Facts of a batch, one row for each emitted token; filled in step by step.

    Attributes:
      violated: By kind: [emitted] True where the token's step violates; kinds not looked at are
        absent.
      role: By kind: [emitted] role that a violation of that kind belongs to, index into `ROLES`.
      emitted_role: [emitted] role in which each token was emitted, or None without trees.
      role_law: [emitted, roles] its exact probabilities given the tree, or None.
      whole: [emitted] steps whose laws are whole, so that their decisions could be made again; None
        where no step's could.
      wanted: By kind: what a violation should have been, one value a row, for the witness.
      got: By kind: what was recorded instead.
      num_tests: Decisions made again.
      num_rounded: Of them, those that differ within rounding.
      num_nodes: Nodes whose exact law was made.
      node_distance: Largest TV of those from the target.
      distances: [emitted] between verifier and plain decoding, or None.
      numerics_limit: Total variation above which they are no rounding, or None.
    """

    violated: dict[str, NDArray[np.bool_]]
    role: dict[str, NDArray[np.int64]]
    emitted_role: NDArray[np.int64] | None
    role_law: NDArray[np.float64] | None = None
    whole: NDArray[np.bool_] | None = None
    wanted: dict[str, NDArray[Any]] = field(default_factory=dict)
    got: dict[str, NDArray[Any]] = field(default_factory=dict)
    num_tests: int = 0
    num_rounded: int = 0
    num_nodes: int = 0
    node_distance: float = 0.0
    distances: LawDistances | None = None
    numerics_limit: float | None = None


def scheme_of(settings: dict[str, Any]) -> Scheme | None:
    """The scheme in a run's settings; None where no rule is given, or one beyond this audit.

    Raises:
      TraceError: A rule that does not exist, a num_top or a top_k that is no count.
    """
    rule, num_top = settings.get("rule"), settings.get("num_top", 0)
    if rule is None:
        return None
    # Several probes a node, merged ones or an adaptive top are other tests than those made here.
    if (
        settings.get("num_probes", 1) != 1
        or settings.get("merged")
        or settings.get("top_thresholds")
    ):
        return None
    if rule not in RULES:
        raise TraceError(f"settings of the trace: rule = {rule!r}: must be one of {RULES}")
    top_k = settings.get("top_k")
    for name, value, least in (("num_top", num_top, 0), ("top_k", top_k, 1)):
        if value is None and name == "top_k":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise TraceError(
                f"settings of the trace: {name} = {value!r}: must be an integer >= {least}"
            )
    return Scheme(rule, num_top, top_k)


def batch_facts(batch: Batch, settings: dict[str, Any]) -> Facts:
    """Look at every round of a batch.

    Args:
      batch: Rounds.
      settings: Of their run.

    Returns:
      The facts.

    Raises:
      TraceError: Settings that are not as they must be.
    """
    laws, trees = batch.laws, batch.trees
    rows = np.arange(len(batch.token))
    violated = {OFF_SUPPORT: _off_support(batch)}
    emitted_role = None if trees is None else trees.emitted_role()
    unknown = np.full(len(rows), -1)
    role = {OFF_SUPPORT: unknown if emitted_role is None else emitted_role}
    facts = Facts(violated, role, emitted_role)
    _numerics(batch, settings, facts)
    scheme = scheme_of(settings)
    if trees is None:
        return facts
    _probe_draws(batch, facts)
    if scheme is None:
        _repeated(batch, None, facts)
        return facts
    _check_children(batch, scheme)
    size = _itemsize(batch)
    used, drawn = probe_laws(laws, trees, scheme.num_top, MASS_ROUNDING[size])
    tails = draft_tails(laws, scheme.num_top, MASS_ROUNDING[size])
    if tails is not None:
        rounding = ROUNDING[size], MASS_ROUNDING[size]
        given = None if laws.probe is None else used
        found = draft_violations(batch, tails, given, scheme.num_top, scheme.top_k, *rounding)
        for kind, (wrong, of_role, got) in found.items():
            facts.violated[kind], facts.role[kind], facts.got[kind] = wrong, of_role, got
    has_probe = (trees.role == PROBE).any(axis=1) & (scheme.rule != "onehot")
    if used is None and has_probe.any():
        _repeated(batch, None, facts)
        return facts
    whole = laws.rest == 0
    if laws.draft is not None and laws.ids is not None:
        whole |= (laws.rest <= NEGLIGIBLE_REST) & (laws.draft[:, -1] == 0)
    if laws.probe is None and used is not None:
        whole &= used.any(axis=1) | ~has_probe
    facts.whole = whole
    probe = np.zeros_like(laws.target) if used is None else used
    child = laws.column_of(trees.token)
    tests = node_tests(laws.target, child, trees.role, probe, scheme.rule)
    _repeated(batch, tests, facts)
    if not whole.any():
        return facts
    facts.role_law = role_law(tests, trees)
    if used is not None and drawn is not None:
        _node_laws(batch, used, np.where(whole[:, None], drawn, 0.0), scheme, facts)
    _decide(batch, tests, ROUNDING[size], facts)
    return facts


def _off_support(batch: Batch) -> NDArray[np.bool_]:
    """[emitted] tokens of probability 0, where that proves something."""
    laws = batch.laws
    off = ~(laws.null[np.arange(len(batch.token)), laws.column] > 0)
    side = "target" if laws.plain is None else "plain"
    forms = [batch.arrays.get(f"{side}_{form}") for form in ("law", "mass")]
    if not off.any() or not any(form is not None and form.dtype.itemsize == 2 for form in forms):
        return off
    # A mass that F16 rounds to 0 can be drawn: of so many zeros no more than so often.
    most = HALF_UNDERFLOW * float((laws.null == 0).sum())
    return off if stats.poisson.sf(off.sum() - 1, most) <= REPEAT_LEVEL else np.zeros_like(off)


def _itemsize(batch: Batch, sides: tuple[str, ...] = ("target", "draft", "probe")) -> int:
    """Bytes of the coarsest law in the batch."""
    names = [f"{side}_{form}" for side in sides for form in ("law", "logits", "mass")]
    return min(int(batch.arrays[name].dtype.itemsize) for name in names if name in batch.arrays)


def _numerics(batch: Batch, settings: dict[str, Any], facts: Facts) -> None:
    """Distance of the verifier's law to plain decoding's."""
    facts.distances = trace_distances(batch.laws)
    facts.numerics_limit = trace_limit(settings, _itemsize(batch, ("target", "plain")))
    if facts.distances is not None and facts.numerics_limit is not None:
        distance = facts.distances.total_variation
        facts.violated[NUMERICS] = distance > facts.numerics_limit
        standing = np.full(len(batch.token), -1)
        facts.role[NUMERICS] = standing if batch.trees is None else batch.trees.node_role
        facts.got[NUMERICS] = distance


def _node_laws(
    batch: Batch,
    used: NDArray[np.float64],
    drawn: NDArray[np.float64],
    scheme: Scheme,
    facts: Facts,
) -> None:
    """Exact laws of some nodes with a probe."""
    rows, distance = node_distances(batch, used, drawn, scheme.num_top, scheme.rule)
    if not len(rows):
        return
    wrong, got = np.zeros(len(batch.token), dtype=bool), np.zeros(len(batch.token))
    # Each mass is within the dtype's rounding; the probe's law is one of the tail's, scaled up.
    assert batch.laws.draft is not None
    tails = draft_tails(batch.laws, scheme.num_top, 0.0)
    assert tails is not None
    limit = np.maximum(1e-6, ROUNDING[_itemsize(batch)] / np.maximum(tails.total[rows], 1e-300))
    wrong[rows] = ~(distance <= limit)
    got[rows] = distance
    facts.violated[NODE_LAW], facts.got[NODE_LAW] = wrong, got
    facts.role[NODE_LAW] = np.full(len(wrong), PROBE)
    facts.num_nodes, facts.node_distance = len(rows), float(distance.max())


def _decide(batch: Batch, tests: Tests, tolerance: float, facts: Facts) -> None:
    """Make every decision again; what could not come about otherwise needs no uniform."""
    trees, laws = batch.trees, batch.laws
    assert trees is not None
    rows, ended = np.arange(len(batch.token)), trees.taken < 0
    taken_at = (tests.order == trees.taken[:, None]).argmax(axis=1)
    has_child = trees.role >= 0
    roles = np.take_along_axis(trees.role, tests.order, axis=1)
    if trees.uniform is None:
        impossible = ~ended & (tests.acceptance[rows, taken_at] == 0)
        violated, rounded = impossible, np.zeros(len(rows), dtype=bool)
        role = roles[rows, taken_at].copy()
        wanted = np.full(len(rows), -1)
        going = ended
    else:
        uniform = np.take_along_axis(trees.uniform, tests.order, axis=1)
        accepts = (uniform < tests.acceptance) & np.take_along_axis(has_child, tests.order, axis=1)
        hit, first = accepts.any(axis=1), accepts.argmax(axis=1)
        differs = np.where(hit, ended | (tests.order[rows, first] != trees.taken), ~ended)
        # The first test in the walk whose outcome is not the recorded one.
        recorded_at = np.where(ended, tests.order.shape[1], taken_at)
        computed_at = np.where(hit, first, tests.order.shape[1])
        at = np.minimum(np.minimum(recorded_at, computed_at), tests.order.shape[1] - 1)
        gap = np.abs(uniform - tests.acceptance)[rows, at]
        rounded = differs & (gap <= tolerance)
        violated = differs & ~rounded
        role = roles[rows, at].copy()
        token = np.take_along_axis(trees.token, tests.order, axis=1)
        wanted = np.where(hit, token[rows, first], -1)
        going = ended & ~hit
    mass = tests.residual[rows, laws.column]
    wrong_final = going & ~(mass > 0)
    if trees.final_uniform is not None:
        running = tests.residual.cumsum(axis=1)
        point = trees.final_uniform * running[:, -1]
        place = (running <= point[:, None]).sum(axis=1).clip(max=running.shape[1] - 1)
        above = running[rows, laws.column]
        gap = np.maximum(above - mass - point, point - above)
        other = going & (place != laws.column) & ~violated
        near = other & (mass > 0) & (gap <= tolerance)
        wrong_final, rounded = other & ~near, rounded | near
        ids = place if laws.ids is None else laws.ids[rows, place]
        wanted = np.where(wrong_final, ids, wanted)
    ends_as = np.where(has_child.any(axis=1), RESIDUAL, RESIDUAL + 1)
    assert facts.whole is not None
    facts.violated[DECIDED] = (violated | wrong_final) & facts.whole
    facts.role[DECIDED] = np.where(wrong_final & ~violated, ends_as, role)
    facts.wanted[DECIDED], facts.got[DECIDED] = wanted, batch.token
    facts.num_tests = int((has_child.sum(axis=1) + ended)[facts.whole].sum())
    facts.num_rounded = int((rounded & facts.whole).sum())


def _check_children(batch: Batch, scheme: Scheme) -> None:
    """Refuse nodes with more children than the settings allow.

    Raises:
      TraceError: Names the record.
    """
    assert batch.trees is not None
    role = batch.trees.role
    for name, most, count in (
        ("children", scheme.top_k, (role >= 0).sum(axis=1)),
        ("deterministic children", scheme.num_top, (role == TOP).sum(axis=1)),
    ):
        bad = np.flatnonzero(count > most) if most is not None else np.zeros(0, dtype=np.int64)
        if bad.size:
            row = int(bad[0])
            setting = "top_k" if name == "children" else "num_top"
            raise TraceError(
                f"record {batch.first_record + int(batch.record[row])}: node"
                f" {int(batch.trees.node[row])} has {int(count[row])} {name}; the settings say"
                f" {setting} = {most}"
            )


def _probe_draws(batch: Batch, facts: Facts) -> None:
    """Whether each probe is where its uniform falls; a violation stands at its round's start."""
    assert batch.trees is not None
    probes = batch.trees.probes
    if probes is None or probes.uniform is None:
        return
    tolerance = ROUNDING[int(batch.arrays["probe_below"].dtype.itemsize)]
    gap = np.maximum(probes.below - probes.uniform, probes.uniform - probes.below - probes.mass)
    _mark(batch, probes.record[gap > tolerance], MISDRAWN, PROBE, facts)


def _repeated(batch: Batch, tests: Tests | None, facts: Facts) -> None:
    if "node_uniform" in batch.arrays:
        _mark(batch, repeated_records(batch, tests), REPEATED, -1, facts)


def _mark(batch: Batch, record: NDArray[Any], kind: str, role: int, facts: Facts) -> None:
    """A violation of whole records, shown at their first emitted tokens."""
    bad = np.zeros(len(batch.request), dtype=bool)
    bad[record.astype(np.int64)] = True
    facts.violated[kind] = bad[batch.record] & (batch.step == 0)
    facts.role[kind] = np.full(len(batch.record), role)


def role_name(role: int) -> str:
    """Name of a role; "root" for what stands at no drafted node."""
    return ROLES[role] if role >= 0 else "root"
