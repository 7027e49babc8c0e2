"""Acceptance of every verification rule against the optimal transport limit."""

from rheocheck.bounds.node import NODE_RULES, node_acceptance
from rheocheck.bounds.optimal import (
    OptimalAcceptance,
    optimal_acceptance,
    optimal_for_sets,
    optimal_independent,
    optimal_without_replacement,
)
from rheocheck.bounds.rules import DRAFT_RULES, Acceptance, rule_acceptance
from rheocheck.bounds.set_laws import SetLaw, set_law

__all__ = [
    "DRAFT_RULES",
    "NODE_RULES",
    "Acceptance",
    "OptimalAcceptance",
    "SetLaw",
    "node_acceptance",
    "optimal_acceptance",
    "optimal_for_sets",
    "optimal_independent",
    "optimal_without_replacement",
    "rule_acceptance",
    "set_law",
]
