"""axe-core, run in a page: https://github.com/dequelabs/axe-core, vendored for tests only with its lock."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

VENDOR = Path(__file__).parent / "vendor"
SERIOUS = ("serious", "critical")


@cache
def source() -> str:
    """Return axe's script; its digest must be the one in the lock."""
    (package,) = json.loads((VENDOR / "vendor.lock").read_text())["packages"]
    for name, digest in package["files"].items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    return (VENDOR / "axe.min.js").read_text(encoding="utf-8")


def problems(page: Page, *rules: str) -> list[str]:
    """Return axe's serious findings on the page as it is, one line each; with `rules` only those are checked."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(source())  # not as a script element: the page's content security policy would refuse it
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [
        f"{one['id']}: {one['help']} at {node['target']} {node['html'][:160]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]
