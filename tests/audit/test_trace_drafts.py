"""A trace's drafted children against its recorded draft laws, and checks that go step by step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rheocheck.audit.trace_drafts import DRAW_LAW, IMPOSSIBLE, NOT_BEST, PROBE_LAW
from rheocheck.audit.trace_facts import DECIDED
from rheocheck.audit.trace_run import run_trace_audit
from rheocheck.certificate import Report, Verdict
from rheocheck.errors import TraceError
from rheocheck.traces.writer import TraceWriter
from tests.traces.synthetic import write_chains
from tests.traces.test_bad_traces import edit_arrays, put

# Token 7 is never drafted and takes most of the target, so that rounds end by the residual.
TARGET = np.array([0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.86])
DRAFT = np.array([0.1, 0.3, 0.2, 0.15, 0.1, 0.08, 0.07, 0.0])
TIED = np.array([0.25, 0.25, 0.2, 0.1, 0.1, 0.05, 0.05, 0.0])
# The best token, a probe of the tail, the best of the rest.
HONEST = (1, 4, 2)


def found(report: Report) -> dict[str, int]:
    """Violations by kind."""
    if report.localisation is None:
        return {}
    kinds = report.localisation["violations"]
    return {item["what"]: item["violations"] for item in kinds if item["dimension"] == "role"}


def write_nodes(
    folder: Path,
    children: tuple[int, ...] = HONEST,
    draft: Any = DRAFT,
    top_k: int = 3,
    dtype: Any = np.float64,
    **more: Any,
) -> Path:
    """Twenty rounds of one node with a top, a probe and a filler, all refused."""
    settings = {"temperature": 1.0, "rule": "rheo", "top_k": top_k, "num_top": 1}
    trace = TraceWriter(folder, 8, settings)
    for number in range(20):
        trace.add(
            number, 0, [7], target_law=TARGET[None].astype(np.float64),
            draft_law=draft[None].astype(dtype), num_nodes=[3], node_token=children,
            node_parent=[0, 0, 0], node_role=[0, 1, 2], at_node=[0], **more,
        )  # fmt: skip
    trace.close()
    return folder


def test_honest_children_are_none_of_these(tmp_path: Path) -> None:
    assert found(run_trace_audit(write_nodes(tmp_path / "trace"))) == {}


@pytest.mark.parametrize(
    ("children", "draft", "kind"),
    [
        ((2, 1, 3), DRAFT, IMPOSSIBLE),
        ((1, 7, 2), DRAFT, IMPOSSIBLE),
        ((3, 4, 2), DRAFT, NOT_BEST),
        ((1, 2, 5), DRAFT, NOT_BEST),
    ],
    ids=["the best token as probe", "a token without mass", "a worse top", "a worse filler"],
)
def test_children_that_the_draft_law_does_not_give(
    children: tuple[int, ...], draft: Any, kind: str, tmp_path: Path
) -> None:
    report = run_trace_audit(write_nodes(tmp_path / "trace", children, draft))
    assert found(report)[kind] == 20
    assert report.verdict is Verdict.LOSSY


@pytest.mark.parametrize("children", [(0, 1, 2), (1, 0, 2)])
def test_equal_masses_may_be_cut_either_way(children: tuple[int, ...], tmp_path: Path) -> None:
    """A recorded tie may be two logits that rounding made equal."""
    assert found(run_trace_audit(write_nodes(tmp_path / "trace", children, TIED))) == {}


def test_stale_draft_rows_are_seen_by_the_tops(tmp_path: Path) -> None:
    report = run_trace_audit(write_nodes(tmp_path / "trace", draft=np.roll(DRAFT, 1)))
    assert found(report)[NOT_BEST] == 20


@pytest.mark.parametrize("form", ["law", "logits"])
def test_a_probe_that_float16_rounds_to_zero_is_possible(form: str, tmp_path: Path) -> None:
    """In a law it may be rounding; in logits it would be minus infinity."""
    draft = DRAFT.copy()
    draft[4], draft[1] = 1e-8, 0.4 - 1e-8
    folder = write_nodes(tmp_path / "trace", draft=draft, dtype=np.float16)
    if form == "logits":
        with np.errstate(divide="ignore"):

            def change(arrays: dict[str, Any]) -> None:
                arrays["draft_logits"] = np.log(arrays.pop("draft_law"))

            edit_arrays(folder, change)
    assert (IMPOSSIBLE in found(run_trace_audit(folder))) == (form == "logits")


@pytest.mark.parametrize(
    ("options", "edit", "message"),
    [
        ({"top_k": 2}, None, r"record 0: node 0 has 3 children; the settings say top_k = 2"),
        ({"top_k": 0}, None, r"top_k = 0: must be an integer >= 1"),
        ({"node_slot": [0, 1, 2]}, put("node_slot", 4, -1), r"record 1 .*node_slot must be 0"),
        ({}, put("node_role", 4, 0), r"record 1: node 0 has 2 deterministic children"),
    ],
)
def test_structure_that_the_settings_exclude_is_refused(
    options: dict[str, Any],
    edit: Callable[[dict[str, Any]], None] | None,
    message: str,
    tmp_path: Path,
) -> None:
    folder = write_nodes(tmp_path / "trace", **options)
    if edit is not None:
        edit_arrays(folder, edit)
    with pytest.raises(TraceError, match=message):
        run_trace_audit(folder)


def test_the_mass_that_drew_a_probe_is_that_of_the_draft_law(tmp_path: Path) -> None:
    folder = write_chains(tmp_path / "trace", 60, uniforms=False)

    def change(arrays: dict[str, Any]) -> None:
        arrays["probe_at"] *= 0.9

    edit_arrays(folder, change)
    assert found(run_trace_audit(folder))[DRAW_LAW] > 60


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_wrong_probe_law_is_seen_in_every_dtype(dtype: Any, tmp_path: Path) -> None:
    """Off by a total variation of some per cent, ten times what float16 does to a law."""
    folder = write_chains(tmp_path / "trace", 200, uniforms=False)

    def rounded(wrong: float) -> Callable[[dict[str, Any]], None]:
        def change(arrays: dict[str, Any]) -> None:
            mass = arrays["probe_mass"].astype(np.float64).reshape(-1, 12)
            arrays["probe_mass"] = ((1 - wrong) * mass + wrong / 12).ravel().astype(dtype)

        return change

    edit_arrays(folder, rounded(0.0))
    assert PROBE_LAW not in found(run_trace_audit(folder))
    edit_arrays(folder, rounded(0.1))
    assert found(run_trace_audit(folder))[PROBE_LAW] > 190


def test_one_step_without_a_whole_law_does_not_hide_the_others(tmp_path: Path) -> None:
    """Sparse laws, one with an unlisted rest: the lenient tests of all others are seen."""
    folder = write_chains(tmp_path / "trace", 300, fault="lenient")

    def sparse(arrays: dict[str, Any]) -> None:
        law = arrays.pop("target_law")
        rows, vocab = law.shape
        arrays["target_size"] = np.full(rows, vocab)
        arrays["target_id"] = np.tile(np.arange(vocab), rows)
        arrays["target_mass"] = law.ravel()
        arrays["target_rest"] = np.zeros(rows)

    edit_arrays(folder, sparse)
    whole = found(run_trace_audit(folder))[DECIDED]
    edit_arrays(folder, put("target_rest", 7, 1e-7))
    report = run_trace_audit(folder)
    assert whole > 30 and found(report)[DECIDED] >= whole - 1


@pytest.mark.parametrize("filler", [0.0, 0.37])
def test_what_stands_at_tests_that_were_not_made_does_not_count(
    filler: float, tmp_path: Path
) -> None:
    """An engine that draws when it tests has nothing to write for the nodes it never came to."""
    folder = write_chains(tmp_path / "trace", 200, depth=4)

    def change(arrays: dict[str, Any]) -> None:
        kept = arrays["num_tokens"] - 1
        level = np.tile(np.arange(4), len(kept))
        arrays["node_uniform"][level > np.repeat(kept, 4)] = filler

    edit_arrays(folder, change)
    report = run_trace_audit(folder)
    assert next(s for s in report.stages if s.name == "draws").verdict is Verdict.NO_EVIDENCE
