"""Buckets of delivery times."""

from __future__ import annotations

from bisect import bisect_left

from .tables import FIRST_BUCKET, LATENCY_BOUNDS_MS


def bucket_of(ms: int) -> int:
    """Return the number of the lowest bound that is not below the time, or the one after the last for longer times. A
    time that is not positive, because a clock was set back, is in the first bucket."""
    return FIRST_BUCKET + bisect_left(LATENCY_BOUNDS_MS, ms)
