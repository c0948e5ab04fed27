"""Time zones by their IANA names."""

from __future__ import annotations

from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones


@cache
def names() -> tuple[str, ...]:
    """Return the names for the list of an input, without obsolete and special ones."""
    return tuple(
        sorted(name for name in available_timezones() if "/" in name and not name.startswith(("Etc/", "SystemV/")))
    )


def is_zone(name: str) -> bool:
    return zone(name) is not None


def zone(name: str) -> ZoneInfo | None:
    """Return the zone; None if this machine has none of that name."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
