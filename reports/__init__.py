"""Renders a Report as one HTML page with figures."""
