"""Bounds on the tiny pair: verification integrated given the decoding loop's own trees."""

from functools import lru_cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rheocheck.bounds.families import Family  # noqa: E402
from rheocheck.bounds.node import NODE_RULES  # noqa: E402
from rheocheck.bounds.real import RealRun, decode_and_integrate, tree_of_row  # noqa: E402
from rheocheck.bounds.real_stage import comparison_stage  # noqa: E402
from rheocheck.bounds.real_sweep import real_tree_sweep, root_sweep, root_values  # noqa: E402
from rheocheck.bounds.sweep import Cell  # noqa: E402
from rheocheck.bounds.tree import child_tests, tree_acceptance  # noqa: E402
from rheocheck.bounds.tree_stage import TOP_K, real_tree_stage  # noqa: E402
from rheocheck.config import SamplingConfig, SpeculationConfig  # noqa: E402
from rheocheck.errors import InputError  # noqa: E402
from rheocheck.gpu.decoding import RoundTrace, generate  # noqa: E402
from rheocheck.models.registry import Pair, load_pair  # noqa: E402
from tests.gpu.dense_verification import node_acceptance as torch_acceptance  # noqa: E402

CONFIG = SpeculationConfig(top_k=4, num_top=1, budget=10, depth=3, support_size=32)
TEXTS = ("The warnings filter is", "There is an existing data", "These two make it", "The easiest")


@lru_cache(maxsize=1)
def pair() -> Pair:
    torch.set_num_threads(1)
    return load_pair("tiny")


@lru_cache(maxsize=1)
def run() -> RealRun:
    return decode_and_integrate(pair(), prompts(), CONFIG, sampling(), max_rounds=4)


def prompts() -> list[list[int]]:
    return [pair().tokenizer.encode(text) for text in TEXTS]


def sampling() -> SamplingConfig:
    return SamplingConfig(max_new_tokens=64, seed=3)


@lru_cache(maxsize=1)
def traces() -> list[RoundTrace]:
    seen: list[RoundTrace] = []
    generate(
        pair().target, pair().new_drafter, prompts(), CONFIG, sampling(), max_rounds=2,
        observer=seen.append,
    )  # fmt: skip
    return seen


def test_probabilities_of_tests_are_those_of_the_torch_verification() -> None:
    """Given all earlier rejections, each test's probability is the decoding loop's own."""
    for trace in traces():
        for row in range(len(trace.request)):
            tree = tree_of_row(trace, row, CONFIG)
            below = tree.children()[0]
            tokens = [tree.token[child - 1] for child in below]
            roles = [tree.role[child - 1] for child in below]
            laws = trace.target_laws()[row, 0]
            for rule in ("rheo", "rrsw", "onehot"):
                found = torch_acceptance(
                    laws[None],
                    torch.tensor([tokens]),
                    torch.tensor([[int(role) for role in roles]]),
                    torch.ones(1, len(tokens), dtype=torch.bool),
                    trace.tree.support[row, :1],
                    trace.tree.probe_law[row, :1],
                    rule,
                )
                ours = child_tests(laws.numpy(), tokens, roles, tree.expansions[0], rule)
                order = found.order[0].tolist()
                for place, probability in zip(order, found.acceptance[0].tolist(), strict=True):
                    if ours.tested[place] > 1e-9:
                        chance = ours.accepted[place] / ours.tested[place]
                        assert chance == pytest.approx(probability, abs=1e-9)


def test_counted_tokens_scatter_around_the_integrated_number() -> None:
    units = run().tallies["rheo"]
    counted, integrated = (sum(unit[name] for unit in units) for name in ("counted", "accepted"))
    rounds = sum(unit["rounds"] for unit in units)
    # A round's count has a variance of at most depth**2 / 4; five deviations.
    assert abs(counted - integrated) < 5 * (rounds * CONFIG.depth**2 / 4) ** 0.5


def test_every_rule_is_at_most_the_optimum_at_every_real_node() -> None:
    values = run().node_values
    assert len(values["t"]) > 50
    for rule in NODE_RULES:
        assert (values[rule] <= values["merged"] + 1e-12).all()
    assert (values["topk"] <= 1 + 1e-12).all()
    assert set(np.unique(values["layer"])) <= {0, 1, 2}


def test_root_laws_give_the_acceptance_of_the_root_nodes() -> None:
    cell = Cell(Family("zipf"), CONFIG.top_k, CONFIG.num_top, CONFIG.support_size)
    by_roots = root_values(run().roots, cell)
    values = run().node_values
    roots = values["layer"] == 0
    for rule in NODE_RULES:
        assert np.sort(by_roots[rule]) == pytest.approx(np.sort(values[rule][roots]), abs=1e-9)


def test_a_wrong_probe_law_would_be_seen() -> None:
    """The comparison with torch has teeth: forgetting the tail's normalisation changes it."""
    trace = traces()[0]
    tree = tree_of_row(trace, 0, CONFIG)
    laws = trace.target_laws()[0].numpy()
    honest = tree_acceptance(tree, laws, "rheo").expected_accepted
    for expansion in tree.expansions:
        if expansion is not None:
            expansion.probe_law[:] = [mass / 2 for mass in expansion.probe_law]  # type: ignore[index]
    assert tree_acceptance(tree, laws, "rheo").expected_accepted != pytest.approx(honest)


def test_stages_on_a_real_pair_report_intervals() -> None:
    plain = CONFIG.model_copy(update={"num_top": CONFIG.top_k, "rule": "onehot"})
    top_k = decode_and_integrate(pair(), prompts(), plain, sampling(), max_rounds=2)
    assert list(top_k.tallies) == ["onehot"]
    stage = real_tree_stage({"rheo": run(), TOP_K: top_k}, CONFIG, "tiny", "replay")
    rows = {row["scheme"]: row for row in stage.details["rows"]}
    assert set(rows) == {"rheo", "rrsw", "onehot", TOP_K}
    for row in rows.values():
        found = row["expected_accepted"]
        assert found["low"] < found["value"] < found["high"]
    assert stage.details["variance"]["lead"] > 1
    comparison = comparison_stage(run().roots, 4, 1, 32, 1.0, "tiny", "replay")
    schemes = [row["scheme"] for row in comparison.details["rows"]]
    assert schemes[0] == "Top-K"
    assert len(schemes) == 5


def test_sweeps_on_a_real_pair_have_one_row_a_cell() -> None:
    rows = root_sweep(run().roots, "tiny", (4,), (0, 1, 5), (8, 32), (1.0, 0.0))
    assert len(rows) == 8
    greedy = [row for row in rows if row["draft_temperature"] == 0]
    assert all(row["mean_rheo"] == pytest.approx(row["mean_topk"]) for row in greedy)
    trees = real_tree_sweep(
        pair(), prompts()[:2], [CONFIG.model_copy(update={"num_top": 4})], (1.0,), max_rounds=1
    )
    assert [row["rule"] for row in trees] == ["topk"]


def test_prompts_are_needed() -> None:
    with pytest.raises(InputError, match="prompts is empty"):
        decode_and_integrate(pair(), [], CONFIG, sampling())
