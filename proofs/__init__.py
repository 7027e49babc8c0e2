"""Ledger of claims and their proofs (reserved: nothing here yet)."""
