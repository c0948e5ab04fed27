"""Buckets of delivery times."""

from __future__ import annotations

from bisect import bisect_left

from .tables import LATENCY_BOUNDS_MS


def bucket_of(ms: int) -> int:
    """Index of the lowest bound that is not below; how many bounds there are for longer times. A time that is not
    positive, as a clock was set back, is in the first."""
    return bisect_left(LATENCY_BOUNDS_MS, ms)
