"""The audit log: who did what, when, from where, and what changed.

    audit(request, "topic.delete", "orders", before={"queues": 8})

Call it after the act, also after one that was refused or failed. Values must be JSON; never put a secret or a message
body in. Each entry's digest covers the entry and the digest before it, so that a changed or removed line shows
(`first_broken`).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from django.db import transaction

from .models import AuditEntry, now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest

_COVERED = ("at_ms", "actor", "actor_kind", "address", "action", "target", "before", "after", "result", "request_id")


def audit(
    request: HttpRequest,
    action: str,
    target: str = "",
    before: Any = None,
    after: Any = None,
    result: str = "done",
) -> AuditEntry:
    """Record what the caller of a request did; returns the entry.

    action: `<noun>.<verb>`, as "topic.create", "user.reset_password", "message.read". before, after: what changed, as
    JSON values; only the fields that differ when both are given. result: "done", "refused" or "failed".
    """
    user = request.user
    return record(
        action,
        target,
        before,
        after,
        result=result,
        actor=getattr(user, "label", None) or user.username or "-",
        actor_kind=getattr(user, "kind", "user"),
        address=getattr(request, "client_address", ""),
        request_id=getattr(request, "request_id", ""),
    )


def record(
    action: str,
    target: str = "",
    before: Any = None,
    after: Any = None,
    *,
    result: str = "done",
    actor: str,
    actor_kind: str,
    address: str = "",
    request_id: str = "",
) -> AuditEntry:
    """Append one entry. `audit` is the way for requests; this one is for the command line and the first start."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        before, after = ({name: side[name] for name in names if name in side} for side in (before, after))
    entry = AuditEntry(
        at_ms=now_ms(), actor=actor[:80], actor_kind=actor_kind, address=address[:64], action=action,
        target=target[:512], before=before, after=after, result=result, request_id=request_id,
    )  # fmt: skip
    # The write lock is taken at the beginning (IMMEDIATE): nobody appends between the two statements.
    with transaction.atomic():
        last = AuditEntry.objects.order_by("-id").values_list("digest", flat=True).first()
        entry.digest = digest_of(entry, last or "")
        entry.save(force_insert=True)
    return entry


def digest_of(entry: AuditEntry, previous: str) -> str:
    """SHA-256, in hex, of an entry's fields and the digest before it."""
    fields = [previous, *(getattr(entry, name) for name in _COVERED)]
    return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def first_broken() -> int | None:
    """Id of the first entry whose digest is not what it and its predecessor give; None when the chain is whole."""
    previous = ""
    for entry in AuditEntry.objects.order_by("id").iterator(500):
        if entry.digest != digest_of(entry, previous):
            return int(entry.pk)
        previous = entry.digest
    return None
