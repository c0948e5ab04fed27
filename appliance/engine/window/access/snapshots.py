"""Users of the wire as pages and API show them. Their secrets are in none of these but `WireUserChange`, once."""

from __future__ import annotations

from dataclasses import field

from ... import config
from ...lazy_dataclass import dataclass
from ..sentences import Sentence
from ..snapshots import HIDDEN, Change

MOST_QUOTA_BYTES, MOST_QUOTA_REQUESTS = config.MOST_QUOTA_BYTES, config.MOST_QUOTA_REQUESTS
MOST_QUOTA_CONNECTIONS = config.MOST_QUOTA_CONNECTIONS


@dataclass(frozen=True, slots=True)
class EntryRow:
    """policy: "Custom", an own entry, or "Default", which counts where no own one fits. sources: empty for all."""

    # resource: as "Topic:orders*". actions: as "Pub". sources: addresses and networks of clients. decision: "Allow" or
    # "Deny".
    policy: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    decision: str


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """quota: "send_bytes", "pull_bytes" or "requests", of a second, or "connections". own: None where the default
    counts; 0 is no limit. counts: the one that counts, 0 for no limit."""

    # most: the largest that is taken.
    quota: str
    own: int | None
    counts: int
    most: int = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Limited:
    """lately: a quota took effect in the last minute. The numbers count since the start: sends and other requests that
    were delayed or refused, pulls that were held, and connections that were refused or closed; in report mode, that
    would have been."""

    # connections: open now, on all ports.
    lately: bool
    connections: int
    sends_delayed: int
    sends_refused: int
    requests_delayed: int
    requests_refused: int
    pulls_held: int
    connections_refused: int


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request that a user signed. request: its name in RocketMQ's source. address: the client's. tls: it came
    encrypted."""

    request: str
    at_ms: int
    address: str
    tls: bool


@dataclass(frozen=True, slots=True)
class WireUser:
    """user_type: "Super", who may everything, or "Normal". secrets: how many are good, 1 or 2; none is ever told
    again. requires_tls: its requests in clear are refused. in_clear: a Super user who signed in clear from another
    machine in the last day. last: the last request since the start that was not refused; what clients send by
    themselves, as heartbeats, counts only where there is nothing else. null for none."""

    # entries: in the order in which they were made, own ones first. revision: changes with the user.
    name: str
    user_type: str
    enabled: bool
    requires_tls: bool
    in_clear: bool
    secrets: int
    entries: tuple[EntryRow, ...]
    quotas: tuple[QuotaRow, ...]
    limited: Limited | None
    last: RequestRow | None
    revision: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class WireUserChange(Change):
    """secret: the one that was made, only in this answer; None for other acts."""

    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """why: "decides", "outranked" (it fits, and another one decides), "other_actions" or "other_address"."""

    entry: EntryRow
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """passes: the request goes through, as all do in report mode. entries: all that hold the resource, in the order in
    which they are asked. apache: what RocketMQ 5.3.3 would say by the same entries. over_tls: that it is refused in
    clear; None if it is refused anyway, or may come in clear."""

    # entries: empty for a Super user, and for one that is disabled or cannot come over TLS. apache_allowed: None if it
    # is not known.
    allowed: bool
    passes: bool
    sentence: Sentence
    entries: tuple[JudgedRow, ...]
    apache_allowed: bool | None
    apache: Sentence
    over_tls: Sentence | None = None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A question that RocketMQ 5.3.3 decides otherwise by the same entries. resource: as "Topic:orders", a name that
    entries hold. by, apache_by: the resource of the entry that decides; "" if none fits."""

    # actions: those of which it is so. address: the client's. apache_allowed: None if it is not known.
    resource: str
    actions: tuple[str, ...]
    address: str
    allowed: bool
    by: str
    apache_allowed: bool | None
    apache_by: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """complete: these are all questions that RocketMQ 5.3.3 decides otherwise."""

    rows: tuple[ComparedRow, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class ImportedUser:
    """An account of Apache's ACL 1.0. outcome: "made", or "new" in a preview; "exists": the user of this name stays as
    it is; "refused"."""

    name: str
    user_type: str
    outcome: str
    entries: tuple[EntryRow, ...]
    notes: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """notes: about the whole file."""

    applied: bool
    users: tuple[ImportedUser, ...]
    notes: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class AccessRow:
    """actions: from everywhere. some: from some addresses only."""

    # A user without any has no row, nor has one that is disabled.
    user: str
    user_type: str
    actions: tuple[str, ...]
    some: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """user: "" for none and for unknown names. resource: "" unless an entry is missing or denies. actions: any one of
    them would do, the least first. reason: "no_user", "not_proved", "no_tls", "not_super", "no_entry" or "denied".
    request, address: of the last one."""

    # Requests that were refused, or in report mode would be, and still are. resource: as "Topic:orders".
    user: str
    resource: str
    actions: tuple[str, ...]
    reason: str
    request: str
    address: str
    count: int
    first_at_ms: int
    last_at_ms: int
