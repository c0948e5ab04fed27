"""Opens the console's database for a command, `rocketbox user` or `rocketbox audit`; the server may be running."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence

from ..engine.errors import StartError


def open_console(arguments: Sequence[str]) -> None:
    """Set Django up on the database that the options of serve name, and migrate it. Raises StartError."""
    from ..command_line import load
    from ..runtime import Place, set_place

    config, options = load(arguments, os.environ)
    place = Place(config.data_dir, options.bind, options.public_url)
    if not (place.directory / "console.sqlite3").exists():
        raise StartError(f"There is no console database in {place.directory}: give the right --data-dir.")
    set_place(place)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    from ..console.serving.database import bring_up_to_date

    bring_up_to_date()


def who() -> str:
    """Return the name of the user who runs the command, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())
