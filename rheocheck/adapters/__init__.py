"""Doors to outside engines and samplers (reserved: nothing here yet)."""
