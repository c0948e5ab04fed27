"""`rocketbox openapi`: the API's description on standard output; needs no data directory and no running engine."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def print_openapi() -> int:
    """Print OpenAPI 3.1 as indented JSON; returns the exit status."""
    from ..runtime import Place, set_place

    # Django's settings need a place; nothing is created there.
    with tempfile.TemporaryDirectory() as empty:
        set_place(Place(Path(empty) / "none"))
        os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.settings"
        import django

        django.setup()
        from msgspec import json

        from .api import openapi

        text = json.format(json.encode(openapi()), indent=2)
    sys.stdout.write(text.decode() + "\n")
    return 0
