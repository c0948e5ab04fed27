"""Rates, lag and counts: for pages, charts, history and /metrics."""
