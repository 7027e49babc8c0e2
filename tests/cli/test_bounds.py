"""`rheocheck bounds`: exit codes, one-paragraph errors, JSON of the same content, torch-free."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rheocheck.certificate import SCHEMA_VERSION, Verdict
from rheocheck.cli import main

STAGE_FIELDS = {"name", "verdict", "statistic", "sample_size", "threshold", "power", "replay"}


def run_command(*words: str) -> int:
    """Exit code of `rheocheck bounds`."""
    with pytest.raises(SystemExit) as exit_info:
        main(["bounds", *words])
    return int(exit_info.value.code or 0)


def report(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    assert content["schema_version"] == SCHEMA_VERSION
    assert content["verdict"] in [verdict.value for verdict in Verdict]
    assert all(set(stage) >= STAGE_FIELDS for stage in content["stages"])
    return content


@pytest.fixture
def laws(tmp_path: Path) -> Path:
    path = tmp_path / "laws.json"
    path.write_text('{"target": ["1/4", "0", "1/2", "1/4"], "draft": ["1/4", "1/4", "1/4", "1/4"]}')
    return path


def test_one_exact_node_is_certified(
    laws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_file = tmp_path / "node.json"
    words = ("node", str(laws), "--top-k", "3", "--num-drafts", "2", "--json", str(json_file))
    assert run_command(*words) == 0
    shown = capsys.readouterr().out
    assert "29/30" in shown
    assert "Verdict: CERTIFIED" in shown
    content = report(json_file)
    assert content["verdict"] == "certified"
    rows = {row["rule"]: row for row in content["stages"][0]["details"]["rows"]}
    assert rows["rheo"]["accept_test"]["exact"] == "29/30"
    assert rows["naive"]["membership"]["exact"] == "13/16"
    assert content["stages"][0]["replay"].startswith("rheocheck bounds node")


def test_the_replay_line_repeats_the_run(laws: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    run_command("node", str(laws), "--top-k", "3", "--json", str(first))
    replay = report(first)["stages"][0]["replay"].split()
    run_command(*replay[2:], "--json", str(second))
    rows = [report(path)["stages"][0]["details"] for path in (first, second)]
    assert rows[0] == rows[1]


def test_arrays_and_random_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "laws.npz"
    law = np.random.default_rng(0).dirichlet(np.ones(30), size=2)
    np.savez(path, target=law[0], draft=law[1])
    assert run_command("node", str(path)) == 0
    assert "recursion of" in capsys.readouterr().out
    words = (
        "node",
        "--num-nodes",
        "3",
        "--vocab",
        "6-9",
        "--family",
        "dirichlet:0.5",
        "--top-k",
        "4",
    )
    assert run_command(*words) == 0
    assert "3 nodes" in capsys.readouterr().out


def test_a_given_model_is_enumerated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rheocheck.bounds.dominance_stage import tree_stage

    witness = tree_stage(4, "replay").details["rows"][2]["witness"]
    path, json_file = tmp_path / "model.json", tmp_path / "tree.json"
    path.write_text(json.dumps(witness["model"]))
    words = ("--top-k", "2", "--budget", "4", "--depth", "3", "--json", str(json_file))
    assert run_command("tree", str(path), *words) == 0
    rows = {row["scheme"]: row for row in report(json_file)["stages"][0]["details"]["rows"]}
    assert rows["rrsw"]["expected_accepted"]["exact"] == "3/2"
    assert rows["rheo"]["expected_accepted"]["exact"] == "4/3"
    assert "E[tau]" in capsys.readouterr().out


def test_random_trees_print_every_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--num-models", "2", "--vocab", "8", "--budget", "6", "--depth", "2", "--top-k", "3")
    assert run_command("tree", *words) == 0
    shown = capsys.readouterr().out
    assert "Top-K" in shown
    assert "probe tests" in shown


def test_sweeps_write_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, json_file = tmp_path / "out", tmp_path / "sweep.json"
    words = ("--per-cell", "20", "--family", "zipf", "--top-k", "4", "--num-top", "1",
             "--vocab", "6-8", "--jobs", "1", "--json", str(json_file))  # fmt: skip
    assert run_command("sweep", *words, "--out", str(out)) == 0
    assert (out / "node_sweep.csv").exists()
    assert (out / "phase_map.svg").exists()
    assert "zipf" in capsys.readouterr().out
    assert report(json_file)["stages"][0]["sample_size"] == 20
    trees = ("--what", "tree", "--per-cell", "2", "--top-k", "3", "--num-top", "1", "--budget",
             "4", "--depth", "2", "--vocab", "6", "--jobs", "1")  # fmt: skip
    assert run_command("sweep", *trees) == 0


def test_dominance_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file = tmp_path / "dominance.json"
    words = ("--max-denominator", "5", "--num-nodes", "20", "--num-models", "3", "--jobs", "1",
             "--num-instances", "6", "--json", str(json_file))  # fmt: skip
    assert run_command("dominance", *words) == 0
    content = report(json_file)
    assert content["verdict"] == "certified"
    assert len(content["claims"]) == 4
    assert "rheo 29/30, rrsw 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("node", "none.json"), "cannot read none.json: No such file or directory"),
        (("node", "--num-nodes", "0"), "num_nodes = 0; required: at least 1"),
        (("node", "--top-k", "0"), "top_k = 0; required: an integer, at least 1"),
        (("node", "--num-drafts", "0"), "num_drafts = 0; required: an integer, at least 1"),
        (("node", "--family", "x"), "family 'x'; required: one of"),
        (("node", "--vocab", "5-3"), "vocab = '5-3'; required: a number such as 50"),
        (("node", "--temperature", "-1"), "temperature = -1.0; required: a finite number"),
        (("node", "--seed", "-1"), "seed = -1; required: at least 0"),
        (("node", "--json", "/none/x.json"), "cannot write /none/x.json: the folder /none"),
        (("node", "x.json", "--model", "tiny"), "x.json and --model were given"),
        (("tree", "--depth", "-1"), "depth = -1"),
        (("tree", "--num-models", "0"), "models_per_cell = 0"),
        (("sweep", "--what", "x"), "--what is 'x'; required: node or tree"),
        (("sweep", "--budget", "3"), "--budget is an axis of trees"),
        (("sweep", "--top-k", "a"), "--top-k is 'a'; required: numbers separated by commas"),
        (("sweep", "--vocab", "x"), "--vocab is 'x'"),
        (("dominance", "--max-denominator", "99"), "max_denominator = 99; required: 1 to 30"),
        (("dominance", "--num-models", "0"), "num_models = 0; required: at least 1"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("rheocheck: error: ")
    assert error.count("\n") == 1


def test_laws_that_are_none_name_the_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "laws.json"
    for content, message in (
        ('{"target": [0.5, 0.5], "draft": [1]}', "draft has 1 tokens and target has 2"),
        ('{"target": [0.5, NaN], "draft": [1, 0]}', "target[1] is nan; required: a finite mass"),
        ('{"target": [1, 0], "draft": [Infinity, 0]}', "draft[0] is inf; required: a finite mass"),
        ('{"target": ["1/2", 0.5], "draft": [1, 0]}', "target[1] is 0.5 of type float beside"),
        ('{"target": ["1/2", "1/3"], "draft": [1, 0]}', "target sums to 5/6; required: exactly 1"),
    ):
        path.write_text(content)
        assert run_command("node", str(path)) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["node", "tree", "sweep", "dominance"])
def test_help_gives_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(command, "--help") == 0
    shown = capsys.readouterr().out
    assert "Example: rheocheck bounds" in shown
    assert "--json" in shown
    assert "--seed" in shown


def test_given_laws_need_no_torch(laws: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from rheocheck.cli import main\n"
        f"main(['bounds', 'node', {str(laws)!r}, '--top-k', '3'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "CERTIFIED" in done.stdout


def test_a_model_without_torch_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run_command("node", "--model", "tiny") == 2
    assert "pip install 'rheocheck[torch]'" in capsys.readouterr().err


def test_a_real_pair_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    json_file = tmp_path / "real.json"
    words = ("--model", "tiny", "--num-prompts", "3", "--rounds", "1", "--json", str(json_file))
    assert run_command("node", *words) == 0
    assert "Rheo + RheoVerification" in capsys.readouterr().out
    assert report(json_file)["settings"]["model"] == "tiny"
    assert run_command("tree", *words, "--budget", "6", "--depth", "2") == 0
    assert "Top-K" in capsys.readouterr().out
    out = tmp_path / "out"
    sweep = ("--top-k", "4", "--num-top", "1", "--support-size", "8,16", "--out", str(out))
    assert run_command("sweep", *words, *sweep) == 0
    assert (out / "depth_one_comparison.csv").exists()
    assert (out / "acceptance_by_support_size.svg").exists()
