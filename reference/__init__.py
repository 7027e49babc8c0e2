"""Exact twin: laws of whole rounds in rational arithmetic."""

from rheocheck.reference.choices import Choose
from rheocheck.reference.defect import (
    Violation,
    lossless_defect,
    total_variation,
    worst_violation,
)
from rheocheck.reference.draws import Draws, NodeKey, OracleDraws
from rheocheck.reference.expansion import Role
from rheocheck.reference.laws import Draft, Law, Path, Target, as_draft, as_law, truncate
from rheocheck.reference.oracle import enumerate_paths, estimate_num_paths, exact_law
from rheocheck.reference.replay import Margin, Replay, UniformDraws, replay_round
from rheocheck.reference.round_law import (
    METHODS,
    Method,
    RoundLaw,
    round_law,
    sequence_law,
    sequence_round_law,
)
from rheocheck.reference.sampler import Round, round_program, sample_round

__all__ = [
    "METHODS",
    "Choose",
    "Draft",
    "Draws",
    "Law",
    "Margin",
    "Method",
    "NodeKey",
    "OracleDraws",
    "Path",
    "Replay",
    "Role",
    "Round",
    "RoundLaw",
    "Target",
    "UniformDraws",
    "Violation",
    "as_draft",
    "as_law",
    "enumerate_paths",
    "estimate_num_paths",
    "exact_law",
    "lossless_defect",
    "replay_round",
    "round_law",
    "round_program",
    "sample_round",
    "sequence_law",
    "sequence_round_law",
    "total_variation",
    "truncate",
    "worst_violation",
]
