"""Null runs of every statistic: what is drawn, what is computed, what may be expected of it.

A family draws one null sample and gives a p-value for each of its statistics. A confidence bound
gives a value too: 1e-3 if the bound at that alpha misses the truth, else 1e-2 if the bound at that
alpha misses it, else 1; so one table serves all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rheocheck.stats import equivalence, multinomial, tv_bounds, witness
from rheocheck.stats.anderson_darling import anderson_darling
from rheocheck.stats.betting import mean_excess_p_value, mean_lower_bound, mean_upper_bound
from rheocheck.stats.chi_square import bucket_chi_square
from rheocheck.stats.eprocess import EProcess, chernoff_p
from rheocheck.stats.multiplicity import holm
from rheocheck.stats.pit import uniformity
from rheocheck.stats.scores import (
    ScoreSums,
    ScoreTerms,
    above_target,
    acceptance_sums,
    draft_score,
    rate_sums,
    score_moments,
    surprisal,
)
from rheocheck.stats.serial_pairs import following_pairs, serial_pairs
from rheocheck.stats.stale import detect_shift
from rheocheck.stats.token_calibration import token_calibration
from rheocheck.stats.tolerant import tolerant_bound
from rheocheck.stats.total_variation import (
    mcdiarmid_p,
    normal_p,
    plug_in,
    plug_in_over_contexts,
    total_variation,
)
from rheocheck.stats.valiant import valiant_test
from tests.benchmarks.context_tables import Contexts, Floats, Ints, tabulated
from tests.benchmarks.contexts import synthetic_contexts

Kind = Literal["exact", "limit", "conservative", "bound", "description"]
"""exact: uniform at every sample size. limit: by a limiting law, nominal at the sample size here.
conservative: rejects at most as often as its level, by design. bound: a confidence bound, misses at
most as often. description: printed beside others, judged by nobody; its rates are reported only."""


@dataclass(frozen=True, slots=True)
class Case:
    """One statistic in one setting.

    Attributes:
      kind: What is expected of its p-values.
      functions: Public functions of rheocheck.stats that are exercised, "module.function".
    """

    kind: Kind
    functions: tuple[str, ...]


class Family:
    """Statistics of one null sample."""

    cases: Mapping[str, Case]

    def run(self, rng: np.random.Generator) -> dict[str, float]:
        """One null sample: the p-value of every case."""
        raise NotImplementedError


LEVELS = (1e-2, 1e-3)


def miss(bound: Callable[[float], bool]) -> float:
    """The value that stands for a bound; `bound(alpha)` says whether the one at alpha misses."""
    if bound(1e-3):
        return 1e-3
    return 1e-2 if bound(1e-2) else 1.0


class OneLaw(Family):
    """Many draws from one small law: 8 cells and 400 draws, 4 and 20, 64 and 2,000."""

    cases: Mapping[str, Case] = {
        "Pearson, chi-square law": Case("limit", ("multinomial.pearson", "chi_square.pool_cells")),
        "Pearson, exact": Case("conservative", ("multinomial.pearson",)),
        "Pearson, Monte Carlo": Case("conservative", ("multinomial.pearson",)),
        "G, chi-square law": Case("limit", ("multinomial.g_test",)),
        "G, exact": Case("conservative", ("multinomial.g_test",)),
        "Valiant-Valiant, Monte Carlo": Case(
            "conservative", ("valiant.valiant_test", "valiant.trimmed_cells")
        ),
        "plug-in TV, normal": Case(
            "description", ("total_variation.plug_in", "total_variation.normal_p")
        ),
        "plug-in TV, McDiarmid": Case("conservative", ("total_variation.mcdiarmid_p",)),
    }

    def __init__(self) -> None:
        """Fix the laws."""
        rng = np.random.default_rng(1)
        self.eight = rng.dirichlet(np.full(8, 3.0))
        self.four = np.array([0.45, 0.3, 0.2, 0.05])
        self.many = rng.dirichlet(np.full(64, 1.0))

    def run(self, rng: np.random.Generator) -> dict[str, float]:
        """One sample of each size."""
        eight = rng.multinomial(400, self.eight)
        few = rng.multinomial(20, self.four)
        many = rng.multinomial(2000, self.many)
        distance = plug_in(many, self.many)
        pearson, g_test = multinomial.pearson, multinomial.g_test
        return {
            "Pearson, chi-square law": pearson(eight, self.eight, rng, method="chi-square").p_value,
            "Pearson, exact": pearson(few, self.four, rng, method="exact").p_value,
            "Pearson, Monte Carlo": pearson(
                few, self.four, rng, method="monte carlo", draws=1999
            ).p_value,
            "G, chi-square law": g_test(eight, self.eight, rng, method="chi-square").p_value,
            "G, exact": g_test(few, self.four, rng, method="exact").p_value,
            "Valiant-Valiant, Monte Carlo": valiant_test(
                eight, self.eight, 0.05, rng, draws=1999
            ).p_value,
            "plug-in TV, normal": normal_p(distance),
            "plug-in TV, McDiarmid": mcdiarmid_p(distance.excess, distance.num_samples),
        }


class ManyContexts(Family):
    """One draw a context: 36 laws of 32,000 tokens, 50 draws each."""

    DRAWS_EACH = 50
    cases: Mapping[str, Case] = {
        "surprisal, normal": Case("limit", ("scores.surprisal",)),
        "surprisal, e-value": Case("conservative", ("scores.surprisal",)),
        "surprisal, Chernoff": Case("conservative", ("eprocess.chernoff_p",)),
        "surprisal, e-process at any look": Case("conservative", ()),
        "draft score, normal": Case("limit", ("scores.draft_score", "scores.score_moments")),
        "draft score, e-value": Case("conservative", ("scores.draft_score",)),
        "draft score, Chernoff": Case("conservative", ("eprocess.chernoff_p",)),
        "draft score, e-process at any look": Case("conservative", ()),
        "above target, normal": Case("description", ("scores.above_target",)),
        "above target, e-value": Case("conservative", ("scores.above_target",)),
        "above target, Chernoff": Case("conservative", ("eprocess.chernoff_p",)),
        "above target, e-process at any look": Case("conservative", ()),
        "accept rate, normal": Case("description", ("scores.acceptance_sums",)),
        "per-token calibration": Case(
            "conservative",
            ("token_calibration.token_calibration", "token_calibration.poisson_log_p"),
        ),
        "lag-1 pairs": Case("limit", ("serial_pairs.serial_pairs",)),
        "pairs after any value": Case("limit", ("serial_pairs.following_pairs",)),
        "tolerant lower bound": Case("bound", ("tolerant.tolerant_bound",)),
        "PIT by draft/target, KS": Case("exact", ("pit.uniformity", "pit.draft_target_order")),
        "PIT by draft/target, Anderson-Darling": Case(
            "limit", ("anderson_darling.anderson_darling", "anderson_darling.anderson_darling_tail")
        ),
        "PIT by draft/target, 20 bins": Case("limit", ("pit.uniformity",)),
        "PIT by draft/target, all three": Case("conservative", ("pit.uniformity",)),
        "PIT by target, KS": Case("exact", ("pit.uniformity", "pit.target_order")),
        "PIT by target, Anderson-Darling": Case("limit", ("pit.uniformity",)),
        "PIT by target, 20 bins": Case("limit", ("pit.uniformity",)),
        "rank buckets": Case("limit", ("chi_square.bucket_chi_square",)),
        "plug-in TV over buckets, McDiarmid": Case(
            "conservative",
            (
                "total_variation.plug_in_over_contexts",
                "total_variation.poisson_binomial_mean_deviation",
            ),
        ),
        "Holm over four": Case("conservative", ("multiplicity.holm",)),
        "lower bound, contexts": Case("bound", ("witness.mean_rate_lower",)),
    }

    @cached_property
    def contexts(self) -> Contexts:
        """The laws, drawn once."""
        return tabulated(*synthetic_contexts(36, 32_000, 20))

    @cached_property
    def rows(self) -> Ints:
        """[draws] context of each draw, in a mixed order for the looks after every sample."""
        rows = np.repeat(np.arange(len(self.contexts.target)), self.DRAWS_EACH)
        return np.random.default_rng(5).permutation(rows)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """[contexts, vocab] scores by name."""
        found = self.contexts
        return {
            "surprisal": surprisal(found.target),
            "draft score": draft_score(found.target, found.draft),
            "above target": above_target(found.target, found.draft),
        }

    @cached_property
    def moments(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        """[draws] means, [draws] variances and [draws, tilts] cumulants of each score."""
        target = self.contexts.target
        found = {}
        for name, score in self.scores.items():
            mean, variance, cumulant = score_moments(target, score)
            found[name] = (mean[self.rows], variance[self.rows], cumulant[self.rows])
        return found

    @cached_property
    def buckets(self) -> Floats:
        """[draws, buckets] bucket laws."""
        return self.contexts.bucket_laws()[self.rows]

    @cached_property
    def inside(self) -> tuple[Floats, Floats]:
        """[contexts, vocab] membership in {draft > target}, [contexts] its mass."""
        members = self.scores["above target"]
        return members, (members * self.contexts.target).sum(axis=1)

    @cached_property
    def token_sums(self) -> tuple[Floats, Floats]:
        """[vocab] expected draws of each token, [vocab] sum of its squared probabilities."""
        target = self.contexts.target
        return self.DRAWS_EACH * target.sum(axis=0), self.DRAWS_EACH * (target**2).sum(axis=0)

    @cached_property
    def accept_laws(self) -> tuple[Floats, Floats]:
        """[draws, 2] laws whose overlap is the contexts' accept rate, and [draws] that rate."""
        rate = np.minimum(self.contexts.target, self.contexts.draft).sum(axis=1)[self.rows]
        return np.stack((rate, 1.0 - rate), axis=1), rate

    def terms(self, name: str, token: Ints) -> ScoreTerms:
        """`score_terms` of the whole sample, its null part looked up."""
        mean, variance, cumulant = self.moments[name]
        return ScoreTerms(self.scores[name][self.rows, token] - mean, variance, cumulant)

    def score_results(self, token: Ints) -> dict[str, float]:
        """Every p-value of every score."""
        found = {}
        for name in self.scores:
            terms = self.terms(name, token)
            sums = terms.total()
            found[f"{name}, normal"] = sums.normal_p
            found[f"{name}, e-value"] = sums.p_value
            found[f"{name}, Chernoff"] = chernoff_p(sums)
            found[f"{name}, e-process at any look"] = EProcess(1e-2).observe(terms).p_value
        return found

    def accept_sums(self, rng: np.random.Generator) -> ScoreSums:
        """Accept tests of one draft a draw, at the exact rate."""
        laws, rate = self.accept_laws
        # Two laws with the same overlap: the point mass on token 0 against (rate, 1 - rate).
        draft = np.stack((np.ones(len(rate)), np.zeros(len(rate))), axis=1)
        return acceptance_sums(laws, draft, rng.random(len(rate)) < rate)

    def run(self, rng: np.random.Generator) -> dict[str, float]:
        """One sample of all contexts."""
        found, rows = self.contexts, self.rows
        token = found.draw(rows, rng)
        ratio_pit = found.pit(found.before_ratio, rows, token, rng)
        ratio = uniformity(ratio_pit)
        rank_pit = found.pit(found.before_rank, rows, token, rng)
        rank = uniformity(rank_pit)
        assert ratio.chi_square_p is not None and rank.chi_square_p is not None
        bucket = np.bincount(found.bucket[rows, token], minlength=self.buckets.shape[1])
        chi_square = bucket_chi_square(bucket, self.buckets)
        distance = plug_in_over_contexts(bucket, self.buckets)
        scores = self.score_results(token)
        expected, squares = self.token_sums
        counts = np.bincount(token, minlength=len(expected))
        members, mass = self.inside
        inside = members[rows, token]
        hits = int(inside.sum())
        mean_mass = float(mass.mean())
        parts = {
            "surprisal": scores["surprisal, normal"],
            "draft score": scores["draft score, Chernoff"],
            "pit": ratio.p_value,
            "buckets": chi_square.p_value,
        }
        return {
            **scores,
            "accept rate, normal": self.accept_sums(rng).normal_p,
            "per-token calibration": token_calibration(counts, expected, squares, 1e-2).p_value,
            "lag-1 pairs": serial_pairs(ratio_pit).p_value,
            "pairs after any value": following_pairs(ratio_pit[:-1], ratio_pit[1:]).p_value,
            "tolerant lower bound": miss(
                lambda alpha: tolerant_bound(inside, mass[rows], alpha).lower > 0.0
            ),
            "PIT by draft/target, KS": ratio.ks_p,
            "PIT by draft/target, Anderson-Darling": ratio.anderson_darling_p,
            "PIT by draft/target, 20 bins": ratio.chi_square_p,
            "PIT by draft/target, all three": ratio.p_value,
            "PIT by target, KS": rank.ks_p,
            "PIT by target, Anderson-Darling": anderson_darling(rank_pit)[1],
            "PIT by target, 20 bins": rank.chi_square_p,
            "rank buckets": chi_square.p_value,
            "plug-in TV over buckets, McDiarmid": mcdiarmid_p(distance.excess, len(token)),
            "Holm over four": min(holm(parts).values()),
            "lower bound, contexts": miss(
                lambda alpha: witness.mean_rate_lower(hits, len(token), alpha) > mean_mass
            ),
        }


class Bounds(Family):
    """Confidence bounds and equivalence tests with the truth where they are weakest."""

    METHODS: tuple[tv_bounds.BoundMethod, ...] = (
        "convexity",
        "weissman",
        "mcdiarmid",
        "half-norm",
    )
    cases: Mapping[str, Case] = {
        **{
            f"TV upper bound, {method}": Case(
                "bound", ("tv_bounds.upper_bound", "tv_bounds.mean_absolute_walk")
            )
            for method in METHODS
        },
        **{
            f"TV ball, {method}": Case("bound", ("tv_bounds.ball_radius",))
            for method in METHODS[1:]
        },
        "TV lower bound, witness": Case("bound", ("witness.lower_bound", "witness.witness_set")),
        "TV lower bound over contexts": Case("bound", ("witness.lower_bound_over_contexts",)),
        "Clopper-Pearson, lower": Case("bound", ("witness.clopper_pearson_lower",)),
        "Clopper-Pearson, upper": Case("bound", ("witness.clopper_pearson_upper",)),
        "betting bound": Case("bound", ("betting.mean_upper_bound",)),
        "betting lower bound": Case("bound", ("betting.mean_lower_bound",)),
        "mean excess": Case("conservative", ("betting.mean_excess_p_value",)),
        "rates, e-value": Case("conservative", ("scores.rate_sums",)),
        "lower bound of rates that follow the past": Case(
            "bound", ("witness.sequential_rate_lower", "witness.best_tilt")
        ),
        "TV equivalence at delta": Case("conservative", ("tv_bounds.equivalence_p",)),
        "event equivalence at delta": Case("conservative", ("equivalence.event_equivalence_p",)),
        "mean equivalence at delta": Case("conservative", ("equivalence.mean_equivalence_p",)),
    }
    UNITS = 120

    def __init__(self) -> None:
        """Fix the laws: the truth is at 0.1 from the law that is claimed."""
        rng = np.random.default_rng(3)
        self.law = rng.dirichlet(np.full(12, 1.0))
        other = rng.dirichlet(np.full(12, 1.0))
        distance = float(total_variation(self.law, other))
        self.truth = self.law + (other - self.law) * 0.1 / distance
        self.many = rng.dirichlet(np.full(20, 0.3), size=80)
        self.wrong = 0.7 * self.many + 0.3 * rng.dirichlet(np.full(20, 0.3), size=80)

    def run(self, rng: np.random.Generator) -> dict[str, float]:
        """One sample of each."""
        counts, half = rng.multinomial(200, self.truth, size=2)
        frequencies = counts / 200
        truth = 0.1
        hits = int(rng.binomial(200, 0.03))
        units = (rng.random(self.UNITS) < 0.02) * rng.random(self.UNITS)
        above = rng.random(80)[:, None] > self.wrong.cumsum(axis=1)
        token = above.sum(axis=1).clip(max=19)
        wrong_tv = float(total_variation(self.many, self.wrong)[1::2].mean())
        spread = float(total_variation(frequencies, self.truth))
        rates, happened = self.following_events(rng)
        tilt = witness.best_tilt(float(rng.random()), len(rates), 1e-2)

        def upper(method: tv_bounds.BoundMethod) -> float:
            return miss(
                lambda a: tv_bounds.upper_bound(counts, self.law, a, method).value < truth - 1e-12
            )

        def ball(method: Literal["weissman", "mcdiarmid", "half-norm"]) -> float:
            return miss(lambda a: spread > tv_bounds.ball_radius(counts, a, method))

        return {
            **{f"TV upper bound, {method}": upper(method) for method in self.METHODS},
            "TV ball, weissman": ball("weissman"),
            "TV ball, mcdiarmid": ball("mcdiarmid"),
            "TV ball, half-norm": ball("half-norm"),
            "TV lower bound, witness": miss(
                lambda a: witness.lower_bound(half, counts, self.law, a).lower_bound > truth
            ),
            "TV lower bound over contexts": miss(
                lambda a: (
                    witness.lower_bound_over_contexts(
                        self.many, self.wrong - self.many, token, a
                    ).lower_bound
                    > wrong_tv
                )
            ),
            "Clopper-Pearson, lower": miss(
                lambda a: witness.clopper_pearson_lower(hits, 200, a) > 0.03
            ),
            "Clopper-Pearson, upper": miss(
                lambda a: witness.clopper_pearson_upper(hits, 200, a) < 0.03
            ),
            "betting bound": miss(lambda a: mean_upper_bound(units, a) < 0.01),
            "betting lower bound": miss(lambda a: mean_lower_bound(units, a) > 0.01),
            "mean excess": mean_excess_p_value(units, 0.01, 1e-2),
            "rates, e-value": rate_sums(rates, happened).p_value,
            "lower bound of rates that follow the past": miss(
                lambda a: (
                    witness.sequential_rate_lower(int(happened.sum()), len(rates), tilt, a)
                    > float(rates.mean())
                )
            ),
            "TV equivalence at delta": tv_bounds.equivalence_p(counts, self.law, truth),
            "event equivalence at delta": equivalence.event_equivalence_p(
                int(rng.binomial(400, 0.25)), 400, 0.2, 0.05
            ),
            "mean equivalence at delta": equivalence.mean_equivalence_p(
                float(rng.binomial(400, 0.25)) - 400 * 0.2, 400, 1.0, 0.05
            ),
        }

    def following_events(self, rng: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
        """120 events, each likelier after one that happened: their rates, and which happened."""
        uniform = rng.random(self.UNITS)
        rates, happened = np.empty(self.UNITS), np.zeros(self.UNITS, dtype=bool)
        for event in range(self.UNITS):
            rates[event] = 0.8 if event and happened[event - 1] else 0.1
            happened[event] = uniform[event] < rates[event]
        return rates, happened


class StaleLaws(Family):
    """A Markov source of 12 tokens, 40 rows, laws in place."""

    cases: Mapping[str, Case] = {"laws in place": Case("conservative", ("stale.detect_shift",))}

    def __init__(self) -> None:
        """Fix the transition matrix."""
        self.matrix = np.random.default_rng(4).dirichlet(np.full(12, 0.5), size=12)
        self.sums = self.matrix.cumsum(axis=1)

    def run(self, rng: np.random.Generator) -> dict[str, float]:
        """One text."""
        uniform, previous = rng.random(40), 0
        before, token = np.empty(40, np.int64), np.empty(40, np.int64)
        for row in range(40):
            before[row] = previous
            previous = min(int(np.searchsorted(self.sums[previous], uniform[row], "right")), 11)
            token[row] = previous
        return {"laws in place": detect_shift(self.matrix[before], token).p_value()}


FAMILIES: tuple[type[Family], ...] = (OneLaw, ManyContexts, Bounds, StaleLaws)

NO_STATISTICS: Mapping[str, str] = {
    "cells": "cells and their laws; the chi-square over them is calibrated",
    "cell_power": "powers, tested against simulation",
    "fault_power": "powers, tested against simulation",
    "inputs": "checks",
    "repeats": "Poisson tail of equal pairs, tested by chance repeats of coarse uniforms",
    "mutants": "faulty laws",
    "sizing": "sample sizes",
    "power": "powers and sizes of faults, tested against simulation",
}
"""Modules without a statistic, and what they hold."""

NOT_STATISTICS: Mapping[str, str] = {
    "betting.units_needed": "a sample size",
    "chi_square.quadratic_form_variance": "a null variance; test_the_second_moment_is_exact",
    "eprocess.from_json": "reads a state",
    "pit.randomised_pit": "looked up; test_tables_equal_the_shipped_functions",
    "scores.score_terms": "looked up; test_tables_equal_the_shipped_functions",
    "scores.score_sums": "score_terms added up; test_tables_equal_the_shipped_functions",
    "tolerant.log_wealth": "tolerant_bound's wealth at each sample; tests/stats/test_tolerant.py",
    "pit.ecdf_band": "half-width of the band, tested by its escapes",
    "drafted.draft_score_terms": "those of scores.draft_score; tests/stats/test_drafted.py",
    "drafted.above_target_terms": "those of scores.above_target; tests/stats/test_drafted.py",
    "drafted.pit_by_draft": "pit.randomised_pit in one order; tests/stats/test_drafted.py",
    "drafted.roles": "cells and their laws; tests/stats/test_drafted.py",
    "surprisal_bins.binned_terms": "upper bounds of cumulants; tests/stats/test_wide.py",
    "wide.ranks": "ranks, and the mass before them; tests/stats/test_wide.py",
    "wide.largest": "the largest masses; tests/stats/test_wide.py",
    "wide.surprisal_terms": "those of scores.surprisal or more; tests/stats/test_wide.py",
    "scores.off_support": "exact: a token of probability 0 is never drawn under the null",
    "total_variation.binomial_mean_deviation": "a null mean, compared with sums over outcomes",
    "total_variation.total_variation": "a distance",
}
"""Public functions without null runs of their own, and why."""
