"""Models by name, and the embedded tiny pair."""
