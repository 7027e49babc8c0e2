"""A planted fault is named by its role and depth, and its replay shows it from the saved trace."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rheocheck.audit.pair import load_pair
from rheocheck.audit.trace_drafts import PROBE_LAW
from rheocheck.audit.trace_facts import DECIDED, NUMERICS
from rheocheck.certificate import Verdict
from tests.audit.small_audit import audit, share_exact_stage
from tests.cli.test_audit_command import run_command
from tests.defects import torch_faults
from tests.defects.test_audit_faults import stale_cache, wrong_mask_row


@pytest.fixture(autouse=True)
def _share(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    share_exact_stage(monkeypatch)
    yield
    load_pair.cache_clear()


@pytest.mark.parametrize(
    ("plant", "kind", "roles"),
    [
        (torch_faults.residual_is_target, DECIDED, {"residual"}),
        (torch_faults.temperature_ignored_in_ratio, PROBE_LAW, {"probe"}),
        pytest.param(
            torch_faults.fillers_before_probe,
            DECIDED,
            {"probe", "top", "filler"},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            torch_faults.draft_law_for_probe_law, PROBE_LAW, {"probe"}, marks=pytest.mark.nightly
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_of_the_scheme_is_named_by_its_role(
    plant: torch_faults.Plant,
    kind: str,
    roles: set[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        # A filler is accepted seldom.
        more = {"num_prompts": 32} if "filler" in roles else {}
        report = audit(regrow_prompts=0, save_trace=tmp_path / "trace", **more)
    assert report.verdict is Verdict.LOSSY
    where = report.localisation
    assert where is not None and where["refused"] is None
    found = {
        item["category"]
        for item in where["violations"]
        if item["dimension"] == "role" and item["what"] == kind
    }
    assert found == roles
    # The replay needs neither the models nor the fault.
    words = where["replay"].split()
    assert run_command(*words[2:]) == 1
    assert f"record {where['first']['record']}" in capsys.readouterr().out


def test_a_stale_cache_is_named_by_the_round_after_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first wrong law of every request is at a root, and never in its first round."""
    audit(num_prompts=1, regrow_prompts=0)
    stale_cache(monkeypatch)
    where = audit(max_new_tokens=16, regrow_prompts=0, save_trace=tmp_path / "trace").localisation
    assert where is not None
    origins = [item for item in where["origins"] if item["what"] == NUMERICS]
    assert origins
    assert {(item["role"], item["depth"], item["node"]) for item in origins} == {("root", 0, 0)}
    assert min(item["earliest_round"] for item in origins) >= 1
    assert "0" not in {
        item["category"] for item in where["violations"] if item["dimension"] == "round"
    }


def test_a_wrong_mask_row_is_named_by_its_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second survivor sees the first: the first wrong law of a request is there or below."""
    audit(num_prompts=1, regrow_prompts=0)
    wrong_mask_row(monkeypatch)
    where = audit(max_new_tokens=16, regrow_prompts=0, save_trace=tmp_path / "trace").localisation
    assert where is not None
    origins = [item for item in where["origins"] if item["what"] == NUMERICS]
    assert origins[0]["node"] == 2
    assert origins[0]["role"] != "root" and origins[0]["depth"] in (1, 2)
