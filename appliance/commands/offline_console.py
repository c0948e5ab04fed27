"""The console's database for commands, with the server running or not: `rocketbox user`, `rocketbox audit`."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence

from ..engine.errors import StartError


def open_console(arguments: Sequence[str]) -> None:
    """Set Django up on the database that options of serve name, and bring it up to date. Raises StartError."""
    from ..command_line import load
    from ..runtime import Place, set_place

    config, options = load(arguments, os.environ)
    place = Place(config.data_dir, options.bind, options.public_url)
    if not (place.directory / "console.sqlite3").exists():
        raise StartError(f"There is no settings database in {place.directory}: name the right one with --data-dir.")
    set_place(place)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    from ..console.database import bring_up_to_date

    bring_up_to_date()


def who() -> str:
    """Who runs the command, as the audit log names him."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return str(os.getuid())
