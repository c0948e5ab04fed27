"""The seal of the audit log, outside its database: a key, and a head that says where the log ends.

    DATA/rocketbox/audit-key    32 random bytes as hex, made at the first start, readable by its owner only
    DATA/rocketbox/audit-head   JSON: number of entries, the last one's id and digest, where keyed digests begin, what
                                was found broken; and an HMAC of all that under the key

Each entry's digest is an HMAC of the entry and the digest before it. So with the database but without the key it is
impossible to change an entry or to write one. If the newest entries were cut off, or an older copy of the database was
restored, the chain that is left is whole, but the head shows that it ends too early.

Order: an entry is committed and its bytes are synced, then the head is moved to it. So the head is never ahead of the
table. After a crash in between, the head lags; the entries after it verify, and it is moved to the last one. A head
that does not fit the table is moved, too, so that it covers later entries, but it keeps the finding (`broken`) until
an operator accepts it.

Entries from before the key was made have plain SHA-256 digests. The first start adopts them: the digest of the last one
is in the head as `base`. This module does not use Django, so that `rocketbox doctor` can run the same checks.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ...engine import file_sync
from ...engine.translatable import Plural, english, gettext_noop, ngettext_lazy
from ..serving.directory_turn import turn_in

KEY_FILE = "audit-key"
HEAD_FILE = "audit-head"
KEY_BYTES = 32

#: The fields of an entry that its digest covers, in this order.
COVERED = ("at_ms", "actor", "actor_kind", "address", "action", "target", "before", "after", "result", "request_id")

#: code -> the sentence of a verdict, in English.
TEMPLATES: dict[str, str | Plural] = {
    "audit_none": gettext_noop("There is no audit log yet."),
    "audit_whole": ngettext_lazy(
        "The audit log is whole and has %(count)d entry.", "The audit log is whole and has %(count)d entries."
    ),
    "audit_cut": ngettext_lazy(
        "The newest %(missing)d entry of the audit log is missing, up to entry %(last)d. It was cut off, or an "
        "older copy of the settings database was restored.",
        "The newest %(missing)d entries of the audit log are missing, up to entry %(last)d. They were cut off, "
        "or an older copy of the settings database was restored.",
        "missing",
    ),
    "audit_altered": gettext_noop(
        "Entry %(entry)d of the audit log does not match the one before it: something was changed, removed or inserted "
        "there."
    ),
    "audit_fewer": gettext_noop(
        "Entries of the audit log are missing: there were %(count)d, and there are %(found)d of them."
    ),
    "audit_no_head": gettext_noop("The file audit-head, which says where the audit log ends, is gone."),
    "audit_bad_head": gettext_noop("The file audit-head, which says where the audit log ends, was altered or damaged."),
    "audit_no_key": gettext_noop(
        "The file audit-key is gone: older entries of the audit log cannot be checked any more."
    ),
    "audit_unreadable": gettext_noop("The audit log cannot be checked: %(file)s cannot be read (%(reason)s)."),
}


class Verdict(NamedTuple):
    """The result of a check of the log: a sentence and its values, of the same shape as the engine's sentences."""

    code: str
    args: dict[str, Any]

    @property
    def template(self) -> str | Plural:
        return TEMPLATES[self.code]

    @property
    def is_well(self) -> bool:
        return self.code in ("audit_whole", "audit_none")

    def __str__(self) -> str:
        return english(self.template, self.args) % self.args


class Row(NamedTuple):
    """One entry. fields: in the order of COVERED."""

    id: int
    digest: str
    fields: tuple[Any, ...]


class Table(Protocol):
    """The table of entries, whatever it is read with."""

    def rows(self, behind: int) -> Iterator[Row]:
        """Yield the entries with larger ids than `behind`, in order."""

    def digest_at(self, entry: int) -> str | None: ...

    def count(self, upto: int) -> int:
        """Return the number of entries with ids up to this one."""

    def newest(self) -> tuple[int, str]:
        """Return (id, digest) of the last entry; (0, "") if there is none."""


@dataclass(frozen=True, slots=True)
class Base:
    """The last entry before the keyed digests begin. opaque: it and the entries before it cannot be checked, since
    their key is lost or they were found broken."""

    last_id: int = 0
    digest: str = ""
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log. broken: code and args of a Verdict and the time of the finding, until it is accepted."""

    count: int = 0
    last_id: int = 0
    digest: str = ""
    base: Base = field(default_factory=Base)
    broken: dict[str, Any] | None = None


def digest_of(fields: Sequence[Any], previous: str, key: bytes | None) -> str:
    """Return the hex digest of an entry's fields and the digest before it: HMAC-SHA-256, or SHA-256 without a key."""
    text = json.dumps([previous, *fields], sort_keys=True, ensure_ascii=True).encode()
    return hashlib.sha256(text).hexdigest() if key is None else hmac.new(key, text, hashlib.sha256).hexdigest()


class Seal:
    """Key and head of one data directory. Any thread may use it, and other processes: they move the head one at a
    time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key_path = directory / KEY_FILE
        self._head_path = directory / HEAD_FILE

    # --- the files

    def key(self) -> bytes | None:
        """Return the key; None if there is no valid one. Raises OSError."""
        try:
            raw = bytes.fromhex(self._key_path.read_text(encoding="ascii").strip())
        except (FileNotFoundError, ValueError):
            return None
        return raw if len(raw) == KEY_BYTES else None

    def _read_head(self, key: bytes) -> Head | Verdict:
        try:
            document = json.loads(self._head_path.read_bytes())
            told = bytes.fromhex(document.pop("mac"))
            if not hmac.compare_digest(told, _mac(key, document)):
                return Verdict("audit_bad_head", {})
            return Head(**{**document, "base": Base(**document["base"])})
        except FileNotFoundError:
            return Verdict("audit_no_head", {})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Verdict("audit_bad_head", {})

    def _write_head(self, key: bytes, head: Head) -> None:
        document = asdict(head)
        text = json.dumps(document | {"mac": _mac(key, document).hex()}) + "\n"
        file_sync.replace_file(self._head_path, text.encode(), prepare=self._give_to_owner)

    def _give_to_owner(self, fd: int) -> None:
        """If this process runs as root, as a command may, give the file to the owner of the directory: the server must
        be able to read it. SQLite does the same with its files."""
        if os.geteuid() == 0:
            owner = self._directory.stat()
            if owner.st_uid or owner.st_gid:
                os.fchown(fd, owner.st_uid, owner.st_gid)

    # --- appending

    def key_for_appending(self, table: Table, marked: bool) -> tuple[bytes, Verdict | None]:
        """Return the key, and None if it was there. If it was not, make key and head, and return the key and a verdict
        about the entries so far. Raises OSError.

        marked: the database says that it had a key before. If so, the key was lost (`audit_no_key`); if not, the chain
        is adopted as it is (`audit_whole`).
        """
        key = self.key()
        if key is not None:
            return key, None
        with turn_in(self._directory):
            key = self.key()
            if key is not None:
                return key, None
            key = secrets.token_bytes(KEY_BYTES)
            last_id, digest = table.newest()
            count = table.count(last_id)
            news = Verdict("audit_no_key", {}) if marked else Verdict("audit_whole", {"count": count})
            base = Base(last_id, digest, opaque=marked)
            # The head first: a key without a head would look as if the head had been removed.
            self._write_head(key, Head(count, last_id, digest, base, None if news.is_well else _noted(news)))
            file_sync.replace_file(self._key_path, f"{key.hex()}\n".encode(), prepare=self._give_to_owner)
        return key, news

    def follow(self, table: Table) -> Verdict | None:
        """Move the head to the table's end. Return what was found broken on the way, if nothing was before. Raises
        OSError.

        The caller has committed and synced the entries that the table shows.
        """
        with turn_in(self._directory):
            key = self.key()
            if key is None:
                return None  # the next entry makes a key, and its verdict is logged then
            head = self._read_head(key)
            if isinstance(head, Verdict):
                last_id, digest = table.newest()
                fresh = Head(table.count(last_id), last_id, digest, Base(last_id, digest), _noted(head))
                self._write_head(key, fresh)
                return head
            problem, moved = _followed(table, head, key)
            if problem is not None:
                last_id, digest = table.newest()
                noted = head.broken or _noted(problem)
                moved = replace(head, count=table.count(last_id), last_id=last_id, digest=digest, broken=noted)
            if moved != head:
                self._write_head(key, moved)
            return problem if head.broken is None else None

    def note(self, problem: Verdict) -> None:
        """Keep the finding of a check in the head until it is accepted. An earlier finding stays."""
        with turn_in(self._directory):
            key = self.key()
            head = None if key is None else self._read_head(key)
            if key is not None and isinstance(head, Head) and head.broken is None:
                self._write_head(key, replace(head, broken=_noted(problem)))

    def accept(self, table: Table, marked: bool) -> dict[str, Any] | None:
        """Go on from the log as it is now. Return what was broken, which is forgotten; None if nothing was. Raises
        OSError."""
        key, _ = self.key_for_appending(table, marked)
        with turn_in(self._directory):
            head = self._read_head(key)
            last_id, digest = table.newest()
            broken: dict[str, Any] | None
            if isinstance(head, Verdict):
                broken, base = _noted(head), Base(last_id, digest, opaque=True)
            else:
                walked = _walked(table, head, key)
                problem = _ended(table, head, key)[0] or walked
                broken = head.broken or (None if problem is None else _noted(problem))
                base = head.base if walked is None else Base(last_id, digest, opaque=True)
            self._write_head(key, Head(table.count(last_id), last_id, digest, base, None))
            return broken

    # --- checking

    def check(self, table: Table, marked: bool, whole: bool = True) -> Verdict:
        """Check every entry; whole=False: only the end of the log and the number of its entries, which is cheap."""
        try:
            return self._judged(table, marked, whole)
        except OSError as error:  # another user's file, a broken disk: a finding, so that the page does not fail
            name = Path(error.filename or self._directory).name
            return Verdict("audit_unreadable", {"file": name, "reason": error.strerror or str(error)})

    def _judged(self, table: Table, marked: bool, whole: bool) -> Verdict:
        key = self.key()
        if key is None:
            if marked:
                return Verdict("audit_no_key", {})
            last_id, _ = table.newest()
            found = first_broken_of(table, Base(), None) if whole else None
            if found is not None:
                return Verdict("audit_altered", {"entry": found})
            return Verdict("audit_whole", {"count": table.count(last_id)}) if last_id else Verdict("audit_none", {})
        head = self._read_head(key)
        if isinstance(head, Verdict):
            return head
        if head.broken is not None:
            return Verdict(head.broken["code"], head.broken["args"])
        problem, moved = _ended(table, head, key)
        if problem is None and whole:
            problem = _walked(table, head, key)
        return problem or Verdict("audit_whole", {"count": moved.count})


def _mac(key: bytes, document: dict[str, Any]) -> bytes:
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return hmac.new(key, b"audit-head" + text.encode(), hashlib.sha256).digest()


def _noted(problem: Verdict) -> dict[str, Any]:
    return {"code": problem.code, "args": problem.args, "at_ms": time.time_ns() // 1_000_000}


def _followed(table: Table, head: Head, key: bytes) -> tuple[Verdict | None, Head]:
    """Return what does not fit the head, or None, and the head moved to the last of the entries after it that
    verify."""
    at_head = table.digest_at(head.last_id) if head.last_id else ""
    if at_head is None:
        missing = head.count - table.count(head.last_id)
        if missing > 0:
            return Verdict("audit_cut", {"last": head.last_id, "missing": missing}), head
        return Verdict("audit_altered", {"entry": head.last_id}), head
    if at_head != head.digest:
        return Verdict("audit_altered", {"entry": head.last_id}), head
    count, last_id, previous = head.count, head.last_id, head.digest
    for row in table.rows(head.last_id):
        if row.digest != digest_of(row.fields, previous, key):
            return Verdict("audit_altered", {"entry": row.id}), head
        count, last_id, previous = count + 1, row.id, row.digest
    return None, replace(head, count=count, last_id=last_id, digest=previous)


def _ended(table: Table, head: Head, key: bytes) -> tuple[Verdict | None, Head]:
    """Return the same as `_followed`, and check also that there are as many entries as the head says."""
    problem, moved = _followed(table, head, key)
    if problem is None and (found := table.count(head.last_id)) != head.count:
        problem = Verdict("audit_fewer", {"count": head.count, "found": found})
    return problem, moved


def _walked(table: Table, head: Head, key: bytes) -> Verdict | None:
    found = first_broken_of(table, head.base, key)
    return None if found is None else Verdict("audit_altered", {"entry": found})


def first_broken_of(table: Table, base: Base, key: bytes | None) -> int | None:
    """Walk the whole chain; return the id of the first entry that does not fit. Up to `base` plain digests are valid,
    too; the digest of that entry must be the one in the base."""
    previous = ""
    reached = base.last_id == 0
    for row in table.rows(0):
        keyed = row.id > base.last_id
        if keyed and not reached:
            return base.last_id
        if keyed or not base.opaque:
            fits = key is not None and row.digest == digest_of(row.fields, previous, key)
            if not fits and (not keyed or key is None):
                fits = row.digest == digest_of(row.fields, previous, None)
            if not fits:
                return row.id
        if row.id == base.last_id:
            if row.digest != base.digest:
                return row.id
            reached = True
        previous = row.digest
    return None if reached else base.last_id
