"""Throughput and phase times of drafting, tree growth and verification."""
