"""Acceptance of every verification rule against the optimal transport limit."""
