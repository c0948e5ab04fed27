"""`rocketbox user reset-password NAME`: for a person who lost a password and can reach the data directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from ..engine.errors import StartError
from ..engine.plain_text import plain
from .offline_console import open_console, who

USAGE = """\
usage: rocketbox user reset-password NAME [--password-stdin] [options of serve, as --data-dir DIR]

Prints a new password, which must be changed at the next sign-in; with --password-stdin sets the one on standard input.
All sessions and API tokens of the user end. The server may be running."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises StartError if it cannot be done."""
    if len(arguments) < 2 or arguments[0] != "reset-password" or arguments[1].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if {"--help", "-h"} & set(arguments) else 2
    name, *rest = arguments[1:]
    from_stdin = "--password-stdin" in rest
    open_console([one for one in rest if one != "--password-stdin"])
    _reset(name, sys.stdin.readline().rstrip("\r\n") if from_stdin else None)
    return 0


def _reset(name: str, password: str | None) -> None:
    from django.db import transaction

    from ..console.audit.log import Actor, record
    from ..console.models import User
    from ..console.sign_in.password_rules import generate_password, password_problem
    from ..console.sign_in.sessions import end_all
    from ..console.users.tokens import revoke_all

    user = User.objects.named(name)
    if user is None:
        known = ", ".join(User.objects.values_list("username", flat=True)) or "none"
        raise StartError(f"There is no user {name!r}; the users are: {known}.")
    if password is not None and (problem := password_problem(password, user)):
        raise StartError(f"The password is refused: {problem}")
    new = password if password is not None else generate_password()
    user.set_password(new)
    user.must_change_password = password is None
    note = partial(record, by=Actor(who(), "command line"))
    with transaction.atomic():
        user.save(update_fields=["password", "must_change_password"])
        note("user.reset_password", user.username)
        ended = revoke_all(user, note)
        end_all(user)
    if password is None:
        print(f"New password of {user.username}: {new}")
    else:
        print(f"The password of {user.username} has been changed.")
    if ended:
        print(f"Revoked API tokens: {plain(', '.join(ended))}")
    if not user.is_active:
        print(f"{user.username} is disabled and cannot sign in until enabled.", file=sys.stderr)
