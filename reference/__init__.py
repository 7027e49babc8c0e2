"""Exact twin: laws of whole rounds in rational arithmetic."""

from rheocheck.reference.draws import Draws, NodeKey, OracleDraws
from rheocheck.reference.expansion import Role
from rheocheck.reference.laws import Draft, Law, Path, Target, as_draft, as_law, truncate
from rheocheck.reference.oracle import Choose, enumerate_paths, estimate_num_paths, exact_law
from rheocheck.reference.replay import Margin, Replay, UniformDraws, replay_round
from rheocheck.reference.sampler import Round, round_program, sample_round

__all__ = [
    "Choose",
    "Draft",
    "Draws",
    "Law",
    "Margin",
    "NodeKey",
    "OracleDraws",
    "Path",
    "Replay",
    "Role",
    "Round",
    "Target",
    "UniformDraws",
    "as_draft",
    "as_law",
    "enumerate_paths",
    "estimate_num_paths",
    "exact_law",
    "replay_round",
    "round_program",
    "sample_round",
    "truncate",
]
