"""Every rule as a program under the choice oracle, sharing no code with the formulas.

A program returns (emitted token, whether a test accepted it, whether it is a candidate).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from rheocheck import exact_law
from rheocheck.reference.choices import Choose

Law = Sequence[Fraction]
Outcome = tuple[int, bool, bool]
Program = Callable[[Choose], Outcome]
ZERO, ONE = Fraction(0), Fraction(1)


def facts(program: Program, vocab: int) -> tuple[list[Fraction], Fraction, Fraction]:
    """Law of the emitted token, accept-test probability, membership probability."""
    emitted, accepted, member = [ZERO] * vocab, ZERO, ZERO
    for (token, by_test, candidate), mass in exact_law(program).items():
        emitted[token] += mass
        accepted += mass * by_test
        member += mass * candidate
    return emitted, accepted, member


def scaled(masses: Sequence[Fraction]) -> list[Fraction]:
    return [mass / sum(masses) for mass in masses]


def excess(first: Law, second: Law) -> list[Fraction]:
    return scaled([max(a - b, ZERO) for a, b in zip(first, second, strict=True)])


def without(law: Law, token: int) -> list[Fraction]:
    kept = [ZERO if other == token else mass for other, mass in enumerate(law)]
    return scaled(kept) if any(kept) else kept


def ranked(ranking: Law, support_size: int) -> list[int]:
    order = sorted(range(len(ranking)), key=lambda token: (-ranking[token], token))
    return [token for token in order if ranking[token] > 0][:support_size]


def dual_node(
    target: Law, ranking: Law, draft: Law, top_k: int, num_top: int, support_size: int, rule: str
) -> Program:
    """One node of a dual-identity tree with all its children."""
    support = ranked(ranking, support_size)
    top, tail = support[: min(num_top, top_k)], support[num_top:]
    if num_top >= top_k or not tail:
        return lambda choose: point_masses(choose, list(target), support[:top_k])
    probe_law = [draft[token] if token in tail else ZERO for token in range(len(target))]
    if not any(probe_law):
        probe_law[tail[0]] = ONE
    probe_law = scaled(probe_law)
    num_fillers = top_k - num_top - 1

    def fillers(probe: int) -> list[int]:
        return [token for token in tail if token != probe][:num_fillers]

    def program(choose: Choose) -> Outcome:
        probe = choose.categorical(probe_law)
        others = fillers(probe)
        if rule == "onehot":
            return point_masses(choose, list(target), [*top, probe, *others])
        if rule == "merged":
            sets = {token: {*top, token, *fillers(token)} for token in tail}
            always = set.intersection(*sets.values())
            last = {token: sets[token] - always for token in tail if probe_law[token]}
            if not all(last.values()):
                return point_masses(choose, list(target), sorted(sets[probe]))
            merged = [ZERO] * len(target)
            for token, (final,) in last.items():
                merged[final] += probe_law[token]
            (drawn,) = last[probe]
            return probe_test(choose, target, merged, drawn, [], sorted(always))
        before, after = ([], [*top, *others]) if rule == "rheo" else (top, others)
        return probe_test(choose, target, probe_law, probe, before, after)

    return program


def probe_test(
    choose: Choose, target: Law, law: Law, probe: int, before: list[int], after: list[int]
) -> Outcome:
    """Point masses, then a token drawn from `law`, then more point masses."""
    residual = list(target)
    for token in before:
        if choose.bernoulli(residual[token]):
            return token, True, True
        residual = without(residual, token)
    if choose.bernoulli(min(ONE, residual[probe] / law[probe])):
        return probe, True, True
    return point_masses(choose, excess(residual, law), after, {probe, *before})


def point_masses(
    choose: Choose, residual: list[Fraction], tokens: list[int], tested: set[int] | None = None
) -> Outcome:
    """Test tokens one after another with point-mass drafts; emit the residual if all fail."""
    for token in tokens:
        if choose.bernoulli(residual[token]):
            return token, True, True
        residual = without(residual, token)
    emitted = choose.categorical(residual)
    return emitted, False, emitted in {*tokens, *(tested or ())}


def single(target: Law, draft: Law, num_drafts: int = 1) -> Program:
    return lambda choose: probe_test(choose, target, draft, choose.categorical(draft), [], [])


def specinfer(target: Law, draft: Law, num_drafts: int) -> Program:
    def program(choose: Choose) -> Outcome:
        residual, drawn = list(target), set()
        for _ in range(num_drafts):
            token = choose.categorical(draft)
            drawn.add(token)
            if choose.bernoulli(min(ONE, residual[token] / draft[token])):
                return token, True, True
            residual = excess(residual, draft)
        emitted = choose.categorical(residual)
        return emitted, False, emitted in drawn

    return program


def sequoia(target: Law, draft: Law, num_drafts: int) -> Program:
    def program(choose: Choose) -> Outcome:
        residual, left, drawn = list(target), list(draft), set()
        for _ in range(min(num_drafts, sum(mass > 0 for mass in draft))):
            token = choose.categorical(left)
            drawn.add(token)
            if choose.bernoulli(min(ONE, residual[token] / left[token])):
                return token, True, True
            residual, left = excess(residual, left), without(left, token)
        emitted = choose.categorical(residual)
        return emitted, False, emitted in drawn

    return program


def naive(target: Law, draft: Law, num_drafts: int) -> Program:
    def program(choose: Choose) -> Outcome:
        drawn = [choose.categorical(draft) for _ in range(num_drafts)]
        if choose.bernoulli(min(ONE, target[drawn[0]] / draft[drawn[0]])):
            return drawn[0], True, True
        emitted = choose.categorical(excess(target, draft))
        return emitted, False, emitted in drawn

    return program


def nss(target: Law, draft: Law, num_drafts: int) -> Program:
    def program(choose: Choose) -> Outcome:
        drawn = [choose.categorical(draft) for _ in range(num_drafts)]
        emitted = choose.categorical(target)
        return emitted, emitted in drawn, emitted in drawn

    return program


def kseq(target: Law, draft: Law, num_drafts: int, factor: Fraction) -> Program:
    kept = [min(d, t / factor) for t, d in zip(target, draft, strict=True)]
    each = sum(kept, ZERO)
    accepted = 1 - (1 - each) ** num_drafts
    times = accepted / each if each else ZERO

    def program(choose: Choose) -> Outcome:
        drawn = [choose.categorical(draft) for _ in range(num_drafts)]
        for token in drawn:
            if choose.bernoulli(min(ONE, target[token] / (factor * draft[token]))):
                return token, True, True
        left = [t - times * k for t, k in zip(target, kept, strict=True)]
        emitted = choose.categorical(scaled(left))
        return emitted, False, emitted in drawn

    return program


def spechub(target: Law, ranking: Law, draft: Law) -> Program:
    """Each pair of the hub and a spoke pays the spoke first; the hub takes what is left."""
    hub = ranked(ranking, 1)[0]
    spokes = [token for token, mass in enumerate(draft) if mass and token != hub]
    if not spokes:
        return lambda choose: point_masses(choose, list(target), [hub])
    rest = sum(draft[token] for token in spokes)
    first = {token: draft[token] for token in spokes}  # spoke drawn, then the hub
    second = {token: draft[hub] * draft[token] / rest for token in spokes}
    pay_first = {token: min(target[token], first[token]) for token in spokes}
    pay_second = {token: min(target[token] - pay_first[token], second[token]) for token in spokes}
    left = 1 - sum(pay_first.values()) - sum(pay_second.values())
    hub_mass = min(target[hub], left)
    unpaid = list(target)
    unpaid[hub] -= hub_mass
    for token in spokes:
        unpaid[token] -= pay_first[token] + pay_second[token]

    def program(choose: Choose) -> Outcome:
        masses = [*first.values(), *second.values()]
        pays = [*pay_first.values(), *pay_second.values()]
        pair = choose.categorical(masses)
        spoke = spokes[pair % len(spokes)]
        if choose.bernoulli(pays[pair] / masses[pair]):
            return spoke, True, True
        if choose.bernoulli(hub_mass / left):
            return hub, True, True
        emitted = choose.categorical(scaled(unpaid))
        return emitted, False, emitted in (hub, spoke)

    return program
