"""Trace files: what a speculative decoder saw and did, in a form any engine can write."""
