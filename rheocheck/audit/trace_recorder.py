"""Turns rounds of the decoding loop into records of a trace."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rheocheck.audit.laws import rank_order, softmax
from rheocheck.audit.recording import RecordingDrafter
from rheocheck.config import SpeculationConfig
from rheocheck.gpu.decoding import RoundTrace
from rheocheck.gpu.expansion import Role
from rheocheck.traces.writer import TraceWriter

# Laws on more tokens are kept in float32: a token's laws then take megabytes otherwise.
LARGEST_FLOAT64 = 8192


class TraceRecorder:
    """Keeps every round of some prompts until their plain laws are known."""

    def __init__(self, config: SpeculationConfig, temperature: float) -> None:
        """Scheme and temperature give the draft's laws."""
        self._config, self._temperature = config, temperature
        self._records: list[dict[str, Any]] = []
        self.vocab = 0

    def observe(self, trace: RoundTrace) -> None:
        """Take in one round of a batch."""
        self.vocab = trace.target_logits.shape[-1]
        target_laws = trace.target_laws()
        nodes = trace.emission_nodes().cpu().numpy()
        emitted = trace.verification.emitted.cpu().numpy()
        for row, request in enumerate(trace.request.tolist()):
            count = int((nodes[row] >= 0).sum())
            at_node = nodes[row, :count]
            laws = target_laws[row].cpu().numpy()[at_node]
            self._records.append(
                {
                    "request": request,
                    "round": int(trace.round_index[row]),
                    "token": emitted[row, :count],
                    "at_node": at_node,
                    "target_law": laws.astype(self._dtype()),
                    **self._drafts(trace, row, at_node),
                    **_tree(trace, row),
                    "final_uniform": [float(trace.uniforms.final[row])],
                }
            )

    def write(
        self, folder: Path, settings: dict[str, Any], plain: Mapping[int, NDArray[np.float64]]
    ) -> int:
        """Write all rounds as a trace of its own.

        Args:
          folder: Made here.
          settings: Of the run.
          plain: By request: [emitted, vocab] laws by plain decoding, of all its rounds in order.

        Returns:
          Records written.
        """
        writer = TraceWriter(folder, self.vocab, settings)
        taken = dict.fromkeys(plain, 0)
        for record in self._records:
            request, count = record["request"], len(record["token"])
            first = taken[request]
            taken[request] += count
            law = plain[request][first : first + count].astype(self._dtype())
            writer.add(plain_law=law, **record)
        writer.close()
        return len(self._records)

    def _dtype(self) -> type[np.floating[Any]]:
        return np.float64 if self.vocab <= LARGEST_FLOAT64 else np.float32

    def _drafts(self, trace: RoundTrace, row: int, at_node: NDArray[np.int64]) -> dict[str, Any]:
        """The draft's laws at the emitted tokens, and the probe's as verification had them."""
        drafter, tree = trace.drafter, trace.tree
        assert isinstance(drafter, RecordingDrafter)
        token_ids = drafter.token_ids
        parts: list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]] = []
        for node in at_node.tolist():
            support = tree.support[row, node].cpu().numpy()
            probe = np.where(support >= 0, tree.probe_law[row, node].cpu().numpy(), 0.0)
            used = {int(token): mass for token, mass in zip(support, probe, strict=True) if mass}
            logits = drafter.node_logits(tree, row, node)
            drawn: dict[int, float] = {}
            if logits is not None:
                values = logits.double().cpu().numpy()
                kept = rank_order(values, self._config.support_size)
                ids = kept if token_ids is None else token_ids.cpu().numpy()[kept]
                law = softmax(values[kept], self._temperature)
                drawn = dict(zip(ids.tolist(), law.tolist(), strict=True))
            ids = np.array(sorted(drawn.keys() | used.keys()), dtype=np.int64)
            parts.append(
                (
                    ids,
                    np.array([drawn.get(token, 0.0) for token in ids.tolist()]),
                    np.array([used.get(token, 0.0) for token in ids.tolist()]),
                )
            )
        return {
            "draft_size": [len(ids) for ids, _, _ in parts],
            "draft_id": np.concatenate([ids for ids, _, _ in parts]),
            "draft_mass": np.concatenate([drawn for _, drawn, _ in parts]),
            "probe_mass": np.concatenate([used for _, _, used in parts]),
        }


@contextmanager
def part_folder(save: Path | None, name: str) -> Iterator[Path]:
    """Where a task writes its part of the trace: inside `save`, or in a folder that is removed."""
    if save is not None:
        yield save / name
        return
    with tempfile.TemporaryDirectory(prefix="rheocheck-") as folder:
        yield Path(folder) / name


def join_parts(
    folder: Path,
    parts: Sequence[tuple[Path, int]],
    runs: Sequence[dict[str, Any]],
    versions: dict[str, str],
) -> None:
    """Make one trace of the parts that tasks wrote.

    Args:
      folder: Of the trace; the parts are folders in it and are removed.
      parts: Each with the index of its run, in the order of the records.
      runs: Settings of the runs.
      versions: Of the software.
    """
    shards: list[dict[str, Any]] = []
    vocab = 1
    for path, run in parts:
        index = json.loads((path / "index.json").read_text(encoding="utf-8"))
        vocab = index["vocab"]
        for shard in index["shards"]:
            name = f"{len(shards):05d}.safetensors"
            os.replace(path / shard["file"], folder / name)
            shards.append({"file": name, "records": shard["records"], "run": run})
        (path / "index.json").unlink()
        path.rmdir()
    whole = {
        "format": "rheocheck-trace", "schema_version": 1, "vocab": vocab, "runs": list(runs),
        "versions": versions, "shards": shards,
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")


def _tree(trace: RoundTrace, row: int) -> dict[str, Any]:
    """The surviving nodes of a row, with the uniforms of their tests and draws."""
    tree, draws = trace.tree, trace.uniforms
    count = int(tree.valid[row].sum())
    token, parent, layer, parent_rank, slot, role, rank = (
        getattr(tree, name)[row, :count].cpu().numpy()
        for name in ("token", "parent", "layer", "parent_rank", "slot", "role", "rank_in_layer")
    )
    is_probe = role == Role.PROBE
    probe_uniform, below, mass = np.zeros(count), np.zeros(count), np.zeros(count)
    node_uniform = np.zeros(count)
    if count:
        node_uniform = draws.accept[row].cpu().numpy()[layer - 1, parent_rank, slot]
        drawn = draws.probe[row].cpu().numpy()[layer - 1, parent_rank]
        probe_uniform = np.where(is_probe, drawn, 0.0)
    for node in np.flatnonzero(is_probe):
        law = tree.probe_law[row, parent[node]].cpu().numpy()
        place = np.flatnonzero(tree.support[row, parent[node]].cpu().numpy() == token[node])
        if len(place):
            below[node], mass[node] = law[: place[0]].sum(), law[place[0]]
    return {
        "num_nodes": [count], "node_token": token, "node_parent": parent, "node_role": role,
        "node_slot": slot, "node_rank": rank, "node_uniform": node_uniform,
        "probe_uniform": probe_uniform, "probe_below": below, "probe_at": mass,
    }  # fmt: skip
