"""The console's work at the start, before it answers the first request."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from django.contrib.sessions.models import Session
from django.db import DatabaseError, connection
from django.utils import timezone

from .. import runtime
from ..engine.errors import StartError
from .audit import act_journal
from .audit import log as audit
from .models import IdempotentAnswer, now_ms
from .serving import database
from .sign_in import set_up

_DAY_MS = 86_400_000


def prepare(environ: MutableMapping[str, str]) -> str | None:
    """Bring the settings database up to date, create the administrator that the environment names, delete expired rows.

    Return the path of the set-up page if there is no administrator, else None. Called on the main thread, before HTTP
    is answered. Removes ADMIN_PASSWORD from the environment. Raises StartError.
    """
    database.bring_up_to_date()
    try:
        act_journal.use(runtime.place().directory)
        audit.begin()
        audit.take_over_late()
        set_up.create_from_environment(environ)
        environ.pop("ADMIN_PASSWORD", None)
        Session.objects.filter(expire_date__lt=timezone.now()).delete()
        IdempotentAnswer.objects.filter(created_at_ms__lt=now_ms() - _DAY_MS).delete()
        return set_up.offer_link()
    except (DatabaseError, OSError) as error:
        raise StartError(database.damaged(error)) from None
    finally:
        connection.close()


def take_definitions(path: Path) -> None:
    """Make the topics, groups and alert rules of a file, and change those that differ, before the console answers.
    Raises StartError if the file cannot be read or holds something else."""
    from .system.definitions import take_at_start  # first used here: few starts need YAML

    try:
        take_at_start(path)
    except DatabaseError as error:
        raise StartError(database.damaged(error)) from None
    finally:
        connection.close()
