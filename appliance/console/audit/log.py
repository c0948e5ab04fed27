"""The audit log: who did what, when, from where, and what changed.

    audit(request, "topic.delete", "orders", before={"queues": 8})

Call it after the act, also after one that was refused or failed. Before the act, a journal has recorded that it may
happen (`act_journal`). If the database does not take an entry, the entry waits in the journal and is appended later,
and the act counts. Within a transaction of the settings database it is the other way round: if the entry fails, the act
is rolled back. Values must be JSON; never put a secret or a message body in.

Each entry's digest covers the entry and the digest before it, under a key that is not in the database, and a head
outside the database says where the log ends (`audit_seal`). So a changed, removed or added entry is detected, and so is
a log that was cut off.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import DatabaseError, connection, transaction
from django.db.models import Q

from ... import runtime
from ...engine import file_sync
from ...engine.lazy_dataclass import dataclass
from ..models import AuditEntry, Setting, now_ms
from ..serving.secret_addresses import without_secret
from . import act_journal
from . import seal as audit_seal
from .seal import COVERED, KEY_BYTES, Row, Seal, Verdict

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger(__name__)

#: Name of the setting which marks that this database's entries have a key.
MARK = "audit-seal"
ROWS_AT_A_TIME = 200
#: Rest of the check at the start after each ROWS_AT_A_TIME rows, which take about 8 ms of the interpreter.
START_REST_S = 0.03
#: Key of this process if there is no data directory (checks, tests).
_PASSING_KEY = secrets.token_bytes(KEY_BYTES)


def named(q: str) -> Q:
    """Return the condition of entries with a text in the name of the actor, the act or the target."""
    return Q(actor__icontains=q) | Q(action__icontains=q) | Q(target__icontains=q)


def audit(
    request: HttpRequest,
    action: str,
    target: str = "",
    before: Any = None,
    after: Any = None,
    result: str = "done",
) -> AuditEntry:
    """Record an act of the caller of a request; return the entry.

    action: `<noun>.<verb>`, for example "topic.create", "user.reset_password", "message.read". before, after: the
    values that changed, as JSON; if both are objects, only fields that differ are kept. result: "done", "refused" or
    "failed".
    """
    return record(action, target, before, after, by=Actor.of(request), result=result)


class Actor(NamedTuple):
    """A user or program that acts. kind: "user", "token", "command line", ..."""

    name: str
    kind: str
    address: str = ""
    request_id: str = ""

    @classmethod
    def of(cls, request: HttpRequest, name: str = "", kind: str = "") -> Actor:
        """The caller of a request. name, kind: if it is not known yet who that is."""
        user = request.user
        return cls(
            name or getattr(user, "label", None) or user.username or "-",
            kind or getattr(user, "kind", "user"),
            getattr(request, "client_address", ""),
            getattr(request, "request_id", ""),
        )


def record(
    action: str,
    target: str = "",
    before: Any = None,
    after: Any = None,
    *,
    by: Actor,
    result: str = "done",
) -> AuditEntry:
    """Append one entry and return it. For acts of requests use `audit`; this is for the command line, jobs and the
    first start."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        before, after = ({name: side[name] for name in names if name in side} for side in (before, after))
    entry = AuditEntry(
        at_ms=now_ms(), actor=by.name[:80], actor_kind=by.kind, address=by.address[:64], action=action,
        target=target[:512], before=before, after=after, result=result, request_id=by.request_id,
    )  # fmt: skip
    kept = act_journal.journal()
    if kept is None or connection.in_atomic_block:
        append([entry])
        return entry
    try:
        append([entry])
    except DatabaseError as error:
        connection.close()
        kept.keep({name: getattr(entry, name) for name in COVERED})
        logger.error("audit log: an entry waits for the settings database action=%s: %s", action, error)
    return entry


def unfinished(request: HttpRequest, view: str) -> dict[str, Any]:
    """Return the fields of the entry for a request that a crash cuts off before it writes an entry of its own."""
    by = Actor.of(request)
    return {
        "at_ms": now_ms(),
        "actor": str(by.name)[:80],
        "actor_kind": by.kind,
        "address": str(by.address)[:64],
        "action": "request.cut_off",
        "target": without_secret(f"{request.method} {request.path_info}")[:512],
        "before": None,
        "after": {"page": view},
        "result": "failed",
        "request_id": by.request_id,
    }


def take_over_late() -> int:
    """Append the entries that waited, and one for each request that a crash cut off; return how many. Raises
    DatabaseError."""
    kept = act_journal.journal()
    found = [] if kept is None else kept.late()
    if kept is None or not found:
        return 0
    entries = []
    for _, fields in found:
        began = fields.get("began")
        values = {name: fields[name] for name in COVERED if name in fields}
        known = AuditEntry.objects.filter(request_id=values["request_id"])
        # The entry is there if the crash came after the database's commit and before the journal noted it.
        if not known.exists() if began else not known.filter(action=values["action"], at_ms=values["at_ms"]).exists():
            entries.append(AuditEntry(**values))
    if entries:
        append(entries)
    kept.taken(number for number, _ in found)
    return len(entries)


def append(entries: Sequence[AuditEntry], also: Callable[[], object] = lambda: None) -> None:
    """Append entries in this order and call `also`, in one transaction; after the commit, move the head."""
    key = _key()
    # The write lock is taken at the beginning (IMMEDIATE): no other entry is appended between the two statements.
    with transaction.atomic():
        previous = AuditEntry.objects.order_by("-id").values_list("digest", flat=True).first() or ""
        for entry in entries:
            fields = [getattr(entry, name) for name in COVERED]
            previous = entry.digest = audit_seal.digest_of(fields, previous, key)
            entry.save(force_insert=True)
        also()
        transaction.on_commit(_move_head)


class DatabaseTable:
    """The table of entries, read through Django. rest_s: sleep this long every ROWS_AT_A_TIME rows, so that other
    threads can run."""

    def __init__(self, rest_s: float = 0.0) -> None:
        self._rest_s = rest_s

    def rows(self, behind: int) -> Iterator[Row]:
        found = AuditEntry.objects.filter(id__gt=behind).order_by("id").iterator(ROWS_AT_A_TIME)
        for number, entry in enumerate(found, 1):
            if self._rest_s and number % ROWS_AT_A_TIME == 0:
                time.sleep(self._rest_s)
            yield Row(int(entry.pk), entry.digest, tuple(getattr(entry, name) for name in COVERED))

    def digest_at(self, entry: int) -> str | None:
        return AuditEntry.objects.filter(pk=entry).values_list("digest", flat=True).first()

    def count(self, upto: int) -> int:
        return AuditEntry.objects.filter(id__lte=upto).count()

    def newest(self) -> tuple[int, str]:
        return AuditEntry.objects.order_by("-id").values_list("id", "digest").first() or (0, "")


def _seal() -> Seal | None:
    directory = runtime.place().directory
    return Seal(directory) if directory.is_dir() else None


def _is_marked() -> bool:
    return Setting.objects.filter(key=MARK).exists()


def _key() -> bytes:
    """Return the key of this data directory. If there is none, make it and adopt the present chain of entries."""
    seal = _seal()
    if seal is None:
        return _PASSING_KEY
    key = seal.key()
    if key is not None:
        return key
    key, news = seal.key_for_appending(DatabaseTable(), _is_marked())
    Setting.objects.update_or_create(key=MARK, defaults={"value": True})
    if news is not None:
        _say(news)
    return key


def _say(news: Verdict) -> None:
    if not news.is_well:
        logger.error("audit log: %s", news)
    elif news.args["count"]:
        logger.warning(
            "audit log: its entries so far (%d) are adopted as they are; from here on a key and a head outside the "
            "database vouch for them",
            news.args["count"],
        )


def _move_head() -> None:
    """Move the head after a commit. If that fails, the head lags, which does no harm: the entries after it still
    verify, and the next entry moves it."""
    seal = _seal()
    if seal is None:
        return
    try:
        _sync_database()
        problem = seal.follow(DatabaseTable())
    except OSError as error:
        logger.error("audit log: its head cannot be written: %s", error)
        return
    if problem is not None:
        _say(problem)


def _sync_database() -> None:
    """Have the drive store what was committed: the head must never be ahead of the table after a power cut.

    `synchronous=NORMAL` leaves commits in the write-ahead log unsynced, and syncs that log before it is copied into the
    database and the database before the log begins again. So the log alone is synced here; SQLite keeps no lock on it.
    """
    try:
        fd = os.open(f"{connection.settings_dict['NAME']}-wal", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        file_sync.sync_data(fd)
    finally:
        os.close(fd)


def begin() -> None:
    """At start: find or make the key, move a head that a crash left behind, and log what does not fit."""
    if _seal() is None:
        return
    _key()
    Setting.objects.get_or_create(key=MARK, defaults={"value": True})
    _move_head()


def look() -> Verdict:
    """Check cheaply that the log ends where it should."""
    seal = _seal()
    return Verdict("audit_none", {}) if seal is None else seal.check(DatabaseTable(), _is_marked(), whole=False)


@dataclass(frozen=True, slots=True)
class SealCheck:
    """One check for the pages of checks, of the same shape as the engine's (`Window.checks`)."""

    name: str
    level: str
    sentence: Verdict


def health_check() -> SealCheck:
    """Return the audit log's check. It is cheap, since every page of checks calls it."""
    found = look()
    return SealCheck("audit", "ok" if found.is_well else "failed", found)


def check(rest_s: float = 0.0) -> Verdict:
    """Check that every entry is there and unaltered; reads all of them."""
    return check_table(DatabaseTable(rest_s))


def check_table(table: DatabaseTable) -> Verdict:
    """Check every entry of this table, and log a finding."""
    seal = _seal()
    if seal is None:
        return Verdict("audit_none", {})
    found = seal.check(table, _is_marked())
    if not found.is_well:
        logger.error("audit log: %s", found)
    return found


def check_and_note() -> Verdict:
    """Check every entry after the start, while messages are sent and pulled. A finding is kept until it is accepted."""
    found = check(START_REST_S)
    seal = _seal()
    if seal is not None and found.code in ("audit_altered", "audit_cut", "audit_fewer"):
        seal.note(found)
    return found


def accept(actor: str) -> AuditEntry | None:
    """Accept the log as it is and go on from there. Return the entry about that, None if nothing was broken. For the
    command line."""
    seal = _seal()
    broken = None if seal is None else seal.accept(DatabaseTable(), _is_marked())
    if broken is None:
        return None
    Setting.objects.update_or_create(key=MARK, defaults={"value": True})
    found = Verdict(broken["code"], broken["args"])
    return record("audit.accept", before={"found": str(found)}, by=Actor(actor, "command line"))
