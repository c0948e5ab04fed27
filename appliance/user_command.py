"""`rocketbox user reset-password NAME`: for whoever can reach the data directory and lost the password."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence

from .engine.errors import StartError

USAGE = """\
usage: rocketbox user reset-password NAME [--password-stdin] [options of serve, as --data-dir DIR]

Prints a new first password, to be changed at the next sign-in; with --password-stdin takes the one on standard input.
All sessions of the user end. The server may run meanwhile."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status. Raises StartError for what cannot be done."""
    if len(arguments) < 2 or arguments[0] != "reset-password" or arguments[1].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if {"--help", "-h"} & set(arguments) else 2
    from .command_line import load
    from .runtime import Place, set_place

    name, *rest = arguments[1:]
    from_stdin = "--password-stdin" in rest
    config, options = load([one for one in rest if one != "--password-stdin"], os.environ)
    place = Place(config.data_dir, options.bind, options.public_url)
    if not (place.directory / "console.sqlite3").exists():
        raise StartError(f"There is no settings database in {place.directory}: name the right one with --data-dir.")
    set_place(place)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    _reset(name, sys.stdin.readline().rstrip("\r\n") if from_stdin else None)
    return 0


def _reset(name: str, password: str | None) -> None:
    from .console.audit import record
    from .console.database import bring_up_to_date
    from .console.models import User
    from .console.password_rules import made_password, problem_with

    bring_up_to_date()
    user = User.objects.named(name)
    if user is None:
        known = ", ".join(User.objects.values_list("username", flat=True)) or "none"
        raise StartError(f"There is no user {name!r}; there are: {known}.")
    if password is not None and (problem := problem_with(password, user)):
        raise StartError(f"The password is refused: {problem}")
    new = password if password is not None else made_password()
    user.set_password(new)
    user.must_change_password = password is None
    user.save(update_fields=["password", "must_change_password"])
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        who = str(os.getuid())
    record("user.reset_password", user.username, actor=who, actor_kind="command line")
    if password is None:
        print(f"New password of {user.username}: {new}")
    else:
        print(f"The password of {user.username} is changed.")
    if not user.is_active:
        print(f"{user.username} is disabled and still cannot sign in.", file=sys.stderr)
