"""Torch twins of the exact reference: drafting, tree, verification, models, decoding loop."""
