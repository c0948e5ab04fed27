"""Options, process, log and retention as the window returns them; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from ...broker.deleted_unread import DeletedUnread
from ...lazy_dataclass import dataclass
from ..sentences import Sentence
from ..snapshots import HIDDEN


@dataclass(frozen=True, slots=True)
class Option:
    """An option in force. hot: may be changed now. changed_here: set through API or console, over `configured`."""

    # name: upstream's. default: as text. kind: "bool", "int", "text" or "list". in_effect: False if RocketBox ignores
    # it.
    section: str
    name: str
    kind: str
    value: str
    default: str
    choices: tuple[str, ...]
    minimum: int | None
    maximum: int | None
    hot: bool
    in_effect: bool
    changed_here: bool
    configured: str


@dataclass(frozen=True, slots=True)
class Configuration:
    # Every option, by section and name. revision: changes with the values (an ETag).
    options: tuple[Option, ...]
    revision: str


@dataclass(frozen=True, slots=True)
class ClientDoor:
    """The way in for clients. access: "off", "report" or "enforce". tls: "disabled", "permissive" or "enforcing".
    certificate: the one that TLS is served with, as PEM, if it signs itself; else "", since clients then trust the
    authority that signed it."""

    access: str
    tls: str
    certificate: str


@dataclass(frozen=True, slots=True)
class SystemInfo:
    """The running server. persona: the RocketMQ version it answers as. hot_path: the code that handles sends and pulls,
    "compiled" or "pure" (Python); why_pure: why it is not compiled. namesrvs: True for each that has this broker."""

    version: str
    persona: str
    python: str
    hot_path: Literal["compiled", "pure"]
    why_pure: Sentence | None
    pid: int
    roles: tuple[str, ...]
    bind: str
    broker_name: str
    cluster_name: str
    broker_id: int
    broker_address: str | None
    namesrv_address: str | None
    advertised: str | None
    namesrvs: dict[str, bool]
    started_at_ms: int | None
    uptime_ms: int
    data_dir: str
    store_dir: str
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    log_bytes: int
    log_files: int
    flush: str
    rss_bytes: int | None
    threads: tuple[str, ...]
    open_files: int | None
    open_files_limit: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log. number: grows by one a line, for `after`."""

    number: int
    at_ms: int
    level: str
    logger: str
    thread: str
    text: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of messages. Shares are parts of the disk, 0 to 1; topic_hours: topics kept for less time.

    refusing: why sends are refused now. failure: why the last round of cleaning could not do its work.
    """

    # Times ms since the epoch, None for never. clock_ahead_ms: how far the clock was set forward, while that is not
    # trusted yet. deleted_unread: messages deleted before groups had consumed them, the oldest first.
    reserved_hours: int
    delete_when: str
    clean_share: float
    force_share: float
    refuse_share: float
    used_share: float
    refusing: str | None
    failure: str | None
    clock_ahead_ms: int
    log_begin: int
    log_end: int
    log_files: int
    earliest_ms: int | None
    deleted_log_files: int
    deleted_queue_files: int
    deleted_at_ms: int | None
    topic_hours: dict[str, int]
    deleted_unread: tuple[DeletedUnread, ...] = field(metadata=HIDDEN)
