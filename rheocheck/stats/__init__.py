"""Tests of fit, bounds and power: pure functions on arrays, no models."""
