"""Accounts of Apache's plain_acl.yml and conf/acl/*.yml (ACL 1.0) as users with entries. PURE.

Taken over as 5.3.3's own migration does it: an account is a user, Super if `admin`; topicPerms and groupPerms are own
entries, the default permissions Default ones. Differs: a permission that is none means DENY, as in ACL 1.0; 5.3.3 makes
it an entry that allows everything. Nothing here says which clients need no signature: all do.
Source: RocketMQ 4.9.8 `PlainPermissionManager`, 5.3.3 `AuthMigrator`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..errors import RefusedRequest
from ..named_tuple import NamedTuple
from ..protocol.names import RETRY_PREFIX
from .book import Account, check_name, check_secret
from .policies import (
    ALL,
    ALLOW,
    ANY,
    DENY,
    GROUP,
    MOST_ENTRIES,
    PUB,
    SUB,
    TOPIC,
    Entry,
    EntryError,
    checked_entry,
    with_entry,
)

#: Most accounts of one file: each that is made has a line in the audit log.
MOST_ACCOUNTS = 1000
_PERMISSIONS = {"PUB": (PUB,), "SUB": (SUB,), "PUB|SUB": (PUB, SUB), "SUB|PUB": (PUB, SUB)}
_LONGEST_TOLD = 100
#: As YAML 1.1 has them.
_YES = ("true", "yes", "on")

#: Key of a sentence in `window/sentences.py`, and its arguments.
Note = tuple[str, dict[str, str]]


class Read(NamedTuple):
    """An account. refusal: why it is not taken over; account has a name only then. notes: what is, and what is not.
    migrated: the own entries and the default ones that 5.3.3's migration makes."""

    account: Account
    refusal: str
    notes: list[Note]
    migrated: tuple[list[Entry], list[Entry]] = ([], [])


def accounts_of(content: object) -> tuple[list[Read], list[Note]]:
    """Return the accounts of a file's content, and notes about the whole. Raises ValueError if it has none."""
    accounts = content.get("accounts") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(accounts, list) or not accounts:
        raise ValueError("it has no list of accounts")
    if len(accounts) > MOST_ACCOUNTS:
        raise ValueError(f"it has {len(accounts)} accounts, and {MOST_ACCOUNTS} is the most")
    notes: list[Note] = [("import_stricter", {})]
    addresses = _texts(content.get("globalWhiteRemoteAddresses"))
    if addresses:
        notes.append(("import_global", {"addresses": _told(", ".join(addresses))}))
    read: dict[str, Read] = {}
    for number, given in enumerate(accounts):
        one = _read(given if isinstance(given, dict) else {})
        read.setdefault(one.account.name or f"#{number + 1}", one)  # as in ACL 1.0, the first one counts
    return list(read.values()), notes


def _read(given: dict[Any, Any]) -> Read:
    name, secret = (_text(given.get(key)) for key in ("accessKey", "secretKey"))
    notes: list[Note] = []
    try:
        check_name(name)
        check_secret(secret)
    except RefusedRequest as refusal:
        return Read(Account(_told(name)), refusal.remark, [])
    lines = {field: _texts(given.get(field)) for field in ("topicPerms", "groupPerms")}
    if sum(map(len, lines.values())) > MOST_ENTRIES - 2:  # two of them for the defaults
        return Read(Account(name), f"a user has at most {MOST_ENTRIES} entries", [])
    is_super = _text(given.get("admin")).lower() in _YES
    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()
    migrated: tuple[list[Entry], list[Entry]] = ([], [])
    for kind, field in ((TOPIC, "topicPerms"), (GROUP, "groupPerms")):
        for line in lines[field]:
            entry = _own_entry(kind, field, line, notes)
            if entry is None:
                continue
            if any(known.resource == entry.resource for known in custom):
                notes.append(("import_again", {"field": field, "text": _told(entry.resource)}))
            custom = with_entry(custom, entry)
            migrated[0].append(_migrated(entry, line.partition("=")[2].strip()))
    for kind, field in ((TOPIC, "defaultTopicPerm"), (GROUP, "defaultGroupPerm")):
        permission = _text(given.get(field)).strip()
        if permission:
            default += (_entry(kind, ANY, field, permission, notes),)
            migrated[1].append(_migrated(default[-1], permission))
    address = _text(given.get("whiteRemoteAddress"))
    if address:
        notes.append(("import_address", {"address": _told(address)}))
    if is_super and (custom or default):
        notes.append(("import_limited", {}))
    return Read(Account(name, (secret,), is_super, custom=custom, default=default), "", notes, migrated)


def _own_entry(kind: str, field: str, line: str, notes: list[Note]) -> Entry | None:
    name, equals, permission = (part.strip() for part in line.partition("="))
    if kind == TOPIC and name.startswith(RETRY_PREFIX):
        kind, name = GROUP, name[len(RETRY_PREFIX) :]
    reason = "it is no name=PERMISSION"
    if equals and ANY in name:
        reason = f"ACL 1.0 takes {ANY} as a letter, and here it would stand for many names"
    elif equals and "=" not in permission:
        try:
            return _entry(kind, name, field, permission, notes)
        except EntryError as error:
            reason = str(error)
    notes.append(("import_line", {"field": field, "text": _told(line), "reason": reason}))
    return None


def _entry(kind: str, name: str, field: str, permission: str, notes: list[Note]) -> Entry:
    actions = _PERMISSIONS.get(permission)
    if actions is None and permission != "DENY":
        notes.append(("import_permission", {"field": field, "text": _told(permission)}))
    return checked_entry(f"{kind}:{name}", actions or (ALL,), (), ALLOW if actions else DENY)


def _migrated(entry: Entry, permission: str) -> Entry:
    """Return an entry as 5.3.3 makes it: a permission that is none allows everything there."""
    return replace(entry, decision=ALLOW) if permission != "DENY" else entry


def _texts(value: object) -> list[str]:
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)] if value else []


def _text(value: object) -> str:
    """Return a value as text: Java takes numbers so, too. Others are none."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else ""


def _told(text: str) -> str:
    return text if len(text) <= _LONGEST_TOLD else f"{text[: _LONGEST_TOLD - 1]}…"
