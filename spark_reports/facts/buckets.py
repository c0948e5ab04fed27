"""Buckets of delivery times."""

from __future__ import annotations

from bisect import bisect_left

from .tables import FIRST_BUCKET, LATENCY_BOUNDS_MS


def bucket_of(ms: int) -> int:
    """The number of the lowest bound that is not below, or the one behind the last for longer times. A time that is not
    positive, as a clock was set back, is in the first."""
    return FIRST_BUCKET + bisect_left(LATENCY_BOUNDS_MS, ms)
