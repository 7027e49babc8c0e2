"""Exact twin: laws of whole rounds in rational arithmetic."""
