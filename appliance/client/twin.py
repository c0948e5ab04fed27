"""The compiled twin of the client's hottest parts: the package `rocketbox-client-speedups`, where it is installed.

The Python code is the reference and complete; each part that has a twin chooses for itself (`core/quick.py`,
`core/records.py`, `core/unique_key.py`, `shells/threads.py`). The twin takes the usual cases, and leaves all others to
the Python code. It relies on the GIL: without one the Python code runs. `ROCKETBOX_PURE=1` forces Python.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

#: Raised with each change of what the parts and their twin expect of each other.
INTERFACE = 3
_MODULE = "rocketbox_client_speedups"


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get("ROCKETBOX_PURE", "").lower() not in ("", "0", "false", "no"):
        return None, "ROCKETBOX_PURE is set"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None, "this Python has no GIL"
    try:
        found = __import__(_MODULE)
    except ModuleNotFoundError:
        return None, "rocketbox-client-speedups is not installed"
    except Exception as error:  # built for something else
        return None, f"rocketbox-client-speedups cannot be loaded: {error}"
    if getattr(found, "INTERFACE", None) != INTERFACE:
        return None, "rocketbox-client-speedups is of another version"
    return found, ""


_found = _load()
#: The module, or None; and why there is none.
compiled: Any = _found[0]
WHY_PURE = _found[1]
