"""Tells if reports are wanted, before any of their code is loaded."""

from __future__ import annotations

from pathlib import Path

from ... import runtime
from ..models import Setting
from .digest_channels import KEY


def directory() -> Path:
    """Return the directory for all files of the reports. The first run makes it."""
    return runtime.place().directory / "reports"


def any_run() -> bool:
    """Return False if no run was ever started on this data directory."""
    return directory().exists()


def is_on() -> bool:
    """Return True if the schedule makes reports."""
    kept = Setting.objects.filter(key=KEY).values_list("value", flat=True).first()
    return isinstance(kept, dict) and kept.get("on") is True
