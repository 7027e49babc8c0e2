"""Runs that were stopped go on, and end as if they had never been stopped."""

import json
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit import exact
from rheocheck.audit.exact import exact_stage
from rheocheck.audit.exact_check import Finding, check_instance
from rheocheck.audit.instance_certificate import KEY
from rheocheck.audit.resume import Journal
from rheocheck.audit.universal import universal_stage
from rheocheck.audit.universal_points import check_points, class_law
from rheocheck.audit.universal_shapes import Shape, node_shapes
from rheocheck.certificate import StageResult
from rheocheck.errors import InputError
from rheocheck.reference.families import Instance, family

RUN = {"command": "test", "seed": 0}


class StoppedError(Exception):
    """Stands for whatever stops a run."""


@pytest.fixture(autouse=True)
def _one_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit made while the tests run is no difference of theirs."""
    monkeypatch.setattr("rheocheck.audit.instance_certificate.environment", dict)


def few(quick: bool, seed: int) -> list[Instance]:
    return family(quick=True, seed=seed)[::4]


def same(one: StageResult, two: StageResult) -> bool:
    """Bit for bit, but for the time that it took."""
    return one.model_dump_json(exclude={"seconds"}) == two.model_dump_json(exclude={"seconds"})


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[Instance]:
    """Stop the sweep at an instance; returns the instances that are checked from now on."""
    checked: list[Instance] = []

    def check(instance: Instance, max_eager_paths: int) -> Finding:
        if len(checked) == count:
            raise StoppedError
        checked.append(instance)
        return check_instance(instance, max_eager_paths)

    for module in ("exact", "exact_resume"):
        monkeypatch.setattr(f"rheocheck.audit.{module}.check_instance", check)
    return checked


def test_units_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run.resume"
    with Journal(RUN, path) as journal:
        assert len(journal) == 0
        assert not path.exists()  # nothing to keep yet
        journal.record("exact", "0", [1, None, "x"])
        journal.record("all_laws", "0", 5)
    again = Journal(RUN, path)
    assert again.get("exact", "0") == [1, None, "x"]
    assert again.get("all_laws", "0") == 5
    assert again.get("exact", "1") is None
    assert len(again) == 2


def test_a_torn_last_line_is_left_out_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "run.resume"
    with Journal(RUN, path) as journal:
        journal.record("exact", "0", 1)
        journal.record("exact", "1", 2)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[:-4], encoding="utf-8")
    with Journal(RUN, path) as journal:
        assert journal.get("exact", "0") == 1
        assert journal.get("exact", "1") is None
        journal.record("exact", "1", 2)
    assert path.read_text(encoding="utf-8") == whole


def test_a_journal_in_memory_can_be_saved(tmp_path: Path) -> None:
    journal = Journal(RUN)
    journal.record("exact", "0", 1)
    journal.save(tmp_path / "late.resume")
    assert Journal(RUN, tmp_path / "late.resume").get("exact", "0") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no journal"),
        ("{}\n", "no journal"),
        ("not json\n", "no journal"),
        ('{"format":"rheocheck-resume/1"}\n', "does not say which run"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Journal(RUN, path)
    assert path.read_text(encoding="utf-8") == text


def test_damage_before_the_last_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.resume"
    with Journal(RUN, path) as journal:
        journal.record("exact", "0", 1)
    path.write_text(path.read_text(encoding="utf-8") + "[1]\n[2]\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 3"):
        Journal(RUN, path)


def test_another_run_is_refused_by_the_name_of_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.resume"
    with Journal(RUN, path) as journal:
        journal.record("exact", "0", 1)
    with pytest.raises(InputError, match="its seed is 0, this run's is 1"):
        Journal({**RUN, "seed": 1}, path)
    monkeypatch.setattr("rheocheck.audit.resume.code_digest", lambda: "changed")
    with pytest.raises(InputError, match="its code is"):
        Journal(RUN, path)


def test_a_folder_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    journal = Journal(RUN, tmp_path / "none" / "run.resume")
    with pytest.raises(InputError, match="cannot write"):
        journal.record("exact", "0", 1)


def test_a_stopped_sweep_goes_on_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "family", few)
    whole = exact_stage(True, 0, 1, max_eager_paths=60)
    path = tmp_path / "run.resume"
    with monkeypatch.context() as patch:
        stop_after(200, patch)
        with Journal(RUN, path) as journal, pytest.raises(StoppedError):
            exact_stage(True, 0, 1, max_eager_paths=60, journal=journal)
        assert len(journal) == 3  # whole parts of 60 instances
    with monkeypatch.context() as patch:
        checked = stop_after(10**6, patch)
        with Journal(RUN, path) as journal:
            resumed = exact_stage(True, 0, 1, max_eager_paths=60, journal=journal)
        assert len(checked) == len(few(True, 0)) - 180
    assert same(whole, resumed)
    assert KEY in resumed.details


def test_what_failed_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.defects.reference_faults import FAULTS

    monkeypatch.setattr(exact, "family", lambda quick, seed: few(quick, seed)[:120])
    FAULTS["residual_is_the_target"](monkeypatch)
    path = tmp_path / "run.resume"
    with Journal(RUN, path) as journal:
        whole = exact_stage(True, 0, 1, max_eager_paths=60, journal=journal)
    checked = stop_after(10**6, monkeypatch)
    with Journal(RUN, path) as journal:
        resumed = exact_stage(True, 0, 1, max_eager_paths=60, journal=journal)
    assert same(whole, resumed)
    assert whole.details["witness"] == resumed.details["witness"]
    assert 0 < len(checked) == _entries(path).count(0) < 120


def _entries(path: Path) -> list[Any]:
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [entry for line in lines for entry in json.loads(line)[2]]


def test_damaged_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "family", lambda quick, seed: few(quick, seed)[:2])
    digests = "A" * 88
    for entries in ([], [0], [["x", None, "AA"], 0], [[1, None, digests], 0], [[1], 0], "ab"):
        journal = Journal(RUN)
        journal.record("exact", "0", entries)
        with pytest.raises(InputError, match="damaged"):
            exact_stage(True, 0, 1, max_eager_paths=0, journal=journal)


def test_all_laws_go_on_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = list(node_shapes(3, zeros=True, small=False))[:8]
    whole = universal_stage(True, 0, 1, shapes=shapes)
    path = tmp_path / "run.resume"
    calls: list[int] = []

    def counted(index: int, shape: Shape, start: int, stop: int, **rest: Any) -> Any:
        if len(calls) == 3:
            raise StoppedError
        calls.append(index)
        return check_points(index, shape, start, stop, seed=0, law_of=class_law)

    with monkeypatch.context() as patch:
        patch.setattr("rheocheck.audit.universal.check_points", counted)
        with Journal(RUN, path) as journal, pytest.raises(StoppedError):
            universal_stage(True, 0, 1, shapes=shapes, journal=journal)
    with Journal(RUN, path) as journal:
        assert len(journal) == 3
        assert same(whole, universal_stage(True, 0, 1, shapes=shapes, journal=journal))
