"""Tiles with a trend of seven days. The values of earlier days are those of their own digests, which are in the
snapshot: so a trend needs no facts of those days, and does not depend on how they were counted."""

from __future__ import annotations

from .days import View
from .document import Tile, Value

DAYS = 7


def trend_tile(view: View, key: str, unit: str, value: int | None, where: tuple[tuple[str, Value], ...] = ()) -> Tile:
    """Make a tile with a trend. key: of the tile, and of the digest's figure."""
    earlier = view.snapshot.earlier
    trend = (*(earlier.get(day, {}).get(key) for day in view.last_days(DAYS)[:-1]), value)
    return Tile(key, value, unit, trend[-2], trend, where)
