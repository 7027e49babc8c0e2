"""Renders a Report as one HTML page with figures."""

from rheocheck.reports.html import render_html

__all__ = ["render_html"]
