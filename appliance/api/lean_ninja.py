"""Imports ninja without Django's test kit.

ninja takes a signal from `django.test.signals`, and so loads unittest, html and a test client: 2 MB that nothing here
uses. The signal is `django.core.signals.setting_changed`; ninja gets it from a temporary module of that name.
"""

from __future__ import annotations

import sys
from types import ModuleType

from django.core.signals import setting_changed


def load() -> None:
    """Does nothing where the test kit is loaded anyway."""
    if "ninja" in sys.modules or "django.test" in sys.modules:
        return
    names = ("django.test", "django.test.signals")
    for name in names:
        sys.modules[name] = ModuleType(name)
    sys.modules["django.test.signals"].setting_changed = setting_changed  # type: ignore[attr-defined]
    try:
        import ninja.conf  # noqa: F401
    finally:
        for name in names:
            del sys.modules[name]


load()
