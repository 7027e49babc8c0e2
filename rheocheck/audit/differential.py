"""Differential stage: the torch path and the exact reference on the same uniforms, draw for draw.

Random small instances go through `rheocheck.gpu` in batches and through `rheocheck.reference` row
by row. Tree, accepted path and final token must agree. A difference is explained only if it begins
at a decision whose exact threshold lies within float rounding of the value compared with it; every
other one is a counterexample.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rheocheck.audit.differential_explain import Difference, explain
from rheocheck.audit.differential_instances import (
    ROWS_PER_BATCH,
    Batch,
    ExactRow,
    Family,
    TableDrafter,
    make_batch,
    next_table,
    target_logits,
)
from rheocheck.certificate import StageResult, Verdict
from rheocheck.errors import InputError
from rheocheck.gpu import tree as gpu_tree
from rheocheck.gpu import verification as gpu_verification
from rheocheck.reference.draws import NodeKey
from rheocheck.reference.replay import Replay, replay_round

NAME = "differential"
# The alternative that the printed power refers to: a fault that changes this share of the rounds.
FAULT_SHARE = 1 / 500
# With more explained differences than this the stage would no longer be looking.
LARGEST_EXPLAINED_SHARE = 0.02
_LARGEST_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class TorchRound:
    """What the torch path made of a batch.

    Attributes:
      tree: Its trees.
      verification: Its walks.
    """

    tree: gpu_tree.Tree
    verification: gpu_verification.Verification


@dataclass(frozen=True, slots=True)
class Finding:
    """One row on which the twins differ.

    Attributes:
      family: Family of the instance.
      batch: Number of the batch.
      row: Row in the batch.
      difference: Where they part, and whether rounding explains it.
    """

    family: Family
    batch: int
    row: int
    difference: Difference


def differential_stage(
    rounds: int = 2000,
    seed: int = 0,
    *,
    large_rounds: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> StageResult:
    """Compare the twins on random rounds.

    Args:
      rounds: Rounds with vocabularies up to 32.
      seed: Of the instances and their uniforms, >= 0.
      large_rounds: Rounds with vocabularies up to 512 and a smaller support; None: one for every
        hundred of the others, rounded up.
      progress: Called with the number of rounds done since the last call.

    Returns:
      LOSSY with the first counterexamples if a difference is unexplained; INCONCLUSIVE if more than
      2 % of the rounds differ within rounding; else NO_EVIDENCE, with the power against a fault
      that changes one round in 500.

    Raises:
      InputError: A negative number of rounds, none at all, or a negative seed.
    """
    large_rounds = -(-rounds // 100) if large_rounds is None else large_rounds
    if rounds < 0 or large_rounds < 0 or rounds + large_rounds == 0 or seed < 0:
        raise InputError(
            f"rounds = {rounds}, large_rounds = {large_rounds}, seed = {seed}: none may be "
            "negative, and at least one round is required"
        )
    started = time.perf_counter()
    findings: list[Finding] = []
    counts: tuple[tuple[Family, int], ...] = (("small", rounds), ("large", large_rounds))
    for family, count in counts:
        for number in range(-(-count // ROWS_PER_BATCH)):
            num_rows = min(ROWS_PER_BATCH, count - number * ROWS_PER_BATCH)
            findings += compare_batch(seed, family, number, num_rows)
            if progress is not None:
                progress(num_rows)
    return _result(findings, rounds, large_rounds, seed, time.perf_counter() - started)


def compare_batch(
    seed: int, family: Family, number: int, num_rows: int = ROWS_PER_BATCH
) -> list[Finding]:
    """Differences in the first `num_rows` rows of one batch."""
    return [
        Finding(family, number, row, difference)
        for row, difference in differences(make_batch(seed, family, number), num_rows)
    ]


def differences(batch: Batch, num_rows: int) -> Iterator[tuple[int, Difference]]:
    """Rows among the first `num_rows` on which the twins differ, and where."""
    done = run_torch(batch)
    for row in range(num_rows):
        exact = ExactRow(batch, row)
        replay = replay_round(
            exact.target,
            exact.draft,
            batch.config,
            batch.probe[row].tolist(),
            batch.accept[row].tolist(),
            float(batch.final[row]),
        )
        expected, found = exact_decisions(replay), torch_decisions(done, row)
        if expected != found:
            yield row, explain(batch, row, exact, replay, expected, found)


def run_torch(batch: Batch) -> TorchRound:
    """Draft and verify all rows of a batch with the torch path."""
    uniforms = batch.uniforms()
    drafter = TableDrafter(batch)
    # Called through their modules, so that what is compared is what the package runs.
    tree = gpu_tree.grow(drafter, uniforms, batch.config, batch.temperature)
    logits = logits_at_nodes(batch, tree)
    done = gpu_verification.verify(tree, logits, uniforms, batch.config.rule, batch.temperature)
    return TorchRound(tree, done)


def logits_at_nodes(batch: Batch, tree: gpu_tree.Tree) -> Tensor:
    """[rows, nodes, vocab] target logits at the root and at each node of the batch's trees."""
    step = torch.from_numpy(batch.step)
    table = torch.zeros_like(tree.probe_rank)
    parent = torch.nn.functional.pad(tree.parent, (1, 0))
    token = torch.nn.functional.pad(tree.token, (1, 0))
    for _ in range(tree.depth):
        table[:, 1:] = next_table(step, table.gather(1, parent), token)[:, 1:]
    return target_logits(batch)[torch.arange(len(table)).unsqueeze(1), table]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Everything that a round decided, in a form that both twins give.

    Attributes:
      nodes: Survivors best first: (key, token, role).
      accepted: Keys of the accepted nodes, from layer 1 down.
      final: Token that ended the round.
    """

    nodes: tuple[tuple[NodeKey, int, int], ...]
    accepted: tuple[NodeKey, ...]
    final: int


def exact_decisions(replay: Replay) -> Decisions:
    """Decisions of the reference."""
    tree, verification = replay.round.tree, replay.round.verification
    key_at = {node.path: node.key for node in tree.survivors}
    path = verification.accepted
    return Decisions(
        nodes=tuple((node.key, node.token, int(node.role)) for node in tree.survivors),
        accepted=tuple(key_at[path[:length]] for length in range(1, len(path) + 1)),
        final=verification.final,
    )


def torch_decisions(done: TorchRound, row: int) -> Decisions:
    """Decisions of the torch path in one row."""
    tree, verification = done.tree, done.verification
    columns = (tree.layer, tree.parent_rank, tree.slot, tree.token, tree.role)
    size = int(tree.valid[row].sum())
    nodes = tuple(
        (NodeKey(layer, rank, slot), token, role)
        for layer, rank, slot, token, role in zip(
            *(column[row, :size].tolist() for column in columns), strict=True
        )
    )
    accepted = verification.accepted[row, : int(verification.num_accepted[row])].tolist()
    return Decisions(
        nodes=nodes,
        accepted=tuple(nodes[node - 1][0] for node in accepted),
        final=int(verification.final_token[row]),
    )


def replay_line(seed: int, finding: Finding) -> str:
    """Shell line that prints one instance and where the twins part on it."""
    arguments = f"{seed}, {finding.family!r}, {finding.batch}, {finding.row}"
    return (
        'python -c "from rheocheck.audit.differential import describe; '
        f'print(describe({arguments}))"'
    )


def describe(seed: int, family: Family, number: int, row: int) -> str:
    """Instance and difference of one row, as text."""
    found = [item for item in compare_batch(seed, family, number) if item.row == row]
    outcome = found[0].difference.text if found else "the twins agree on this row"
    return f"{describe_instance(seed, family, number, row)}\n{outcome}"


def describe_instance(seed: int, family: Family, number: int, row: int) -> str:
    """One instance as text: scheme, laws at the root, uniforms."""
    batch = make_batch(seed, family, number)
    config = ", ".join(f"{name} = {value}" for name, value in batch.config)
    exact = ExactRow(batch, row)
    lines = (
        f"scheme: {config}; temperature {batch.temperature:g}",
        f"target at the root: {_fractions(exact.target(()))}",
        f"draft at the root: {_fractions(exact.draft(()))}",
        f"probe uniforms: {batch.probe[row].tolist()}",
        f"accept uniforms: {batch.accept[row].tolist()}",
        f"final uniform: {batch.final[row]}",
    )
    return "\n".join(lines)


def _fractions(law: Any) -> str:
    """A law, or a pair of laws, as text."""
    if isinstance(law[0], tuple):
        return " and ".join(_fractions(one) for one in law)
    return "(" + ", ".join(str(mass) for mass in law) + ")"


def _result(
    findings: list[Finding], rounds: int, large_rounds: int, seed: int, seconds: float
) -> StageResult:
    """Turn findings into the stage's verdict."""
    total = rounds + large_rounds
    unexplained = [item for item in findings if not item.difference.is_explained]
    explained = Counter(
        item.difference.decision for item in findings if item.difference.is_explained
    )
    verdict = Verdict.NO_EVIDENCE
    if explained.total() > LARGEST_EXPLAINED_SHARE * total:
        verdict = Verdict.INCONCLUSIVE
    if unexplained:
        verdict = Verdict.LOSSY
    stage_line = f"differential_stage({rounds}, {seed}, large_rounds={large_rounds})"
    return StageResult(
        name=NAME,
        verdict=verdict,
        statistic=float(len(unexplained)),
        sample_size=total,
        threshold=1.0,
        power=1 - (1 - FAULT_SHARE) ** total,
        replay=(
            replay_line(seed, unexplained[0])
            if unexplained
            else 'python -c "from rheocheck.audit.differential import differential_stage; '
            f'print({stage_line})"'
        ),
        seconds=seconds,
        details={
            "statistic": "rounds on which torch and the exact reference differ beyond rounding",
            "alternative": f"a fault that changes {FAULT_SHARE:.1%} of the rounds",
            "rounds_vocabulary_to_32": rounds,
            "rounds_vocabulary_to_512": large_rounds,
            "explained_differences": explained.total(),
            "explained_by_decision": dict(sorted(explained.items())),
            "counterexamples": [
                {
                    "difference": item.difference.text,
                    "instance": describe_instance(seed, item.family, item.batch, item.row),
                    "replay": replay_line(seed, item),
                }
                for item in unexplained[:_LARGEST_SHOWN]
            ],
        },
    )
