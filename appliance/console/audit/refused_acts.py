"""Entries for acts that a user or token was not allowed, so that a leaked token that is tried out shows in the log.

Each user has an `EntryLog`, with their tokens. An entry that cannot be written is left out: nothing was done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, transaction

from ..serving.secret_addresses import without_secret
from .log import audit
from .refused_sign_ins import EntryLog

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger(__name__)

#: Most entries of one user in each `refused_sign_ins.WINDOW_S`. Further ones are counted in the next entry.
MOST_EACH = 20

# Any thread. User -> their count.
_logs: dict[int, EntryLog] = {}


def note(request: HttpRequest) -> None:
    """Record that the caller's act was refused, unless the caller has many such entries."""
    user: Any = request.user
    log = _logs.setdefault(int(user.pk), EntryLog(most=MOST_EACH))
    if not log.may_note():
        return
    try:
        with transaction.atomic():
            target = without_secret(f"{request.method} {request.path_info}")
            audit(request, "request.refused", target, after=log.left_out(), result="refused")
    except (DatabaseError, OSError) as error:  # OSError: the log's key or head
        logger.warning("audit log: no entry about a refused act: %s", error)
