"""Settings of the reports: their time, the way they are made, and how far behind each group may be. They are stored as
one Setting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ...engine.errors import InvalidInput
from ..alerts.models import AlertChannel
from ..audit.log import audit
from ..models import Setting
from ..pages import time_zones
from .digest_channels import KEY

_AT = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]\Z", re.ASCII)
_MASTER = re.compile(
    r"(local|local\[([1-9][0-9]{0,2}|\*)\]|spark://[A-Za-z0-9.\-:\[\],]{1,500}|yarn|k8s://\S{1,500})\Z", re.ASCII
)
ENGINES = ("auto", "spark", "python")
MOST_LIMITS = 5000
#: name -> (lowest, highest).
BOUNDS = {
    "driver_mib": (512, 65_536),
    "memory_mib": (256, 262_144),
    "timeout_min": (1, 1440),
    "keep_days": (1, 400),
    "limit_minutes": (1, 10_080),
}


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """on: the schedule makes reports each night. at: the time for that, "HH:MM" in `zone`, which also bounds the days.
    engine: "auto" uses Spark if nothing is missing for it. driver_mib: the JVM's heap. memory_mib: most memory of all
    processes of a run together. keep_days: for reports and the facts they are made of. limit_minutes: how far behind a
    group may be; limits: the same for single groups. digest_channels: names of alert channels."""

    on: bool = False
    at: str = "02:00"
    zone: str = "UTC"
    engine: str = "auto"
    master: str = "local[2]"
    driver_mib: int = 1024
    memory_mib: int = 2048
    timeout_min: int = 60
    keep_days: int = 35
    limit_minutes: int = 5
    limits: dict[str, int] = field(default_factory=dict)
    digest_channels: tuple[str, ...] = ()

    def limit_ms(self, group: str) -> int:
        """Return how far behind a group may be, in ms."""
        return self.limits.get(group, self.limit_minutes) * 60_000


def settings() -> ReportSettings:
    """Return the present settings. A stored value that is no longer valid is replaced by its default."""
    found = Setting.objects.filter(key=KEY).values_list("value", flat=True).first()
    values: Mapping[str, Any] = found if isinstance(found, dict) else {}
    taken: dict[str, Any] = {}
    for one in fields(ReportSettings):
        if one.name in values:
            value = tuple(values[one.name]) if isinstance(values[one.name], list) else values[one.name]
            if _complaint(one.name, value) is None:
                taken[one.name] = value
    return ReportSettings(**taken)


def check_settings(new: ReportSettings) -> None:
    """Check settings before they are stored. Raises InvalidInput with the field."""
    for one in fields(ReportSettings):
        complaint = _complaint(one.name, getattr(new, one.name))
        if complaint is not None:
            raise InvalidInput(one.name, complaint)
    if new.memory_mib < new.driver_mib + 256 and new.engine != "python":
        raise InvalidInput("memory_mib", _("All processes together need at least 256 MiB more than Spark's own."))
    known = set(AlertChannel.objects.values_list("name", flat=True))
    unknown = [name for name in new.digest_channels if name not in known]
    if unknown:
        raise InvalidInput("digest_channels", _("There is no channel %(name)s.") % {"name": unknown[0]})


def save_settings(request: HttpRequest, new: ReportSettings) -> ReportSettings:
    """Check and store settings, with an entry in the audit log. Raises InvalidInput with the field."""
    check_settings(new)
    before, after = asdict(settings()), asdict(new)
    Setting.objects.update_or_create(
        key=KEY, defaults={"value": after | {"digest_channels": list(new.digest_channels)}}
    )
    audit(request, "reports.settings", "", before, after)
    return new


def _complaint(name: str, value: Any) -> str | None:
    """Return the complaint about an invalid value of a field; None if it is valid."""
    if name in BOUNDS:
        low, high = BOUNDS[name]
        if not _is_whole(value) or not low <= value <= high:
            return _("A whole number from %(low)d to %(high)d.") % {"low": low, "high": high}
        return None
    match name:
        case "on":
            return None if isinstance(value, bool) else _("Yes or no.")
        case "at":
            is_time = isinstance(value, str) and _AT.match(value)
            return None if is_time else _("A time of the day as HH:MM, like 02:00.")
        case "zone":
            return (
                None if isinstance(value, str) and time_zones.zone(value) else _("There is no time zone of this name.")
            )
        case "engine":
            return None if value in ENGINES else _("One of %(choices)s.") % {"choices": ", ".join(ENGINES)}
        case "master":
            is_master = isinstance(value, str) and _MASTER.match(value)
            return None if is_master else _("A master as Spark takes it: local[2], spark://host:7077, yarn.")
        case "limits":
            return _limits_complaint(value)
        case "digest_channels":
            is_list = isinstance(value, tuple) and all(isinstance(one, str) for one in value) and len(value) <= 100
            return None if is_list else _("A list of names.")
    return None


def _limits_complaint(value: Any) -> str | None:
    low, high = BOUNDS["limit_minutes"]
    if not isinstance(value, dict) or len(value) > MOST_LIMITS:
        return _("At most %(most)d groups with limits of their own.") % {"most": MOST_LIMITS}
    for group, minutes in value.items():
        if (
            not isinstance(group, str)
            or not 0 < len(group) <= 255
            or not _is_whole(minutes)
            or not low <= minutes <= high
        ):
            return _("A group and its limit in minutes, from %(low)d to %(high)d.") % {"low": low, "high": high}
    return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
