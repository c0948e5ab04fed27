"""Users of the wire as pages and API show them. Their secrets are in none of these but `WireUserChange`, once."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..sentences import Sentence
from ..snapshots import Change


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry of a user. policy: "Custom", its own, or "Default". resource: as "Topic:orders*". actions: as "Pub".
    sources: addresses and networks of clients; empty: any. decision: "Allow" or "Deny"."""

    policy: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    decision: str


@dataclass(frozen=True, slots=True)
class WireUser:
    """A user who signs requests to the broker. user_type: "Super" or "Normal". secrets: how many are good, 1 or 2.
    entries: in the order in which they were made, own ones first. revision: changes with the user."""

    name: str
    user_type: str
    enabled: bool
    secrets: int
    entries: tuple[EntryRow, ...]
    revision: str


@dataclass(frozen=True, slots=True)
class WireUserChange(Change):
    """A change of a user. secret: the one that was made, which nothing shows again; None for other acts."""

    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """An entry that holds the resource. why: "decides", "outranked" (it fits, and another one decides), or
    "other_actions", "other_address" (it does not fit)."""

    entry: EntryRow
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a user may do something. passes: the request goes through, as all do in report mode. sentence: why.
    entries: those that hold the resource, in the order in which they are asked; empty for a Super user and for one that
    is disabled."""

    allowed: bool
    passes: bool
    sentence: Sentence
    entries: tuple[JudgedRow, ...]


@dataclass(frozen=True, slots=True)
class AccessRow:
    """What a user may do on one resource. actions: from everywhere. some: from some addresses only. A user without any
    has no row, nor has one that is disabled."""

    user: str
    user_type: str
    actions: tuple[str, ...]
    some: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """Requests that were refused, or in report mode would be, and still are.

    user: "" for none and for names that no user has. resource: as "Topic:orders"; "" unless an entry is missing or
    denies. actions: any one of them would do, the least first. reason: "no_user", "not_proved", "not_super", "no_entry"
    or "denied". request, address: of the last one. Times: milliseconds since 1970.
    """

    user: str
    resource: str
    actions: tuple[str, ...]
    reason: str
    request: str
    address: str
    count: int
    first_at_ms: int
    last_at_ms: int
